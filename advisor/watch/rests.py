"""Since when workloads rest, by what was observed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..classify.features.rest import rested_since
from ..core.incident_types import Mask, Spans
from .fleet import HOUR, MINUTE, WatchedFleet
from .signs import gpu_signs, last_true, observed_from, of_holds

# Preparation keeps a host busy for half of some minutes on end; a shorter burst is what any host does now and then.
_SUSTAINED_SECONDS, _SUSTAINED_SHARE = 20 * MINUTE, 0.5


@dataclass(frozen=True, slots=True)
class Rest:
    """`since`: Unix seconds; `at_least`: the data begin there, and the rest may have begun before. `last_work`: None
    where there was none within view. `idle_seconds`: observed at rest since then. `in_view`: whether the workload began
    within view. `free`: it held no memory since then."""

    since: float
    at_least: bool
    last_work: float | None
    idle_seconds: float
    in_view: bool
    free: bool


def given_time(fleet: WatchedFleet) -> Mask:
    """Spans in which hosts of a workload prepared something for it, up to some hours after its last work."""
    spans, holds = fleet.spans, fleet.holds
    worked = np.nan_to_num(last_true(holds.work, spans), nan=-np.inf)[:, None]
    # A stretch of preparation: hosts that are busy, and were for half of the minutes before.
    busy = np.pad(np.cumsum(holds.host * spans.seconds, axis=1), ((0, 0), (1, 0)))
    first = np.searchsorted(spans.ends, spans.ends - _SUSTAINED_SECONDS, side="right")
    is_long = busy[:, 1:] - busy[:, first] >= _SUSTAINED_SHARE * _SUSTAINED_SECONDS - 1e-3
    after = holds.host & is_long & ~holds.work & (spans.ends > worked)
    return after & (np.cumsum(after * spans.seconds, axis=1) <= fleet.rules.host_time_hours * HOUR)


def rests(fleet: WatchedFleet, least_seconds: float = 0.0) -> dict[int, Rest]:
    """The rests of all workloads that last for `least_seconds` or longer, by place in `Recent.holds`.

    A workload whose data end early, or are too thin since its last work, is not in it.
    """
    holds, gap = fleet.holds, fleet.rules.gap_minutes * MINUTE
    spans, active, rest = _with_past(fleet)
    (count, width), last_work = active.shape, last_true(holds.work, fleet.spans)
    ends, seconds = np.tile(spans.ends, count), np.tile(spans.seconds, count)
    judged = rested_since(
        np.repeat(np.arange(count), width), ends - seconds, ends, active=active.ravel(), rests=rest.ravel(),
        count=count, gap_seconds=gap,
    )  # fmt: skip
    by_hold: dict[int, Rest] = {}
    for n, hold in enumerate(fleet.recent.holds):
        since = max(float(judged.since[n]), hold.since)
        after = spans.since(since)
        idle = min(float(spans.seconds[rest[n] & after].sum()), fleet.end - since)
        # The newest minutes may be late; a longer gap may hide work.
        is_known = fleet.end - judged.newest[n] <= gap and fleet.is_fresh(hold)
        if is_known and fleet.end - since >= max(least_seconds, 1.0) and (
            idle >= fleet.rules.observed_min * (fleet.end - since)
        ):  # fmt: skip
            by_hold[n] = Rest(
                since, bool(judged.at_least[n]) and since > hold.since,
                float(last_work[n]) if np.isfinite(last_work[n]) else None, idle, hold.since >= spans.start,
                bool((holds.free[n] | ~fleet.spans.since(since)).all()),
            )  # fmt: skip
    return by_hold


def _with_past(fleet: WatchedFleet) -> tuple[Spans, Mask, Mask]:
    """The spans, with the hours before them where these were read, in which each workload worked, and rested."""
    recent, spans, active, rest = fleet.recent, fleet.spans, fleet.holds.work | given_time(fleet), fleet.holds.rest
    if recent.past is None:
        return spans, active, rest
    (hours, measures), begins, start = recent.past, recent.past[0].ends - recent.past[0].seconds, observed_from(recent)
    before, ends = begins < start, np.minimum(hours.ends, start)
    gpus = gpu_signs(replace(recent, spans=hours, gpu=measures), fleet.criteria.book, fleet.rules)
    worked = of_holds(recent, gpus.work | gpus.spin, np.any)[:, before]
    rested = of_holds(recent, gpus.rest, np.all)[:, before]
    line = [np.concatenate(pair) for pair in ((ends[before], spans.ends), ((ends - begins)[before], spans.seconds))]
    return Spans(*line), np.concatenate([worked, active], axis=1), np.concatenate([rested, rest], axis=1)
