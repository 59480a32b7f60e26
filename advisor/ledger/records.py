"""What the ledger keeps of a recommendation beside its row, and of each measurement: values, and their JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

from ...rules.base.quantities import Moment
from ..core.advice_types import Interval
from ..core.codec import Codec
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


@dataclass(frozen=True, slots=True)
class EventFigures:
    """What an event carries beside its words."""

    realised: Realised | None = None


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
