"""A frame's rows by the minute, for plots of a short window whose past is told by the hour."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pandas as pd

from ...agent.store.reading import queries
from ...agent.store.reading.queries import Query
from ...rules.base.errors import SkuwiseError
from ..core.frame import Frame
from . import resolution as resolve
from .resolution import Only
from .sqlite.join import believed_of
from .sqlite.opening import DatabaseReader, open_database, read_tables

# Windows up to this length are told by the minute: 360 rows a GPU, as many as 15 days by the hour.
FINE_SECONDS = 6 * resolve.HOUR
_FAMILIES = {"gpu": resolve.GPU, "fabric": resolve.FABRIC, "host": resolve.HOST}


def by_minute(frame: Frame, nodes: Collection[str]) -> Frame:
    """The frame with minutes in place of hours for these nodes, and rows of no other; as it is where its window is
    long, where it came from no database, or where the databases hold no minutes any more. One that cannot be read is
    passed over."""
    paths = frame.source.get("databases", ())
    if frame.window.seconds > FINE_SECONDS or not isinstance(paths, (list, tuple)):
        return frame
    found: dict[str, list[pd.DataFrame]] = {name: [] for name in _FAMILIES}
    for path, believed in believed_of(frame.source, [Path(str(path)) for path in paths]).items():
        own = nodes if believed is None else set(nodes).intersection(believed)
        if not own:
            continue
        with suppress(SkuwiseError), open_database(path) as reader:
            for name, rows in _fine(reader, frame, own).items():
                found[name] += [part[part["node"].isin(own)] for part in rows]
    tables = {name: resolve.concat(found[name], getattr(frame, name).columns) for name in _FAMILIES}
    if tables["gpu"].empty:
        return frame
    keyed = {name: rows.drop_duplicates([*_FAMILIES[name].keys, "ts"]) for name, rows in tables.items()}
    return replace(frame, **{name: rows.sort_values("ts", ignore_index=True) for name, rows in keyed.items()})


def _fine(reader: DatabaseReader, frame: Frame, nodes: Collection[str]) -> dict[str, list[pd.DataFrame]]:
    """Minutes of each family; none where the database knows none of the nodes."""
    last = reader.fetch(queries.NODES_SEEN)
    seen = {str(node): at for node, at in last if node in nodes and isinstance(at, float)}
    if not seen:
        return {}

    def fetch(query: Query, start: float, end: float, only: Only | None = None) -> list[pd.DataFrame]:
        return read_tables(reader, query, {"start": start, "end": end}, only=only)

    return {
        name: resolve.read_family(fetch, family, frame.window, seen, resolve.MINUTE)
        for name, family in _FAMILIES.items()
    }
