"""Work on half-empty nodes packed onto fewer of them, so that whole nodes fall free; MIG instances onto fewer GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ....rules.policy.labels import JOB_KINDS, ON_DEMAND_KINDS
from ...classify.types import NodeFacts, Verdicts
from ...core.advice_types import Configuration, EvidenceClaim, Recommendation, SavingsBaseline
from ...core.coded_text import coded
from ...core.formatting import counted, gpus, listed
from ...core.verdict_types import WorkloadVerdict
from ...core.worth import HOURS_PER_MONTH
from ..evidence import WORK
from ..fleet import Fleet
from ..groups import Group
from ..move import SAME_SPEED, WEEK_HOURS, Fields, Move, Saving, recommend
from ..predict.mig_model import COVERAGE_HOURS, pack

# Share of a host's cores that the work of several nodes may keep busy on one, on average.
CPU_MAX = 0.6


class Consolidate(Move):
    actions = ("consolidate",)
    subject = "Packing this work onto fewer nodes"
    unasked_hours = WEEK_HOURS
    by_absence = True

    def build(self, fleet: Fleet) -> Iterator[Recommendation]:
        yield from _pools(fleet)
        yield from _repacked(fleet.verdicts)

    def title(self, r: Recommendation, of: str, at: str, fields: Fields) -> str:
        if "node" in fields:
            kept = gpus(r.target.gpu_count, r.source.gpu_sku)
            return f"Pack the MIG instances of {fields['node']} onto {kept} instead of {r.source.gpu_count}"
        freed = gpus(r.source.gpu_count - r.target.gpu_count, r.source.gpu_sku)
        return f"Pack the work{at} onto other nodes to empty {freed}"


def _pools(fleet: Fleet) -> Iterator[Recommendation]:
    """One for each pool of nodes alike that would empty some of them; it excludes other moves of the same work. Only
    nodes that hold services and people's sessions alone: whatever jobs ran there may come back."""
    pools: dict[tuple[str | None, ...], dict[str, NodeFacts]] = {}
    on: dict[str, list[WorkloadVerdict]] = {}
    unfit: set[str] = set()
    for group in fleet.groups:
        serves = group.kind in ON_DEMAND_KINDS and group.kind not in JOB_KINDS
        settled = serves and group.current and not group.shared and "unused" not in group.kept
        now = {w.id for w in group.now}
        for w in group.workloads:
            if not settled or len(w.nodes) != 1:
                unfit.update(w.nodes)
            elif w.id in now:
                on.setdefault(w.nodes[0], []).append(w)
    for node in (n for group in fleet.groups for n in group.nodes):
        if node.node in on and node.node not in unfit and node.node_sku is not None:
            pools.setdefault((node.cluster, node.provider, node.region, node.node_sku), {})[node.node] = node
    for pool in pools.values():
        nodes = tuple(pool.values())
        if freed := _freed(nodes, on):
            moved = {w.series_id for n in nodes for w in on[n.node]}
            yield _of_pool(fleet, nodes, freed, [g for g in fleet.groups if g.series_id in moved])


def _freed(nodes: Sequence[NodeFacts], held: Mapping[str, Sequence[WorkloadVerdict]]) -> list[NodeFacts]:
    """The nodes that fall free: first fit, the largest first, onto the fullest nodes; nothing that stays is moved, and
    replicas of one series on different nodes stay on different nodes."""
    order = sorted(nodes, key=lambda n: (-sum(len(w.gpus) for w in held[n.node]), n.node))
    keep = {n.node: list(held[n.node]) for n in order}
    freed: list[NodeFacts] = []
    for node in reversed(order):
        trial = {n.node: list(keep[n.node]) for n in order if n is not node and n not in freed}
        if len(keep[node.node]) > len(held[node.node]):
            continue  # it holds what was moved there by now
        for w in sorted(held[node.node], key=lambda w: (-len(w.gpus), w.id)):
            room = (
                trial[n.node]
                for n in order
                if n.node in trial and n.gpu_count - sum(len(o.gpus) for o in trial[n.node]) >= len(w.gpus)
                if all(w.series_id != o.series_id for o in keep[n.node])
            )
            if (there := next(room, None)) is None:
                break
            there.append(w)
        else:
            keep = trial
            freed.append(node)
    return freed


