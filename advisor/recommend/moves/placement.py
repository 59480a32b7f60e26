"""Other places for the same work: half-empty nodes packed, and two workloads on nodes of the wrong kind swapped."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ....rules.policy.labels import JOB_KINDS, ON_DEMAND_KINDS, TRAINING_KINDS
from ...classify.types import NodeFacts
from ...core.advice_types import Configuration, EvidenceClaim, Recommendation, SavingsBaseline
from ...core.coded_text import coded
from ...core.formatting import counted, gpus, listed
from ...core.verdict_types import WorkloadVerdict
from ...core.worth import HOURS_PER_MONTH
from ..constraints import WORK
from ..fleet import Fleet, Found, node_words, series_label
from ..groups import Group
from ..move import SAME_SPEED, WEEK_HOURS, Fields, Move, Saving, recommend
from ..predict.mig_model import pack
from ..prediction import SIGMA_KNOWN, Prediction

# Share of a host's cores that the work of several nodes may keep busy on one, on average.
CPU_MAX = 0.6


class Consolidate(Move):
    actions = ("consolidate",)
    subject = "Packing this work onto fewer nodes"
    unasked_hours = WEEK_HOURS
    by_absence = True

    def build(self, fleet: Fleet) -> Iterator[Recommendation]:
        yield from _pools(fleet)
        yield from _repacked(fleet)

    def title(self, r: Recommendation, of: str, at: str, fields: Fields) -> str:
        if "node" in fields:
            kept = gpus(r.target.gpu_count, r.source.gpu_sku)
            return f"Pack the MIG instances of {fields['node']} onto {kept} instead of {r.source.gpu_count}"
        freed = gpus(r.source.gpu_count - r.target.gpu_count, r.source.gpu_sku)
        return f"Pack the work{at} onto other nodes to empty {freed}"


def _pools(fleet: Fleet) -> Iterator[Recommendation]:
    """One for each pool of like nodes with services and sessions alone: jobs that ran there may come back."""
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


def _repacked(fleet: Fleet) -> Iterator[Recommendation]:
    """One for each node on which packing MIG instances frees GPUs. No dollars: GPUs are not given back one by one."""
    verdicts = fleet.verdicts
    unobserved = {unobserved.node for unobserved in verdicts.inventory.unobserved}
    for node in verdicts.nodes:
        mig_instances = [instance for instance in verdicts.instances if instance.node == node.node]
        # Who held an instance that was not observed is not known, and whether it may move neither.
        is_judged = mig_instances and node.node not in unobserved and node.hours_observed >= fleet.floor_hours
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


STARVES = 0.2  # share of its time that training waits for the network (communication takes 0.15 to 0.30 of large jobs)
_WAITS = ("network", "pcie")


class SwapPlacement(Move):
    actions = ("swap-placement",)
    subject = "A swap of nodes"
    of_another = True  # the time is the training's

    def build(self, fleet: Fleet) -> Iterator[Recommendation]:
        """For each series of serving on a silent fabric: its best swap, or why there is none. A training changes places
        once: the largest service comes first, and takes the partner that gains most."""
        starved: dict[str, str] = {}
        for waste in fleet.waste:
            if waste.group is not None and "swap-placement" in waste.answered_by and waste.waste != "fabric":
                starved[waste.group.series_id] = waste.finding.id
        trainings = [g for g in fleet.groups if g.kind in TRAINING_KINDS and g.recurs and g.nodes]
        taken: set[str] = set()
        for series in fleet.series:
            for waste in series.asking("swap-placement"):
                if waste.waste == "fabric":
                    partner, r = _best(fleet, series.group, waste, trainings, taken)
                    taken.add(partner)
                    yield replace(r, findings=(*r.findings, starved[partner])) if partner in starved else r

    def title(self, r: Recommendation, of: str, at: str, fields: Fields) -> str:
        return f"Swap the nodes of {of} and " + (f"the training {fields['training']}" if fields else "a training")


def _best(
    fleet: Fleet, group: Group, waste: Found, trainings: Sequence[Group], taken: set[str]
) -> tuple[str, Recommendation]:
    """The partner of the swap that frees most, and the swap; of no partner ("") the reason why there is none."""
    reasons: list[str] = []
    open_: list[tuple[str, Recommendation]] = []
    for training in trainings:
        if (reason := _unfit(fleet, group, training)) or training.series_id in taken:
            reasons.append(reason or "swaps-already")
        else:
            open_.append((training.series_id, _swap(fleet, group, waste, training)))
    if open_:
        return max(open_, key=lambda swap: (swap[1].freed_gpu_hours_per_month, swap[0]))
    text = "no training workload in this fleet waits for a missing fabric"
    why = coded("no-swap-partner", text, because=" ".join(reasons[:3]) or None)
    held = Configuration(group.lead.gpu_sku, group.lead.node_sku, group.gpu_count)
    comes = "multi-node training without a fabric will run at the same provider and region"
    return "", recommend(
        "swap-placement", group.series_id, group.series_id, "nobody",
        findings=(waste.finding.id,), workload=group.lead.id, source=held, target=held,
        text=f"No swap possible: {why}.", risk="very-low", blocked_by=(why,),
        would_change_if=(coded("training-comes", comes),), claims=(f"place:{group.series_id}",),
    )  # fmt: skip


def _unfit(fleet: Fleet, serving: Group, training: Group) -> str | None:
    here, there = serving.nodes[0], training.nodes[0]
    if _fabric_rate(fleet, there) is not None and not fleet.without_rdma(there):
        return "has-a-fabric"
    if _share_waited(training) < STARVES:
        return "hardly-waits"
    if (here.provider, here.region) != (there.provider, there.region):
        return "runs-elsewhere"
    if here.gpu_sku != there.gpu_sku or {n.gpu_count for n in serving.nodes} != {n.gpu_count for n in training.nodes}:
        return "other-gpus"
    if len(training.nodes) > len(serving.nodes):
        return "more-nodes"
    # Other training on its nodes only gains by a fabric.
    names = {n.node for n in training.nodes}
    others = (w for g in fleet.groups if g.kind not in TRAINING_KINDS for w in g.workloads)
    if any(n.node not in serving.alone for n in serving.nodes) or any(names.intersection(w.nodes) for w in others):
        return "swapped-nodes-shared"
    return None


def _share_waited(training: Group) -> float:
    return sum(training.bottleneck_shares.get(label, 0.0) for label in _WAITS)


def _fabric_rate(fleet: Fleet, node: NodeFacts) -> float | None:
    """Bytes per second one way of the whole node: what its ports said, else what the catalog says."""
    sku, seen = fleet.book.sku_of(node), node.fabric.line_rate_bytes_per_second if node.fabric is not None else None
    return seen or (sku.fabric.bytes_per_second if sku else None)


def _swap(fleet: Fleet, serving: Group, waste: Found, training: Group) -> Recommendation:
    now, then = _fabric_rate(fleet, training.nodes[0]), _fabric_rate(fleet, serving.nodes[0])
    busy = training.use.u_i[np.isfinite(training.use.u_i)]
    mean, prediction = float(busy.mean()) if busy.size else 0.0, None
    if now and then and mean >= 0.01:
        # The mean use of the line is the least share of the time that the network takes; only that shrinks.
        ratio = 1.0 - min(mean, _share_waited(training)) * max(1.0 - now / then, 0.0)
        prediction = Prediction(ratio, SIGMA_KNOWN, "network time at the fabric's rate")
    names, count = {n.node for n in training.nodes}, len(training.nodes)
    gpus = count * max(serving.nodes[0].gpu_count, 1)
    # The training on these nodes that waited for the network, this and other, each run with its GPU-hours.
    trains = [(group, w) for group in fleet.groups if group.kind in TRAINING_KINDS for w in group.workloads]
    starving = [(g, w.gpu_hours) for g, w in trains if names.issuperset(w.nodes) and w.bottleneck.label in _WAITS]
    freed, text = 0.0, "the speed-up of the training is unknown because its network was not measured"
    if prediction is not None:
        month = sum(fleet.monthly(group, gpu_hours) for group, gpu_hours in starving)
        freed, ratio = month * max(1.0 - prediction.median, 0.0), prediction.interval
        others = sum(group is not training for group, _ in starving)
        more = f" (assumed for {others} more training workloads there)" if others else ""
        text = f"the training takes {ratio.p50:.2f}x the time ({ratio.p10:.2f} to {ratio.p90:.2f}) where it waited"
        text += f" for the network{more}"
    name = series_label(serving)
    return recommend(
        "swap-placement", serving.series_id, serving.series_id, training.series_id,
        findings=(waste.finding.id,), workload=serving.lead.id,
        source=Configuration(serving.lead.gpu_sku, serving.lead.node_sku, gpus),
        target=Configuration(training.lead.gpu_sku, training.lead.node_sku, gpus),
        changes=(coded("partner", "the training {training} moves to its nodes", training=training.lead.name),),
        text=(
            f"Swap the nodes of {name[:1].lower()}{name[1:]} and training {training.lead.name}. The training gets "
            f"{node_words(waste.nodes[:count])} with the fabric; the service gets {node_words(training.nodes)}. The "
            f"service keeps its speed (1.00x the time); {text}. The swap costs nothing and saves GPU-hours, not cash."
        ),
        time_ratio=prediction and prediction.interval, freed_gpu_hours_per_month=freed,
        observed_hours=min((fleet.hours_of(group) for group, _ in starving), default=None),
        risk=prediction.risk if prediction else "medium",
        would_change_if=(
            coded("training-ends", "the training ends and does not run again"),
            coded("places-apart", "the two may not share a tenant, a network zone or a data set's location"),
        ),
        yardstick=SavingsBaseline(partner=training.lead.name), claims=(f"place:{serving.series_id}",),
        needs=EvidenceClaim(
            tuple(dict.fromkeys(n.node for n in (*serving.nodes, *training.nodes))), WORK, whole=True,
            fabric=frozenset(n.node for n in serving.nodes),
        ),
    )  # fmt: skip
