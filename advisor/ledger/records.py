"""What the ledger keeps of a recommendation beside its row, and of each measurement: values, and their JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from ..core.advice_types import Interval
from .guard import MOMENT, bounded_json

# Hours that a replica on trial and the rest must have run side by side: a whole day of load.
TRIAL_HOURS = 24.0
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

    since: float
    until: float
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
    """What a trial came to: time there over time on the source, in the same hours. `by`: what it was measured by."""

    verdict: Verdict
    time_ratio: float
    hours: float
    by: str


@dataclass(frozen=True, slots=True)
class Figures:
    """What an event carries beside its words; at most one of them."""

    realised: Realised | None = None
    trial: Trial | None = None
    tried: TrialResult | None = None


NO_FIGURES = Figures()


def to_json(value: Any) -> str:  # noqa: ANN401
    """A value of this module as JSON; what is None, or no finite number, is left out."""
    return json.dumps(_bare(dataclasses.asdict(value)), allow_nan=False, separators=(",", ":"))


def from_json(kind: type[T], text: str) -> T:
    """The value back. Raises ValueError for what `to_json` cannot have written."""
    return _reader(kind)(bounded_json(text))


def _bare(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Mapping):
        told = {key: _bare(one) for key, one in value.items()}
        return {key: one for key, one in told.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_bare(one) for one in value]
    if isinstance(value, float):  # NumPy's numbers are floats of their own kind
        return float(value) if math.isfinite(value) else None
    return value


# Fields that are Unix seconds, and are written as dates.
_MOMENTS = ("since", "until", "seen_until")
Reader = Callable[[Any], Any]


@lru_cache  # looking at annotations takes longer than reading by them, and a fleet has thousands of values
def _reader(kind: Any) -> Reader:  # noqa: ANN401
    """What makes a value of a type of what JSON holds, or raises ValueError."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        own = _reader(next(one for one in inner if one is not types.NoneType))
        return lambda value: None if value is None else own(value)
    if origin is Literal:
        return lambda value: value if value in inner else _refuse(value)
    if origin is tuple and inner[-1] is Ellipsis:
        own = _reader(inner[0])
        return lambda value: tuple(map(own, value)) if isinstance(value, list) else _refuse(value)
    if origin is tuple:
        readers = tuple(map(_reader, inner))
        return lambda value: (
            tuple(read(one) for read, one in zip(readers, value, strict=True))
            if isinstance(value, list)
            else _refuse(value)
        )
    if origin is Mapping:
        own = _reader(inner[1])
        return lambda value: (
            {str(key): own(one) for key, one in value.items()} if isinstance(value, dict) else _refuse(value)
        )
    if dataclasses.is_dataclass(kind):
        return _of_fields(kind)
    if kind is float:
        return lambda value: float(value) if type(value) in (int, float) else _refuse(value)
    return lambda value: value if type(value) is kind else _refuse(value)


def _of_fields(kind: Any) -> Reader:  # noqa: ANN401
    hints = get_type_hints(kind)
    readers = {name: _reader(hint) for name, hint in hints.items()}
    lacking = {name: None for name, hint in hints.items() if types.NoneType in get_args(hint)}

    def read(value: Any) -> Any:  # noqa: ANN401
        if not isinstance(value, dict):
            return _refuse(value)
        told = {name: readers[name](one) for name, one in value.items() if name in readers}
        if any(name in told and MOMENT.fault(told[name]) for name in _MOMENTS):
            return _refuse(value)
        try:
            return kind(**{**lacking, **told})
        except TypeError as error:
            raise ValueError(f"{value!r:.40} lacks a value") from error

    return read


def _refuse(value: Any) -> NoReturn:  # noqa: ANN401
    raise ValueError(f"{value!r:.40} is of another kind")
