"""What one workload did hour by hour, so that two of them can be compared over the same hours and over no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkHour:
    """One workload in one hour of the clock (of a server with coarser rows: in one row). None: not measured.

    `end`: of the hour, Unix seconds; `seconds`: of it in which the workload was observed; `gpus`: mean number that it
    held then. `busy`: mean share of the time in which their engines worked; `watts`: drawn by one GPU. `tokens`:
    generated per second, by all its GPUs; `requests`: begun per second; `running`: mean number of requests at work.
    `length_seconds`: of the row.
    """

    end: float
    seconds: float
    gpus: float
    busy: float | None = None
    watts: float | None = None
    tokens: float | None = None
    requests: float | None = None
    running: float | None = None
    length_seconds: float = 3600.0


# Ids of workloads -> the hours of each, in their order; one that is not known has none.
HoursOf = Callable[[frozenset[str]], Mapping[str, tuple[WorkHour, ...]]]
