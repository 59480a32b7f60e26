"""What a plan has to decide, as frozen values: nodes, what runs on them, what may be changed, and the limits.

The rules that every layout keeps (the model, the packing and the checker of the tests follow this list):

1.  Choices: at most one option for each series; none together with what it excludes, or without those of its `needs`
    that the problem has. `Problem.max_moves` limits the series that have an option taken or a replica relocated.
2.  Replicas: a series without an option has all of its units. An option that keeps units leaves `units` of them, any
    of them, fixed ones too; another option ends all of them and starts `units` new ones in its pool. Jobs have none.
3.  Moving: a unit that is fixed, on several nodes or in another pool than its series stays where it is or ends; one
    that is pinned does not end. Others may go to a node of their pool.
4.  Entering: a unit enters a node that it is not on today only where the node is kept, not held, within all of its
    own limits (5 to 9) today, has GPUs with enough memory, and is within its limits afterwards. A node that nothing
    enters is allowed as it is, however full: what runs today may go on.
5.  GPUs: `fixed_gpus`, units and GPUs in MIG mode are together at most the node's.
6.  CPU and host memory, in tenths of a core and of a GB: needs are rounded up, what is there is rounded down.
7.  Islands: the linked units that are on one node only fit into the islands, each into one of them.
8.  MIG: instances share GPUs in MIG mode, as few as can hold them by the placements of `mig_packing`; instances enter
    only nodes that are `mig`. An instance with a profile that has no placements counts as one GPU.
9.  Tenants, where `tenants_apart`: a node that is `closed` takes nothing, one with `tenants` only theirs, and one
    without on which several run today only those. Any other node holds one tenant at a time.
10. Apart: a node holds at most `PlanSeries.apart` replicas of a series, or as many as today. Where an option leaves
    other numbers, at most the same share of them (at least 1).
11. GPU memory: of each GPU at least `gpu_mem_bytes_each` (of an instance, its share of the GPU's). Not known: of a unit
    at least what the GPUs have where it runs now; of an option, whatever its pool has. A node whose GPU memory is not
    known takes units that run on the same GPU SKU now, and options.
12. Kept: a node that is held, has `fixed_gpus` or a unit is kept. Rented nodes are used only where they are kept.
13. Demand: in every hour, what a pool keeps carries the needs of its work, `fixed_gpus`, GPUs in MIG mode and the
    reserve; what is missing is `Layout.short`, never more than is missing today. A series in several pools needs in
    each its demand by the GPUs that it holds there. The same for whole nodes of jobs: kept nodes that are not held and
    on which no GPU is used. Jobs with an option need one in its pool for each `node_gpus` of their GPUs.
14. Usable reserve: a pool with a reserve keeps one node, not held, on which as many GPUs are free as its largest unit
    on one node has (of instances: 1). Where today no node has that, as many as are free on one today are enough.
    A pool with nodes that are to buy or missing needs none: what can be kept free there counts in GPUs only (13).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..core.advice_types import Risk
from ..core.coded_text import CodedText

Goal = Literal["cash", "nodes", "capacity", "energy"]
GOALS: tuple[Goal, ...] = ("cash", "nodes", "capacity", "energy")
Hours = npt.NDArray[np.float64]
Extra = Literal["buy", "missing", "added"]
# Compute slices of 7 and memory slices of 8 of a MIG instance.
Slices = tuple[int, int]
# Bound for good: owned, or committed without an end that anybody told.
FOREVER = math.inf


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One node, or one that could be rented (`rented`).

    `pool`: nodes of one pool can stand in for one another. `tenants`: who may run here; empty: everybody. `gpus`:
    physical. `usd_per_hour` None: no price is known. `bound_until`: end of its commitment (Unix seconds), `FOREVER`
    where it has none, None: it can be given back now. `cpu_cores`, `host_mem_bytes`: of the host, what work may use;
    None: not known, no limit. `gpu_mem_bytes`: of each GPU; None: not known. `held`: why it can neither be emptied nor
    take more work; None: it can. `idle_watts`: of all its GPUs at rest; None: not measured. `islands`: GPUs of each
    NVLink island; empty: one island of all. `mig`: whether its GPUs can be divided. `drains`: jobs run there now, so
    that among nodes alike it is the last to be given back. `extra`: of a fleet or a demand that is not today's, a node
    that is not there: to buy, missing, or added by who asks. `region`: where it is; None: not known.
    """

    name: str
    pool: str
    gpu_sku: str | None
    node_sku: str | None
    gpus: int
    usd_per_hour: float | None = None
    price: str | None = None
    bound_until: float | None = None
    cpu_cores: float | None = None
    host_mem_bytes: float | None = None
    gpu_mem_bytes: float | None = None
    tenants: frozenset[str] = frozenset()
    held: CodedText | None = None
    idle_watts: float | None = None
    rented: bool = False
    islands: tuple[int, ...] = ()
    mig: bool = False
    drains: bool = False
    extra: Extra | None = None
    region: str | None = None

    @property
    def is_today(self) -> bool:
        """Whether it is one of the fleet of today."""
        return not self.rented and self.extra is None

    @property
    def is_bought(self) -> bool:
        """Whether it costs money that is not paid today."""
        return self.rented or self.extra == "buy"

    @property
    def is_there(self) -> bool:
        """Whether it is one of the fleet that is asked about: of today, or added."""
        return self.is_today or self.extra == "added"


