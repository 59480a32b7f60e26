"""What a window of telemetry adds to an open trial: its verdict, that it ends without one, or how far it is."""

from __future__ import annotations

from ...core.advice_types import Interval
from ...core.timestamps import minute
from ...moves.recommendation_kinds import KINDS
from ...moves.tracking.observation import Observation, PredictionSnapshot
from ..entries import BY_ITSELF, LedgerEntry, LedgerEvent
from ..guard import sqlite_text
from ..records import (
    TRIAL_HOURS,
    EventFigures,
    TrialProgress,
    TrialResult,
    TrialUndecided,
)
from .outcome import TrialOutcome, is_over, outcome
from .ratio import BASES
from .sides import HOUR

# Of a trial's progress so many hours are noted at once: events are kept for ever.
PROGRESS_HOURS = 6.0
# Hours are drawn by this: the same telemetry gives the same interval.
SEED = 7


def trial_event(
    entry: LedgerEntry, ground: PredictionSnapshot, seen: Observation, now: float, seed: int = SEED
) -> LedgerEvent | None:
    """What is to be noted of a trial at `now` (Unix seconds). None: there is none, or nothing new."""
    opened, kind = entry.open_trial, KINDS.get(entry.proposal.action)
    if opened is None or kind is None:
        return None
    begun, told = opened
    trial = begun.figures.trial
    if trial is None:
        return None
    # Begun in the future: by a clock that ran ahead. It is surely later than what the proposal rests on.
    since = begun.at if begun.at <= now else ground.seen_until
    found = outcome(kind, ground, trial, seen, since, seed)
    if found is None or ground.time_ratio is None:
        return None
    if found.verdict is not None:
        figures = _result(found)
        why = _verdict_words(found, figures, ground.time_ratio)
        return LedgerEvent("tried", now, BY_ITSELF, None, why, EventFigures(tried=figures))
    noted = [one.figures.progress for one in told if one.figures.progress is not None]
    if begun.at > now:
        since = noted[0].until if noted else seen.end
    if is_over(since, seen):
        return _undecided(found, seen, since, now)
    progress = _progress(found, seen)
    last = noted[-1] if noted else None
    same = last is not None and last.code == progress.code and last.basis == progress.basis
    if same and last is not None and progress.hours - last.hours < PROGRESS_HOURS:
        return None
    return LedgerEvent(
        "trial", now, BY_ITSELF, None, progress_words(progress), EventFigures(trial=trial, progress=progress)
    )


def _result(found: TrialOutcome) -> TrialResult:
    assert found.verdict is not None
    assert found.compared is not None
    told = found.compared
    return TrialResult(
        found.verdict, told.ratio.p50, found.hours, BASES[told.basis], told.basis, told.ratio, found.energy_ratio
    )


def _verdict_words(found: TrialOutcome, told: TrialResult, predicted: Interval) -> str:
    went = told.verdict if told.verdict == "as predicted" else f"{told.verdict} than predicted"
    energy = f" Energy per token: x{told.energy_ratio:.2f}." if told.energy_ratio is not None and found.compared else ""
    return (
        f"The trial went {went}: x{told.time_ratio:.2f}{_between(told.interval)} the time, measured by {told.by} "
        f"(predicted: x{predicted.p50:.2f}, {predicted.p10:.2f} to {predicted.p90:.2f}), {told.hours:.0f} h "
        f"{_beside(told.basis)}.{energy}"
    )


def _beside(basis: str | None) -> str:
    """Where its hours were measured: runs of a job need no other beside them."""
    return "on the target" if basis == "step-length" else "next to the other replicas"


def _between(interval: Interval | None) -> str:
    return f" ({interval.p10:.2f} to {interval.p90:.2f})" if interval is not None else ""


def _undecided(found: TrialOutcome, seen: Observation, since: float, now: float) -> LedgerEvent:
    reason = sqlite_text(found.why.text)
    ratio = found.compared.ratio if found.compared is not None else None
    told = TrialUndecided(found.hours, found.why.code, reason, found.basis, ratio)
    by = f", measured by {BASES[found.basis]}" if ratio is not None and found.basis else ""
    why = (
        f"The trial ended undecided after {(seen.end - since) / 86400:.0f} days{by} ({found.hours:.0f} h "
        f"{_beside(found.basis)}). {reason}"
    )
    return LedgerEvent("tried", now, BY_ITSELF, None, why, EventFigures(undecided=told))


def _progress(found: TrialOutcome, seen: Observation) -> TrialProgress:
    missing = max(TRIAL_HOURS - found.hours, 0.0)
    due = seen.end + missing * HOUR if found.running and missing else None
    return TrialProgress(found.hours, seen.end, found.why.code, sqlite_text(found.why.text), found.basis, due)


def progress_words(told: TrialProgress) -> str:
    """How far a trial is, what it rests on and when it can end, in sentences."""
    by = f" Basis: {BASES[told.basis]}." if told.basis is not None and told.basis in BASES else ""
    due = f" Verdict on {minute(told.due)} at the earliest." if told.due is not None else ""
    return f"{told.reason}{by}{due}"
