"""From when to when each node is accounted for: a node exists from its first to its last telemetry."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from ...core.frame import Frame

HOUR_SECONDS = 3600.0
# A node that sends nothing for this long while others do has left: rows are up to an hour long.
LEFT_SECONDS = HOUR_SECONDS


def node_spans(frame: Frame, seen: pd.DataFrame, renamed: Mapping[str, float]) -> dict[str, tuple[float | None, float]]:
    """Node -> when it left or was renamed (Unix seconds; None: it is there at the window's end), and the hours it is
    accounted for. `seen`: when each GPU was observed, row by row; `renamed`: when nodes went on under other names."""
    first = dict(zip(frame.nodes["node"].astype(str), frame.nodes["first_seen"].astype(float), strict=True))
    edges = _edges(seen)
    left = _left(frame, edges)
    out = {}
    for name, begin in first.items():
        ends = [at[name] for at in (renamed, left) if name in at]
        end = min([*ends, frame.window.end])
        start = max(frame.window.start, begin)
        if name in edges and start > frame.window.start and edges[name]["begin"] <= start:
            start = max(start, edges[name]["since"])
        out[name] = (end if ends else None, max(end - start, 0.0) / HOUR_SECONDS)
    return out


def _edges(seen: pd.DataFrame) -> dict[str, dict[str, float]]:
    """By node, the ``begin`` of its first row and the ``ts`` of its last, and between which moments of these it was
    observed (``since``, ``until``): servers date nodes by rows of up to an hour."""
    begin, seconds = seen["ts"] - seen["interval_seconds"], seen["observed_seconds"]
    rows = seen.assign(begin=begin, since=seen["ts"] - seconds, until=begin + seconds)
    by_node = rows.groupby("node")["ts"]
    first = rows[rows["ts"] == by_node.transform("min")].groupby("node")[["begin", "since"]].min()
    last = rows[rows["ts"] == by_node.transform("max")].groupby("node")[["ts", "until"]].max()
    edges = first.join(last).to_dict("index")
    return {str(node): {str(edge): at for edge, at in row.items()} for node, row in edges.items()}


def _left(frame: Frame, edges: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Node -> its last telemetry (Unix seconds), of those that left while others stayed: where the whole source ends,
    no node left."""
    last: dict[str, float] = {}
    for name, seen in zip(frame.nodes["node"].astype(str), frame.nodes["last_seen"].astype(float), strict=True):
        if np.isfinite(seen):
            stop, until = (edges[name]["ts"], edges[name]["until"]) if name in edges else (seen, seen)
            # Within the last row the finer of the two counts.
            last[name] = min(seen, until) if stop - HOUR_SECONDS <= seen <= stop else max(seen, stop)
    whole = [frame.telemetry_span[1]] if frame.telemetry_span is not None else []
    newest = min(max([*last.values(), *whole], default=frame.window.end), frame.window.end)
    return {name: seen for name, seen in last.items() if seen < newest - LEFT_SECONDS}
