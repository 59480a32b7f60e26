"""What whoever reads a plan has to know: what stays as it is, what has no price, what was not measured."""

from __future__ import annotations

from ..core.coded_text import CodedText, coded
from ..core.formatting import counted
from .build import Drafted
from .pool_plans import pool_name
from .problem import FOREVER


def plan_notes(drafted: Drafted) -> tuple[CodedText, ...]:
    problem = drafted.problem
    own = [n for n in problem.nodes if n.is_today]
    notes: list[CodedText] = []
    held = [n for n in own if n.held is not None and n.held.code != "plan-excluded"]
    if held:
        notes.append(
            coded("plan-nodes-held", "too little is known to empty or fill {nodes}", nodes=counted(len(held), "node"))
        )
    unpriced = [n for n in own if n.usd_per_hour is None]
    if unpriced:
        notes.append(
            coded("plan-unpriced", "no price for {nodes}: no cash is counted", nodes=counted(len(unpriced), "node"))
        )
    forever = [n for n in own if n.bound_until == FOREVER and n.usd_per_hour is not None]
    if forever:
        notes.append(
            coded(
                "plan-bound", "{nodes} owned, or committed without a known end: capacity when emptied, not cash",
                nodes=counted(len(forever), "node"),
            )
        )  # fmt: skip
    if not any(n.host_mem_bytes for n in own) or not any(u.host_mem_bytes for s in problem.series for u in s.units):
        notes.append(coded("plan-host-memory-unknown", "host memory was not measured and limits nothing"))
    for pool, gpus in sorted(drafted.crowded.items()):
        notes.append(
            coded(
                "plan-crowded-today",
                "{pool}: jobs of the window would not fit beside the services of today: {gpus} too few at the peak",
                pool=pool_name(problem.pools[pool][0]), gpus=counted(gpus, "GPU"),
            )
        )  # fmt: skip
    for pool, gpus in sorted(drafted.reserve_lost.items()):
        if pool in problem.reserve:
            notes.append(
                coded(
                    "plan-reserve-lost",
                    "{pool}: {gpus} fewer than today can be kept in reserve for failures",
                    pool=pool_name(problem.pools[pool][0]), gpus=counted(gpus, "GPU"),
                )
            )  # fmt: skip
    unknown = [
        s.name for s in problem.series for u in s.units if u.fixed is not None and u.fixed.code == "plan-kind-unclear"
    ]
    if unknown:
        notes.append(
            coded(
                "plan-kinds-unclear",
                "the plan moves no work of unclear kind: {replicas}",
                replicas=counted(len(unknown), "replica"),
            )
        )
    return tuple(notes)
