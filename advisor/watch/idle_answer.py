"""Whether something has been idle for a while: the answer that schedulers and scripts act on. Pure.

Who asks may end work on the answer, so that idle is said only where all of it was observed at rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..core.coded_text import CodedText, coded
from ..core.formatting import counted
from ..core.naming import Named
from ..core.recent import Detail, Hold, Recent, Rows, Values
from ..core.timestamps import minute, span
from ..core.verdict_types import Owner
from .evaluate import scene_of
from .holds import last_true
from .rests import Rest, given_time, rests
from .scene import MINUTE, Criteria, Scene
from .timeline import Mask
from .words import named

IdleState = Literal["idle", "busy", "unknown"]
# A rest may be shorter by this: work ended somewhere within a span.
_TOLERANCE_SECONDS = 150.0
# Share of the asked time that must be without a verdict for its reason to be told.
_MOSTLY = 0.5


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked about. `holds`: places of workloads; `gpus`: places of GPUs, where a node, a GPU or the whole
    source is meant (empty for a workload)."""

    what: str
    holds: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class IdleAnswer:
    """`idle_since`, `last_work`, `data_end`: Unix seconds; None: not known, or it does not apply. `gpu_count`: in whole
    GPUs."""

    state: IdleState
    what: str
    gpu_count: float
    idle_since: float | None
    last_work: float | None
    data_end: float
    reason: CodedText


def targets(recent: Recent) -> tuple[Named, ...]:
    """All that can be asked about: workloads, nodes, GPUs."""
    found = [
        Named(
            hold.workload_id, f"{hold.holder} {hold.name}", hold.name,
            tuple(dict.fromkeys(recent.gpus[gpu].node for gpu in hold.gpus)),
            tuple(one for one in (hold.job_id, hold.pod) if one),
        )
        for hold in recent.holds
    ]  # fmt: skip
    found += [Named(f"node:{node.node}", "node", node.node) for node in recent.nodes]
    found += [Named(gpu.uuid, "GPU", f"{gpu.node}/{gpu.index}" if gpu.index is not None else "") for gpu in recent.gpus]
    return tuple(found)


def target_of(recent: Recent, found: Named | None) -> Target:
    """What a name stands for; None: the whole source."""
    if found is None:
        return Target("all GPUs", gpus=tuple(range(len(recent.gpus))))
    for n, hold in enumerate(recent.holds):
        if hold.workload_id == found.id:
            return Target(f"{hold.holder} {named(hold.name)}", holds=(n,))
    if found.what == "node":
        own = tuple(n for n, gpu in enumerate(recent.gpus) if gpu.node == found.name)
        return Target(f"node {named(found.name)}", gpus=own)
    own = tuple(n for n, gpu in enumerate(recent.gpus) if gpu.uuid == found.id)
    return Target(f"GPU {named(found.name or found.id)}", gpus=own)


def idle_answer(recent: Recent, target: Target, longer_than_seconds: float, criteria: Criteria) -> IdleAnswer:
    """Whether a target has been idle for so long, was busy within that time, or cannot be known."""
    asked, places = _with_target(recent, target)
    scene, rules = scene_of(asked, criteria), criteria.rules
    own = [n for n, hold in enumerate(asked.holds) if set(hold.gpus) & set(target.gpus)]
    holds = tuple(dict.fromkeys((*places, *own)))
    gpus = target.gpus or tuple(gpu for n in target.holds for gpu in recent.holds[n].gpus)
    count = sum(recent.gpus[gpu].part for gpu in gpus)
    found = rests(scene, max(longer_than_seconds - _TOLERANCE_SECONDS, MINUTE))
    since = max((found[n].since for n in holds if n in found), default=None)
    last = _newest(scene.holds.work, holds, scene)

    def answer(state: IdleState, reason: CodedText) -> IdleAnswer:
        return IdleAnswer(state, target.what, count, since if state == "idle" else None, last, scene.end, reason)

    age = recent.now - scene.end
    if not gpus:
        return answer("unknown", coded("no-gpus", "No GPU of it is in the data."))
    if age > rules.fresh_minutes * MINUTE:
        return answer(
            "unknown", coded("data-stale", "The newest data are {age} old ({at}).", age=span(age), at=minute(scene.end))
        )
    busy = _busy(scene, holds, longer_than_seconds)
    if busy is not None:
        return answer("busy", busy)
    if any(n not in found for n in holds):
        return answer("unknown", _why_unknown(scene, holds, found, longer_than_seconds))
    return answer(
        "idle",
        coded(
            "idle", "{gpus} not used for {span}.", gpus=counted(round(count), "GPU") if count >= 1 else "Its GPU part",
            span=span(scene.end - since) if since is not None else "an unknown time",
        ),
    )  # fmt: skip


