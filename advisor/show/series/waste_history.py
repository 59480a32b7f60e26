"""The waste of a window over time, by rule, from the findings and the telemetry they rest on.

A finding is one figure for the window. Its history is that figure, spread over the hours in which its GPUs were
observed: of GPUs without use over the hours without activity, of the other rules evenly over its workload's hours.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from ...core.advice_types import Advice, Finding
from ..titles import fact_of, is_waste, waste_of

if TYPE_CHECKING:
    import numpy as np

    from ...core.frame import Frame

_HOUR = 3600.0
_ACTIVE = 0.02  # mean SM activity of an hour from which on the GPU is in use


class RuleWaste(NamedTuple):
    """The waste of one rule's findings: `total` of the window, `values` by the hour. `rule`: its fact in words."""

    rule: str
    total: float
    values: tuple[float, ...]


class WasteHistory(NamedTuple):
    """`start`: of the first hour (Unix seconds). `priced`: values are US dollars, else GPU-hours. `rules`: the largest
    first; without findings whose GPUs have no row in the window."""

    start: float
    priced: bool
    rules: tuple[RuleWaste, ...]


def waste_history(frame: Frame, advice: Advice) -> WasteHistory:
    """The waste in the findings of `advice` over the window of `frame`, in which they were judged."""
    import numpy as np  # noqa: PLC0415 - not at the start

    claims = [f for f in advice.findings if is_waste(f.rule)]
    priced = bool(claims) and all(f.cost_usd is not None for f in claims)
    hours, rows = max(math.ceil(frame.window.seconds / _HOUR), 1), frame.gpu
    ends, seconds = rows["ts"].to_numpy(float), rows["interval_seconds"].to_numpy(float)
    active = rows["sm_active_mean"].to_numpy(float) > _ACTIVE
    hour = np.clip(((ends - 1.0 - frame.window.start) // _HOUR).astype(int), 0, hours - 1)
    by_gpu = rows.groupby(["node", "gpu_uuid"]).indices if len(rows) else {}
    spans = {w.id: (w.start, w.end) for w in advice.workloads}
    sums: dict[str, np.ndarray] = {}

    def weights(f: Finding, at: np.ndarray) -> np.ndarray:
        """Seconds of each row that count for a finding."""
        start, end = spans.get(f.workload or "", (-math.inf, math.inf))
        held = seconds[at] * ((ends[at] > start) & (ends[at] - seconds[at] < end))
        unused = held * ~active[at]
        return unused if waste_of(f.rule) in ("unused", "surplus") and unused.sum() > 0 else held

    for f in claims:
        amount = (f.cost_usd if priced else f.gpu_hours) or 0.0
        nodes = f.nodes or ((f.node,) if f.node else ())
        places = [by_gpu[node, gpu] for node in nodes for gpu in f.gpus if (node, gpu) in by_gpu]  # type: ignore[index]
        at = np.concatenate(places) if places else np.empty(0, dtype=int)
        weight = weights(f, at)
        if weight.sum() > 0:
            np.add.at(sums.setdefault(f.rule, np.zeros(hours)), hour[at], weight / weight.sum() * amount)
    rules = [RuleWaste(fact_of(rule), float(values.sum()), tuple(values.tolist())) for rule, values in sums.items()]
    largest = sorted((rule for rule in rules if rule.total > 0), key=lambda rule: (-rule.total, rule.rule))
    return WasteHistory(frame.window.start, priced, tuple(largest))
