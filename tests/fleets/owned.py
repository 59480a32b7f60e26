"""What is true of a fleet's pods: what each held and when, what recurs in it, and which pods are one piece of work."""

from __future__ import annotations

from dataclasses import dataclass

from .description import Fleet, Hold, Workload
from .owners import REPLICATED


@dataclass(frozen=True)
class PodTruth:
    """`devices`: (node, UUID of the GPU). `series`: what recurs. `gang`: its pods together are one workload; empty: it
    is one by itself, or nobody can say. `shared`: others have one of its GPUs at the same time. Times: Unix seconds."""

    namespace: str
    pod: str
    uid: str
    owner: str
    series: str
    gang: str
    replicated: bool
    team: str
    devices: tuple[tuple[str, str], ...]
    begin: float
    end: float
    shared: bool


def pod_truths(fleet: Fleet) -> tuple[PodTruth, ...]:
    """Of every pod that holds GPUs within the fleet's days, which dcgm-exporter observes."""
    found: list[PodTruth] = []
    for work in fleet.workloads:
        begin, end = fleet.at(work.begin_day), fleet.at(work.end_day)
        if not work.namespace or begin >= end:
            continue
        for pod in dict.fromkeys(work.pods):
            mine = [hold for hold, its in zip(work.holds, work.pods, strict=True) if its == pod]
            devices = tuple((hold.node, fleet.node(hold.node).uuid(hold.gpu)) for hold in mine)
            found.append(PodTruth(
                work.namespace, pod, work.uid(pod), work.owner, work.series, work.name if work.gang else "",
                work.owner in REPLICATED, work.team, devices, begin, end,
                any(_shared(fleet, work, hold) for hold in mine),
            ))  # fmt: skip
    return tuple(found)


def _shared(fleet: Fleet, work: Workload, hold: Hold) -> bool:
    begin, end = fleet.at(work.begin_day), fleet.at(work.end_day)
    others = (one for one in fleet.workloads if one is not work and hold in one.holds)
    return any(fleet.at(one.begin_day) < end and begin < fleet.at(one.end_day) for one in others)
