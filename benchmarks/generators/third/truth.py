"""What is true of a fleet's workloads, found again by GPU and time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .fleet import Fleet

LEAST_SECONDS = 1800.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A span (Unix seconds) in which a workload held GPUs or instances of a node, by their ids in the store."""

    node: str
    gpus: frozenset[str]
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Truth:
    """None: experts would differ, and it is not scored. `findings`: rule -> whether it is deserved."""

    archetype: str
    part: str
    kind: str | None
    bottleneck: str | None
    findings: Mapping[str, bool | None]
    pieces: Sequence[Piece]


def truths_of(fleet: Fleet) -> list[Truth]:
    """Of every workload that held something for half an hour and more."""
    phases = []
    for workload in fleet.workloads:
        pieces = [
            Piece(machine.name, frozenset(slot.key for slot in slots), fleet.start + run.start, fleet.start + run.end)
            for run in workload.runs for machine, slots in run.members if run.end - run.start >= LEAST_SECONDS
        ]  # fmt: skip
        if pieces:
            a = workload.archetype
            phases.append(
                Truth(a.name, workload.place.shape.part, workload.kind, workload.bottleneck, workload.findings, pieces)
            )
    return phases
