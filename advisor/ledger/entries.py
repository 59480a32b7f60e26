"""What the ledger knows of one recommendation, and the state that follows from its events and the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeGuard

from ..core.advice_types import Decision
from ..recommend.tracking.observation import PredictionSnapshot
from .records import NO_FIGURES, EventFigures, Realised

Act = Literal[
    "proposed", "accepted", "snoozed", "dismissed", "reopened", "done", "measured", "regressed", "expired"
]  # fmt: skip
_Deciding = Literal["accepted", "snoozed", "dismissed", "done", "regressed"]
_DECIDING: tuple[_Deciding, ...] = ("accepted", "snoozed", "dismissed", "done", "regressed")
# Who adds what telemetry told, and not a person.
BY_ITSELF = "skuwise"
# A recommendation that nothing proposed for so long is no longer open. Advice looks back 14 days by default: after 30
# what it rested on has left that window twice over.
EXPIRES_AFTER_SECONDS = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """One thing that happened to a recommendation. `at`, `until`: Unix seconds; `by`: whoever did it.

    Events are only ever added. `until` is the end of a snooze, None otherwise; `why` the reason that was given, or the
    evidence in the telemetry.
    """

    act: Act
    at: float
    by: str
    until: float | None = None
    why: str | None = None
    figures: EventFigures = NO_FIGURES


@dataclass(frozen=True, slots=True)
class Proposal:
    """What was recommended, as it was last proposed. `about`: the workload's name, or the node's.

    `saving_usd_per_month`: the median, None where none is claimed. `source`: where the telemetry lay. `ground`: what
    the prediction rested on, as it stood when it was accepted; None: it was always blocked.
    """

    id: str
    action: str
    about: str
    source_config: str
    target_config: str
    saving_usd_per_month: float | None
    freed_gpu_hours_per_month: float
    realisation: str
    risk: str
    blocked: bool
    text: str
    source: str
    ground: PredictionSnapshot | None = None


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A recommendation in the ledger with its whole history, oldest first. Times are Unix seconds."""

    proposal: Proposal
    first_proposed: float
    last_proposed: float
    events: tuple[LedgerEvent, ...]

    def decision(self, now: float) -> Decision:
        """Where it stands at `now`."""
        return decision_from(self.events, self.last_proposed, now)

    def last(self, *acts: Act) -> LedgerEvent | None:
        """The newest event that is one of these; None: there is none."""
        return next((e for e in reversed(self.events) if e.act in acts), None)

    @property
    def realised(self) -> Realised | None:
        """The newest measurement; None: it was never done, or not since it regressed and was decided on anew."""
        told = self.last("done", "measured", "regressed")
        return told.figures.realised if told is not None else None


def decision_from(events: Sequence[LedgerEvent], last_proposed: float, now: float) -> Decision:
    """The state that events leave: the last decision holds, a snooze until its end; what telemetry told counts as one.

    What nobody decided on is proposed, and so is what was reopened, whose snooze is over, or that is proposed anew
    after it was done. What is proposed or regressed is expired from 30 days after it was last proposed.
    """
    over = last_proposed + EXPIRES_AFTER_SECONDS <= now
    for event in reversed(events):
        state = event.act
        if state == "reopened" or (state == "proposed" and any(e.act == "done" for e in events)):
            break
        if _decides(state):
            if (state == "snoozed" and (event.until or 0.0) <= now) or (state == "regressed" and over):
                break
            by = None if event.by == BY_ITSELF else event.by
            return Decision(state, event.at, by, event.until, event.why)
    if over:
        return Decision("expired", last_proposed + EXPIRES_AFTER_SECONDS)
    return Decision("proposed", last_proposed)


def _decides(act: Act) -> TypeGuard[_Deciding]:
    return act in _DECIDING
