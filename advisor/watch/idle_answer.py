"""Whether something has been idle for a while: the answer that schedulers and scripts act on. Pure.

Who asks may end work on the answer, so that idle is said only where all of it was observed at rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..core.coded_text import CodedText, coded
from ..core.formatting import counted
from ..core.naming import Named
from ..core.recent import Hold, Recent
from ..core.timestamps import minute, span
from ..core.verdict_types import Owner
from .rests import Rest, given_time, rests
from .scene import MINUTE, Criteria, Scene, named
from .signs import last_true

IdleState = Literal["idle", "busy", "unknown"]
# A rest may be shorter by this: work ended somewhere within a span.
_TOLERANCE_SECONDS = 150.0
# Share of the asked time that must be without a verdict for its reason to be told.
_MOSTLY = 0.5


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked about: the place of a workload, or else the places of GPUs, where a node, a GPU or the whole source
    is meant."""

    what: str
    hold: int | None = None
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


def targets(recent: Recent) -> Mapping[Named | None, Target]:
    """All that can be asked about: workloads, nodes, GPUs; under None the whole source."""
    found: dict[Named | None, Target] = {None: Target("all GPUs", gpus=tuple(range(len(recent.gpus))))}
    for n, hold in enumerate(recent.holds):
        nodes = tuple(dict.fromkeys(recent.gpus[gpu].node for gpu in hold.gpus))
        jobs = tuple(one for one in (hold.job_id, hold.pod) if one)
        what = Named(hold.workload_id, f"{hold.holder} {hold.name}", hold.name, nodes, jobs)
        found[what] = Target(f"{hold.holder} {named(hold.name)}", n)
    for node in recent.nodes:
        own = tuple(n for n, gpu in enumerate(recent.gpus) if gpu.node == node.node)
        found[Named(f"node:{node.node}", "node", node.node)] = Target(f"node {named(node.node)}", gpus=own)
    for n, gpu in enumerate(recent.gpus):
        name = f"{gpu.node}/{gpu.index}" if gpu.index is not None else ""
        found[Named(gpu.uuid, "GPU", name)] = Target(f"GPU {named(name or gpu.uuid)}", gpus=(n,))
    return found


def idle_answer(recent: Recent, target: Target, longer_than_seconds: float, criteria: Criteria) -> IdleAnswer:
    """Whether a target has been idle for so long, was busy within that time, or cannot be known."""
    if target.hold is not None:
        holds, gpus = [target.hold], recent.holds[target.hold].gpus
    else:
        # The asked GPUs as if one workload held them, since ever, and whoever else holds some of them.
        gpus, own = target.gpus, set(target.gpus)
        asked = Hold("asked", "asked", target.what, "process", Owner(), gpus, -math.inf, "activity")
        unserved = np.full((1, len(recent.spans.ends)), np.nan, dtype=np.float32)
        service = {name: np.concatenate([values, unserved]) for name, values in recent.service.items()}
        recent = replace(recent, holds=(*recent.holds, asked), service=service)
        holds = [n for n, hold in enumerate(recent.holds) if own & set(hold.gpus)]
    scene = Scene.of(recent, criteria)
    found = rests(scene, max(longer_than_seconds - _TOLERANCE_SECONDS, MINUTE))
    newest = max((found[n] for n in holds if n in found), key=lambda rest: rest.since, default=None)
    count = sum(recent.gpus[gpu].part for gpu in gpus)

    def answer(state: IdleState, reason: CodedText) -> IdleAnswer:
        since = newest.since if newest is not None and state == "idle" else None
        return IdleAnswer(state, target.what, count, since, _newest(scene.holds.work, holds, scene), scene.end, reason)

    age = span(recent.now - scene.end)
    if not gpus:
        return answer("unknown", coded("no-gpus", "No GPU of it is in the data."))
    if recent.now - scene.end > scene.rules.fresh_minutes * MINUTE:
        text = "The newest data are {age} old ({at})."
        return answer("unknown", coded("data-stale", text, age=age, at=minute(scene.end)))
    busy = _busy(scene, holds, scene.end - longer_than_seconds + _TOLERANCE_SECONDS)
    if busy is not None:
        return answer("busy", busy)
    if newest is None or any(n not in found for n in holds):
        return answer("unknown", _why_unknown(scene, holds, found, scene.end - longer_than_seconds))
    what = counted(round(count), "GPU") if count >= 1 else "Its GPU part"
    least, rested = "at least " if newest.at_least else "", span(scene.end - newest.since)
    return answer("idle", coded("idle", "{gpus} not used for {least}{span}.", gpus=what, least=least, span=rested))


def _busy(scene: Scene, holds: Sequence[int], begin: float) -> CodedText | None:
    """The last sign of work since a moment, and what it is; None: there is none."""
    signs = scene.holds
    for code, text, mask in (
        ("gpu-activity", "GPU activity at {at}.", signs.work & ~signs.queue),
        ("requests", "Its engine had requests at {at}.", signs.queue),
        ("host-activity", "Its hosts were loading or writing data at {at}.", given_time(scene)),
    ):
        newest = _newest(mask, holds, scene)
        if newest is not None and newest > begin:
            return coded(code, text, at=minute(newest))
    return None


def _newest(mask: np.ndarray, holds: Sequence[int], scene: Scene) -> float | None:
    """The end of the last span that is true for any of these holds."""
    end = float(last_true(mask[holds].any(axis=0, keepdims=True), scene.spans)[0])
    return end if math.isfinite(end) else None


def _why_unknown(scene: Scene, holds: Sequence[int], found: Mapping[int, Rest], begin: float) -> CodedText:
    """Why a target that showed no work since a moment is not called idle."""
    missing = [scene.recent.holds[n] for n in holds if n not in found]
    if any(not scene.is_fresh(hold) for hold in missing):
        return coded("idle-node-silent", "No fresh data from one of its nodes.")
    at = np.ix_(sorted({gpu for hold in missing for gpu in hold.gpus}), scene.spans.since(begin))
    signs, gpu = scene.gpus, scene.recent.gpu
    blind = ~(signs.rest | signs.work | signs.spin | signs.contradicted)[at]
    is_told = np.isfinite(np.fmax.reduce([gpu[name][at] for name in ("util", "sm", "dram")]))
    if (blind & signs.held[at]).mean() > _MOSTLY and not (is_told & blind).any():
        return coded("held-without-activity", "Memory is held, and no activity metric is available: not judged.")
    if (blind & signs.held[at]).mean() > _MOSTLY:
        return coded(
            "held-not-confirmed",
            "Memory is held, GPU activity is 0, and neither power nor profiling metrics confirm it: not judged.",
        )
    young = max((hold.since for hold in missing), default=begin)
    if young > begin:
        return coded("too-young", "It started only {age} ago.", age=span(scene.end - young))
    return coded("too-little-observed", "Too little of that time was observed, or by one source alone: not judged.")
