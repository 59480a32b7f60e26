"""The waste of a window over time, by rule, from the findings and the telemetry that they are about.

A finding is one figure for the window. Its history is that figure, spread over the hours in which its GPUs were
observed: of GPUs without use over the hours without activity, of the other rules evenly over its workload's hours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...advisor.core.advice_types import Advice, Finding
from ...advisor.show.titles import is_waste, waste_of

if TYPE_CHECKING:
    import numpy as np

    from ...advisor.core.frame import Frame


@dataclass(frozen=True, slots=True)
class RuleWaste:
    """What one rule found: `total` of the window, `values` by the hour; `total` is their sum."""

    rule: str
    total: float
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class WasteHistory:
    """`start`: of the first hour (Unix seconds). `priced`: values are US dollars, else GPU-hours. `rules`: the largest
    first. `unplaced`: waste of findings whose GPUs have no row in the window, so that it is not in `rules`."""

    start: float
    priced: bool
    rules: tuple[RuleWaste, ...]
    unplaced: float = 0.0


_HOUR = 3600.0
_ACTIVE = 0.02  # mean SM activity of an hour from which on the GPU is in use
_IDLE_KINDS = ("unused", "surplus")


def waste_history(frame: Frame, advice: Advice) -> WasteHistory:
    """The waste that the findings of `advice` claim, over the window of `frame`, which they were judged in."""
    import numpy as np  # noqa: PLC0415 - not at the start

    claims = [f for f in advice.findings if is_waste(f.rule)]
    priced = bool(claims) and all(f.cost_usd is not None for f in claims)
    hours = max(math.ceil(frame.window.seconds / _HOUR), 1)
    rows = frame.gpu
    if not len(rows):
        return WasteHistory(frame.window.start, priced, (), sum(_amount(f, priced) for f in claims))
    places = {(str(node), str(gpu)): at for (node, gpu), at in rows.groupby(["node", "gpu_uuid"]).indices.items()}  # type: ignore[misc] - a key for two columns
    ends, seconds = rows["ts"].to_numpy(float), rows["interval_seconds"].to_numpy(float)
    active = rows["sm_active_mean"].to_numpy(float) if "sm_active_mean" in rows else np.full(len(rows), np.nan)
    bucket = np.clip(((ends - 1.0 - frame.window.start) // _HOUR).astype(int), 0, hours - 1)
    spans = {w.id: (w.start, w.end) for w in advice.workloads}
    sums: dict[str, np.ndarray] = {}
    unplaced = 0.0
    for f in claims:
        amount = _amount(f, priced)
        at = _rows(f, places)
        if not len(at):
            unplaced += amount
            continue
        start, end = spans.get(f.workload or "", (-math.inf, math.inf))
        weight = seconds[at] * ((ends[at] > start) & (ends[at] - seconds[at] < end))
        if waste_of(f.rule) in _IDLE_KINDS:
            resting = weight * ~(active[at] > _ACTIVE)
            weight = resting if resting.sum() > 0 else weight
        whole = weight.sum()
        if whole <= 0:
            unplaced += amount
            continue
        found = sums.setdefault(f.rule, np.zeros(hours))
        np.add.at(found, bucket[at], weight / whole * amount)
    rules = (RuleWaste(rule, float(values.sum()), tuple(values.tolist())) for rule, values in sums.items())
    ordered = tuple(sorted((one for one in rules if one.total > 0), key=lambda one: (-one.total, one.rule)))
    return WasteHistory(frame.window.start, priced, ordered, unplaced)


def _amount(f: Finding, priced: bool) -> float:
    return (f.cost_usd if priced else f.gpu_hours) or 0.0


def _rows(f: Finding, places: Mapping[tuple[str, str], Any]) -> np.ndarray:
    """The rows of a finding's GPUs."""
    import numpy as np  # noqa: PLC0415

    nodes = f.nodes or ((f.node,) if f.node else ())
    own = [places[node, gpu] for node in nodes for gpu in f.gpus if (node, gpu) in places]
    return np.concatenate(own) if own else np.empty(0, dtype=int)
