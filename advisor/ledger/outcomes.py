"""What became of accepted moves: predicted against realised, one value a recommendation, for reports and people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model import DecisionState, Interval
from .entries import Entry


@dataclass(frozen=True, slots=True)
class Outcome:
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


def outcomes(entries: Sequence[Entry], now: float) -> tuple[Outcome, ...]:
    """The outcomes of a ledger at `now` (Unix seconds): what is accepted, done or regressed, the newest event first."""
    found = []
    for entry in entries:
        decision = entry.decision(now)
        if decision.state not in ("accepted", "done", "regressed"):
            continue
        p = entry.proposal
        at = {e.act: e.at for e in entry.events}
        last = entry.events[-1]
        found.append(
            (
                last.at,
                Outcome(
                    id=p.id, about=p.about, action=p.action, from_config=p.source_config, to_config=p.target_config,
                    state=decision.state, accepted_at=at.get("accepted"), done_at=at.get("done"),
                    predicted_saving_usd_per_month=None, realised_saving_usd_per_month=None,
                    predicted_time_ratio=None, realised_time_ratio=None, realisation=p.realisation,
                    why=last.why or "", reason_missing="not measured yet",
                ),
            )
        )  # fmt: skip
    return tuple(outcome for _, outcome in sorted(found, key=lambda pair: (-pair[0], pair[1].id)))
