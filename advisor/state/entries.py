"""What the ledger knows of one recommendation, and the state that follows from its events and the time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from ...rules.base.quantities import Moment
from ..core.advice_types import Decision, Interval
from ..core.codec import Codec
from ..recommend.progress import PredictionSnapshot
from .guard import bounded_json

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Realised:
    """A move as it was measured, beside what was predicted. `since`: it stood at its target from then on, and was
    measured up to `until` (Unix seconds), over `hours`.

    Costs are US dollars a month in the prices of the proposal, on its basis: whole nodes. What is None has its reason
    in `saving_missing` or `time_missing`. `load_ratio`: work asked of it over what was asked before; None: not told.
    `confounders` are sentences.
    """

    since: Moment
    until: Moment
    hours: float
    predicted_saving_usd_per_month: Interval | None
    predicted_time_ratio: Interval | None
    usd_per_month_before: float | None
    usd_per_month_after: float | None
    saving_usd_per_month: float | None
    saving_missing: str | None
    gpu_hours_per_month_before: float | None
    gpu_hours_per_month_after: float | None
    time_ratio: float | None
    time_missing: str | None
    load_ratio: float | None = None
    confounders: tuple[str, ...] = ()


# What we write stays far below; a number beyond it is no figure of anything.
_CODEC = Codec(largest=1e300, lenient=True)


def to_json(value: object) -> str:
    """A value of this module as JSON; what is None, or no finite number, is left out."""
    return json.dumps(_bare(_CODEC.encode(value)), allow_nan=False, separators=(",", ":"))


def from_json(kind: type[T], text: str) -> T:
    """The value back. Raises ValueError for what `to_json` cannot have written."""
    return _CODEC.decode(kind, bounded_json(text))


def _bare(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return {key: _bare(one) for key, one in value.items() if one is not None}
    return [_bare(one) for one in value] if isinstance(value, list | tuple) else value


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
    evidence in the telemetry; `realised`: what was measured.
    """

    act: Act
    at: float
    by: str
    until: float | None = None
    why: str | None = None
    realised: Realised | None = None


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
        return told.realised if told is not None else None


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
        if state in _DECIDING:
            if (state == "snoozed" and (event.until or 0.0) <= now) or (state == "regressed" and over):
                break
            by = None if event.by == BY_ITSELF else event.by
            return Decision(state, event.at, by, event.until, event.why)
    if over:
        return Decision("expired", last_proposed + EXPIRES_AFTER_SECONDS)
    return Decision("proposed", last_proposed)
