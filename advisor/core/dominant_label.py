"""Which label rules a workload's time."""

from __future__ import annotations

from collections.abc import Mapping

# Idle for so much of the time: that is what it is, whatever the rest was.
IDLE_SHARE_MIN = 0.95


def ruling(shares: Mapping[str, float], dominant: float) -> str:
    """The label of a workload with these shares of its time; `dominant`: share of the busy time that a label needs."""
    if shares.get("idle", 0.0) >= IDLE_SHARE_MIN:
        return "idle"
    busy = {label: share for label, share in shares.items() if label != "idle"}
    total = sum(busy.values())
    if total <= 0:
        return "unknown"
    label = leading(busy)
    if busy[label] >= dominant * total:
        return label
    return "mixed" if total - busy.get("unknown", 0.0) >= 0.5 * total else "unknown"


def leading(weights: Mapping[str, float]) -> str:
    """The label of the largest weight; of those that rounding alone tells apart, the first by name."""
    most = max(weights.values())
    return min(label for label, weight in weights.items() if weight >= most - 2e-6)
