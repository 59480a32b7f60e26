"""The health of the telemetry itself: when each node was last heard, and what it could not read."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from ...core.frame import Frame
from ...core.scalars import known, text, whole


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """`last_seen`: Unix seconds, None where the road does not tell. `lacks`: absences that still last."""

    node: str
    node_sku: str | None
    gpu_count: int | None
    last_seen: float | None
    lacks: int


@dataclass(frozen=True, slots=True)
class Lack:
    """What could not be read for one reason, on all the devices where it is so.

    `since`: the earliest, Unix seconds; None where the road does not tell.
    """

    scope: str
    metric: str
    reason: str
    detail: str
    remedy: str
    nodes: tuple[str, ...]
    devices: int
    since: float | None


@dataclass(frozen=True, slots=True)
class Health:
    nodes: tuple[NodeHealth, ...]
    lacks: tuple[Lack, ...]


def health_of(frame: Frame) -> Health:
    """What lasts at the window's end; what ended before is no lack any more. The most widespread comes first."""
    lasting = frame.absences[frame.absences["until"].isna()] if not frame.absences.empty else frame.absences
    counts = lasting.groupby("node").size() if not lasting.empty else pd.Series(dtype=int)
    nodes = [
        NodeHealth(
            str(row["node"]), text(row["node_sku"]), whole(row["gpu_count"]), known(row["last_seen"]),
            int(counts.get(row["node"], 0)),
        )
        for row in frame.nodes.to_dict("records")
    ]  # fmt: skip
    return Health(tuple(nodes), _lacks(lasting))


def _lacks(lasting: pd.DataFrame) -> tuple[Lack, ...]:
    if lasting.empty:
        return ()
    what = ["scope", "metric", "reason", "remedy"]
    found = []
    for key, rows in lasting.fillna(dict.fromkeys((*what, "detail"), "")).groupby(what, sort=False):
        scope, metric, reason, remedy = (str(part) for part in key)  # type: ignore[union-attr] - a tuple for a list
        nodes = tuple(sorted(set(map(str, rows["node"]))))
        found.append(
            Lack(
                scope, metric, reason, str(rows["detail"].iloc[0]), remedy, nodes, len(rows), known(rows["since"].min())
            )
        )
    return tuple(sorted(found, key=lambda lack: (-lack.devices, lack.scope, lack.metric, lack.reason)))
