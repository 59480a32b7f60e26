"""Rows of a minute in place of hours, for plots of a short window of a few nodes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from ....rules.base.errors import SkuwiseError
from ...core.frame import Frame
from ...telemetry.sqlite.join import believed_of
from ...telemetry.sqlite.reader import read_frame

# Of windows up to this length: 360 rows a GPU, as many as 15 days by the hour.
SHORT_SECONDS = 6 * 3600.0


def by_minute(frame: Frame, nodes: Collection[str]) -> Frame:
    """The frame with minutes in place of hours for these nodes, and rows of no other; as it is where its window is
    long, where it is not of databases, or where these hold no minutes of the nodes."""
    files = frame.source.get("databases", ())
    if frame.window.seconds > SHORT_SECONDS or not isinstance(files, (list, tuple)):
        return frame
    believed = believed_of(frame.source, [Path(str(path)) for path in files])
    paths = [path for path, own in believed.items() if own is None or not set(own).isdisjoint(nodes)]
    try:
        fine = read_frame(paths, frame.window, resolution=60.0)
    except SkuwiseError:
        return frame
    tables = {name: getattr(fine, name) for name in ("gpu", "fabric", "host")}
    own = {name: table[table["node"].isin(nodes)].reset_index(drop=True) for name, table in tables.items()}
    return frame if own["gpu"].empty else replace(frame, **own)
