"""Whether a service keeps its latency class after a move: measured times, times what the move adds.

Predicted time at a percentile = the time measured at that percentile in the busy hours x the 90th percentile of the
predicted time ratio x what waiting adds where fewer GPUs carry the load. That is on the careful side: a first token
waits in part for the network and the tokenizer, which no GPU slows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...rules.policy.latency_classes import LIMITS
from ..core.advice_types import Interval
from ..core.coded_text import CodedText
from ..core.latency_words import MEASURES, seconds_words
from ..core.verdict_types import Latency, LatencyFigures

# A move is slower from this median on: less is within what two runs of the same differ by.
SLOWER_FROM = 1.02


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


def queue_factor(load_now: float, load_then: float) -> float:
    """How much longer requests take where each GPU carries `load_then` instead of `load_now` (shares of what it
    sustains).

    With requests that share a server the time of each is its time alone over (1 - load), however long they are
    (processor sharing, M/G/1). Several servers behind one queue wait less, and a batch that decodes together reads its
    weights once: both make this an upper bound. Never below 1.
    """
    if load_then >= 1.0:
        return math.inf
    return max((1.0 - load_now) / (1.0 - load_then), 1.0) if load_now < 1.0 else 1.0


def held_limits(latency: Latency) -> tuple[tuple[str, LatencyFigures | None, float, float], ...]:
    """What its class limits: the measure, its figures, the percentile (a share) and the limit in seconds."""
    figures = {"first_token": latency.first_token, "output_token": latency.output_token}
    return tuple(
        (measure, figures[measure], share, latency.limits[key])
        for key, (measure, share) in LIMITS.items()
        if key in latency.limits
    )


def broken_limits(latency: Latency, slowdown: Slowdown) -> tuple[CodedText, ...]:
    """What of its class a move is predicted to break, with both figures. What is broken already today is broken by a
    move that makes it slower, and by no other."""
    found = []
    for measure, figures, share, limit in held_limits(latency):
        measured = figures.at(share) if figures is not None else None
        if measured is None:
            continue
        predicted = measured * slowdown.at_most
        if predicted <= limit or (measured > limit and not slowdown.slower):
            continue
        found.append(_broken(latency, slowdown, (measure, share, measured, limit)))
    return tuple(found)


def _broken(latency: Latency, slowdown: Slowdown, of: tuple[str, float, float, float]) -> CodedText:
    measure, share, measured, limit = of
    told = {"class": latency.label, "measure": measure, "percentile": share, "measured_seconds": measured,
            "limit_seconds": limit, "time_ratio": slowdown.time.p90}  # fmt: skip
    where = f"its {MEASURES[measure]} at p{share * 100:.0f} of the busy hours"
    bound = f"the {seconds_words(limit)} of its latency class {latency.label}"
    if math.isinf(slowdown.queue):
        return CodedText(
            "latency-without-end",
            f"{where} would grow without limit, above {bound}, because the remaining GPUs cannot keep up",
            told,
        )
    return CodedText(
        "latency-class-broken",
        f"{where} would reach up to {seconds_words(measured * slowdown.at_most)}, above {bound} "
        f"({seconds_words(measured)} now, times {slowdown.at_most:.2f})",
        {**told, "predicted_seconds": measured * slowdown.at_most, "queue_factor": slowdown.queue},
    )


def kept_words(latency: Latency, slowdown: Slowdown) -> str:
    """The predicted figures within their limits, for the text of a move that keeps them; empty where none is known."""
    parts = [
        f"{MEASURES[measure]} {seconds_words(value * slowdown.at_most)} of {seconds_words(limit)} at p{share * 100:.0f}"
        for measure, figures, share, limit in held_limits(latency)
        if figures is not None and (value := figures.at(share)) is not None
    ]
    return f"Latency class {latency.label} is met: {', '.join(parts)}." if parts else ""


def not_measured(latency: Latency) -> tuple[str, ...]:
    """What its class limits and nobody measured well enough to predict, in words."""
    lacking = [
        MEASURES[measure] for measure, figures, share, _ in held_limits(latency)
        if figures is None or figures.at(share) is None
    ]  # fmt: skip
    return tuple(dict.fromkeys(lacking))