def _with_target(recent: Recent, target: Target) -> tuple[Recent, tuple[int, ...]]:
    """The reading with the asked GPUs as if one workload held them; where a workload is asked for, as it is."""
    if target.holds:
        return recent, target.holds
    begin = recent.past.start if recent.past.count else recent.gpu.coarse.start
    asked = Hold("asked", "asked", target.what, "process", Owner(), target.gpus, begin, "activity")
    more = replace(
        recent, holds=(*recent.holds, asked),
        service=Detail(_longer(recent.service.fine), _longer(recent.service.coarse)),
    )  # fmt: skip
    return more, (len(recent.holds),)


def _longer(rows: Rows) -> Rows:
    """Rows with one subject more, of which nothing is known."""

    def longer(values: Values) -> Values:
        return np.concatenate([values, np.full((1, values.shape[1]), np.nan, dtype=np.float32)])

    return replace(rows, values={name: longer(values) for name, values in rows.values.items()})


def _busy(scene: Scene, holds: Sequence[int], longer_than_seconds: float) -> CodedText | None:
    """The last sign of work within the time, and what it is; None: there is none."""
    signs = scene.holds
    begin = scene.end - longer_than_seconds + _TOLERANCE_SECONDS
    for code, text, mask in (
        ("gpu-activity", "GPU activity at {at}.", signs.work & ~signs.queue),
        ("requests", "Its engine had requests at {at}.", signs.queue),
        ("host-activity", "Its hosts were loading or writing data at {at}.", given_time(scene)),
    ):
        newest = _newest(mask, holds, scene)
        if newest is not None and newest > begin:
            return coded(code, text, at=minute(newest))
    return None


def _newest(mask: Mask, holds: Sequence[int], scene: Scene) -> float | None:
    """The end of the last span that is true for any of these holds."""
    ends = last_true(np.logical_or.reduce(mask[list(holds)], axis=0, keepdims=True), scene.line)
    return float(ends[0]) if np.isfinite(ends[0]) else None


def _why_unknown(scene: Scene, holds: Sequence[int], found: dict[int, Rest], longer_than_seconds: float) -> CodedText:
    """Why a target that showed no work is not called idle."""
    missing = [scene.recent.holds[n] for n in holds if n not in found]
    if any(not scene.is_fresh(hold) for hold in missing):
        return coded("idle-node-silent", "No fresh data from one of its nodes.")
    newest = scene.line.since(scene.end - longer_than_seconds)
    at = sorted({gpu for hold in missing for gpu in hold.gpus})
    signs = scene.gpus
    blind = np.logical_not(signs.rest | signs.work | signs.spin | signs.contradicted)[at][:, newest]
    held = (blind & scene.gpus.held[at][:, newest]).mean() > _MOSTLY
    if held and not (scene.gpus.active[at][:, newest] & blind).any():
        return coded("held-without-activity", "Memory is held, and no activity metric is available: not judged.")
    if held:
        return coded(
            "held-not-confirmed",
            "Memory is held, GPU activity is 0, and neither power nor profiling metrics confirm it: not judged.",
        )
    young = [hold for hold in missing if hold.since > scene.end - longer_than_seconds]
    if young:
        return coded("too-young", "It started only {age} ago.", age=span(scene.end - max(h.since for h in young)))
    return coded("too-little-observed", "Too little of that time was observed, or by one source alone: not judged.")
