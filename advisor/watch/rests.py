"""Since when each workload has not used its GPUs, by what was observed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .holds import last_true
from .scene import HOUR, MINUTE, Scene
from .timeline import Floats, Mask


@dataclass(frozen=True, slots=True)
class Rest:
    """`since`: Unix seconds; `last_work`: None where there was none within view. `idle_seconds`: observed at rest
    since then; `longest_before_seconds`: the longest rest that work followed. `in_view`: whether the workload began
    within view. `free`: it held no memory since then."""

    since: float
    last_work: float | None
    idle_seconds: float
    longest_before_seconds: float
    in_view: bool
    free: bool


# Preparation keeps a host busy for half of some minutes on end; a shorter burst is what any host does now and then.
_SUSTAINED_SECONDS, _SUSTAINED_SHARE = 20 * MINUTE, 0.5


def _sustained(scene: Scene) -> Mask:
    """Spans with a busy host that ends a stretch of preparation."""
    line, host = scene.line, scene.holds.host
    busy = np.concatenate([np.zeros((len(host), 1)), np.cumsum(host * line.seconds[None, :], axis=1)], axis=1)
    first = np.searchsorted(line.ends, line.ends - _SUSTAINED_SECONDS, side="right")
    share = (busy[:, 1:] - busy[:, first]) / _SUSTAINED_SECONDS
    return host & (share >= _SUSTAINED_SHARE - 1e-6)


def given_time(scene: Scene, since: Floats) -> Mask:
    """Spans in which hosts of a workload prepared something for it, up to some hours after `since` (of each hold)."""
    line, holds = scene.line, scene.holds
    after = _sustained(scene) & ~holds.work & (line.ends[None, :] > np.nan_to_num(since, nan=-np.inf)[:, None])
    spent = np.cumsum(after * line.seconds[None, :], axis=1)
    return after & (spent <= scene.rules.host_time_hours * HOUR)


def rests(scene: Scene, least_seconds: float) -> dict[int, Rest]:
    """The rests of all workloads that last for `least_seconds` or longer, by place in `Recent.holds`.

    A workload whose data end early, or are too thin since its last work, is not in it.
    """
    line, holds = scene.line, scene.holds
    if not scene.recent.holds:
        return {}
    worked = last_true(holds.work, line)
    prepared = last_true(given_time(scene, worked), line)
    found: dict[int, Rest] = {}
    for n, hold in enumerate(scene.recent.holds):
        last = float(worked[n]) if np.isfinite(worked[n]) else None
        active = np.nanmax([worked[n], prepared[n], -np.inf])
        begin = max(float(active) - _half_row(scene, float(active)), hold.since, line.start)
        is_short = line.end - begin < least_seconds and begin > line.observed_from
        rest = None if is_short or not scene.is_fresh(hold) else _observed(scene, n, begin)
        if rest is None:
            continue
        since, idle = rest
        after = line.since(since)
        if since <= line.observed_from + 1e-6 and np.isfinite(scene.rested_since[list(hold.gpus)]).all():
            since = max(float(scene.rested_since[list(hold.gpus)].max()), hold.since)
            idle += line.observed_from - since
        if line.end - since < least_seconds:
            continue
        before = _longest_before(scene, n)
        view = min(scene.recent.past.start, line.start) if scene.recent.past.count else line.start
        found[n] = Rest(since, last, idle, before, hold.since >= view, bool((holds.free[n] | ~after).all()))
    return found


def _half_row(scene: Scene, active: float) -> float:
    """Work ended somewhere within its last span: on average in the middle of it."""
    line = scene.line
    coarse_end = float(line.ends[line.coarse - 1]) if line.coarse else -np.inf
    return 0.5 * float(line.seconds[0]) if np.isfinite(active) and active <= coarse_end + 1e-6 else 0.0


def _observed(scene: Scene, n: int, begin: float) -> tuple[float, float] | None:
    """Since when it is known to rest, and for how long it was observed at rest; None where too little was."""
    line, rules = scene.line, scene.rules
    after = np.flatnonzero(line.since(begin))
    rest = scene.holds.rest[n, after]
    ends, seconds = line.ends[after], line.seconds[after]
    # A longer gap may hide work: what counts begins after it. The newest minutes may be late.
    gap = 0.0
    for place in range(len(after)):
        gap = 0.0 if rest[place] else gap + float(seconds[place])
        if gap > rules.gap_minutes * MINUTE:
            begin = float(ends[place])
    if gap > rules.gap_minutes * MINUTE:
        return None
    counted = ends > begin + 1e-6
    elapsed = line.end - begin
    idle = min(float(seconds[rest & counted].sum()), elapsed)
    if elapsed <= 0 or idle < rules.observed_min * elapsed:
        return None
    return begin, idle


def _longest_before(scene: Scene, n: int) -> float:
    """The longest time without work that work followed."""
    line = scene.line
    at = np.flatnonzero(scene.holds.work[n])
    if len(at) < 2:
        return 0.0
    begins = line.ends[at] - line.seconds[at]
    return max(float((begins[1:] - line.ends[at][:-1]).max()), 0.0)
