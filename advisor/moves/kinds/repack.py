"""MIG instances of half-empty GPUs packed onto fewer of them, so that whole GPUs of a node fall free for other work.

Instances do not move by themselves: whoever holds one starts again on the instance that is made for it elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...core.advice_types import Configuration, Recommendation
from ...core.coded_text import coded
from ...core.ids import stable_id
from ...verdicts.types import MigInstance, NodeFacts, Verdicts
from ..base.workload_groups import HOURS_PER_MONTH
from ..context.evidence import Claim
from ..context.move_context import Option
from .resize import SAME_SPEED

# Memory slices at which a profile may begin (NVIDIA's MIG user guide, placements of A100 and H100), by its compute and
# memory slices. A profile that is not here is placed nowhere.
_PLACES: Mapping[tuple[int, int], tuple[int, ...]] = {
    (1, 1): (0, 1, 2, 3, 4, 5, 6), (1, 2): (0, 2, 4, 6), (2, 2): (0, 2, 4), (3, 4): (0, 4), (4, 4): (0,), (7, 8): (0,),
}  # fmt: skip
_COMPUTE = 7
# As for waste: more than a day, so that one night does not decide.
COVERAGE_HOURS = 30.0


@dataclass(frozen=True)
class Packing:
    """`kept`: GPUs that hold instances afterwards; `freed`: GPUs that fall free; `moved`: instances that start anew."""

    kept: tuple[str, ...]
    freed: tuple[str, ...]
    moved: tuple[MigInstance, ...]


def fits(profiles: Sequence[tuple[int, int]]) -> bool:
    """Whether one GPU can hold instances of so many compute and memory slices at once."""
    if sum(compute for compute, _ in profiles) > _COMPUTE:
        return False
    return _placed(sorted(profiles, key=lambda one: -one[1]), 0)


def _placed(profiles: Sequence[tuple[int, int]], taken: int) -> bool:
    if not profiles:
        return True
    first, rest = profiles[0], profiles[1:]
    for start in _PLACES.get(first, ()):
        mask = ((1 << first[1]) - 1) << start
        if not mask & taken and _placed(rest, taken | mask):
            return True
    return False


def pack(instances: Sequence[MigInstance]) -> Packing | None:
    """The emptiest GPUs emptied onto the others. None where a held instance's slices are not known."""
    held: dict[str, list[MigInstance]] = {}
    for one in instances:
        if one.held:
            if one.compute is None or one.memory is None:
                return None
            held.setdefault(one.parent_uuid, []).append(one)
    order = sorted(held, key=lambda gpu: (sum(one.compute or 0 for one in held[gpu]), gpu))
    keep = {gpu: list(own) for gpu, own in held.items()}
    freed: list[str] = []
    moved: list[MigInstance] = []
    touched: set[str] = set()
    for gpu in order:
        if gpu in touched:
            continue
        trial = {other: list(own) for other, own in keep.items() if other != gpu}
        places: list[str] = []
        for one in sorted(keep[gpu], key=lambda part: (-(part.memory or 0), part.gpu_uuid)):
            there = next((o for o in reversed(order) if o in trial and fits(_slices([*trial[o], one]))), None)
            if there is None:
                break
            trial[there].append(one)
            places.append(there)
        if len(places) == len(keep[gpu]):
            moved += keep[gpu]
            touched |= set(places)
            freed.append(gpu)
            keep = trial
    return Packing(tuple(keep), tuple(freed), tuple(moved))


def repacked(verdicts: Verdicts) -> list[Option]:
    """One option a node on which packing frees GPUs. No dollars: a node's GPUs are not given back one by one."""
    options = []
    unobserved = {one.node for one in verdicts.inventory.unobserved}
    for node in verdicts.nodes:
        own = [one for one in verdicts.instances if one.node == node.node]
        # Who held an instance that was not observed is not known, and whether it may move neither.
        if not own or node.node in unobserved or node.hours_observed < COVERAGE_HOURS:
            continue
        packing = pack(own)
        if packing is not None and packing.freed:
            options.append(_option(node, packing))
    return options


def _slices(instances: Sequence[MigInstance]) -> list[tuple[int, int]]:
    return [(one.compute or 0, one.memory or 0) for one in instances]


def _option(node: NodeFacts, packing: Packing) -> Option:
    sku, freed = node.gpu_sku or node.gpu_name, len(packing.freed)
    before = freed + len(packing.kept)
    moved = len(packing.moved)
    kinds = ", ".join(sorted({one.profile for one in packing.moved}))
    return Option(
        Recommendation(
            id=stable_id("r", f"{node.cluster}/{node.node}", "consolidate", node.node_sku, "mig"),
            findings=(),
            workload=None,
            action="consolidate",
            source=Configuration(sku, node.node_sku, before),
            target=Configuration(sku, node.node_sku, len(packing.kept)),
            time_ratio=SAME_SPEED.interval,
            saving_usd_per_month=None,
            freed_gpu_hours_per_month=freed * HOURS_PER_MONTH,
            realisation="capacity-freed",
            risk="low",
            blocked_by=(),
            rejected=(),
            would_change_if=(
                coded(
                    "instance-in-the-way", "an instance that stays lies where the profile that moves in cannot begin"
                ),
                coded("instances-apart", "the instances may not share a GPU (tenants), or must not start again"),
            ),
            prices=(),
            text=(
                f"Pack the held MIG instances of {node.node} onto {len(packing.kept)} of {before} "
                f"{sku or 'GPUs'}: {moved} {'instance' if moved == 1 else 'instances'} ({kinds}) "
                f"{'starts' if moved == 1 else 'start'} again on another GPU of the node, at the same speed; "
                f"{freed} {'GPU falls' if freed == 1 else 'GPUs fall'} free for other work. No dollars are claimed: "
                "GPUs are not given back one by one."
            ),
        ),
        None,
        exclusive=f"mig:{node.cluster}/{node.node}",
        # The free instances of the GPUs that fall free are free already.
        also=frozenset({f"release:{node.cluster}/{node.node}"}),
        claim=Claim((node.node,), frozenset({"activity", "mem_used"}), whole=True),
    )
