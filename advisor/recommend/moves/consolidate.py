"""Work on half-empty nodes packed onto fewer of them, so that whole nodes fall free; MIG instances onto fewer GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ....rules.policy.labels import JOB_KINDS, ON_DEMAND_KINDS
from ...classify.types import NodeFacts, Verdicts
from ...core.advice_types import Configuration, Recommendation, SavingsBaseline
from ...core.coded_text import CodedText, all_of, coded
from ...core.formatting import gpus as gpus_words
from ...core.verdict_types import WorkloadVerdict
from ..evidence import WORK, EvidenceClaim
from ..finding_context import listed
from ..fleet_context import SAME_SPEED, FleetContext, Saving, recommend
from ..groups import HOURS_PER_MONTH, Group
from ..move_context import DRAWS, DrawnRecommendation
from ..predict.mig_model import COVERAGE_HOURS, Packing, pack
from ..pricing import cash_of
from ..progress import by_freed_nodes
from ..recommendation_kind import WEEK_HOURS, RecommendationKind, TitleSubject

# Share of a host's cores that the work of several nodes may keep busy on one, on average.
CPU_MAX = 0.6


@dataclass(frozen=True, slots=True)
class _Packing:
    """`keep`: node -> the workloads it then holds; `freed`: the nodes that fall free."""

    keep: dict[str, list[WorkloadVerdict]]
    freed: tuple[NodeFacts, ...]


def _build(fleet: FleetContext) -> Iterator[DrawnRecommendation]:
    yield from _pools(fleet)
    yield from repacked(fleet.verdicts)


def _pools(fleet: FleetContext) -> Iterator[DrawnRecommendation]:
    """One for each pool of nodes alike that would empty some of them; it excludes other moves of the same work.

    Only nodes that hold services and people's sessions alone: whatever jobs ran there may come back.
    """
    groups = fleet.groups
    pools: dict[tuple[str | None, ...], list[NodeFacts]] = {}
    on: dict[str, list[tuple[Group, WorkloadVerdict]]] = {}
    unfit: set[str] = set()
    for group in groups:
        settled = group.current and group.kind in ON_DEMAND_KINDS and group.kind not in JOB_KINDS and not group.shared
        settled = settled and not group.stands_by
        now = {w.id for w in group.now}
        for w in group.workloads:
            if not settled or len(w.nodes) != 1:
                unfit.update(w.nodes)
            elif w.id in now:
                on.setdefault(w.nodes[0], []).append((group, w))
    seen: dict[str, NodeFacts] = {n.node: n for g in groups for n in g.nodes}
    for name, node in seen.items():
        if name not in unfit and on.get(name) and node.node_sku is not None:
            pools.setdefault((node.cluster, node.provider, node.region, node.node_sku), []).append(node)
    for nodes in pools.values():
        packing = _pack(nodes, {n.node: [w for _, w in on[n.node]] for n in nodes})
        if packing.freed:
            moved = {g.series_id: g for n in nodes for g, _ in on[n.node]}
            yield _option(fleet, nodes, packing, tuple(moved.values()))


def _pack(nodes: Sequence[NodeFacts], held: dict[str, list[WorkloadVerdict]]) -> _Packing:
    """First fit, the largest first, onto the fullest nodes; nothing that stays is moved."""
    size = {n.node: sum(len(w.gpus) for w in held[n.node]) for n in nodes}
    order = sorted(nodes, key=lambda n: (-size[n.node], n.node))
    keep = {n.node: list(held[n.node]) for n in order}
    room = {n.node: n.gpu_count - size[n.node] for n in order}
    freed = []
    for node in reversed(order):
        others = [n for n in order if n is not node and n not in freed]
        trial = dict(room)
        places: list[tuple[WorkloadVerdict, str]] = []
        for w in sorted(held[node.node], key=lambda w: (-len(w.gpus), w.id)):
            fits = next((n.node for n in others if trial[n.node] >= len(w.gpus) and _apart(w, keep[n.node])), None)
            if fits is None:
                break
            trial[fits] -= len(w.gpus)
            places.append((w, fits))
        if len(places) < len(keep[node.node]):
            # It holds what was moved there by now, or something fits nowhere.
            continue
        room = trial
        for w, there in places:
            keep[there].append(w)
        keep[node.node] = []
        freed.append(node)
    return _Packing({name: ws for name, ws in keep.items() if ws}, tuple(freed))


def _apart(workload: WorkloadVerdict, there: Sequence[WorkloadVerdict]) -> bool:
    """Replicas of one series on different nodes stay on different nodes."""
    return all(w.series_id != workload.series_id for w in there)


def _option(
    fleet: FleetContext, nodes: Sequence[NodeFacts], packing: _Packing, groups: Sequence[Group]
) -> DrawnRecommendation:
    first, sku = nodes[0], nodes[0].gpu_sku or nodes[0].gpu_name
    count, freed = len(nodes), len(packing.freed)
    left, names = count - freed, {n.node for n in packing.freed}
    cash = cash_of(fleet.scene.book.saving_price(first), freed, fleet.scene.at)
    blocked = _blocked(groups, count, freed)
    saving = None
    if cash is not None and not blocked:
        month = cash.price.usd_per_hour * HOURS_PER_MONTH
        saving = Saving.in_cash(cash, np.full(DRAWS, freed * month), count * month)
    gpus, freed_gpus = sum(n.gpu_count for n in nodes), sum(n.gpu_count for n in packing.freed)
    moved = sorted({g.lead.name for g in groups if any(n.node in names for n in g.nodes)})
    text = (
        f"Move {listed(moved)} from {listed(sorted(names))} to the free GPUs of {left} other "
        f"{'node' if left == 1 else 'nodes'} of the same type, at the same speed. This frees {freed} of {count} nodes. "
    )
    if blocked:
        text += f"Not possible now: {all_of(blocked).text}."
    else:
        text += saving.sentence if saving else "No cash savings: the nodes are committed, or their price is unknown."
    emptied = (f.finding for f in fleet.found if "consolidate" in f.answered_by)
    return recommend(
        "consolidate", first.cluster, first.node_sku, *sorted(n.node for n in nodes),
        findings=tuple(finding.id for finding in emptied if finding.node in names),
        source=Configuration(sku, first.node_sku, gpus),
        target=Configuration(sku, first.node_sku, gpus - freed_gpus),
        text=text, saving=saving, time_ratio=SAME_SPEED.interval, risk="low", blocked_by=blocked,
        freed_gpu_hours_per_month=freed_gpus * HOURS_PER_MONTH,
        would_change_if=(
            coded("workloads-apart", "the workloads may not share a node (tenants, noisy neighbors, local disks)"),
            coded("kept-for-growth", "free GPUs are reserved for growth"),
        ),
        yardstick=SavingsBaseline(nodes=tuple(sorted(n.node for n in nodes)), freed=tuple(sorted(names))),
        exclusive=f"pool:{first.cluster}/{first.node_sku}",
        also=frozenset(f"{way}:{g.series_id}" for g in groups for way in ("place", "count")),
        claim=EvidenceClaim(tuple(n.node for n in nodes), WORK, whole=True, host=True),
    )  # fmt: skip


def _blocked(groups: Sequence[Group], count: int, freed: int) -> tuple[CodedText, ...]:
    busy = [cpu for g in groups if (cpu := g.feature("cpu")) is not None]
    if not busy:
        return ()
    after = sum(busy) / len(busy) * count / (count - freed)
    if after <= CPU_MAX:
        return ()
    return (
        CodedText(
            "cores-too-busy",
            f"host CPUs would be {after * 100:.0f} % busy on average (limit {CPU_MAX * 100:.0f} %)",
            {"busy": after, "most": CPU_MAX},
        ),
    )


def repacked(verdicts: Verdicts) -> Iterator[DrawnRecommendation]:
    """One for each node on which packing MIG instances frees GPUs. No dollars: a node's GPUs are not given back one by
    one."""
    unobserved = {one.node for one in verdicts.inventory.unobserved}
    for node in verdicts.nodes:
        own = [one for one in verdicts.instances if one.node == node.node]
        # Who held an instance that was not observed is not known, and whether it may move neither.
        if not own or node.node in unobserved or node.hours_observed < COVERAGE_HOURS:
            continue
        packing = pack(own)
        if packing is not None and packing.freed:
            yield _of_instances(node, packing)


def _of_instances(node: NodeFacts, packing: Packing) -> DrawnRecommendation:
    sku, freed, left, moved = node.gpu_sku or node.gpu_name, len(packing.freed), len(packing.kept), len(packing.moved)
    kinds = ", ".join(sorted({one.profile for one in packing.moved}))
    return recommend(
        "consolidate", f"{node.cluster}/{node.node}", node.node_sku, "mig",
        source=Configuration(sku, node.node_sku, freed + left),
        target=Configuration(sku, node.node_sku, left),
        time_ratio=SAME_SPEED.interval, risk="low", freed_gpu_hours_per_month=freed * HOURS_PER_MONTH,
        changes=(coded("instances-packed", "MIG instances of {node} packed together", node=node.node),),
        would_change_if=(
            coded("instance-in-the-way", "another instance occupies the placement that the moved profile needs"),
            coded("instances-apart", "the instances may not share a GPU (tenants), or must not restart"),
        ),
        text=(
            f"Pack the MIG instances in use on {node.node} onto {left} of {freed + left} "
            f"{sku or 'GPUs'}: restart {moved} {'instance' if moved == 1 else 'instances'} ({kinds}) on another GPU "
            f"of the node, at the same speed. This frees {freed} {'GPU' if freed == 1 else 'GPUs'} for other work. "
            "No cash savings: single GPUs cannot be returned."
        ),
        exclusive=f"mig:{node.cluster}/{node.node}",
        # The free instances of the GPUs that fall free are free already.
        also=frozenset({f"release:{node.cluster}/{node.node}"}),
        claim=EvidenceClaim((node.node,), frozenset({"activity", "mem_used"}), whole=True),
    )  # fmt: skip


def _title(r: Recommendation, of: TitleSubject) -> str:
    node = next((one.fields["node"] for one in r.changes if one.code == "instances-packed"), None)
    if node is not None:
        kept = gpus_words(r.target.gpu_count, r.source.gpu_sku)
        return f"Pack the MIG instances of {node} onto {kept} instead of {r.source.gpu_count}"
    freed = gpus_words(r.source.gpu_count - r.target.gpu_count, r.source.gpu_sku)
    return f"Pack the work{of.place} onto other nodes to empty {freed}"


KIND = RecommendationKind(
    actions=("consolidate",),
    rank=9,
    build=_build,
    title=_title,
    words=lambda _: "pack onto fewer nodes",
    subject="Packing this work onto fewer nodes",
    state=lambda snapshot, seen, _: by_freed_nodes(snapshot, seen),
    unasked_hours=WEEK_HOURS,
    by_absence=True,
)
