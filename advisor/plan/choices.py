"""Recommendations as choices of a plan: what each makes of its series, or why the plan leaves it out."""

from __future__ import annotations

import math

from ..core.advice_types import Recommendation
from ..core.coded_text import CodedText, all_of, coded
from ..recommend.constraints import NODES_SHARED
from ..recommend.fleet import Fleet
from ..recommend.groups import Group
from .inputs import EXCLUDED, GPUS_SHARED, SEVERAL_POOLS, pool_key, pool_of
from .problem import RISKS, PlanOption, PlanRequest, PlanSeries

# What blocks a recommendation by itself and not as a part of a plan: the plan knows who else is on the nodes, and what
# everything costs together.
ALONE = frozenset({NODES_SHARED.code, "paid-on-top", "rented-on-top", "nothing-saved", "nodes-of-several-kinds"})
# Actions that move nothing: they go beside any layout.
IN_PLACE = frozenset({"lower-clock", "power-cap", "rest-clocks", "schedule-off", "fix-first"})


def choice_of(
    r: Recommendation, series: PlanSeries | None, group: Group | None, fleet: Fleet, request: PlanRequest
) -> PlanOption | CodedText:
    """A recommendation about a series as a choice, or why it is none."""
    why = _left_out(r, request) or _no_choice(r, series, group)
    if why is not None:
        return why
    assert series is not None and group is not None
    target = fleet.catalog.node(r.target.node_sku) if r.action == "move-sku" and r.target.node_sku else None
    ratio = r.time_ratio.p50 if r.time_ratio is not None and r.action == "move-sku" else 1.0
    if series.jobs:
        # Runs that each hold fewer GPUs hold fewer together. Faster ones hold as many at a time, for less time.
        smaller = min(r.target.gpu_count / max(group.gpu_count, 1), 1.0) if r.action == "reduce-gpus" else 1.0
        ratio = max(ratio, 1.0) * smaller
        size = target.gpu_count if target is not None else group.nodes[0].gpu_count
        shape = _job_shape(r, series, group, max(size, 1), ratio)
        running = {node for w in group.now for node in w.nodes} if group.current and r.action == "release" else set()
    else:
        shape = _shape(r, series, group, target.gpu_count if target is not None else None)
        running = {node for u in series.units for node in u.gpus}
    if isinstance(shape, CodedText):
        return shape
    if excluded := sorted(running & request.exclude):
        return coded(
            "plan-node-excluded", "it would stop work on {nodes}, excluded from the plan", nodes=", ".join(excluded)
        )
    units, each, keeps, node_gpus = shape
    pool = None if r.action == "release" else pool_of(group.nodes[0])
    if r.action == "move-sku" and r.target.node_sku is not None:
        pool = pool_key(group.nodes[0].cluster, group.nodes[0].provider, group.nodes[0].region, r.target.node_sku)
    cores = sum(u.cpu_cores for u in series.units) / max(series.gpu_count, 1)
    memory = max((u.host_mem_bytes / max(u.gpu_count, 1) for u in series.units), default=0.0)
    return PlanOption(
        id=r.id, series=series.id, action=r.action, pool=pool, units=units, gpus_each=each, risk=r.risk,
        demand_scale=ratio, keeps_units=keeps, cpu_cores_each=round(cores * each, 1),
        host_mem_bytes_each=round(memory * each, -8), excludes=frozenset(r.excludes),
        energy_kwh_per_month=r.energy_saving_kwh_per_month.p50 if r.energy_saving_kwh_per_month else 0.0,
        linked=group.may_use_nvlink and each > 1 and not keeps, node_gpus=node_gpus,
    )  # fmt: skip