def _of_pool(
    fleet: Fleet, nodes: Sequence[NodeFacts], freed: Sequence[NodeFacts], groups: Sequence[Group]
) -> Recommendation:
    first, sku, count = nodes[0], nodes[0].gpu_sku or nodes[0].gpu_name, len(nodes)
    left, names, every = count - len(freed), sorted(n.node for n in freed), sorted(n.node for n in nodes)
    busy = [cpu for g in groups if (cpu := g.feature("cpu")) is not None]
    after = sum(busy) / len(busy) * count / left if busy else 0.0
    saving = Saving.of_nodes(fleet.book.saving_price(first), len(freed), fleet.at, len(freed), count)
    then = saving.sentence if saving else "No cash savings: the nodes are committed, or their price is unknown."
    blocked = ()
    if after > CPU_MAX:
        text = "host CPUs would be {busy:.0%} busy on average (limit {most:.0%})"
        blocked, saving = (coded("cores-too-busy", text, busy=after, most=CPU_MAX),), None
        then = f"Not possible now: {blocked[0]}."
    held, freed_gpus = sum(n.gpu_count for n in nodes), sum(n.gpu_count for n in freed)
    moved = sorted({g.lead.name for g in groups if any(n.node in names for n in g.nodes)})
    asked = (f.finding.id for f in fleet.waste if "consolidate" in f.answered_by and f.finding.node in names)
    return recommend(
        "consolidate", first.cluster, first.node_sku, *every, findings=tuple(asked),
        source=Configuration(sku, first.node_sku, held), target=Configuration(sku, first.node_sku, held - freed_gpus),
        text=(
            f"Move {listed(moved)} from {listed(names)} to the free GPUs of {counted(left, 'other node')} of the same "
            f"type, at the same speed. This frees {len(freed)} of {count} nodes. {then}"
        ),
        saving=saving, time_ratio=SAME_SPEED.interval, risk="low", blocked_by=blocked,
        freed_gpu_hours_per_month=freed_gpus * HOURS_PER_MONTH,
        would_change_if=(
            coded("workloads-apart", "the workloads may not share a node (tenants, noisy neighbors, local disks)"),
            coded("kept-for-growth", "free GPUs are reserved for growth"),
        ),
        yardstick=SavingsBaseline(nodes=tuple(every), freed=tuple(names)),
        claims=(f"pool:{first.cluster}/{first.node_sku}",
                *(f"{part}:{g.series_id}" for g in groups for part in ("place", "count"))),
        needs=EvidenceClaim(tuple(n.node for n in nodes), WORK, whole=True, host=True),
    )  # fmt: skip


def _repacked(verdicts: Verdicts) -> Iterator[Recommendation]:
    """One for each node on which packing MIG instances frees GPUs. No dollars: GPUs are not given back one by one."""
    unobserved = {unobserved.node for unobserved in verdicts.inventory.unobserved}
    for node in verdicts.nodes:
        mig_instances = [instance for instance in verdicts.instances if instance.node == node.node]
        # Who held an instance that was not observed is not known, and whether it may move neither.
        is_judged = mig_instances and node.node not in unobserved and node.hours_observed >= COVERAGE_HOURS
        kept, empty, moved = (pack(mig_instances) if is_judged else None) or ((), (), ())
        if not empty:
            continue
        sku, freed, left = node.gpu_sku or node.gpu_name, len(empty), len(kept)
        kinds = ", ".join(sorted({mig_instance.profile for mig_instance in moved}))
        yield recommend(
            "consolidate", f"{node.cluster}/{node.node}", node.node_sku, "mig",
            source=Configuration(sku, node.node_sku, freed + left), target=Configuration(sku, node.node_sku, left),
            time_ratio=SAME_SPEED.interval, risk="low", freed_gpu_hours_per_month=freed * HOURS_PER_MONTH,
            changes=(coded("instances-packed", "MIG instances of {node} packed together", node=node.node),),
            would_change_if=(
                coded("instance-in-the-way", "another instance occupies the placement that the moved profile needs"),
                coded("instances-apart", "the instances may not share a GPU (tenants), or must not restart"),
            ),
            text=(
                f"Pack the MIG instances in use on {node.node} onto {left} of {freed + left} {sku or 'GPUs'}: restart "
                f"{counted(len(moved), 'instance')} ({kinds}) on another GPU of the node, at the same speed. "
                f"This frees {counted(freed, 'GPU')} for other work. No cash savings: single GPUs cannot be returned."
            ),
            # The free instances of the GPUs that fall free are free already.
            claims=(f"mig:{node.cluster}/{node.node}", f"release:{node.cluster}/{node.node}"),
            needs=EvidenceClaim((node.node,), frozenset({"activity", "mem_used"}), whole=True),
        )  # fmt: skip
