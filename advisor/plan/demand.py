"""GPUs that a series held and needed in each hour of the window, on one grid for the whole fleet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..core.frame import Window
from ..recommend.groups import Group
from .problem import Hours

# Jobs are looked at in steps of five minutes.
STEP_SECONDS = 300.0


def grid_of(window: Window) -> Hours:
    """Begin of each whole hour of the window, Unix seconds; one hour at least."""
    first = math.ceil(window.start / 3600) * 3600.0
    hours = max(int((window.end - first) // 3600), 1)
    return np.arange(hours, dtype=np.float64) * 3600.0 + first


def held(group: Group, grid: Hours) -> Hours:
    """GPUs that a service's runs held in each hour: of those that outlasted it, so that a replica that was started anew
    within the hour is still one."""
    total = np.zeros(len(grid))
    for w in group.workloads:
        total += ((w.start < grid + 3600.0) & (w.end >= grid + 3600.0)) * float(len(w.gpus))
    return total


@dataclass(frozen=True)
class JobUse:
    """GPUs that the jobs of one series held in each hour, and the whole nodes among them; runs of half a node and more
    count as their part of one."""

    gpus: Hours
    whole_nodes: Hours


def jobs_of_pool(groups: Sequence[Group], grid: Hours) -> Mapping[str, JobUse]:
    """What the jobs of one pool held, by series. Of each hour the moment counts in which all of them together held
    most: jobs that follow one another within an hour are not added up."""
    steps = int(3600 / STEP_SECONDS)
    moments = (grid[:, None] + STEP_SECONDS * (np.arange(steps) + 0.5)[None, :]).ravel()
    fine = {g.series_id: _at(g, moments) for g in groups}
    if not fine:
        return {}
    total = np.sum([one[0] for one in fine.values()], axis=0).reshape(len(grid), steps)
    at = np.arange(len(grid)) * steps + total.argmax(axis=1)
    return {key: JobUse(gpus[at], wholes[at]) for key, (gpus, wholes) in fine.items()}


def _at(group: Group, moments: Hours) -> tuple[Hours, Hours]:
    gpus, wholes = np.zeros(len(moments)), np.zeros(len(moments))
    of_node = group.nodes[0].gpu_count if group.nodes else 0
    for w in group.workloads:
        first, last = np.searchsorted(moments, [w.start, w.end])
        gpus[first:last] += len(w.gpus)
        each = len(w.gpus) / max(len(w.nodes), 1)
        if of_node and each >= of_node / 2:
            # Half a node that is free in parts on several nodes starts no such job.
            wholes[first:last] += len(w.nodes) * min(each / of_node, 1.0)
    return gpus, wholes


def needed(group: Group, grid: Hours, headroom: float) -> Hours:
    """GPUs that a service's load needs in each hour at its headroom: never more than it held then.

    Where its load was not measured in an hour, all that it held. Where the count it holds changes by itself, something
    scales it, and what it held is what it takes.
    """
    had = held(group, grid)
    if not len(group.load) or group.lacking or _scales(had):
        return had
    at = np.clip(((group.load_ts - 1) - grid[0]) // 3600, 0, len(grid) - 1).astype(int)
    peak = np.full(len(grid), np.nan)
    np.fmax.at(peak, at, group.load)
    need = had * peak / headroom
    return np.where(np.isfinite(need), np.minimum(need, had), had)


def _scales(had: Hours) -> bool:
    steady = had[had > 0]
    return len(steady) > 0 and float(np.ptp(steady)) > 0 and float(np.mean(steady == np.median(steady))) < 0.9
