"""A frame's rows by the minute, for plots of a short window whose past is told by the hour."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pandas as pd

from ...agent.store import queries
from ...agent.store.queries import Query
from ...agent.store.reader import open_reader
from ...rules.errors import SkuwiseError
from ..frame import Frame
from . import resolve
from .tables import to_table
from .trust import believed_of

# Windows up to this length are told by the minute: 360 rows a GPU, as many as 15 days by the hour.
FINE_SECONDS = 6 * resolve.HOUR


def by_minute(frame: Frame, nodes: Collection[str]) -> Frame:
    """The frame with minutes in place of hours for these nodes, and rows of no other; as it is where its window is
    long, where it came from no database, or where the databases hold no minutes any more. One that cannot be read is
    passed over."""
    paths = frame.source.get("databases", ())
    if frame.window.seconds > FINE_SECONDS or not isinstance(paths, (list, tuple)):
        return frame
    families = {"gpu": resolve.GPU, "fabric": resolve.FABRIC, "host": resolve.HOST}
    found: dict[str, list[pd.DataFrame]] = {name: [] for name in families}
    for path, believed in believed_of(frame.source, [Path(str(path)) for path in paths]).items():
        own = nodes if believed is None else set(nodes).intersection(believed)
        if not own:
            continue
        try:
            with open_reader(path) as reader:
                last = reader.fetch(queries.NODES_SEEN)
                seen = {str(node): at for node, at in last if node in own and isinstance(at, float)}
                if not seen:
                    continue

                def fetch(query: Query, start: float, end: float, reader=reader) -> pd.DataFrame:  # noqa: ANN001
                    return to_table(reader.fetch(query.sql, {"start": start, "end": end}), query)

                for name, family in families.items():
                    fine = replace(family, hours=family.minutes)
                    rows = resolve.read_family(fetch, fine, frame.window, seen)
                    found[name].append(rows[rows["node"].isin(own)])
        except SkuwiseError:
            continue
    tables = {name: resolve.concat(found[name], getattr(frame, name).columns) for name in families}
    if tables["gpu"].empty:
        return frame
    keyed = {name: rows.drop_duplicates([*families[name].keys, "ts"]) for name, rows in tables.items()}
    return replace(frame, **{name: rows.sort_values("ts", ignore_index=True) for name, rows in keyed.items()})
