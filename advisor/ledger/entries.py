"""What the ledger knows of one recommendation, and the state that follows from its events and the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..model import Decision, DecisionState

Act = Literal["proposed", "accepted", "snoozed", "dismissed", "expired"]
# A recommendation that nothing proposed for so long is no longer open. Advice looks back 14 days by default: after 30
# what it rested on has left that window twice over.
EXPIRES_AFTER_SECONDS = 30 * 86400.0


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a recommendation. `at`, `until`: Unix seconds; `by`: whoever did it.

    Events are only ever added. `until` is the end of a snooze, None otherwise; `why` the reason that was given.
    """

    act: Act
    at: float
    by: str
    until: float | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """What was recommended, as it was last proposed. `about`: the workload's name, or the node's.

    `saving_usd_per_month`: the median, None where none is claimed. `source`: where the telemetry lay.
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


@dataclass(frozen=True, slots=True)
class Entry:
    """A recommendation in the ledger with its whole history, oldest first. Times are Unix seconds."""

    proposal: Proposal
    first_proposed: float
    last_proposed: float
    events: tuple[Event, ...]

    def decision(self, now: float) -> Decision:
        """Where it stands at `now`."""
        return stands(self.events, self.last_proposed, now)


def stands(events: Sequence[Event], last_proposed: float, now: float) -> Decision:
    """The state that events leave: the last decision holds, a snooze until its end.

    What nobody decided on, or whose snooze is over, is proposed, and expired from 30 days after it was last proposed.
    """
    decided = next((e for e in reversed(events) if e.act in ("accepted", "snoozed", "dismissed")), None)
    if decided is not None and not (decided.act == "snoozed" and (decided.until or 0.0) <= now):
        state: DecisionState = decided.act  # type: ignore[assignment] - the three that were asked for
        return Decision(state, decided.at, decided.by, decided.until, decided.why)
    if last_proposed + EXPIRES_AFTER_SECONDS <= now:
        return Decision("expired", last_proposed + EXPIRES_AFTER_SECONDS)
    return Decision("proposed", last_proposed)
