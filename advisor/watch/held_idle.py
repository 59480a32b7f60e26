"""GPUs that somebody holds and nobody uses, for longer than the holder's kind may; since when, by what was observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..classify.features.rest import rested_since
from ..core.advice_types import Evidence
from ..core.incident_types import Sighting
from ..core.recent import Mask, Spans
from ..core.timestamps import minute, rfc3339, span
from .scene import HOUR, MINUTE, Rule, Scene
from .signs import gpu_signs, last_true, observed_from, of_holds

# Preparation keeps a host busy for half of some minutes on end; a shorter burst is what any host does now and then.
_SUSTAINED_SECONDS, _SUSTAINED_SHARE = 20 * MINUTE, 0.5
# From so many GPUs on an incident is a large one.
_MANY_GPUS = 8


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
    holds, gap = scene.holds, scene.rules.gap_minutes * MINUTE
    spans, active, rest = _with_past(scene)
    (count, width), last_work = active.shape, last_true(holds.work, scene.spans)
    ends, seconds = np.tile(spans.ends, count), np.tile(spans.seconds, count)
    found = rested_since(
        np.repeat(np.arange(count), width), ends - seconds, ends, active=active.ravel(), rests=rest.ravel(),
        count=count, gap_seconds=gap,
    )  # fmt: skip
    out: dict[int, Rest] = {}
    for n, hold in enumerate(scene.recent.holds):
        since = max(float(found.since[n]), hold.since)
        after = spans.since(since)
        idle = min(float(spans.seconds[rest[n] & after].sum()), scene.end - since)
        # The newest minutes may be late; a longer gap may hide work.
        is_known = scene.end - found.newest[n] <= gap and scene.is_fresh(hold)
        if is_known and scene.end - since >= max(least_seconds, 1.0) and (
            idle >= scene.rules.observed_min * (scene.end - since)
        ):  # fmt: skip
            out[n] = Rest(
                since, bool(found.at_least[n]) and since > hold.since,
                float(last_work[n]) if np.isfinite(last_work[n]) else None, idle, hold.since >= spans.start,
                bool((holds.free[n] | ~scene.spans.since(since)).all()),
            )  # fmt: skip
    return out


def _with_past(scene: Scene) -> tuple[Spans, Mask, Mask]:
    """The spans, with the hours before them where these were read, in which each workload worked, and rested."""
    recent, spans, active, rest = scene.recent, scene.spans, scene.holds.work | given_time(scene), scene.holds.rest
    if recent.past is None:
        return spans, active, rest
    (hours, measures), begins, start = recent.past, recent.past[0].ends - recent.past[0].seconds, observed_from(recent)
    before, ends = begins < start, np.minimum(hours.ends, start)
    gpus = gpu_signs(replace(recent, spans=hours, gpu=measures), scene.criteria.book, scene.rules)
    worked = of_holds(recent, gpus.work | gpus.spin, np.any)[:, before]
    rested = of_holds(recent, gpus.rest, np.all)[:, before]
    line = [np.concatenate(pair) for pair in ((ends[before], spans.ends), ((ends - begins)[before], spans.seconds))]
    return Spans(*line), np.concatenate([worked, active], axis=1), np.concatenate([rested, rest], axis=1)


_HELD, _LIMIT = "{gpus} held idle for {least}{lasted} by {who}.", "The limit is {limit}."


class HeldIdle(Rule):
    """Workloads at rest for longer than their limit."""

    kind = "held-idle"
    texts: ClassVar = {
        "no-process": f"{_HELD} No process has touched them since they were allocated. {_LIMIT}",
        "never-worked": f"{_HELD} They have not been used since the workload started. {_LIMIT}",
        "no-work-in-view": f"{_HELD} No activity in the data since {{since}}. {_LIMIT}",
        "worked-before": f"{_HELD} Last activity: {{last}}. {_LIMIT}",
    }
    steps: ClassVar = {
        "job-release": "Cancel the job or end its process if the work is done.",
        "notebook-release": "Shut down the kernel or the notebook server if it is not needed any more.",
        "service-release": "Scale the service down, or to zero, if no requests are expected.",
        "process-release": "End the process if the work is done.",
        "allocation-release": "Cancel the allocation: no process uses its GPUs.",
    }

    def find(self, scene: Scene) -> Iterator[Sighting]:
        for n, rest in rests(scene).items():
            hold, last, idle = scene.recent.holds[n], rest.last_work, scene.end - rest.since
            # An allocation of which no process ever held memory is one without a process, whatever its job is named.
            is_empty = hold.basis == "allocation" and rest.free and last is None and rest.in_view
            holder = "allocation" if is_empty else hold.holder
            limit = scene.criteria.limits(holder)
            if idle < limit:
                continue
            code = "no-process" if is_empty else "never-worked" if rest.in_view else "no-work-in-view"
            subject, worked = scene.of_hold(hold, holder), [] if last is None else [rfc3339(last)]
            yield self.sighting(
                scene, code if last is None else "worked-before", subject, step=f"{holder}-release", since=rest.since,
                severity="high" if subject.gpu_count >= _MANY_GPUS else "medium", last_work=last, gpus=hold.gpus,
                wasted_seconds=rest.idle_seconds, evidence=(
                    Evidence("idle", idle / MINUTE, limit / MINUTE, "minutes"),
                    Evidence("idle_observed", rest.idle_seconds / idle, scene.rules.observed_min, "ratio"),
                    *(Evidence("last_work", at, None, "time (UTC)") for at in worked),
                    *scene.power_evidence(hold.gpus, rest.since),
                    *([Evidence("requests_waiting", 0.0, None, "requests")] if hold.engine else []),
                ), limit=span(limit), least="at least " if rest.at_least else "", last=minute(last or 0.0),
            )  # fmt: skip
