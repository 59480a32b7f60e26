"""What a plan has to decide, as frozen values: nodes, what runs on them, what may be changed, and the limits.

The rules that every layout keeps (the search, the model and the checker of the tests follow this list):

1.  Choices: at most one option for each series, none together with what it excludes. `Problem.max_moves` limits the
    series that have an option taken or a replica relocated.
2.  Replicas: a series without an option has all of its units. An option that keeps units leaves any `units` of them,
    another ends all of them and starts `units` new ones in its pool. Jobs have none.
3.  Moving: a unit that is fixed or on several nodes stays or ends. Others may go to a node of their pool.
4.  Entering: a unit enters a node only where that is kept, not held, and within its own limits (5 to 8) today and
    afterwards. A node that nothing enters is allowed as it is, however full: what runs today may go on.
5.  GPUs: `fixed_gpus` and units are together at most the node's.
6.  CPU and host memory, in tenths of a core and of a GB: needs are rounded up, what is there is rounded down.
7.  Islands: where bridges join the GPUs of a node, each linked unit has whole islands to itself, and enters only one.
8.  Tenants: a node with `tenants` takes only theirs (empty: none). Where `tenants_apart`, others hold one each.
9.  Apart: a node holds at most `PlanSeries.apart` replicas of a series, or as many as today. Where an option leaves
    other numbers, at most the same share of them (at least 1).
10. Kept: a node that is held, has `fixed_gpus` or a unit is kept. Rented nodes are used only where they are kept.
11. Demand: in every hour, what a pool keeps carries its work, `fixed_gpus` and, unless all work leaves it, the reserve;
    and whole nodes of jobs: kept nodes that are not held and have no GPU in use. Jobs with an option need one in its
    pool for each `node_gpus` of their GPUs.
12. Usable reserve: a pool with a reserve that is not left keeps one node, not held, with as many free GPUs as its
    largest unit on one node has today, or at most as one node has free today. None where nodes are to buy or missing.
13. Starts: jobs of `queue` take in turns GPUs of today's nodes that are not held: those of `idle_gpus`, those of units
    that go and of jobs that are released, less those of units that come. Each GPU once, each job whole on nodes of one
    pool; in the end kept nodes have the reserve, and that of rule 12. Where tenants are kept apart, starts keep to it.

Today's layout keeps 10 to 12: `build.as_today` cuts what the window asked for down to what the fleet can carry.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..core.advice_types import COUNTED_RISKS, Risk
from ..core.coded_text import CodedText
from ..core.waiting_types import WaitingJobs

Goal = Literal["cash", "nodes", "capacity", "energy"]
GOALS: tuple[Goal, ...] = ("cash", "nodes", "capacity", "energy")
RISKS: tuple[Risk, ...] = ("very-low", "low", "medium", "high")
Hours = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Extra = Literal["buy", "missing", "added"]
# Bound for good: owned, or committed without a known end.
FOREVER = math.inf


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """`max_moves`: workloads that may be touched; None: any. `only`: teams whose workloads alone may be touched; empty:
    all. `exclude`: names or ids of nodes, workloads, series, teams and recommendations that stay as they are.
    `risk`: the highest that a change may have. `reserve_nodes`: whole nodes of each pool to keep free for failures;
    None: by the rate at which nodes fail. `tenants_apart`: only work of one team on a node."""

    goal: Goal = "cash"
    max_moves: int | None = None
    only: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()
    risk: Risk = COUNTED_RISKS[-1]
    reserve_nodes: int | None = None
    tenants_apart: bool = False


@dataclass(frozen=True, slots=True)
class FleetChange:
    """A fleet or a demand that is not today's. See `whatif`.

    `add`: node SKU, GPU or pool -> nodes more; `remove`: names of nodes that go; `demand`: (what, name) -> factor,
    where `what` is team, workload, kind or all; `commitments_end`: when every commitment ends (Unix seconds); None: as
    they are. `buy`: nodes may be rented where the demand needs them. `growth_per_month`: by which all demand grows,
    ratio; None: it is not asked when the fleet runs out."""

    add: Mapping[str, int] = field(default_factory=dict)
    remove: frozenset[str] = frozenset()
    demand: Mapping[tuple[str, str], float] = field(default_factory=dict)
    commitments_end: float | None = None
    buy: bool = False
    growth_per_month: float | None = None


NO_CHANGE = FleetChange()


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One node, or one that could be rented (`rented`).

    `pool`: nodes of one pool are interchangeable. `gpus`: physical. `usd_per_hour` None: no price is known.
    `bound_until`: end of its commitment (Unix seconds), `FOREVER` where it has none, None: it can be given back now.
    `cpu_cores`, `host_mem_bytes`: of the host, what work may use; None: not known, no limit. `tenants`: who may enter;
    None: everybody. `held`: why it is left as it is; None: it may change. `idle_watts`: of all its
    GPUs at rest; None: not measured. `island_gpus`: GPUs that a bridge joins; 0: all are joined. `drains`: jobs run
    there now, so that among nodes alike it is the last to be given back. `extra`: of a fleet or a demand that is not
    today's, a node that is not there: to buy, missing, or added. `region` None: not known.
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
    tenants: frozenset[str] | None = None
    held: CodedText | None = None
    idle_watts: float | None = None
    rented: bool = False
    island_gpus: int = 0
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


@dataclass(frozen=True, slots=True)
class PlanUnit:
    """What runs as one piece: a replica, a session. `gpus`: by node, where it runs now. `cpu_cores`,
    `host_mem_bytes`: of the host, all of it together. `fixed`: why it stays where it is; None: it may move to another
    node of its pool. `linked`: its GPUs talk over NVLink."""

    id: str
    series: str
    gpus: Mapping[str, int]
    cpu_cores: float = 0.0
    host_mem_bytes: float = 0.0
    fixed: CodedText | None = None
    linked: bool = False

    @property
    def gpu_count(self) -> int:
        return sum(self.gpus.values())

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
    `whole_nodes` are whole nodes held in each hour. Jobs have no units: where they run is the scheduler's decision.
    `apart`: replicas of it that one node may hold. `tenant`: who must be alone on a node where tenants are kept apart.
    `untouchable`: why nothing of it may change; None: it may. `resting`: of jobs, GPUs at rest that they hold now, by
    node."""

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
    resting: Mapping[str, int] = field(default_factory=dict)

    @property
    def gpu_count(self) -> int:
        return sum(u.gpu_count for u in self.units)


