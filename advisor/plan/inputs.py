"""The fleet as input of a plan: pools of interchangeable nodes, services with their replicas, jobs, and the demand of
both."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
import pandas as pd

from ...rules.catalog.types import GpuSku
from ...rules.policy.labels import JOB_KINDS, ON_DEMAND_KINDS
from ..classify.types import NodeFacts, Verdicts
from ..core.coded_text import CodedText, coded
from ..core.verdict_types import INFERRED, WorkloadVerdict
from ..recommend.fleet import Fleet
from ..recommend.groups import Group
from ..recommend.pricing import cash_of
from .problem import FOREVER, Hours, PlanNode, PlanRequest, PlanSeries, PlanUnit

# Share of a host's cores and memory that the work on it may take in its busy hours: above it work waits (assumed; at
# the mean `consolidate` allows 0.6 of the cores).
CPU_MAX, HOST_MEM_MAX = 0.8, 0.9
# How often a node of GPUs fails so that its work stops: 419 unexpected interruptions in 54 days on 16,384 GPUs, 2,048
# nodes ("The Llama 3 Herd of Models", arXiv 2407.21783, section 3.3.4), and how long it is then away (assumed).
FAILURES_PER_NODE_DAY = 419 / 54 / 2048
REPAIR_DAYS = 3.0
# The reserve is enough in this share of the time.
RESERVE_QUANTILE = 0.99
# Uses of one run that ended within an hour of its last were held together.
LAST_SECONDS = 3600.0
# Resolution of jobs.
STEP_SECONDS = 300.0
SEVERAL_POOLS = coded("plan-several-pools", "its work runs on several node types, or at several places")
EXCLUDED = coded("plan-excluded", "it is excluded from the plan")


def pool_key(cluster: str, provider: str | None, region: str | None, sku: str) -> str:
    """Nodes of one key are interchangeable: the same machine at the same place, so the same fabric and links."""
    return "/".join((cluster, provider or "-", region or "-", sku))


def pool_of(node: NodeFacts) -> str:
    """A node of unknown SKU is alike to those with as many GPUs of its kind and the same kind of fabric."""
    fabric = "fabric" if node.fabric is not None and node.fabric.ports_compute else "no-fabric"
    shape = f"{node.gpu_count}x{node.gpu_sku or node.gpu_name or node.node}-{fabric}"
    return pool_key(node.cluster, node.provider, node.region, node.node_sku or shape)


def plan_node(fleet: Fleet, verdicts: Verdicts, node: NodeFacts, held: CodedText | None) -> PlanNode:
    sku = fleet.catalog.node(node.node_sku) if node.node_sku else None
    price = fleet.book.saving_price(node)
    cash = cash_of(price, 1, fleet.at)
    bound = FOREVER if cash is None else None
    if cash is not None and cash[1] is not None:
        bound = datetime.fromisoformat(cash[1]).replace(tzinfo=UTC).timestamp()
    rest = [r.free_watts or r.held_watts for r in verdicts.rest_levels if r.node == node.node]
    measured = [watts for watts in rest if watts is not None]
    memory = sku.host_mem_bytes if sku is not None else None
    return PlanNode(
        name=node.node, pool=pool_of(node), gpu_sku=node.gpu_sku, node_sku=node.node_sku, gpus=node.gpu_count,
        usd_per_hour=price.usd_per_hour if price is not None else None, price=price.id if price is not None else None,
        bound_until=bound,
        # Where the cores are not known they count in hundredths of the host, the same for all nodes of a pool.
        cpu_cores=round(CPU_MAX * ((sku.vcpus if sku is not None else None) or 100), 1),
        host_mem_bytes=round(HOST_MEM_MAX * memory, -8) if memory else None, held=held,
        # Of some GPUs only: the others draw about as much.
        idle_watts=float(np.mean(measured)) * node.gpu_count if measured else None,
        island_gpus=island_of(fleet.catalog.gpu(node.gpu_sku) if node.gpu_sku else None), region=node.region,
    )  # fmt: skip


def island_of(gpu: GpuSku | None) -> int:
    """GPUs that an NVLink bridge joins: two cards, of H200 NVL four. 0: a board joins all, which is assumed where
    nothing is known, too."""
    return 0 if gpu is None or not gpu.nvlink_by_bridge else 4 if gpu.name.startswith("H200") else 2


def why_held(verdicts: Verdicts, node: NodeFacts, floor_hours: float) -> CodedText | None:
    """Why a node is left as it is: it is unknown what runs there. None: it may change."""
    dark = [part for part in verdicts.inventory.unobserved if part.node == node.node]
    if dark:
        return coded("plan-gpus-unobserved", "no data from {count} of its GPUs", count=sum(len(p.gpus) for p in dark))
    inventory = verdicts.inventory.nodes.get(node.node)
    if inventory is not None and inventory.unaccounted_pods:
        text, count = "{count} pods requested its GPUs, and no metric names them", len(inventory.unaccounted_pods)
        return coded("plan-pods-not-named", text, count=count)
    if node.hours_observed < floor_hours:
        text = "{hours:.0f} of the {floor:g} h of data that a verdict needs"
        return coded("plan-too-little-data", text, hours=node.hours_observed, floor=floor_hours)
    if (inventory is not None and inventory.end is not None) or node.last_seen < verdicts.window.end - 86400.0:
        return coded("plan-node-silent", "it has stopped sending data")
    return None


def reserve_nodes(nodes: int) -> int:
    """Nodes to keep free so that those that fail and are away find a place, in 99 % of the time: Poisson around the
    mean number that is away at once. 0 of a pool of none."""
    mean, away, chance = nodes * FAILURES_PER_NODE_DAY * REPAIR_DAYS, 0, 0.0
    while nodes and (chance := chance + math.exp(-mean) * mean**away / math.factorial(away)) < RESERVE_QUANTILE:
        away += 1
    return min(away, nodes)


def team_of(group: Group) -> str | None:
    owner = group.lead.owner
    return owner.team or owner.namespace or owner.account or owner.user


def goes_on(group: Group) -> bool:
    """Whether a plan counts on a group: it is not over, its GPUs are its own, and a service is in one pool."""
    in_one_pool = comes_and_goes(group) or len({pool_of(node) for node in group.nodes}) == 1
    return group.recurs and bool(group.nodes) and not group.shared and in_one_pool


def comes_and_goes(group: Group) -> bool:
    """Whether its runs are jobs: where each of them runs is the scheduler's decision."""
    return group.kind in JOB_KINDS or not group.current


