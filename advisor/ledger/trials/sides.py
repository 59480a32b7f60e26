"""The two sides of a trial, hour by hour: the replica on the target and the replicas that stayed, in the same hours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from ...core.work_hours import WorkHour

Floats = npt.NDArray[np.float64]

HOUR = 3600.0
# A replica's hour counts where it was observed for nearly all of it: in the hour in which it came or was started again
# it loads a model and warms a cache, and what a counter grew by over a gap may be of more than the observed part.
_THERE_MIN = 0.9
# A side's measure counts in an hour where most of its replicas tell it.
_TELLING_MIN = 0.5


@dataclass(frozen=True, slots=True)
class SideHours:
    """One side by hour, NaN where not measured. `replicas` that were observed, `gpus` of one of them; `busy`: share of
    the time in which engines worked, `watts` of one GPU. Of one GPU too: `tokens` and `requests` per second, and
    requests `running`."""

    replicas: Floats
    gpus: Floats
    busy: Floats
    watts: Floats
    tokens: Floats
    requests: Floats
    running: Floats


@dataclass(frozen=True, slots=True)
class PairedHours:
    """Both sides over the hours in which both were there, in order. `seconds`: length of each."""

    ends: Floats
    seconds: Floats
    there: SideHours
    here: SideHours

    @property
    def hours(self) -> float:
        return float(self.seconds.sum()) / HOUR


Runs = Sequence[Sequence[WorkHour]]
_MEASURES = ("busy", "watts", "tokens", "requests", "running")
# Of these the sum over all GPUs is told, of the others the mean of one.
_OF_ALL = frozenset({"tokens", "requests", "running"})


def paired(there: Runs, here: Runs, since: float) -> PairedHours:
    """Hours that begin at `since` (Unix seconds) or later, in which both sides were observed. `there`: runs of the
    replica on trial, one after the other where it was started again; `here`: those of the others."""
    own, others = _by_hour(there, since), _by_hour(here, since)
    ends = sorted(set(own) & set(others))
    seconds = np.array([own[end][0].length_seconds for end in ends])
    return PairedHours(
        np.array(ends),
        seconds,
        _side([own[end] for end in ends], seconds),
        _side([others[end] for end in ends], seconds),
    )


def _by_hour(runs: Runs, since: float) -> dict[float, list[WorkHour]]:
    found: dict[float, list[WorkHour]] = {}
    for run in runs:
        for one in run:
            whole = one.seconds >= _THERE_MIN * one.length_seconds
            if one.end - one.length_seconds >= since and whole and one.gpus > 0:
                found.setdefault(one.end, []).append(one)
    return found


def _side(hours: Sequence[Sequence[WorkHour]], seconds: Floats) -> SideHours:
    columns: dict[str, list[float]] = {field.name: [] for field in fields(SideHours)}
    for own, length in zip(hours, seconds, strict=True):
        clock = sum(one.seconds for one in own)
        held = sum(one.seconds * one.gpus for one in own)
        columns["replicas"].append(clock / length)
        columns["gpus"].append(held / clock)
        for name in _MEASURES:
            columns[name].append(_mean(own, name, held))
    return SideHours(**{name: np.array(values, dtype=float) for name, values in columns.items()})


def _mean(hours: Sequence[WorkHour], name: str, held: float) -> float:
    """Of one GPU, by the GPU-seconds that tell it."""
    amount = told = 0.0
    for one in hours:
        value = getattr(one, name)
        if value is not None and math.isfinite(value) and value >= 0:
            amount += value * one.seconds * (1.0 if name in _OF_ALL else one.gpus)
            told += one.seconds * one.gpus
    return amount / told if told >= _TELLING_MIN * held and told > 0 else math.nan