@dataclass(frozen=True, slots=True)
class PlanOption:
    """One recommendation as a change of one series: afterwards it has `units` replicas of `gpus_each` GPUs in `pool`.

    `pool` None: it is gone. `demand_scale`: GPUs there for one GPU of its demand today. `keeps_units`: whether the
    replicas that are left are those of today. `excludes`: options that are not taken with it. Of jobs nothing
    starts: `units` x `gpus_each` is what they take at their peak, and `node_gpus` how many GPUs they take of each node
    that they need as a whole; 0: none.
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
    linked: bool = False
    node_gpus: int = 0

    @property
    def left(self) -> int:
        """Replicas afterwards."""
        return 0 if self.pool is None else self.units

    @property
    def started(self) -> int:
        """Replicas that it starts."""
        return 0 if self.keeps_units else self.left

    def unit(self, index: int) -> str:
        """The name of a replica that only exists once the option is taken."""
        return f"{self.id}#{index}"


@dataclass(frozen=True, slots=True)
class PlanJobs:
    """So many jobs of a group that wait for GPUs, in their turn. `fits`: nodes that could take one if nothing else were
    there."""

    group: WaitingJobs
    jobs: int
    fits: frozenset[str]


@dataclass(frozen=True)
class Problem:
    """`reserve`: pool -> GPUs to be kept free for failures. `now`: Unix seconds. `max_moves`: workloads that may be
    touched; None: any. `fixed_gpus`: node -> GPUs held by what no series accounts for. `tenants_apart`: one tenant a
    node. With goal capacity, `idle_gpus`: node -> GPUs at rest that nothing holds; `queue`: jobs in the order in which
    they began to wait; `awaited`: pools that fit those for which too few GPUs are free today."""

    nodes: tuple[PlanNode, ...]
    series: tuple[PlanSeries, ...]
    options: tuple[PlanOption, ...]
    goal: Goal
    now: float
    reserve: Mapping[str, int] = field(default_factory=dict)
    max_moves: int | None = None
    fixed_gpus: Mapping[str, int] = field(default_factory=dict)
    tenants_apart: bool = False
    idle_gpus: Mapping[str, int] = field(default_factory=dict)
    queue: tuple[PlanJobs, ...] = ()
    awaited: frozenset[str] = frozenset()

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
        return {s.id: tuple(o for o in self.options if o.series == s.id) for s in self.series}

    @cached_property
    def pools(self) -> Mapping[str, tuple[PlanNode, ...]]:
        names = dict.fromkeys(n.pool for n in self.nodes)
        return {pool: tuple(n for n in self.nodes if n.pool == pool) for pool in names}

    @cached_property
    def needs(self) -> Mapping[str, Counts]:
        """Pool -> what it has to carry without the reserve, with the work as it is, as of `load_of`."""
        hours = max((len(s.demand) for s in self.series), default=1)
        total = {pool: np.zeros((2, hours), dtype=np.int64) for pool in self.pools}
        for pool, nodes in self.pools.items():
            total[pool][0] += sum(self.fixed_gpus.get(n.name, 0) for n in nodes)
        for s in self.series:
            total[s.pool] += self.load_of(s, None)
        return total

    @cached_property
    def changes(self) -> Mapping[str, Mapping[str, Counts]]:
        """Option -> pool -> what it adds to the needs there."""
        changes: dict[str, dict[str, Counts]] = {}
        for o in self.options:
            s = self.by_series[o.series]
            changes[o.id] = {s.pool: -self.load_of(s, None)}
            if o.pool is not None:
                changes[o.id][o.pool] = changes[o.id].get(o.pool, 0) + self.load_of(s, o)
        return changes

    def load_of(self, series: PlanSeries, option: PlanOption | None) -> Counts:
        """GPUs, and nodes that jobs need as a whole, in each hour (two rows): of jobs what they hold then; of services
        what they hold, and beyond where demand is higher."""
        demand, wholes = series.demand * (1.0 if option is None else option.demand_scale), series.whole_nodes
        held = 0 if series.jobs else series.gpu_count if option is None else option.units * option.gpus_each
        if option is not None:
            wholes = demand / option.node_gpus if series.jobs and option.node_gpus else 0 * demand
        needed = np.stack([np.maximum(demand, held), wholes if series.jobs else 0 * demand])
        return np.ceil(needed - 1e-9).astype(np.int64)


@dataclass(frozen=True)
class Layout:
    """An answer. `chosen`: series -> the option taken (none: it stays as it is). `places`: unit -> node, of services
    afterwards. `kept`: nodes that are still there, rented ones with them. `value`, `bound`: of the goal net of what
    moving costs, in its own unit (USD a month, nodes, GPUs, kWh a month); no layout has more than `bound`, which is
    infinite where none is known."""

    chosen: Mapping[str, PlanOption]
    places: Mapping[str, str]
    kept: frozenset[str]
    value: float = 0.0
    bound: float = math.inf
    seconds: float = 0.0

    @property
    def proven(self) -> bool:
        return self.value >= self.bound - 0.005
