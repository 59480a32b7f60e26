"""What became of accepted moves: predicted against realised, one value a recommendation, for reports and people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..core.advice_types import DecisionState, Interval
from ..recommend.moves import BY_ACTION
from .entries import LedgerEntry
from .records import Realised


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """One recommendation that somebody accepted, or that telemetry saw done, and what it brought.

    `accepted_at`, `done_at`: Unix seconds; None: nobody accepted it, or it was not seen done. `from_config` and
    `to_config` are words, as the ledger shows them. Savings are US dollars a month, in the prices of the proposal;
    time ratios are time after over time before. Where a realised figure is None, `reason_missing` says why. `why` is
    the evidence of the last event (detection, measurement or decision), a sentence.
    """

    id: str
    about: str
    action: str
    from_config: str
    to_config: str
    state: DecisionState
    accepted_at: float | None
    done_at: float | None
    predicted_saving_usd_per_month: Interval | None
    realised_saving_usd_per_month: float | None
    predicted_time_ratio: Interval | None
    realised_time_ratio: float | None
    realisation: str
    why: str
    reason_missing: str | None
    predicted_freed_gpu_hours_per_month: float = 0.0
    realised_freed_gpu_hours_per_month: float | None = None


def move_outcomes(entries: Iterable[LedgerEntry], now: float) -> tuple[MoveOutcome, ...]:
    """The outcomes of a ledger at `now` (Unix seconds): what is accepted, done or regressed, the newest event first."""
    told = [(entry, entry.decision(now)) for entry in entries]
    kept = [(entry, decision) for entry, decision in told if decision.state in ("accepted", "done", "regressed")]
    kept.sort(key=lambda pair: (-pair[0].events[-1].at, pair[0].proposal.id))
    return tuple(_outcome(entry, decision.state) for entry, decision in kept)


def _outcome(entry: LedgerEntry, state: DecisionState) -> MoveOutcome:
    p, ground = entry.proposal, entry.proposal.ground
    measured = entry.realised if state != "accepted" else None
    accepted = entry.last("accepted")
    last = next(e for e in reversed(entry.events) if e.act not in ("proposed", "expired"))
    if measured is not None:
        missing = measured.saving_missing or measured.time_missing
    elif ground is None:
        missing = "no baseline stored: it was always blocked"
    else:
        missing = "not done yet"
    return MoveOutcome(
        id=p.id,
        about=p.about,
        action=p.action,
        from_config=p.source_config,
        to_config=p.target_config,
        state=state,
        accepted_at=accepted.at if accepted is not None else None,
        done_at=measured.since if measured is not None else None,
        predicted_saving_usd_per_month=ground.saving_usd_per_month if ground else None,
        realised_saving_usd_per_month=measured.saving_usd_per_month if measured else None,
        predicted_time_ratio=ground.time_ratio if ground else None,
        realised_time_ratio=measured.time_ratio if measured else None,
        realisation=p.realisation,
        why=last.why or "",
        reason_missing=missing,
        predicted_freed_gpu_hours_per_month=p.freed_gpu_hours_per_month,
        realised_freed_gpu_hours_per_month=_freed(p.action, measured),
    )


def _freed(action: str, told: Realised | None) -> float | None:
    """GPU-hours a month that the series holds less; None: not measured, or a move that frees none by itself."""
    kind = BY_ACTION.get(action)  # of others the GPU-hours follow from the time
    if told is None or kind is None or not kind.frees or told.gpu_hours_per_month_before is None:
        return None
    after = told.gpu_hours_per_month_after
    return told.gpu_hours_per_month_before - after if after is not None else None
