"""One database: the span it holds data for, and its tables of a window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from ....agent.store.reading import queries
from ....agent.store.reading.queries import Query
from ....rules.base.errors import SkuwiseError
from ...core.coded_text import CodedText
from ...core.frame import Window
from .. import resolution as resolve
from ..only import Only
from ..plausible import LAST_DAY, Lost
from .kept_hours import KeptHours, Look
from .opening import DatabaseReader, open_database

# A port that exceeds this share of its line rate in some second of an hour was in use in that hour (the silence of
# a fabric is judged at 1 % of the line rate).
FABRIC_ACTIVE_LEVEL = 0.01


@dataclass(slots=True)
class Parts:
    """The tables of one file or of several, before they are joined."""

    tables: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    notes: list[CodedText] = field(default_factory=list)

    def add(self, name: str, *tables: pd.DataFrame) -> None:
        self.tables.setdefault(name, []).extend(tables)

    def take(self, other: Parts) -> None:
        for name, tables in other.tables.items():
            self.tables.setdefault(name, []).extend(tables)
        self.notes.extend(other.notes)


Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Shared:
    """A large file whose hours others read, too. `own`: the part of the window whose hours are read here; `others`:
    gives for each other part its hours, or the part itself where nobody could read it."""

    own: Span
    others: Callable[[], Iterator[Parts | Span]]


def span_of(connection: DatabaseReader) -> tuple[float, float] | None:
    """Start and end of all the data in a database, Unix seconds; None where it has none."""
    spans = [row for sql in queries.DATA_SPANS for row in connection.fetch(sql, {}) if row[0] is not None]
    if not spans:
        return None
    values = [
        float(value) for row in spans for value in row if isinstance(value, (int, float)) and 0 < value < LAST_DAY
    ]
    if not values:
        return None
    first, last = min(values), max(values)
    seen = connection.fetch(queries.LAST_SEEN, {})[0][0]
    if isinstance(seen, (int, float)) and seen > first:
        last = min(last, float(seen))
    return first, last


def read_each(
    paths: Sequence[Path],
    window: Window,
    refined: int,
    *,
    read: Callable[[], None] = lambda: None,
    shared: Shared | None = None,
    kept: KeptHours | None = None,
    resolution: float = resolve.HOUR,
) -> dict[Path, Parts | SkuwiseError]:
    """Each database by itself: its tables, or why it cannot be read. `read` is called after each. `shared`: who else
    reads hours of them; `kept`: where hours are kept; `resolution`: seconds of a row."""
    told: dict[Path, Parts | SkuwiseError] = {}
    for path in paths:
        try:
            with open_database(path) as reader:
                told[path] = read_database(reader, window, refined, shared, kept, resolution=resolution)
        except SkuwiseError as error:
            told[path] = error
        read()
    return told


def read_part(path: Path, part: Span) -> Parts | SkuwiseError:
    """The hours of one database in a part of a window: GPUs, fabric and host, and what was not believed."""
    parts, lost = Parts(), Lost()
    try:
        with open_database(path) as reader:
            bounds = {"start": part[0], "end": part[1]}
            for name, query in HOURS.items():
                parts.add(name, *reader.tables(query, bounds, lost))
    except SkuwiseError as error:
        return error
    parts.add("lost", lost.table())
    return parts


HOURS = {"gpu": resolve.GPU.hours, "fabric": resolve.FABRIC.hours, "host": resolve.HOST.hours}


def _hours_of(
    connection: DatabaseReader, spans: Sequence[Span], shared: Shared | None, look: Look | None, lost: Lost
) -> Mapping[Query, Sequence[pd.DataFrame]]:
    """All hours of the window and, where they are kept, of whole days around it; by query. `spans`: to be read here."""
    own = Lost()
    found: dict[str, list[pd.DataFrame]] = {name: [] for name in HOURS}
    is_plain = True
    for span in spans:
        for name, query in HOURS.items():
            rows = connection.rollup(query, _bounds(span), own)
            is_plain &= rows is not None
            found[name] += [connection.table(query, _bounds(span), own)] if rows is None else rows
    for told in shared.others() if shared is not None else ():
        for name, query in HOURS.items():
            if isinstance(told, Parts):
                found[name] += told.tables.get(name, [])
            else:
                found[name] += connection.tables(query, _bounds(told), own)
        for table in told.tables.get("lost", []) if isinstance(told, Parts) else ():
            own.take(Lost.of(table))
    # What was not believed is to be said at each look.
    if look is not None and is_plain and not own.rows and not own.values:
        look.keep(found)
    lost.take(own)
    kept = {} if look is None else look.tables
    return {query: [*kept.get(name, ()), *found[name]] for name, query in HOURS.items()}


def _bounds(span: Span) -> dict[str, float]:
    return {"start": span[0], "end": span[1]}


def read_database(
    connection: DatabaseReader,
    window: Window,
    refined: int,
    shared: Shared | None = None,
    kept: KeptHours | None = None,
    *,
    resolution: float = resolve.HOUR,
) -> Parts:
    """The tables of one database. `refined`: hours that may be read by the minute; `shared`: who else reads its hours;
    `kept`: where hours are kept; `resolution`: seconds of a row, below an hour without counts over the whole window.
    Raises StoreError."""
    parts = Parts()
    bounds = {"start": window.start, "end": window.end}
    lost = Lost()

    def fetch(query: Query, start: float, end: float, *, only: Only | None = None) -> Sequence[pd.DataFrame]:
        if query in hours:
            return hours[query]
        return connection.tables(query, {"start": start, "end": end}, lost, only=only)

    def listing(query: Query, parameters: dict[str, float]) -> pd.DataFrame:
        return connection.table(query, parameters, lost)

    look = None if kept is None else kept.look(connection, (window.start, window.end))
    if look is not None and look.good:
        shared = None  # little is left to read
    whole = [(window.start, window.end)] if look is None else look.spans()
    spans = whole if shared is None else [shared.own]
    is_short = resolution < resolve.HOUR
    hours = {} if is_short else _hours_of(connection, spans, shared, look, lost)
    nodes = listing(queries.NODES, {})
    # The agent always writes both; where somebody took one out, the window is all that is known.
    nodes = nodes.fillna({"first_seen": window.start, "last_seen": window.end})
    last_seen: dict[str, float] = dict(zip(nodes["node"], nodes["last_seen"], strict=True))
    uses = listing(queries.USES, bounds)
    gpu: Sequence[pd.DataFrame] = resolve.read_family(fetch, resolve.GPU, window, last_seen, resolution)
    begin = connection.fetch(queries.MINUTES_BEGIN, {})[0][0]
    minutes_from = float(begin) if isinstance(begin, (int, float)) and not is_short else None
    most = min(refined, resolve.MAX_REFINED_HOURS * len(nodes))
    found, note = resolve.refinement(fetch, gpu, uses, window, minutes_from, most=most)
    if found is not None:
        gpu = resolve.with_minutes(gpu, [found])
    if note:
        parts.notes.append(note)
    parts.add("gpu", *gpu)
    parts.add("fabric", *resolve.read_family(fetch, resolve.FABRIC, window, last_seen, resolution))
    parts.add("host", *resolve.read_family(fetch, resolve.HOST, window, last_seen, resolution))
    parts.add("nodes", nodes)
    parts.add("gpus", listing(queries.GPUS, bounds))
    parts.add("workloads", listing(queries.WORKLOADS, bounds))
    parts.add("uses", uses)
    parts.add("absences", listing(queries.ABSENCES, bounds))
    parts.add("tokens", listing(queries.tokens(int(resolution)), bounds))
    parts.add("jobs", listing(queries.SLURM_JOBS, bounds))
    if not is_short:
        parts.add("serving", listing(queries.SERVING, bounds))
        parts.add("fabric_history", listing(queries.FABRIC_HISTORY, _history(window)))
    parts.add("lost", lost.table())
    return parts


def _history(window: Window) -> dict[str, float]:
    return {"level": FABRIC_ACTIVE_LEVEL, "end": window.end}
