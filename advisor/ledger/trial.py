"""A trial: one replica on the target, the rest where they were, measured over the same hours before the fleet moves."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.advice_types import Interval
from ..core.verdict_types import WorkloadVerdict
from ..moves.recommendation_kinds import KINDS
from ..moves.tracking.observation import Measure, Observation, PredictionSnapshot, hours, measure, spans
from .entries import LedgerEntry
from .realised_savings import rate_ratio
from .records import TRIAL_HOURS, TrialResult, Verdict

# What two replicas of the same service on the same GPU differ by, for want of a published figure (assumed): a
# prediction narrower than that is not held to be wrong by less.
TOLERANCE = 0.05
# Engines that are busy nearly all of the time do not tell how much more they could do.
BUSY_MAX = 0.9


def trial_result(
    entry: LedgerEntry, ground: PredictionSnapshot, seen: Observation, now: float
) -> tuple[str, TrialResult] | None:
    """What an open trial came to by `now` (Unix seconds), and the sentence that says it. None: there is none, or not
    yet."""
    begun = entry.last("trial", "tried")
    kind = KINDS.get(entry.proposal.action)
    fits = kind.trial(ground) if kind is not None and kind.trial is not None else None
    if begun is None or begun.figures.trial is None or fits is None or ground.time_ratio is None:
        return None
    # Begun in the future: by a clock that ran ahead. It is surely later than what the proposal rests on.
    at = begun.at if begun.at <= now else ground.seen_until
    runs = [w for w in seen.series(ground.series_id) if w.end > at]
    name = begun.figures.trial.replica
    on_trial = [w for w in runs if fits(w) and (name is None or name in (w.name, w.id))]
    rest = [w for w in runs if not fits(w)]
    together = _together(on_trial, rest)
    if together < TRIAL_HOURS:
        return None
    there, here = (measure(own, seen.start, seen.end) for own in (on_trial, rest))
    if there is None or here is None:
        return None
    found = rate_ratio(there, here, serving=ground.serving) or _by_load(
        _each(there, on_trial), _each(here, rest), there, here
    )
    if found is None:
        return None
    ratio, by = found
    verdict = trial_verdict(ratio, ground.time_ratio)
    p = ground.time_ratio
    went = verdict if verdict == "as predicted" else f"{verdict} than predicted"
    why = (
        f"The trial went {went}: x{ratio:.2f} the time, measured by {by} (predicted: x{p.p50:.2f}, "
        f"{p.p10:.2f} to {p.p90:.2f}), {together:.0f} h next to the other replicas."
    )
    return why, TrialResult(verdict, ratio, together, by)


def trial_verdict(ratio: float, predicted: Interval) -> Verdict:
    """A measured time against the predicted one, with what two replicas differ by anyway."""
    if ratio > predicted.p90 * (1 + TOLERANCE):
        return "worse"
    return "better" if ratio < predicted.p10 / (1 + TOLERANCE) else "as predicted"


def _together(one: Sequence[WorkloadVerdict], other: Sequence[WorkloadVerdict]) -> float:
    """Hours in which runs of both were there."""
    return sum(hours(other, a, b) for a, b in spans(one))


def _each(measured: Measure, runs: Sequence[WorkloadVerdict]) -> float | None:
    """GPUs' worth of work that one replica does at a time; None: not measured."""
    replicas = measured.gpus / (sum(len(w.gpus) for w in runs) / len(runs)) if runs else 0.0
    return measured.busy * measured.gpus / replicas if measured.busy is not None and replicas > 0 else None


def _by_load(there: float | None, here: float | None, one: Measure, other: Measure) -> tuple[float, str] | None:
    """Replicas behind one balancer get the same requests, so the times they are busy compare their speeds."""
    if there is None or not here or max(one.busy or 1.0, other.busy or 1.0) > BUSY_MAX:
        return None
    return there / here, "engine busy time (assuming evenly distributed requests)"