@dataclass(frozen=True, slots=True)
class PlanUnit:
    """What runs as one piece: a replica, a session. `gpus`: by node, where it runs now. `cpu_cores`,
    `host_mem_bytes`: of the host, all of it together. `fixed`: why it stays where it is; None: it may move to another
    node of its pool. `gpu_mem_bytes_each`: needed of each GPU (or of its instance); None: not known. `linked`: its GPUs
    talk over NVLink. `mig`: compute slices (of 7) and memory slices (of 8) of the one instance that it runs on, where
    `gpus` only names the node; None: it has whole GPUs. `pinned`: it is fixed and does not end either."""

    id: str
    series: str
    gpus: Mapping[str, int]
    cpu_cores: float = 0.0
    host_mem_bytes: float = 0.0
    fixed: CodedText | None = None
    gpu_mem_bytes_each: float | None = None
    linked: bool = False
    mig: Slices | None = None
    pinned: bool = False

    @property
    def gpu_count(self) -> int:
        """Whole GPUs: 0 of an instance."""
        return 0 if self.mig is not None else sum(self.gpus.values())

    @property
    def movable(self) -> bool:
        return self.fixed is None and len(self.gpus) == 1

    @property
    def node(self) -> str:
        return next(iter(self.gpus))


@dataclass(frozen=True, slots=True)
class PlanSeries:
    """Work that goes on: a service with its replicas, or jobs that come and go (`jobs`).

    `demand`: GPUs that it needs in each hour of the window, at its headroom (of jobs: that they held); of jobs
    `whole_nodes` are whole nodes held in each hour. Jobs have no units: where they run is the scheduler's affair.
    `apart`: replicas of it that one node may hold. `tenant`: who must be alone on a node where tenants are kept apart.
    `spread`: it runs in several pools: units of another than `pool` are fixed, jobs are a series in each of them.
    """

    id: str
    name: str
    team: str | None
    pool: str
    kind: str
    jobs: bool
    units: tuple[PlanUnit, ...]
    demand: Hours
    whole_nodes: Hours
    tenant: str = ""
    apart: int = 1
    untouchable: CodedText | None = None
    workload: str | None = None
    spread: bool = False

    @property
    def gpu_count(self) -> int:
        return sum(u.gpu_count for u in self.units)


@dataclass(frozen=True, slots=True)
class PlanOption:
    """One recommendation as a change of one series: afterwards it has `units` replicas of `gpus_each` GPUs in `pool`.

    `pool` None: it is gone. `demand_scale`: GPUs there for one GPU of its demand today. `keeps_units`: whether the
    replicas that are left are those of today. `excludes`, `needs`: options that are not, or are, taken with it.
    `extra_draws`: of joint draws, GPUs that it needs beyond `units` x `gpus_each`. `gpu_mem_bytes_each`, `linked`,
    `mig`: of new replicas, as of `PlanUnit`; with `mig` a replica is one instance and `gpus_each` does not count. Of
    jobs nothing starts: `units` x `gpus_each` is what they take at their peak, and `node_gpus` how many GPUs they take
    of each node that they need as a whole; 0: they need none.
    """

    id: str
    series: str
    action: str
    pool: str | None
    units: int
    gpus_each: int
    risk: Risk
    demand_scale: float = 1.0
    keeps_units: bool = True
    cpu_cores_each: float = 0.0
    host_mem_bytes_each: float = 0.0
    excludes: frozenset[str] = frozenset()
    energy_kwh_per_month: float = 0.0
    needs: frozenset[str] = frozenset()
    extra_draws: Hours = field(default_factory=lambda: np.zeros(0))
    gpu_mem_bytes_each: float | None = None
    linked: bool = False
    mig: Slices | None = None
    node_gpus: int = 0

    @property
    def left(self) -> int:
        """Replicas afterwards."""
        return 0 if self.pool is None else self.units

    @property
    def started(self) -> int:
        """Replicas that start anew."""
        return 0 if self.keeps_units else self.left

    @property
    def gpus_each_whole(self) -> int:
        return 0 if self.mig is not None and not self.keeps_units else self.gpus_each


