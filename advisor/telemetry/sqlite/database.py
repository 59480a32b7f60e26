"""One database: the span it holds data for, and its tables of a window."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from ....agent.store.reading import queries
from ....agent.store.reading.queries import Query
from ...core.coded_text import CodedText
from ...core.frame import Window
from .. import resolution as resolve
from ..ranges import LAST_DAY, Lost
from ..resolution import Only
from ..tables import empty_table
from .open import DatabaseReader, read_table, read_tables

# A port that exceeds this share of its line rate in some second of an hour was in use in it.
FABRIC_ACTIVE_LEVEL = 0.01
# What is listed of a window, beside the rows of devices.
LISTED: dict[str, Query] = {
    "nodes": queries.NODES, "gpus": queries.GPUS, "workloads": queries.WORKLOADS, "uses": queries.USES,
    "absences": queries.ABSENCES, "serving": queries.SERVING, "tokens": queries.TOKENS, "jobs": queries.SLURM_JOBS,
    "fabric_history": queries.FABRIC_HISTORY,
}  # fmt: skip
# Counts over a whole window, which rows of minutes are not read with.
_OF_WHOLE_WINDOWS = ("serving", "fabric_history")


@dataclass(slots=True)
class Parts:
    """The tables of one file, before they are joined with others'. `rows`: of each family, in any number of tables;
    `lost`: what of it was not believed."""

    rows: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    notes: list[CodedText] = field(default_factory=list)
    lost: Lost = field(default_factory=Lost)


def span_of(reader: DatabaseReader) -> tuple[float, float] | None:
    """Start and end of all the data in a database, Unix seconds; None where it has none."""
    *cells, seen = reader.fetch(queries.DATA_SPAN)[0]
    known = [float(cell) for cell in cells if isinstance(cell, (int, float)) and 0 < cell < LAST_DAY]
    if not known:
        return None
    first, last = min(known), max(known)
    return first, min(last, float(seen)) if isinstance(seen, (int, float)) and seen > first else last


def minutes_from(reader: DatabaseReader) -> float | None:
    """Where the minutes of a database begin, Unix seconds; None where it has none."""
    begin = reader.fetch(queries.MINUTES_BEGIN)[0][0]
    return float(begin) if isinstance(begin, (int, float)) else None


def read_database(reader: DatabaseReader, window: Window, refined: int, resolution: float = resolve.HOUR) -> Parts:
    """The tables of one database. `refined`: hours that may be read by the minute; `resolution`: seconds of the
    coarsest rows. Raises StoreError."""
    parts = Parts()
    is_short = resolution < resolve.HOUR
    bounds = {"start": window.start, "end": window.end, "level": FABRIC_ACTIVE_LEVEL, "step": resolution}

    def fetch(query: Query, start: float, end: float, only: Only | None = None) -> list[pd.DataFrame]:
        return read_tables(reader, query, {"start": start, "end": end}, parts.lost, only)

    for name, query in LISTED.items():
        is_left_out = is_short and name in _OF_WHOLE_WINDOWS
        parts.tables[name] = (
            empty_table(query.columns) if is_left_out else read_table(reader, query, bounds, parts.lost)
        )
    # The agent always writes both; where somebody took one out, the window is all that is known.
    nodes = parts.tables["nodes"].fillna({"first_seen": window.start, "last_seen": window.end})
    parts.tables["nodes"] = nodes
    last_seen = dict(zip(nodes["node"], nodes["last_seen"], strict=True))
    for name, family in resolve.FAMILIES.items():
        parts.rows[name] = resolve.read_family(fetch, family, window, last_seen, resolution)
    if not is_short:
        most, gpu = min(refined, resolve.MAX_REFINED_HOURS * len(nodes)), parts.rows["gpu"]
        found, note = resolve.refinement(fetch, gpu, parts.tables["uses"], window, minutes_from(reader), most=most)
        parts.rows["gpu"] = gpu if found is None else resolve.with_minutes(gpu, found)
        parts.notes += [note] if note else []
    return parts
