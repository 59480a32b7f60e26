"""Where a trial stands in a window of telemetry: its verdict, or what it waits for, each with a code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...core.advice_types import Interval
from ...core.coded_text import CodedText, coded
from ...core.formatting import listed
from ...core.verdict_types import WorkloadVerdict
from ...moves.context.recommendation_kind import RecommendationKind
from ...moves.tracking.move_state import Fits
from ...moves.tracking.observation import Observation, PredictionSnapshot, hours, measure
from ..guard import sqlite_text
from ..records import TRIAL_HOURS, TRIAL_MOST_HOURS, Trial, Verdict
from .ratio import Compared, Means, NotCompared, basis_so_far, compare
from .sides import HOUR, PairedHours, paired

# What two replicas of the same service on the same GPU differ by, for want of a published figure (assumed): a
# prediction narrower than that is not held to be wrong by less.
TOLERANCE = 0.05
# Steps of the same job differ by so much from run to run (standard deviation of the logarithm, assumed).
STEP_ERROR = 0.03
_NORMAL_P90 = 1.2816
ENGINE_REMEDY = "Let the agent read the engines' metrics (serving_endpoints), or scrape them into Prometheus."


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """`hours` side by side so far. `verdict` None: none yet, for the reason `why`. `compared`: what was measured so
    far; `basis`: what it rests on, or will. `running`: whether both sides were there at the end of the telemetry.
    `energy_ratio`: joules for each token there over those on the source; None: not measured."""

    hours: float
    verdict: Verdict | None
    why: CodedText
    compared: Compared | None = None
    basis: str | None = None
    running: bool = False
    energy_ratio: float | None = None


def outcome(  # noqa: PLR0917
    kind: RecommendationKind, ground: PredictionSnapshot, trial: Trial, seen: Observation, since: float, seed: int
) -> TrialOutcome | None:
    """Where a trial that began at `since` (Unix seconds) stands. None: the telemetry has no hours of it at hand, or the
    recommendation predicts no time."""
    fits = kind.trial(ground) if kind.trial is not None else None
    if fits is None or ground.time_ratio is None or seen.work is None:
        return None
    if not ground.serving:
        return _of_a_job(ground, ground.time_ratio, trial, fits, seen, since)
    runs = [w for w in seen.series(ground.series_id) if w.end > since]
    there = [w for w in runs if fits(w) and _is_named(w, trial.replica, seen)]
    here = [w for w in runs if not fits(w) and _is_source(w, ground)]
    missing = _missing(ground, trial, runs, there, here, seen)
    if missing is not None:
        return TrialOutcome(0.0, None, missing)
    known = seen.work(frozenset(w.id for w in (*there, *here)))
    both = paired([known.get(w.id, ()) for w in there], [known.get(w.id, ()) for w in here], since)
    running = bool(len(both.ends)) and float(both.ends[-1]) >= seen.end - 2 * float(both.seconds[-1])
    means = _means(ground, there, here)
    if both.hours < TRIAL_HOURS:
        code = _short(both.hours) if len(both.ends) or hours(there) < 2 else _no_hours()
        return TrialOutcome(both.hours, None, code, None, basis_so_far(both, means), running)
    told = compare(both, means, np.random.default_rng(seed))
    if isinstance(told, NotCompared):
        return TrialOutcome(both.hours, None, why_not(told.code), running=running)
    energy = None if means.shared else _energy_ratio(both)
    return _judged(told, ground.time_ratio, both.hours, running, energy)


def _judged(
    told: Compared, predicted: Interval, together: float, running: bool, energy: float | None = None
) -> TrialOutcome:
    verdict = trial_verdict(told.ratio, predicted)
    why = (
        coded("trial-measured", "The time was measured over {hours:.0f} h.", hours=together)
        if verdict is not None
        else coded(
            "trial-too-wide",
            "The measured time, x{p50:.2f} ({p10:.2f} to {p90:.2f}), fits more than one verdict.",
            p10=told.ratio.p10, p50=told.ratio.p50, p90=told.ratio.p90,
        )
    )  # fmt: skip
    return TrialOutcome(together, verdict, why, told, told.basis, running, energy)


def trial_verdict(measured: Interval, predicted: Interval) -> Verdict | None:
    """A measured time against the predicted one, with what two replicas differ by anyway; None: the interval reaches
    over a limit, and more than two replicas differ by."""
    low, high = predicted.p10 / (1 + TOLERANCE), predicted.p90 * (1 + TOLERANCE)
    if measured.p10 > high:
        return "worse"
    if measured.p90 < low:
        return "better"
    within = low <= measured.p10 and measured.p90 <= high
    narrow = measured.p90 / measured.p10 <= (1 + TOLERANCE) ** 2
    return "as predicted" if within or (narrow and low <= measured.p50 <= high) else None


def _is_named(w: WorkloadVerdict, name: str | None, seen: Observation) -> bool:
    return name is None or name in seen.names(w)


def _is_source(w: WorkloadVerdict, ground: PredictionSnapshot) -> bool:
    """Replicas on a third kind of node say nothing of the two that are compared."""
    here = ground.source.node_sku
    return here is None or w.node_sku is None or w.node_sku == here


def _missing(  # noqa: PLR0917
    ground: PredictionSnapshot,
    trial: Trial,
    runs: Sequence[WorkloadVerdict],
    there: Sequence[WorkloadVerdict],
    here: Sequence[WorkloadVerdict],
    seen: Observation,
) -> CodedText | None:
    """Which side is not there."""
    target = ground.target.node_sku or "the target"
    if not there:
        named = [w for w in runs if _is_named(w, trial.replica, seen)]
        if trial.replica is None:
            return coded("trial-none-on-target", "No replica runs on {target} yet.", target=target)
        if named:
            return coded("trial-replica-elsewhere", "Replica {replica} does not run on {target} yet.",
                         replica=short_name(trial.replica), target=target)  # fmt: skip
        return coded(
            "trial-replica-unknown",
            "No replica is named {replica}. Names: {names}. Start the trial again with another name.",
            replica=short_name(trial.replica), names=names_of([seen.names(w)[0] for w in runs]) or "none",
        )  # fmt: skip
    if not here:
        return coded("trial-no-rest", "No other replica runs on {source} to compare with.",
                     source=ground.source.node_sku or "the source")  # fmt: skip
    return None


def short_name(name: str) -> str:
    """A name from outside, as long as a sentence takes it."""
    kept = sqlite_text(name)
    return kept if len(kept) <= 63 else f"{kept[:62]}…"


def names_of(names: Sequence[str]) -> str:
    """A few names of replicas, each once."""
    return listed(list(dict.fromkeys(short_name(name) for name in names)))


def _short(together: float) -> CodedText:
    return coded("trial-hours-short", "{hours:.0f} of {needed:.0f} h measured.", hours=together, needed=TRIAL_HOURS)


def _no_hours() -> CodedText:
    return coded("trial-no-hours", "The telemetry has no hours in which both sides were observed.")


def why_not(code: str) -> CodedText:
    """Why both sides cannot be compared although both are there, with what helps."""
    engine = ENGINE_REMEDY
    told: dict[str, CodedText] = {
        one.code: one
        for one in (
            coded("trial-saturated", "Engines are busy more than 90 % of the time, and requests in flight are not "
                  "measured on both sides. {remedy}", remedy=engine),
            coded("trial-nothing-told", "Neither engine activity, tokens nor requests in flight are measured on both "
                  "sides. {remedy}", remedy=engine),
            coded("trial-split-unknown", "The split of requests between the replicas is unknown: neither tokens nor "
                  "requests are counted on both sides. {remedy}", remedy=engine),
            coded("trial-load-unknown", "Requests in flight are not measured on both sides, and neither is engine "
                  "activity in the same way (MIG instances do not report it). {remedy}", remedy=engine),
            coded("trial-gpus-shared", "Other work shares the GPUs, so engine activity and power are not the service's "
                  "own, and tokens with requests in flight are not measured. {remedy}", remedy=engine),
            coded("trial-too-few-hours", "No measure was read in enough of the hours. {remedy}", remedy=engine),
        )
    }  # fmt: skip
    return told[code]


def _means(ground: PredictionSnapshot, there: Sequence[WorkloadVerdict], here: Sequence[WorkloadVerdict]) -> Means:
    both = [*there, *here]
    models = {w.gpu_sku for w in both}
    same = len(models) == 1 and None not in models and all(w.gpu_part == 1.0 for w in both)
    rest = [w.features["rest_watts"] for w in both if math.isfinite(w.features.get("rest_watts", math.nan))]
    before = ground.before.rest_watts if ground.before is not None else None
    watts = sum(rest) / len(rest) if rest else before
    return Means(any(w.shared for w in both), watts if same else None)


def _energy_ratio(h: PairedHours) -> float | None:
    """Joules for each token, there over here, in the hours in which both sides tell tokens and power."""
    told = (h.there.tokens > 0) & (h.here.tokens > 0) & (h.there.watts > 0) & (h.here.watts > 0)
    if told.sum() < TRIAL_HOURS / 2:
        return None
    there, here = (side.watts[told].sum() / side.tokens[told].sum() for side in (h.there, h.here))
    return float(there / here)


def _of_a_job(  # noqa: PLR0917
    ground: PredictionSnapshot, predicted: Interval, trial: Trial, fits: Fits, seen: Observation, since: float
) -> TrialOutcome:
    """Steps of a job take as long whenever they run, so its runs need not run side by side."""
    runs = seen.series(ground.series_id)
    there = [w for w in runs if w.end > since and fits(w) and _is_named(w, trial.replica, seen)]
    if not there:
        missing = _missing(ground, trial, [w for w in runs if w.end > since], there, runs, seen)
        assert missing is not None
        return TrialOutcome(0.0, None, missing)
    together = hours(there, since, seen.end)
    running = max(w.end for w in there) >= seen.end - 2 * HOUR
    if together < TRIAL_HOURS:
        return TrialOutcome(together, None, _short(together), None, "step-length", running)
    own = measure(there, max(since, seen.start), seen.end)
    rest = [w for w in runs if not fits(w) and _is_source(w, ground)]
    alike = _of_as_many_gpus(rest, there)
    other = measure(alike, seen.start, seen.end) if rest else ground.before
    if (rest and not alike) or (not rest and not _held_as_many(ground, there)):
        why = coded("trial-gpus-differ", "The runs hold different numbers of GPUs, so their steps cannot be compared.")
        return TrialOutcome(together, None, why, None, "step-length", running)
    if own is None or other is None or not own.period_seconds or not other.period_seconds:
        why = coded("trial-no-steps", "No steps are detected in the load of both runs.")
        return TrialOutcome(together, None, why, None, "step-length", running)
    ratio, by = own.period_seconds / other.period_seconds, math.exp(_NORMAL_P90 * STEP_ERROR)
    told = Compared(Interval(ratio / by, ratio, ratio * by), "step-length", int(together))
    return _judged(told, predicted, together, running)


def _of_as_many_gpus(rest: Sequence[WorkloadVerdict], there: Sequence[WorkloadVerdict]) -> list[WorkloadVerdict]:
    """Runs on the source of as many GPUs as each on the target; none where those differ among themselves."""
    counts = {len(w.gpus) for w in there}
    return [w for w in rest if counts == {len(w.gpus)}]


def _held_as_many(ground: PredictionSnapshot, there: Sequence[WorkloadVerdict]) -> bool:
    """Likewise of runs that the telemetry no longer shows: what the series held then, by its runs of that time."""
    if ground.before is None:
        return True
    each = ground.before.gpus / max(len(ground.replicas), 1)
    return all(abs(len(w.gpus) / each - 1) < 0.05 for w in there)


def is_over(since: float, seen: Observation) -> bool:
    """Whether the trial has had all the time that it gets, by what telemetry tells of the time."""
    return seen.end - since >= TRIAL_MOST_HOURS * HOUR