# Node and UUID of a physical GPU.
Gpu = tuple[str, str]


def gpus_held(
    verdicts: Verdicts, groups: Sequence[Group], uses: pd.DataFrame, floor_share: float
) -> tuple[Mapping[str, Mapping[str, int]], Mapping[Gpu, set[str | None]]]:
    """Who holds which GPUs now: workload id -> node -> GPUs; and of the GPUs that no series of a plan accounts for the
    teams that hold them (None: unknown): shared ones, those divided into MIG instances, those of services in several
    pools and of unknown holders. `uses`: as in `Frame`. `floor_share`: of a bare GPU's hours, those in which memory was
    held on it, from which on it counts as held."""
    parents = {(instance.node, instance.gpu_uuid): instance.parent_uuid for instance in verdicts.instances}
    # Of an instance its parent, of what a workload held last: a run may have been taken to another node.
    holds: dict[str, set[Gpu]] = defaultdict(set)
    if not uses.empty:
        last = uses[uses["ts_end"] >= uses.groupby("workload_id")["ts_end"].transform("max") - LAST_SECONDS]
        for workload, node, uuid in last[["workload_id", "node", "gpu_uuid"]].astype(str).to_numpy().tolist():
            holds[workload].add((node, parents.get((node, uuid)) or uuid))
    taken: dict[Gpu, set[str | None]] = defaultdict(set)
    for group in groups:
        if group.current and group.nodes and not goes_on(group):
            for gpu in (gpu for w in group.now for gpu in holds.get(w.id, set())):
                taken[gpu].add(team_of(group))
    for bare in verdicts.bare:
        if bare.held_hours + bare.busy_hours > floor_share * bare.hours:
            taken[bare.node, bare.parent_uuid or bare.gpu_uuid].add(None)
    teams = {w.id: team_of(group) for group in groups for w in group.workloads}
    for instance in verdicts.instances:
        if instance.held:
            taken[instance.node, instance.parent_uuid].update(teams.get(workload) for workload in instance.held)
    return {workload: Counter(node for node, _ in sorted(gpus)) for workload, gpus in holds.items()}, taken


