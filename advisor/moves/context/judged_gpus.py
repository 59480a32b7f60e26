"""Which GPUs were observed long enough to judge waste, when the others will be, and what unobserved GPUs cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ...classify.types import Verdicts
from ...core.advice_types import Unobserved
from ..base.pricing import PriceBook
from .finding_context import ready_at

_ROUNDING_HOURS = 1e-6
_OBSERVED_MIN = 0.9  # of a short life
_ACTIVITY = "activity"  # without it nobody can tell idle from busy


@dataclass(frozen=True, slots=True)
class JudgedGpus:
    """`gpus`: node -> ids of the GPUs that were observed for the coverage floor, and of their MIG instances. `count`:
    physical GPUs among them. `ready`: when more will be (Unix seconds); None: nothing waits for time alone."""

    gpus: Mapping[str, tuple[str, ...]]
    count: int
    ready: float | None


def judged_gpus(verdicts: Verdicts, floor_hours: float, at: float) -> JudgedGpus:
    """What can be judged, GPU by GPU. `at`: the moment of the advice, Unix seconds."""
    inventory = verdicts.inventory
    faulty = {(b.node, b.gpu_uuid) for b in verdicts.bare if b.telemetry_fault}
    instances: dict[tuple[str, str], list[str]] = {}
    for (_, uuid), parent in inventory.parents.items():
        instances.setdefault(parent, []).append(uuid)
    gpus: dict[str, tuple[str, ...]] = {}
    count, moments = 0, []
    for facts in verdicts.nodes:
        node = inventory.nodes.get(facts.node)
        if node is None:
            continue
        floor = floor_hours - _ROUNDING_HOURS
        # Of a node that lived shortly in a pool that was observed long enough, most of its life must have been.
        least = floor if facts.pool_hours < floor else min(floor, _OBSERVED_MIN * facts.span_hours)
        # Waste is judged node by node: one GPU of eight that was observed long enough says nothing of the node.
        enough = [
            gpu.gpu_uuid for gpu in node.gpus
            if facts.hours_observed >= least and gpu.hours >= least and gpu.known.get(_ACTIVITY, 0.0) >= least > 0
            and (facts.node, gpu.gpu_uuid) not in faulty
        ]  # fmt: skip
        if enough:
            own = (one for uuid in enough for one in (uuid, *instances.get((facts.node, uuid), ())))
            gpus[facts.node] = tuple(own)
            count += min(len(enough), node.gpu_count)
        elif facts.hours_observed > 0 and facts.evidence_hours < floor:
            moments.append(ready_at(facts.hours_observed, floor_hours, verdicts.window, at, facts))
    return JudgedGpus(gpus, count, min((ready for ready in moments if ready is not None), default=None))


def unobserved_cost(unobserved: Iterable[Unobserved], verdicts: Verdicts, book: PriceBook) -> tuple[Unobserved, ...]:
    """Unobserved GPUs with their hours and dollars in the window."""
    told = []
    for one in unobserved:
        facts = verdicts.node(one.node)
        if facts is not None:
            hours = facts.span_hours * len(one.gpus)
            rate = book.per_gpu_hour(facts)
            told.append(replace(one, gpu_hours=hours, cost_usd=None if rate is None else rate * hours))
        else:
            told.append(one)
    return tuple(told)
