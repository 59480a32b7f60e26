"""What goes on running as a plan sees it: services with their replicas, and jobs that come and go."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...rules.policy.labels import JOB_KINDS, ON_DEMAND_KINDS
from ..classify.types import MigInstance, NodeFacts, Verdicts
from ..core.coded_text import CodedText, coded
from ..core.verdict_types import INFERRED, WorkloadVerdict
from ..recommend.groups import Group
from ..recommend.move_context import MoveContext
from .demand import JobUse, needed
from .limits import EXCLUDED, PlanRequest
from .mig import gpus_for, placeable
from .pools import pool_of
from .problem import Hours, PlanSeries, PlanUnit

# Uses of one run that ended within an hour of its last were held together.
LAST_SECONDS = 3600.0
GPUS_SHARED = coded("plan-gpus-shared", "its GPUs are shared with other work, or divided into MIG instances")


@dataclass(frozen=True)
class Placed:
    """Who holds which physical GPUs of which node now. `by_workload`: workload id -> node -> GPUs. `unnamed`: node ->
    GPUs that no series of a plan accounts for and somebody holds; `holders`: node -> teams of those (None: nobody knows
    whose). `instances`: series -> workload id -> slices of the MIG instance that it holds, of those that may move.
    `pools`: node -> its pool."""

    by_workload: Mapping[str, Mapping[str, int]]
    unnamed: Mapping[str, int]
    instances: Mapping[str, Mapping[str, tuple[int, int]]]
    holders: Mapping[str, frozenset[str | None]]
    pools: Mapping[str, str]


def placed(verdicts: Verdicts, groups: Sequence[Group], uses: pd.DataFrame, floor_share: float) -> Placed:
    """`uses`: as in `Frame`. `floor_share`: of a bare GPU's hours, those in which somebody's memory lay on it from
    which on it is held."""
    parents = {(one.node, one.gpu_uuid): one.parent_uuid for one in verdicts.instances}
    holds = _held_last(uses, parents)
    by_workload = {
        workload: {node: sum(1 for n, _ in gpus if n == node) for node in sorted({n for n, _ in gpus})}
        for workload, gpus in holds.items()
    }
    taken: dict[tuple[str, str], set[str | None]] = defaultdict(set)
    instances = _movable_instances(verdicts, groups)
    for group in groups:
        if group.shared and group.current and group.series_id not in instances:
            for gpu in (gpu for w in group.now for gpu in holds.get(w.id, set())):
                taken[gpu].add(team_of(group))
    for bare in verdicts.bare:
        if bare.held_hours + bare.busy_hours > floor_share * bare.hours:
            taken[bare.node, bare.parent_uuid or bare.gpu_uuid].add(None)
    # A GPU that is divided is no GPU for other work, whoever holds its instances.
    known = {w for own in instances.values() for w in own}
    teams = {w.id: team_of(group) for group in groups for w in group.workloads}
    for one in verdicts.instances:
        if one.held and not set(one.held) <= known:
            taken[one.node, one.parent_uuid].update(teams.get(workload) for workload in one.held)
    unnamed = Counter(node for node, _ in taken)
    holders: dict[str, set[str | None]] = defaultdict(set)
    for (node, _), whose in taken.items():
        holders[node] |= whose
    pools = {node.node: pool_of(node) for node in verdicts.nodes}
    return Placed(by_workload, unnamed, instances, {node: frozenset(own) for node, own in holders.items()}, pools)


def team_of(group: Group) -> str | None:
    owner = group.lead.owner
    return owner.team or owner.namespace or owner.account or owner.user


def _held_last(uses: pd.DataFrame, parents: Mapping[tuple[str, str], str]) -> dict[str, set[tuple[str, str]]]:
    """Workload id -> node and GPU (of an instance its parent) of what it held last: a run may have been taken to
    another node within the window."""
    if uses.empty:
        return {}
    newest = uses.groupby("workload_id")["ts_end"].transform("max")
    last = uses[uses["ts_end"] >= newest - LAST_SECONDS]
    found: dict[str, set[tuple[str, str]]] = {}
    for workload, node, uuid in last[["workload_id", "node", "gpu_uuid"]].itertuples(index=False):
        found.setdefault(str(workload), set()).add((str(node), parents.get((str(node), str(uuid)), str(uuid))))
    return found


def _movable_instances(verdicts: Verdicts, groups: Sequence[Group]) -> Mapping[str, Mapping[str, tuple[int, int]]]:
    """Series whose replicas each hold one MIG instance of their own: its slices, by workload.

    Only on nodes whose instances are packed as closely as they can be: elsewhere placing one may take restarting
    others, which is a recommendation of its own. A GPU whose instances some other work holds stays whole.
    """
    held: dict[str, list[MigInstance]] = {}
    on: dict[str, list[MigInstance]] = {}
    for one in verdicts.instances:
        for workload in one.held:
            held.setdefault(workload, []).append(one)
        if one.held:
            on.setdefault(one.node, []).append(one)
    tight = {node for node, own in on.items() if _tight(own)}
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for group in groups:
        if not (group.sliced and group.current):
            continue
        own = {w.id: held.get(w.id, []) for w in group.now}
        if all(len(one) == 1 and one[0].node in tight and len(one[0].held) == 1 for one in own.values()):
            found[group.series_id] = {w: (one[0].compute or 0, one[0].memory or 0) for w, one in own.items()}
    # What shares a node with work that does not move keeps its GPU: all of a node, or none.
    moving = {w for own in found.values() for w in own}
    stuck = {one.node for one in verdicts.instances if one.held and not set(one.held) <= moving}
    return {
        key: own for key, own in found.items() if not any(held[w][0].node in stuck for w in own)
    }  # fmt: skip


def _tight(own: Sequence[MigInstance]) -> bool:
    """Whether the held instances of a node lie on as few GPUs as can hold them."""
    slices = Counter((one.compute or 0, one.memory or 0) for one in own)
    known = all(placeable(one) for one in slices)
    return known and len({one.parent_uuid for one in own}) == gpus_for(slices)


def goes_on(group: Group, where: Placed) -> bool:
    """Whether a plan counts on a group: it is not over, and its GPUs, or its MIG instances, are its own."""
    return group.recurs and bool(group.nodes) and (not group.shared or group.series_id in where.instances)


def comes_and_goes(group: Group) -> bool:
    """Whether its runs are jobs: where each of them runs is the scheduler's affair."""
    return group.kind in JOB_KINDS or not group.current


