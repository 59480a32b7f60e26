"""What the ledger keeps of a recommendation beside its row, and of each measurement: values, and their JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from ...rules.base.quantities import Moment
from ..core.advice_types import Interval
from ..core.codec import Codec
from .guard import bounded_json

# Hours that a replica on trial and the rest must have run side by side: a whole day of load.
TRIAL_HOURS = 24.0
# A trial without a verdict by then ends undecided: a week has every day of a service's load.
TRIAL_MOST_HOURS = 7 * 24.0
Verdict = Literal["better", "as predicted", "worse"]
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


@dataclass(frozen=True, slots=True)
class Trial:
    """One replica tried on the target. `replica`: its name or id, None: whichever stands there first."""

    replica: str | None = None


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What a trial came to: time there over time on the source, in the same hours. `by`: what it was measured by, and
    `basis` the code of that. `interval`: 80 % of the ratio. `energy_ratio`: joules for each token there over those on
    the source. None: not measured, or written by an older version."""

    verdict: Verdict
    time_ratio: float
    hours: float
    by: str
    basis: str | None = None
    interval: Interval | None = None
    energy_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class TrialUndecided:
    """A trial that ended without a verdict: `code` and `reason` say why. `interval`: what was measured; None:
    nothing."""

    hours: float
    code: str
    reason: str
    basis: str | None = None
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """A trial under way, as telemetry up to `until` showed it: `hours` side by side, and what it waits for (`code`,
    `reason`). `basis`: what it will rest on; `due`: when a verdict is possible at the earliest. None: not known."""

    hours: float
    until: Moment
    code: str
    reason: str
    basis: str | None = None
    due: Moment | None = None


@dataclass(frozen=True, slots=True)
class PlanMark:
    """Of which step or node of a plan an event is (both None: of the plan), from when on by telemetry, and the end of
    that telemetry. None: a person's."""

    step: int | None = None
    node: str | None = None
    since: Moment | None = None
    seen_until: Moment | None = None


@dataclass(frozen=True, slots=True)
class EventFigures:
    """What an event carries beside its words; at most one of them (`progress` stands beside the trial it is of)."""

    realised: Realised | None = None
    trial: Trial | None = None
    tried: TrialResult | None = None
    undecided: TrialUndecided | None = None
    progress: TrialProgress | None = None
    plan: PlanMark | None = None


NO_FIGURES = EventFigures()


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
