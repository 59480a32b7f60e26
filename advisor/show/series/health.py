"""The health of the telemetry: the newest data of each node, and the metrics that are missing."""

from collections import Counter
from dataclasses import dataclass

from ...core.frame import Frame
from ...core.scalars import known, records, text, whole


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """`last_seen`: Unix seconds, None: unknown. `lacks`: absences that still last."""

    node: str
    node_sku: str | None
    gpu_count: int | None
    last_seen: float | None
    lacks: int


@dataclass(frozen=True, slots=True)
class Lack:
    """What cannot be read for one reason, on all devices where it is so. `since`: Unix seconds; None: unknown."""

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
    """What is missing at the window's end, the most widespread first."""
    absences = records(frame.absences[frame.absences["until"].isna()]) if not frame.absences.empty else []
    same: dict[tuple[str, ...], list[dict]] = {}
    for row in absences:
        key = tuple(text(row[name]) or "" for name in ("scope", "metric", "reason", "remedy"))
        same.setdefault(key, []).append(dict(row))
    counts = Counter(row["node"] for row in absences)
    lacks = []
    for (scope, metric, reason, remedy), rows in same.items():
        nodes = tuple(sorted({str(row["node"]) for row in rows}))
        since = min((at for row in rows if (at := known(row["since"])) is not None), default=None)
        lacks.append(Lack(scope, metric, reason, text(rows[0]["detail"]) or "", remedy, nodes, len(rows), since))
    nodes = tuple(
        NodeHealth(
            str(row["node"]), text(row["node_sku"]), whole(row["gpu_count"]), known(row["last_seen"]),
            counts[row["node"]],
        )
        for row in records(frame.nodes)
    )  # fmt: skip
    return Health(nodes, tuple(sorted(lacks, key=lambda lack: (-lack.devices, lack.scope, lack.metric, lack.reason))))