def service_of(
    group: Group,
    request: PlanRequest,
    held: Mapping[str, Mapping[str, int]],
    demand: Hours,
    per_gpu: Mapping[str, tuple[float, float]],
) -> PlanSeries | None:
    """A service; None: it is unknown where it runs. `held`: as of `gpus_held`. `per_gpu`: node -> cores and bytes of
    host memory in use for each GPU that is held there: a replica takes the share of its GPUs."""
    untouchable, units = _untouchable(group, request), []
    for w in group.now:
        nodes = [n.node for n in group.nodes if n.node in w.nodes]
        # By its nodes where its GPUs are unknown.
        where = held.get(w.id) or {name: max(len(w.gpus) // len(nodes), 1) for name in nodes}
        gpus = {node: count for node, count in where.items() if node in {n.node for n in group.nodes}}
        if not gpus:
            continue
        fixed = untouchable or (None if request.exclude.isdisjoint(gpus) else EXCLUDED) or _fixed(w, group, gpus)
        cpu, memory = (sum(n * per_gpu.get(node, (0.0, 0.0))[k] for node, n in gpus.items()) for k in (0, 1))
        linked = group.may_use_nvlink and sum(gpus.values()) > 1
        units.append(PlanUnit(w.id, group.series_id, gpus, round(cpu, 1), round(memory, -8), fixed, linked))
    if not units:
        return None
    crowd = Counter(node for u in units for node in u.gpus)
    return PlanSeries(
        group.series_id, group.lead.name, team_of(group), pool_of(group.nodes[0]), group.kind, False, tuple(units),
        demand, np.zeros(len(demand)), tenant=team_of(group) or "", apart=max(crowd.values()), untouchable=untouchable,
        workload=group.lead.id,
    )  # fmt: skip


def _untouchable(group: Group, request: PlanRequest) -> CodedText | None:
    team = team_of(group)
    names = {group.series_id, group.lead.series_id, group.lead.name, team, *(w.id for w in group.workloads)}
    if names & request.exclude:
        return EXCLUDED
    if request.only and team not in request.only:
        return coded("plan-other-team", "the plan is for other teams only")
    return None


def _fixed(w: WorkloadVerdict, group: Group, gpus: Mapping[str, int]) -> CodedText | None:
    if len(gpus) > 1:
        return coded("plan-spans-nodes", "it spans {count} nodes", count=len(gpus))
    if group.kind not in ON_DEMAND_KINDS:
        return coded("plan-kind-unclear", "it is {kind}: unknown whether it may be restarted", kind=group.kind)
    if w.basis == INFERRED:
        return coded("plan-owner-unknown", "its owner is unknown")
    return None


def jobs_of(groups: Sequence[Group], verdicts: Verdicts, request: PlanRequest, grid: Hours) -> list[PlanSeries]:
    """Jobs as one series in each pool that they run in. Of each hour of a pool the moment counts in which all jobs
    together held most. Runs of half a node and more count as their part of whole nodes."""
    pools: dict[str, list[tuple[Group, list[WorkloadVerdict], int]]] = defaultdict(list)
    for group in groups:
        runs: dict[str, tuple[NodeFacts, list[WorkloadVerdict]]] = {}
        for w in group.workloads:
            at = next((node for name in w.nodes if (node := verdicts.node(name)) is not None), group.nodes[0])
            runs.setdefault(pool_of(at), (at, []))[1].append(w)
        for pool, (first, runs_here) in runs.items():
            pools[pool].append((group, runs_here, first.gpu_count))
    counts = Counter(group.series_id for members in pools.values() for group, _, _ in members)
    steps = int(3600 / STEP_SECONDS)
    moments = (grid[:, None] + STEP_SECONDS * (np.arange(steps) + 0.5)[None, :]).ravel()
    jobs: list[PlanSeries] = []
    for pool, members in pools.items():
        fine = np.zeros((len(members), 2, len(moments)))  # GPUs that runs held at each moment, and whole nodes of them
        for (_, runs_here, size), held in zip(members, fine, strict=True):
            for w in runs_here:
                during, each = slice(*np.searchsorted(moments, [w.start, w.end])), len(w.gpus) / max(len(w.nodes), 1)
                held[0, during] += len(w.gpus)
                held[1, during] += len(w.nodes) * min(each / size, 1.0) if size and each >= size / 2 else 0.0
        at = np.arange(len(grid)) * steps + fine[:, 0].sum(axis=0).reshape(len(grid), steps).argmax(axis=1)
        for (group, _, _), (gpus, wholes) in zip(members, fine, strict=True):
            spread = counts[group.series_id] > 1
            id_ = f"{group.series_id} in {pool}" if spread and pool_of(group.nodes[0]) != pool else group.series_id
            untouchable = _untouchable(group, request) or (SEVERAL_POOLS if spread else None)
            team = team_of(group)
            about = id_, group.lead.name, team, pool, group.kind, True, (), gpus[at], wholes[at]
            jobs.append(PlanSeries(*about, team or "", untouchable=untouchable, workload=group.lead.id))
    return jobs


def demand_of(group: Group, grid: Hours, headroom: float) -> Hours:
    """GPUs that a service's load needs in each hour at its headroom: at most what it held then (of runs that outlasted
    the hour: a restarted replica counts once). All that it held where its load was not measured, and where its count
    changes by itself: something scales it."""
    had = np.zeros(len(grid))
    for w in group.workloads:
        had += ((w.start < grid + 3600.0) & (w.end >= grid + 3600.0)) * float(len(w.gpus))
    steady = had[had > 0]
    scales = len(steady) > 0 and float(np.ptp(steady)) > 0 and float(np.mean(steady == np.median(steady))) < 0.9
    if not len(group.load) or group.lacking or scales:
        return had
    at = np.clip(((group.load_ts - 1) - grid[0]) // 3600, 0, len(grid) - 1).astype(int)
    peak = np.full(len(grid), np.nan)
    np.fmax.at(peak, at, group.load)
    need = had * peak / headroom
    return np.where(np.isfinite(need), np.minimum(need, had), had)
