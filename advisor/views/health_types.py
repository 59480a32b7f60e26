"""How well a fleet's telemetry is heard: when each node was, and what could not be read."""

from __future__ import annotations

from dataclasses import dataclass


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
