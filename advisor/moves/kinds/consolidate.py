"""Work on half-empty nodes packed onto fewer of them, so that whole nodes fall free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...core.advice_types import Configuration, Recommendation, WorkloadVerdict, Yardstick
from ...core.coded_text import CodedText, all_of, coded
from ...core.ids import stable_id
from ...verdicts.types import NodeFacts
from ..base.prediction import percentiles
from ..base.pricing import realisation
from ..base.workload_groups import AVAILABLE, HOURS_PER_MONTH, JOBS, Group
from ..context.evidence import WORK, Claim
from ..context.finding_context import Found, listed
from ..context.move_context import DRAWS, Option, Scene, saving_sentence
from .resize import SAME_SPEED

# Share of a host's cores that the work of several nodes may keep busy on one, on average.
CPU_MAX = 0.6


@dataclass(frozen=True, slots=True)
class _Packing:
    """`keep`: node -> the workloads it then holds; `freed`: the nodes that fall free."""

    keep: dict[str, list[WorkloadVerdict]]
    freed: tuple[NodeFacts, ...]


def consolidate(scene: Scene, groups: Sequence[Group], found: Sequence[Found]) -> list[Option]:
    """One way out for each pool of nodes alike that would empty some of them; it excludes other moves of the same work.

    Only nodes that hold services and people's sessions alone: whatever jobs ran there may come back.
    """
    pools: dict[tuple[str | None, ...], list[NodeFacts]] = {}
    on: dict[str, list[tuple[Group, WorkloadVerdict]]] = {}
    unfit: set[str] = set()
    for group in groups:
        settled = group.current and group.kind in AVAILABLE and group.kind not in JOBS and not group.shared
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
    options = []
    for nodes in pools.values():
        packing = _pack(nodes, {n.node: [w for _, w in on[n.node]] for n in nodes})
        if packing.freed:
            moved = {g.series_id: g for n in nodes for g, _ in on[n.node]}
            options.append(_option(scene, nodes, packing, tuple(moved.values()), found))
    return options


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
    """Replicas of one series that stand on nodes apart stay so."""
    return all(w.series_id != workload.series_id for w in there)


def _option(
    scene: Scene, nodes: Sequence[NodeFacts], packing: _Packing, groups: Sequence[Group], found: Sequence[Found]
) -> Option:
    first = nodes[0]
    price = scene.book.saving_price(first)
    count, freed = len(nodes), len(packing.freed)
    names = {n.node for n in packing.freed}
    realised, date = realisation(price, freed, scene.at)
    blocked = _blocked(groups, count, freed)
    draws = None
    if realised in ("cash-now", "cash-at") and price is not None and not blocked:
        draws = np.full(DRAWS, freed * price.usd_per_hour * HOURS_PER_MONTH)
    saving = percentiles(draws) if draws is not None else None
    sku = first.gpu_sku or first.gpu_name
    gpus = sum(n.gpu_count for n in nodes)
    moved = sorted({g.lead.name for g in groups if any(n.node in names for n in g.nodes)})
    left = count - freed
    text = (
        f"{listed(moved)} {'moves' if len(moved) == 1 else 'move'} from {listed(sorted(names))} to the free GPUs of "
        f"{left} other {'node' if left == 1 else 'nodes'} of the same kind, at the same speed; {freed} of {count} "
        f"nodes {'falls' if freed == 1 else 'fall'} free. "
    )
    if blocked:
        text += f"Not possible today: {all_of(blocked).text}."
    elif saving is not None:
        text += saving_sentence(saving, [price], realised, date)
    else:
        text += "No dollars are claimed: the nodes are bound, or their price is not known."
    return Option(
        Recommendation(
            id=stable_id("r", first.cluster, "consolidate", first.node_sku, *sorted(n.node for n in nodes)),
            findings=tuple(f.finding.id for f in found if f.finding.rule == "idle" and f.finding.node in names),
            workload=None,
            action="consolidate",
            source=Configuration(sku, first.node_sku, gpus),
            target=Configuration(sku, first.node_sku, gpus - sum(n.gpu_count for n in packing.freed)),
            time_ratio=SAME_SPEED.interval,
            saving_usd_per_month=saving,
            freed_gpu_hours_per_month=sum(n.gpu_count for n in packing.freed) * HOURS_PER_MONTH,
            realisation=realised if saving is not None else "capacity-freed",
            risk="low",
            blocked_by=blocked,
            rejected=(),
            would_change_if=(
                coded("workloads-apart", "the workloads may not share a node (tenants, noisy neighbours, local disks)"),
                coded("kept-for-growth", "free GPUs are kept on purpose for growth"),
            ),
            prices=(price.id,) if price is not None and saving is not None else (),
            text=text,
            available_from=date if saving is not None else None,
            yardstick=Yardstick(
                usd_per_month=count * price.usd_per_hour * HOURS_PER_MONTH if price and saving is not None else None,
                nodes=tuple(sorted(n.node for n in nodes)),
            ),
        ),
        draws,
        exclusive=f"pool:{first.cluster}/{first.node_sku}",
        also=frozenset(f"{way}:{g.series_id}" for g in groups for way in ("place", "count")),
        claim=Claim(tuple(n.node for n in nodes), WORK, whole=True, host=True),
    )


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
            f"the hosts' cores would be busy {after * 100:.0f} % of the time on average, above {CPU_MAX * 100:.0f} %",
            {"busy": after, "most": CPU_MAX},
        ),
    )
