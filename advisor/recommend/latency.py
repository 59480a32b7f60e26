"""No move breaks the latency class of a service unseen: every option passes here, whatever its kind.

Predicted time at a percentile = the time measured at that percentile in the busy hours x the 90th percentile of the
predicted time ratio x what waiting adds where fewer GPUs carry the load. That is on the careful side: a first token
waits in part for the network and the tokenizer, which no GPU slows. A move that is predicted to break the class is
blocked, with both figures. Where it cannot be predicted, because no engine's histograms are scraped, a move that makes
the service slower carries one step more of risk and says what to measure.
"""

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
        """The factor that is held against limits: the 90th percentile of the prediction."""
        return self.time.p90 * self.queue


def held_to_class(r: Recommendation, base: Baseline) -> Recommendation:
    """The recommendation as the class of its service leaves it. `base`: of that service."""
    latency, fewer = base.group.lead.latency, r.action == "reduce-gpus"
    # What is blocked predicts no time; fewer of the same GPUs still are as risky as if it did.
    time = SAME_SPEED.interval if r.time_ratio is None and fewer else r.time_ratio
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
    said = unpredicted_words(latency)
    if said is not None:
        # A move is credited beyond the right-sized present, and so is its risk: fewer GPUs of today's kind are a
        # recommendation of its own, which carries what that risks.
        own = slowdown if fewer else slowdown_of(time, base, gpus, held=base.right_gpus)
        r = replace(r, risk=raised_risk(r.risk)) if own is not None and own.slower else r
        r = r if r.blocked_by else replace(r, would_change_if=(*r.would_change_if, _MEASURE))
    return r if r.blocked_by else replace(r, text=f"{r.text} {said or kept_words(latency, slowdown)}")


def slowdown_of(time: Interval, base: Baseline, gpus: int | None, held: int | None = None) -> Slowdown | None:
    """What a move does to a service's requests; None: nothing that they feel. `gpus`: that carry the load then (None:
    as many as before); `held`: that carry it before (None: as many as today).

    With requests that share a server the time of each is its time alone over (1 - load), however long they are
    (processor sharing, M/G/1). Several servers behind one queue wait less, and a batch that decodes together reads its
    weights once: both make this an upper bound.
    """
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


def _limits(latency: Latency) -> list[tuple[str, float, float, float | None]]:
    """What its class limits: the measure, the percentile (a share), the limit, and what was measured (both in seconds;
    None: nobody measured it well enough)."""
    figures = {"first_token": latency.first_token, "output_token": latency.output_token}
    return [
        (measure, share, latency.limits[key], own.at(share) if (own := figures[measure]) is not None else None)
        for key, (measure, share) in LIMITS.items()
        if key in latency.limits
    ]


def broken_limits(latency: Latency, slowdown: Slowdown) -> tuple[CodedText, ...]:
    """What of its class a move is predicted to break, with both figures. What is broken already today is broken by a
    move that makes it slower, and by no other."""
    found = []
    for measure, share, limit, measured in _limits(latency):
        predicted = 0.0 if measured is None else measured * slowdown.at_most
        if measured is None or predicted <= limit or (measured > limit and not slowdown.slower):
            continue
        fields = {
            "class": latency.label, "measure": measure, "percentile": share, "measured_seconds": measured,
            "limit_seconds": limit, "time_ratio": slowdown.time.p90,
        }  # fmt: skip
        endless = math.isinf(slowdown.queue)
        would = "grow without limit" if endless else f"reach up to {seconds_words(predicted)}"
        why = f" ({seconds_words(measured)} now, times {slowdown.at_most:.2f})"
        text = (
            f"its {MEASURES[measure]} at p{share * 100:.0f} of the busy hours would {would}, above the "
            f"{seconds_words(limit)} of its latency class {latency.label}"
            f"{', because the remaining GPUs cannot keep up' if endless else why}"
        )
        if not endless:
            fields |= {"predicted_seconds": predicted, "queue_factor": slowdown.queue}
        found.append(CodedText("latency-without-end" if endless else "latency-class-broken", text, fields))
    return tuple(found)


def kept_words(latency: Latency, slowdown: Slowdown) -> str:
    """The predicted figures within their limits, for the text of a move that keeps them; empty where none is known."""
    parts = [
        f"{MEASURES[measure]} {seconds_words(value * slowdown.at_most)} of {seconds_words(limit)} at p{share * 100:.0f}"
        for measure, share, limit, value in _limits(latency)
        if value is not None
    ]
    return f"Latency class {latency.label} is met: {', '.join(parts)}." if parts else ""


def unpredicted_words(latency: Latency) -> str | None:
    """That nobody knows whether the class holds, and what would tell; None: all that it limits was measured."""
    lacking = dict.fromkeys(MEASURES[measure] for measure, _, _, measured in _limits(latency) if measured is None)
    said = f"Risk: no prediction for its latency class {latency.label}. Scrape the engine's histogram of "
    return f"{said}{' and '.join(lacking)}." if lacking else None


def raised_risk(risk: Risk) -> Risk:
    """The risk one step higher; the highest stays."""
    return _STEPS[min(_STEPS.index(risk) + 1, len(_STEPS) - 1)]