def _left_out(r: Recommendation, request: PlanRequest) -> CodedText | None:
    if r.id in request.exclude:
        return EXCLUDED
    if r.decision is not None and r.decision.sets_aside:
        return coded("plan-decided", "it is {state}", state=r.decision.state)
    blocked = [why for why in r.blocked_by if why.code not in ALONE]
    if blocked:
        return CodedText("plan-blocked", str(all_of(blocked)), {"codes": ", ".join(why.code for why in blocked)})
    if r.action in ("consolidate", "swap-placement") or (r.action == "release" and r.workload is None):
        return coded("plan-by-layout", "the plan places the work itself")
    if RISKS.index(r.risk) > RISKS.index(request.risk):
        return coded("plan-risk", "its risk is {risk} (limit: {limit})", risk=r.risk, limit=request.risk)
    return None


def _no_choice(r: Recommendation, series: PlanSeries | None, group: Group | None) -> CodedText | None:
    if r.action in IN_PLACE:
        return coded("plan-in-place", "it changes no GPU count and no node, and goes with any plan")
    if series is None or group is None:
        if group is not None and group.recurs and group.nodes:
            return GPUS_SHARED if group.shared else SEVERAL_POOLS
        return coded("plan-no-series", "the plan does not know who holds these GPUs")
    if series.untouchable is not None:
        return series.untouchable
    if r.action == "release" and r.source.gpu_count < group.gpu_count:
        return coded("plan-part-of-series", "it releases idle replicas, and the plan moves or stops a series whole")
    if r.action == "move-sku" and (r.target.node_sku is None or r.time_ratio is None):
        return coded("plan-no-target", "no node to move to is known")
    return None


# Replicas afterwards, GPUs of each, whether they are those of today, and GPUs taken of each whole node.
Shape = tuple[int, int, bool, int]
_GONE: Shape = (0, 0, False, 0)
_NOTHING_LEFT = coded("plan-nothing-left", "no GPU would be left")


def _job_shape(r: Recommendation, series: PlanSeries, group: Group, size: int, scale: float) -> Shape | CodedText:
    """Where each run of a job runs is the scheduler's decision; on nodes of `size` GPUs one that takes half of a node
    or more needs it whole."""
    if r.action == "release":
        return _GONE
    if r.target.gpu_count <= 0:
        return _NOTHING_LEFT
    smaller = min(r.target.gpu_count / max(group.gpu_count, 1), 1.0) if r.action == "reduce-gpus" else 1.0
    runs = [math.ceil(len(w.gpus) / max(len(w.nodes), 1) * smaller - 1e-9) for w in group.workloads]
    if max(runs) > size and group.unit > 1:
        return coded("plan-run-too-large", "its runs take {gpus} GPUs of one node, more than such a node has",
                     gpus=max(runs))  # fmt: skip
    # GPUs that runs take of a node where as many run there as fit: with the least of them no node is counted twice.
    wholes = [size // run * run for run in (min(one, size) for one in runs) if 2 * run >= size]
    peak = float(series.demand.max(initial=0.0)) * scale
    if not wholes:
        return math.ceil(peak - 1e-9), 1, True, 0
    return math.ceil(peak / min(wholes) - 1e-9), size, True, min(wholes)


def _shape(r: Recommendation, series: PlanSeries, group: Group, node_gpus: int | None) -> Shape | CodedText:
    """`node_gpus`: of a node that it moves to."""
    if r.action == "release":
        return _GONE
    count, each = r.target.gpu_count, max(group.gpus_per_replica, 1)
    if count <= 0:
        return _NOTHING_LEFT
    if r.action == "mig-slice":
        return count, 1, False, 0
    if node_gpus is not None and node_gpus < each:
        # GPUs that do not talk to one another may part where no node holds as many.
        each = group.unit
        if node_gpus < each:
            return coded("plan-replica-too-large", "a replica of {gpus} GPUs fits on no such node", gpus=each)
    units = math.ceil(count / each)
    if r.action == "reduce-gpus" and units * each >= series.gpu_count:
        return coded("plan-no-whole-replica", "no whole replica of {gpus} GPUs can be spared", gpus=each)
    return units, each, r.action == "reduce-gpus", 0