def plan_series(  # noqa: PLR0917
    group: Group,
    scene: MoveContext,
    request: PlanRequest,
    where: Placed,
    grid: Hours,
    per_gpu: Mapping[str, tuple[float, float]],
    jobs: Mapping[str, JobUse],
) -> tuple[PlanSeries, ...]:
    """A group as a series, jobs as one in each pool that they run in; none: it is over, or its GPUs are counted with
    those of whom it shares them with.

    `per_gpu`: node -> cores and bytes of its memory in use for each GPU that is held there. `jobs`: pool -> what its
    runs held there where they come and go; empty: it is a service.
    """
    if not goes_on(group, where):
        return ()
    team = team_of(group)
    untouchable = _untouchable(group, request, team)
    if jobs:
        first = pool_of(group.nodes[0])
        first = first if first in jobs else next(iter(jobs))
        return tuple(
            PlanSeries(
                group.series_id if pool == first else f"{group.series_id} in {pool}", group.lead.name, team, pool,
                group.kind, True, (), use.gpus, use.whole_nodes, tenant=team or "", untouchable=untouchable,
                workload=group.lead.id, spread=len(jobs) > 1,
            )
            for pool, use in jobs.items()
        )  # fmt: skip
    held = _held_by_pool(group, where)
    # Where it runs in several, what is in the one that holds most of it may move.
    pool = max(held, key=lambda one: held[one], default=pool_of(group.nodes[0]))
    crowd: Counter[str] = Counter()
    units = []
    for w in group.now:
        gpus = where.by_workload.get(w.id) or _by_name(w, group.nodes)
        if not gpus:
            continue
        pinned = not request.exclude.isdisjoint(gpus)
        fixed = untouchable or (EXCLUDED if pinned else None) or _fixed(w, group, gpus)
        if fixed is None and where.pools[next(iter(gpus))] != pool:
            fixed = coded("plan-other-pool", "most of its replicas run on nodes of another type or at another place")
        mig = where.instances.get(group.series_id, {}).get(w.id)
        units.append(_unit(w, group, gpus, fixed, per_gpu, mig, pinned))
        crowd.update(gpus.keys())
    if not units:
        return ()
    units.sort(key=lambda u: where.pools[u.node] != pool)
    return (
        PlanSeries(
            group.series_id, group.lead.name, team, pool, group.kind, False, tuple(units),
            needed(group, grid, scene.of(group).headroom), np.zeros(len(grid)), tenant=team or "",
            apart=max(crowd.values()), untouchable=untouchable, workload=group.lead.id, spread=len(held) > 1,
        ),
    )  # fmt: skip


def _held_by_pool(group: Group, where: Placed) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for w in group.now:
        for node, count in (where.by_workload.get(w.id) or _by_name(w, group.nodes)).items():
            found[where.pools[node]] += count
    return found


def _untouchable(group: Group, request: PlanRequest, team: str | None) -> CodedText | None:
    ids = {group.series_id, group.lead.series_id, *(w.id for w in group.workloads)}
    names = ids | {group.lead.name} | ({team} if team else set())
    if names & request.exclude:
        return EXCLUDED
    if request.only and team not in request.only:
        return coded("plan-other-team", "the plan is for other teams only")
    return None


def _fixed(w: WorkloadVerdict, group: Group, gpus: Mapping[str, int]) -> CodedText | None:
    """Why a replica stays where it is; None: it may move to another node of its pool."""
    if len(gpus) > 1:
        return coded("plan-spans-nodes", "it spans {count} nodes", count=len(gpus))
    if group.kind not in ON_DEMAND_KINDS:
        return coded("plan-kind-unclear", "it is {kind}: unknown whether it may be restarted", kind=group.kind)
    if w.basis == INFERRED:
        return coded("plan-owner-unknown", "nothing names its owner")
    return None


def _by_name(w: WorkloadVerdict, nodes: Sequence[NodeFacts]) -> Mapping[str, int]:
    known = {n.node for n in nodes}
    names = [n for n in w.nodes if n in known]
    return {name: max(len(w.gpus) // len(names), 1) for name in names}


def _unit(  # noqa: PLR0917
    w: WorkloadVerdict,
    group: Group,
    gpus: Mapping[str, int],
    fixed: CodedText | None,
    per_gpu: Mapping[str, tuple[float, float]],
    mig: tuple[int, int] | None,
    pinned: bool,
) -> PlanUnit:
    """What a replica takes of its host: of what is in use there, the share of its GPUs in those that are held."""
    cpu = sum(count * per_gpu.get(node, (0.0, 0.0))[0] for node, count in gpus.items())
    memory = sum(count * per_gpu.get(node, (0.0, 0.0))[1] for node, count in gpus.items())
    linked = group.may_use_nvlink and sum(gpus.values()) > 1
    return PlanUnit(
        w.id, group.series_id, dict(gpus), round(cpu, 1), round(memory, -8), fixed, linked=linked, mig=mig,
        pinned=pinned,
    )  # fmt: skip
