"""One workload of the window: who it is, and which GPUs it held when."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ...core.verdict_types import Scheduled
from .series_runs import SeriesRuns


@dataclass(frozen=True, slots=True)
class Session:
    """One workload in the window. `start`, `end`: of its uses, cut to the window; `first_seen`, `last_seen`: uncut.

    `held_seconds`: GPU-seconds held within the window, observed or not. `chain_hours`: hours from the first start to
    the last end of the runs of this series and name that follow one another without a gap of more than fifteen minutes.
    `series`: the runs of its series, itself among them.
    """

    workload_id: str
    series_id: str
    name: str
    scheduler: str
    namespace: str | None
    pod: str | None
    user: str | None
    account: str | None
    framework: str | None
    command: str | None
    gpus: tuple[tuple[str, str], ...]
    nodes: tuple[str, ...]
    start: float
    end: float
    first_seen: float
    last_seen: float
    basis: str
    shared: bool
    held_seconds: float
    chain_hours: float
    series: SeriesRuns = field(default_factory=lambda: SeriesRuns(1, 0.0, math.nan))
    team: str | None = None
    scheduled: Scheduled = field(default_factory=Scheduled)
