"""What is asked of a plan: the goal, what may be touched, and how much is kept back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..core.advice_types import COUNTED_RISKS, Risk
from ..core.coded_text import coded
from .problem import Goal

EXCLUDED = coded("plan-excluded", "it is excluded from the plan")
RISKS: tuple[Risk, ...] = ("very-low", "low", "medium", "high")
# Share of a host's cores and memory that the work on it may take in its busy hours: above it work waits (assumed; at
# the mean `consolidate` allows 0.6 of the cores).
CPU_MAX, HOST_MEM_MAX = 0.8, 0.9
# How often a node of GPUs fails so that its work stops: 419 unexpected interruptions in 54 days on 16,384 GPUs, 2,048
# nodes ("The Llama 3 Herd of Models", arXiv 2407.21783, section 3.3.4), and how long it is then away (assumed).
FAILURES_PER_NODE_DAY = 419 / 54 / 2048
REPAIR_DAYS = 3.0
# The reserve is enough in this share of the time.
RESERVE_QUANTILE = 0.99


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

    @property
    def nothing(self) -> bool:
        return self == NO_CHANGE


NO_CHANGE = FleetChange()
