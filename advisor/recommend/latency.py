"""No move breaks the latency class of a service unseen. Predicted time at a percentile = the time measured there in the
busy hours x the 90th percentile of the predicted ratio x what waiting adds. Without histograms, a move that makes the
service slower carries a step more of risk."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...rules.policy.latency_classes import LIMITS
from ..core.advice_types import Interval, Recommendation, Risk
from ..core.coded_text import CodedText, all_of, coded
from ..core.formatting import MEASURES, seconds_words
from ..core.verdict_types import Latency
from .fleet import Baseline
from .move import SAME_SPEED

# A move is slower from this median on: less is within what two runs of the same differ by.
SLOWER_FROM = 1.02
_STEPS: tuple[Risk, ...] = ("very-low", "low", "medium", "high")
# Their time ratio is of other work (a swap's is the training's), or of none.
_OF_OTHERS = frozenset({"swap-placement", "release", "schedule-off", "fix-first"})
# Of these the count is one of GPUs that carry the load; of slices it is the GPUs that hold them.
_COUNTED = frozenset({"move-sku", "reduce-gpus"})


@dataclass(frozen=True, slots=True)
class Slowdown:
    """What a move does to the time of a request. `time`: predicted time ratio of the work alone; `queue`: by how much
    waiting lengthens it (1: the load per GPU stays; infinite: they cannot keep up)."""

    time: Interval
    queue: float = 1.0

    @property
    def slower(self) -> bool:
        return self.time.p50 * self.queue > SLOWER_FROM

    @property
    def at_most(self) -> float:
        """The factor compared with limits: the 90th percentile of the prediction."""
        return self.time.p90 * self.queue


def held_to_class(r: Recommendation, base: Baseline) -> Recommendation:
    """The recommendation as the class of its service leaves it. `base`: of that service."""
    latency, fewer = base.group.lead.latency, r.action == "reduce-gpus"
    # What is blocked predicts no time; fewer of the same GPUs still are as risky as if it did.
    time = SAME_SPEED.interval if r.time_ratio is None and fewer else r.time_ratio
    if r.action in _OF_OTHERS or time is None or latency is None or not latency.limits:
        return r
    gpus = r.target.gpu_count if r.action in _COUNTED else None
    if (slowdown := slowdown_of(time, base, gpus)) is None:
        return r
    broken, said, measured = held_against(latency, slowdown)
    if broken:
        text = r.text if r.blocked_by else f"{r.text} Not recommended: {all_of(broken).text}."
        return replace(r, blocked_by=(*r.blocked_by, *broken), text=text)
    if not slowdown.slower:
        return r
    if not measured:
        # A move is credited beyond the right-sized present, and so is its risk; fewer GPUs carry their own.
        own_slowdown = slowdown if fewer else slowdown_of(time, base, gpus, held=base.right_gpus)
        r = replace(r, risk=raised_risk(r.risk)) if own_slowdown is not None and own_slowdown.slower else r
        missing = "the latency of its requests is not measured; scrape the engine's histograms of time to first "
        missing += "token and time per token first (serving_endpoints of the agent, or Prometheus)"
        measure = () if r.blocked_by else (coded("latency-not-measured", missing),)
        r = replace(r, would_change_if=(*r.would_change_if, *measure))
    return r if r.blocked_by else replace(r, text=f"{r.text} {said}")


def slowdown_of(time: Interval, base: Baseline, gpus: int | None, held: int | None = None) -> Slowdown | None:
    """What a move does to a service's requests; None: nothing that they feel. `gpus`: that carry the load then (None:
    as many as before); `held`: before (None: as many as today). A request takes its time alone over (1 - load)
    (processor sharing, M/G/1): an upper bound for several servers behind one queue."""
    same = time == SAME_SPEED.interval
    # The same GPU differs from itself by chance alone, which is in what was measured already.
    ratio = Interval(1.0, 1.0, 1.0) if same else time
    queue, before = 1.0, base.gpus if held is None else held
    if gpus is not None and 0 < gpus < before and base.demand is not None:
        load = base.demand * base.gpus
        now, then = load / before, load * ratio.p50 / gpus
        if then >= 1.0:
            queue = math.inf
        elif now < 1.0:
            queue = max((1.0 - now) / (1.0 - then), 1.0)
    return None if same and queue == 1.0 else Slowdown(ratio, queue)


def held_against(latency: Latency, slowdown: Slowdown) -> tuple[tuple[CodedText, ...], str, bool]:
    """What of its class a move is predicted to break (what is broken today only if it makes that slower), a sentence of
    how it is kept or what would show it, and whether all that the class limits was measured."""
    broken, kept, lacking, end = list[CodedText](), list[str](), list[str](), math.isinf(slowdown.queue)
    figures = {"first_token": latency.first_token, "output_token": latency.output_token}
    for key, (measure, share) in LIMITS.items():
        latency_figures, limit, name = figures[measure], latency.limits.get(key), MEASURES[measure]
        measured = latency_figures.at(share) if latency_figures is not None else None
        if limit is None or measured is None:
            lacking += [name] if limit is not None and name not in lacking else []
            continue
        predicted = measured * slowdown.at_most
        if predicted <= limit or (measured > limit and not slowdown.slower):
            kept.append(f"{name} {seconds_words(predicted)} of {seconds_words(limit)} at p{share * 100:.0f}")
            continue
        fields = {
            "class": latency.label, "measure": measure, "percentile": share, "measured_seconds": measured,
            "limit_seconds": limit, "time_ratio": slowdown.time.p90,
        }  # fmt: skip
        would, why = "grow without limit", ", because the remaining GPUs cannot keep up"
        if not end:
            would = f"reach up to {seconds_words(predicted)}"
            why = f" ({seconds_words(measured)} now, times {slowdown.at_most:.2f})"
            fields |= {"predicted_seconds": predicted, "queue_factor": slowdown.queue}
        text = (
            f"its {name} at p{share * 100:.0f} of the busy hours would {would}, above the {seconds_words(limit)} of "
            f"its latency class {latency.label}{why}"
        )
        broken.append(CodedText("latency-without-end" if end else "latency-class-broken", text, fields))
    said = f"Latency class {latency.label} is met: {', '.join(kept)}." if kept else ""
    if lacking:
        said = f"Risk: no prediction for its latency class {latency.label}. Scrape the engine's histogram of "
        said += f"{' and '.join(lacking)}."
    return tuple(broken), said, not lacking


def raised_risk(risk: Risk) -> Risk:
    """The risk one step higher; the highest stays."""
    return _STEPS[min(_STEPS.index(risk) + 1, len(_STEPS) - 1)]
