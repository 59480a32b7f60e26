"""No move breaks the latency class of a service unseen: every option passes here, whatever its kind.

A move that is predicted to break it is blocked, with both figures. Where it cannot be predicted, because no engine's
histograms are scraped, a move that makes the service slower carries one step more of risk and says what to measure.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.advice_types import Interval, Recommendation, Risk
from ..core.coded_text import all_of, coded
from ..core.verdict_types import Latency
from .fleet_context import SAME_SPEED, GroupContext
from .latency_class import Slowdown, broken_limits, kept_words, not_measured, queue_factor
from .move_context import Baseline, DrawnRecommendation
from .owner import raised_risk

_STEPS: tuple[Risk, ...] = ("very-low", "low", "medium", "high")
# Their time ratio is of other work, or of none: a swap's is that of the training that gains by it, what is released or
# switched off serves nobody then, and mending slows nothing down.
_OF_OTHERS = frozenset({"swap-placement", "release", "schedule-off", "fix-first"})
# Of these the count is one of GPUs that carry the load; of slices it is the GPUs that hold them.
_COUNTED = frozenset({"move-sku", "reduce-gpus"})
_MEASURE = coded(
    "latency-not-measured",
    "the latency of its requests is not measured; scrape the engine's histograms of time to first token and "
    "time per token first (serving_endpoints of the agent, or Prometheus)",
)


def held_to_class(r: Recommendation, base: Baseline) -> Recommendation:
    """The recommendation as the class of its service leaves it. `base`: of that service."""
    latency = base.group.lead.latency
    # What is blocked predicts no time; fewer of the same GPUs still are as risky as if it did.
    time = SAME_SPEED.interval if r.time_ratio is None and r.action == "reduce-gpus" else r.time_ratio
    if r.action in _OF_OTHERS or time is None or latency is None or not latency.limits:
        return r
    gpus = r.target.gpu_count if r.action in _COUNTED else None
    slowdown = slowdown_of(time, base, gpus)
    if slowdown is None:
        return r
    broken = broken_limits(latency, slowdown)
    if broken:
        text = r.text if r.blocked_by else f"{r.text} Not recommended: {all_of(broken).text}."
        return replace(r, blocked_by=(*r.blocked_by, *broken), text=text)
    if not slowdown.slower:
        return r
    if not not_measured(latency):
        return r if r.blocked_by else replace(r, text=f"{r.text} {kept_words(latency, slowdown)}")
    # A move is credited beyond the right-sized present, and so is its risk: fewer GPUs of today's kind are a
    # recommendation of its own, which carries what that risks.
    own = slowdown if r.action == "reduce-gpus" else slowdown_of(time, base, gpus, held=base.right_gpus)
    risk = raised_risk(r.risk) if own is not None and own.slower else r.risk
    if r.blocked_by:
        return replace(r, risk=risk)
    return replace(
        r, risk=risk, would_change_if=(*r.would_change_if, _MEASURE), text=f"{r.text} {unpredicted_words(latency)}"
    )


def unpredicted_words(latency: Latency) -> str:
    """That nobody knows whether the class holds, and what would tell."""
    return (
        f"Risk: no prediction for its latency class {latency.label}. Scrape the engine's histogram of "
        f"{' and '.join(not_measured(latency))}."
    )


def slowdown_of(time: Interval, base: Baseline, gpus: int | None, held: int | None = None) -> Slowdown | None:
    """What a move does to a service's requests; None: nothing that they feel. `gpus`: that carry the load then (None:
    as many as before); `held`: that carry it before (None: as many as today)."""
    same = time == SAME_SPEED.interval
    # The same GPU differs from itself by chance alone, which is in what was measured already.
    ratio = Interval(1.0, 1.0, 1.0) if same else time
    queue, before = 1.0, base.gpus if held is None else held
    if gpus is not None and 0 < gpus < before and base.demand is not None:
        load = base.demand * base.gpus
        queue = queue_factor(load / before, load * ratio.p50 / gpus)
    return None if same and queue == 1.0 else Slowdown(ratio, queue)


def raised_risk(risk: Risk) -> Risk:
    """The risk one step higher; the highest stays."""
    return _STEPS[min(_STEPS.index(risk) + 1, len(_STEPS) - 1)]
