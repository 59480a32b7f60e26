"""Whether something has been idle for a while: the answer that schedulers and scripts act on. Pure.

A script may end work on the answer, so it is idle only where all of the time was observed at rest.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

import numpy as np

from ..core.coded_text import CodedText, coded
from ..core.formatting import counted
from ..core.ids import Named
from ..core.incident_types import Floats, Hold, Recent
from ..core.timestamps import minute, span
from ..core.verdict_types import Owner
from .fleet import MINUTE, Criteria, WatchedFleet, given_time, named, rests
from .signs import last_true

IdleState = Literal["idle", "busy", "unknown"]
# A rest may be shorter by this: work ended somewhere within a span.
_TOLERANCE_SECONDS = 150.0
# Share of the time that must be without a verdict for its reason to be reported.
_MOSTLY = 0.5


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked about: the places of its GPUs, and that of the workload; None: a node, a GPU or the whole source is
    meant."""

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
    every: dict[Named | None, Target] = {None: Target("all GPUs", gpus=tuple(range(len(recent.gpus))))}
    for n, hold in enumerate(recent.holds):
        nodes = tuple(dict.fromkeys(recent.gpus[gpu].node for gpu in hold.gpus))
        jobs = tuple(filter(None, (hold.job_id, hold.pod)))
        what = Named(hold.workload_id, f"{hold.holder} {hold.name}", hold.name, nodes, jobs)
        every[what] = Target(f"{hold.holder} {named(hold.name)}", n, hold.gpus)
    for node in recent.nodes:
        gpus = tuple(n for n, gpu in enumerate(recent.gpus) if gpu.node == node.node)
        every[Named(f"node:{node.node}", "node", node.node)] = Target(f"node {named(node.node)}", gpus=gpus)
    for n, gpu in enumerate(recent.gpus):
        name = f"{gpu.node}/{gpu.index}" if gpu.index is not None else ""
        every[Named(gpu.uuid, "GPU", name)] = Target(f"GPU {named(name or gpu.uuid)}", gpus=(n,))
    return every


def idle_answers(
    recent: Recent, asked: Sequence[Target], longer_than_seconds: float, criteria: Criteria
) -> list[IdleAnswer]:
    """Whether each target has been idle for so long, was busy within that time, or cannot be known."""
    # The GPUs of a node as if one workload held them, since ever, beside every workload that holds some of them.
    added = [
        Hold("asked", "asked", target.what, "process", Owner(), target.gpus, -math.inf, "activity", is_workload=False)
        for target in asked
        if target.hold is None
    ]
    unknown = np.full((len(added), len(recent.spans.ends)), np.nan)
    service = {name: np.vstack([values, unknown]) for name, values in recent.service.items()}
    fleet = WatchedFleet(replace(recent, holds=(*recent.holds, *added), service=service), criteria)
    signs, rested = fleet.holds, rests(fleet, max(longer_than_seconds - _TOLERANCE_SECONDS, MINUTE))
    last_work = last_true(signs.work, fleet.spans)
    uses = (
        ("gpu-activity", "GPU activity at {at}.", last_true(signs.work & ~signs.queue, fleet.spans)),
        ("requests", "Its engine had requests at {at}.", last_true(signs.queue, fleet.spans)),
        ("host-activity", "Its hosts were loading or writing data at {at}.", last_true(given_time(fleet), fleet.spans)),
    )
    holders, places = defaultdict[int, list[int]](list), count(len(recent.holds))
    for n, hold in enumerate(recent.holds):
        for gpu in hold.gpus:
            holders[gpu].append(n)

    def judge(target: Target) -> IdleAnswer:
        shares = {n for gpu in target.gpus for n in holders[gpu]}
        holds = [target.hold] if target.hold is not None else [*sorted(shares), next(places)]
        rest = max((rested[n] for n in holds if n in rested), key=lambda rest: rest.since, default=None)
        gpu_count = sum(recent.gpus[gpu].part for gpu in target.gpus)

        def newest(ends: Floats) -> float | None:
            return float(end) if math.isfinite(end := np.fmax.reduce(ends[holds])) else None

        def answer(state: IdleState, code: str, text: str, **fields: str) -> IdleAnswer:
            since = rest.since if rest is not None and state == "idle" else None
            reason = coded(code, text, **fields)
            return IdleAnswer(state, target.what, gpu_count, since, newest(last_work), fleet.end, reason)

        if not target.gpus:
            return answer("unknown", "no-gpus", "No GPU of it is in the data.")
        if fleet.is_stale:
            age, at = span(recent.now - fleet.end), minute(fleet.end)
            return answer("unknown", "data-stale", "The newest data are {age} old ({at}).", age=age, at=at)
        for code, text, ends in uses:
            last = newest(ends)
            if last is not None and last > fleet.end - longer_than_seconds + _TOLERANCE_SECONDS:
                return answer("busy", code, text, at=minute(last))
        missing = [fleet.recent.holds[n] for n in holds if n not in rested]
        if missing or rest is None:
            code, text = _why_unknown(fleet, missing, fleet.end - longer_than_seconds)
            return answer("unknown", code, text)
        what = counted(round(gpu_count), "GPU") if gpu_count >= 1 else "Its GPU part"
        least, lasted = "at least " if rest.at_least else "", span(fleet.end - rest.since)
        return answer("idle", "idle", "{gpus} not used for {least}{span}.", gpus=what, least=least, span=lasted)

    return [judge(target) for target in asked]


def _why_unknown(fleet: WatchedFleet, missing: Sequence[Hold], begin: float) -> tuple[str, str]:
    if not all(map(fleet.is_fresh, missing)):
        return "idle-node-silent", "No fresh data from one of its nodes."
    gpus, signs = sorted({gpu for hold in missing for gpu in hold.gpus}), fleet.gpus
    newest, masks = fleet.spans.since(begin), (signs.rest, signs.work, signs.spin, signs.contradicted)
    judged = np.logical_or.reduce([mask[gpus][:, newest] for mask in masks])
    if (signs.held[gpus][:, newest] & ~judged).mean() > _MOSTLY:
        return "held-not-confirmed", "Memory is held, and no other metric confirms that the GPU rests: not judged."
    young = max((hold.since for hold in missing), default=begin)
    if young > begin:
        return "too-young", f"It started only {span(fleet.end - young)} ago."
    return "too-little-observed", "Too little of that time was observed, or by one source alone: not judged."
