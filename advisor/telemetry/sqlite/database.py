"""One database: the span it holds data for, and its tables of a window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from ....agent.store.reader import Reader, Rows, decoded, open_reader
from ....rules.base.errors import UsageError
from ...core.frame import Window
from .. import queries
from .. import resolution as resolve
from ..queries import Query
from ..resolution import Only
from ..tables import LAST_DAY, to_table

DatabaseReader = Reader
open_database = open_reader


def database_files(paths: Sequence[Path]) -> list[Path]:
    """The databases that `paths` name: files as they are, folders as the ``*.db`` in them. Raises UsageError."""
    files: list[Path] = []
    for path in paths:
        # A pipe or a link to nothing is left out with a note, like any other file that cannot be read.
        inside = sorted(p for p in path.glob("*.db") if not p.is_dir()) if path.is_dir() else [path]
        if not inside:
            raise UsageError(f"No *.db file in folder {path}.", "Use a folder of node databases.")
        files += inside
    if not files:
        raise UsageError("No database given.", "Use --db PATH.")
    return list(dict.fromkeys(files))


def read_rows(
    reader: DatabaseReader, query: Query, parameters: Mapping[str, float], only: Only | None = None
) -> Iterator[Rows]:
    """All rows of a query of ours, some thousand at a time. `only`: rows with these values of a column. Raises
    StoreError."""
    sql, given = query.sql, dict[str, object](parameters)
    if only is not None:
        column, values = only
        given |= {f"only{n}": value for n, value in enumerate(sorted(values))}
        sql = f"{sql} AND {column} IN ({', '.join(f':only{n}' for n in range(len(values)))})"
    reader.text_factory = bytes  # a table decodes each distinct text once
    try:
        yield from reader.parts(f"{sql}{query.grouped}", given)
    finally:
        reader.text_factory = decoded


# A port that exceeds this share of its line rate in some second of an hour was in use in it.
FABRIC_ACTIVE_LEVEL = 0.01
# What is listed of a window, beside the rows of devices.
LISTED: dict[str, Query] = {
    "nodes": queries.NODES, "gpus": queries.GPUS, "workloads": queries.WORKLOADS, "uses": queries.USES,
    "absences": queries.ABSENCES, "serving": queries.SERVING, "tokens": queries.TOKENS, "jobs": queries.SLURM_JOBS,
    "fabric_history": queries.FABRIC_HISTORY,
}  # fmt: skip
# Counts over a whole window, which short rows are not read with; and all that is read with hours of certain GPUs.
_OF_WHOLE_WINDOWS, _OF_PAST = ("serving", "fabric_history"), ("nodes", "gpus", "absences")


@dataclass(slots=True)
class Parts:
    """What was read of one file: the rows of each family, in any number of tables; the rows of what is listed; and how
    many rows of each node had impossible values. `last_seen`: of each node, Unix seconds."""

    rows: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    listed: dict[str, Rows] = field(default_factory=dict)
    last_seen: dict[str, float] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)


def span_of(reader: DatabaseReader) -> tuple[float, float] | None:
    """Start and end of all the data in a database, Unix seconds; None where it has none."""
    *cells, seen = reader.fetch(queries.DATA_SPAN)[0]
    moments = [float(cell) for cell in cells if isinstance(cell, (int, float)) and 0 < cell < LAST_DAY]
    if not moments:
        return None
    first, last = min(moments), max(moments)
    return first, min(last, float(seen)) if isinstance(seen, (int, float)) and seen > first else last


def read_database(
    reader: DatabaseReader, window: Window, refined: int, resolution: float = resolve.HOUR,
    wanted: Collection[str] | None = None,
) -> Parts:  # fmt: skip
    """The tables of one database. `refined`: hours that may be read by the minute; `resolution`: seconds of the
    coarsest rows; `wanted`: as of `read_frame`. Raises StoreError."""
    parts = Parts()
    bounds = {"start": window.start, "end": window.end, "level": FABRIC_ACTIVE_LEVEL, "step": resolution}

    def fetch(query: Query, start: float, end: float, only: Only | None = None) -> list[pd.DataFrame]:
        given = {**bounds, "start": start, "end": end}
        if only is not None and not only[1]:
            return []
        return [to_table(rows, query, parts.lost) for rows in read_rows(reader, query, given, only)]

    is_past = wanted is not None and resolution >= resolve.HOUR
    for name, query in LISTED.items():
        if name in _OF_PAST if is_past else resolution >= resolve.HOUR or name not in _OF_WHOLE_WINDOWS:
            parts.listed[name] = [row for rows in read_rows(reader, query, bounds) for row in rows]
    nodes = to_table(parts.listed["nodes"], queries.NODES)
    parts.last_seen = dict(zip(nodes["node"], nodes["last_seen"].fillna(window.end), strict=True))
    at = queries.GPUS.columns.index("gpu_uuid")
    listed = {decoded(raw) for row in parts.listed["gpus"] if isinstance(raw := row[at], bytes)}
    only = ("gpu_uuid", listed.intersection(wanted)) if wanted else None
    for name, family in resolve.families(resolution, wanted).items():
        chosen = only if name == "gpu" else None
        parts.rows[name] = resolve.read_family(fetch, family, window, parts.last_seen, resolution, only=chosen)
    if wanted is not None or resolution < resolve.HOUR:
        return parts
    ((minutes_from,),) = reader.fetch(queries.MINUTES_BEGIN)
    if isinstance(minutes_from, (int, float)):
        most, gpu = min(refined, resolve.MAX_REFINED_HOURS * len(nodes)), parts.rows["gpu"]
        uses = to_table(parts.listed["uses"], queries.USES)
        parts.rows["gpu"] = resolve.with_minutes_at_edges(fetch, gpu, uses, float(minutes_from), most)
    return parts
