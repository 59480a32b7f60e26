"""Since when each workload has not used its GPUs, by what was observed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..classify.features.rest import Since
from ..core.recent import Mask, Spans
from .scene import HOUR, MINUTE, Scene
from .signs import gpu_signs, last_true, observed_from, since_of

# Preparation keeps a host busy for half of some minutes on end; a shorter burst is what any host does now and then.
_SUSTAINED_SECONDS, _SUSTAINED_SHARE = 20 * MINUTE, 0.5


@dataclass(frozen=True, slots=True)
class Rest:
    """`since`: Unix seconds; `at_least`: the data begin there, and the rest may have begun before. `last_work`: None
    where there was none within view. `idle_seconds`: observed at rest since then; `longest_before_seconds`: the longest
    rest that work followed. `in_view`: whether the workload began within view. `free`: it held no memory since then."""

    since: float
    at_least: bool
    last_work: float | None
    idle_seconds: float
    longest_before_seconds: float
    in_view: bool
    free: bool


def given_time(scene: Scene) -> Mask:
    """Spans in which hosts of a workload prepared something for it, up to some hours after its last work."""
    spans, holds = scene.spans, scene.holds
    worked = np.nan_to_num(last_true(holds.work, spans), nan=-np.inf)[:, None]
    # A stretch of preparation: hosts that are busy, and were for half of the minutes before.
    busy = np.pad(np.cumsum(holds.host * spans.seconds, axis=1), ((0, 0), (1, 0)))
    first = np.searchsorted(spans.ends, spans.ends - _SUSTAINED_SECONDS, side="right")
    is_long = busy[:, 1:] - busy[:, first] >= _SUSTAINED_SHARE * _SUSTAINED_SECONDS - 1e-3
    after = holds.host & is_long & ~holds.work & (spans.ends > worked)
    return after & (np.cumsum(after * spans.seconds, axis=1) <= scene.rules.host_time_hours * HOUR)


def rests(scene: Scene, least_seconds: float = 0.0) -> dict[int, Rest]:
    """The rests of all workloads that last for `least_seconds` or longer, by place in `Recent.holds`.

    A workload whose data end early, or are too thin since its last work, is not in it.
    """
    spans, holds, recent, gap = scene.spans, scene.holds, scene.recent, scene.rules.gap_minutes * MINUTE
    found = since_of(spans, holds.work | given_time(scene), holds.rest, gap)
    last_work, begin, before = last_true(holds.work, spans), observed_from(recent), _rested_before(scene)
    view = min(recent.past[0].start, spans.start) if recent.past is not None else spans.start
    out: dict[int, Rest] = {}
    for n, hold in enumerate(recent.holds):
        # The newest minutes may be late; a longer gap may hide work.
        if np.isnan(found.since[n]) or scene.end - found.newest[n] > gap or not scene.is_fresh(hold):
            continue
        since = max(float(found.since[n]), hold.since)
        after = spans.since(since)
        idle = min(float(spans.seconds[holds.rest[n] & after].sum()), scene.end - since)
        if since >= scene.end or idle < scene.rules.observed_min * (scene.end - since):
            continue
        at_least, earlier = bool(found.at_least[n]), before.since[list(hold.gpus)]
        if since <= begin + 1e-6 and np.isfinite(earlier).all():
            at_least = bool(before.at_least[hold.gpus[int(earlier.argmax())]])
            since = max(float(earlier.max()), hold.since)
            idle += begin - since
        if scene.end - since < least_seconds:
            continue
        at = np.flatnonzero(holds.work[n])
        pauses = (spans.ends[at] - spans.seconds[at])[1:] - spans.ends[at][:-1]
        out[n] = Rest(
            since, at_least and since > hold.since, float(last_work[n]) if len(at) else None, idle,
            float(pauses.max(initial=0.0)), hold.since >= view, bool((holds.free[n] | ~after).all()),
        )  # fmt: skip
    return out


def _rested_before(scene: Scene) -> Since:
    """Since when each GPU rested up to the first observed span, by the hours before it; NaN: they do not show it."""
    recent, begin = scene.recent, observed_from(scene.recent)
    if recent.past is None or recent.past[0].end < begin:
        nothing = np.full(len(recent.gpus), np.nan)
        return Since(nothing, np.isnan(nothing), nothing, nothing)
    hours, measures = recent.past
    signs = gpu_signs(replace(recent, spans=hours, gpu=measures), scene.criteria.book, scene.rules)
    before = hours.ends - hours.seconds < begin
    hours = Spans(hours.ends[before], hours.seconds[before])
    # An hour that is not known may hide work.
    found = since_of(hours, (signs.work | signs.spin)[:, before], signs.rest[:, before], gap_seconds=0.0)
    return replace(found, since=np.where((found.since < begin) & (found.newest >= begin), found.since, np.nan))