@dataclass(frozen=True)
class Problem:
    """`reserve`: pool -> GPUs to be kept free for failures. `now`: Unix seconds. `horizon_months`: how far cash counts.
    `move_usd`: what relocating one replica must bring a month. `max_moves`: workloads that may be touched; None: any.
    `fixed_gpus`: node -> GPUs held by what no series accounts for. `tenants_apart`: one tenant a node. `closed`: nodes
    on which somebody runs whose tenant nobody knows."""

    nodes: tuple[PlanNode, ...]
    series: tuple[PlanSeries, ...]
    options: tuple[PlanOption, ...]
    goal: Goal
    now: float
    reserve: Mapping[str, int] = field(default_factory=dict)
    horizon_months: float = 12.0
    move_usd: float = 50.0
    max_moves: int | None = None
    fixed_gpus: Mapping[str, int] = field(default_factory=dict)
    tenants_apart: bool = False
    closed: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if len(self.by_node) != len(self.nodes):
            raise ValueError("two nodes have the same name")

    @cached_property
    def by_node(self) -> Mapping[str, PlanNode]:
        return {n.name: n for n in self.nodes}

    @cached_property
    def by_series(self) -> Mapping[str, PlanSeries]:
        return {s.id: s for s in self.series}

    @cached_property
    def by_option(self) -> Mapping[str, PlanOption]:
        return {o.id: o for o in self.options}

    @cached_property
    def options_of(self) -> Mapping[str, tuple[PlanOption, ...]]:
        found: dict[str, list[PlanOption]] = {}
        for option in self.options:
            found.setdefault(option.series, []).append(option)
        return {key: tuple(own) for key, own in found.items()}

    @cached_property
    def pools(self) -> Mapping[str, tuple[PlanNode, ...]]:
        found: dict[str, list[PlanNode]] = {}
        for node in self.nodes:
            found.setdefault(node.pool, []).append(node)
        return {key: tuple(own) for key, own in found.items()}

    @property
    def hours(self) -> int:
        return max((len(s.demand) for s in self.series), default=0)

    def needed(self, pool: str, chosen: Mapping[str, PlanOption]) -> Hours:
        """GPUs that a pool's work needs in each hour: services the larger of what they hold and what they need."""
        total = np.zeros(self.hours)
        for s in self.series:
            total += self.needs_of(s, chosen.get(s.id)).get(pool, 0.0)
        return total

    def held(self, series: PlanSeries) -> Mapping[str, int]:
        """Pool -> whole GPUs that a series holds there now."""
        found = Counter({series.pool: 0})
        for u in series.units:
            for name, count in u.gpus.items():
                found[self.by_node[name].pool] += 0 if u.mig is not None else count
        return found

    def needs_of(self, series: PlanSeries, option: PlanOption | None) -> Mapping[str, Hours]:
        """Pool -> `need_of`."""
        if option is not None:
            return {option.pool: need_of(series, option)} if option.pool is not None else {}
        held, total = self.held(series), series.gpu_count
        if len(held) == 1 or not total:
            return {series.pool: need_of(series, None)}
        mig = any(u.mig is not None for u in series.units)
        demand = series.demand * (0.0 if mig else 1.0)
        return {pool: np.maximum(np.ceil(demand * count / total - 1e-9), count) for pool, count in held.items()}


def need_of(series: PlanSeries, option: PlanOption | None) -> Hours:
    """Whole GPUs in each hour: of jobs what they hold then; of services what they hold, and beyond where demand is
    higher. Of MIG instances none: the GPUs that they share are counted by node."""
    hours = len(series.demand)
    if option is not None and option.pool is None:
        return np.zeros(hours)
    scale = 1.0 if option is None else option.demand_scale
    if series.jobs:
        return np.ceil(series.demand * scale - 1e-9)
    held = series.gpu_count if option is None else option.units * option.gpus_each_whole
    divided = any(u.mig is not None for u in series.units) if option is None or option.keeps_units else option.mig
    if divided:
        return np.full(hours, float(series.gpu_count if option is not None and option.keeps_units else held))
    return np.maximum(np.ceil(series.demand * scale - 1e-9), held)


def whole_nodes_of(series: PlanSeries, option: PlanOption | None) -> Hours:
    """Nodes that jobs need as a whole in each hour."""
    if option is None:
        return np.ceil(series.whole_nodes - 1e-9)
    if option.pool is None or not option.node_gpus:
        return np.zeros(len(series.demand))
    return np.ceil(series.demand * option.demand_scale / option.node_gpus - 1e-9)


@dataclass(frozen=True)
class Layout:
    """An answer. `chosen`: series -> the option taken (none: it stays as it is). `places`: unit -> node, of services
    afterwards. `kept`: nodes that are still there, rented ones with them. `short`: pool -> GPUs that are missing.
    `value`, `bound`: of the goal net of what moving costs, in its own unit (USD a month, nodes, GPUs, kWh a month);
    `bound`: no layout that misses as few GPUs has more."""

    chosen: Mapping[str, PlanOption]
    places: Mapping[str, str]
    kept: frozenset[str]
    short: Mapping[str, int]
    value: float
    bound: float
    seconds: float
    proven: bool

    @property
    def gap(self) -> float | None:
        return 0.0 if self.proven else gap_of(self.value, self.bound)


def gap_of(value: float, bound: float) -> float | None:
    """How far from the best a value may be: share of its bound; None: not known."""
    if not math.isfinite(bound) or abs(bound) < 1e-9:
        return None
    return max(bound - value, 0.0) / abs(bound)
