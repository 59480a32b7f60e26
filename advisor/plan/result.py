"""A plan as frozen values. Names are those of the JSON, schema ``skuwise.fleet-plan/1`` (docs/plan.md). None is JSON's
null: not known, or does not apply."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ...rules.base.typed import Amount, Moment
from ..core.advice_types import Action, Interval, Realisation, Risk
from ..core.coded_text import CodedText
from ..core.waiting_types import Waiting
from .problem import Goal

SCHEMA = "skuwise.fleet-plan/1"


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Interchangeable nodes, today and afterwards. `rented`: nodes of `nodes_after` that are to be
    rented; those that a what-if adds are among `nodes_after`, too.

    `gpus_needed`: at the peak of its work after the plan, `gpus_needed_today` before it; the peak is at `peak_at` (end
    of the hour). `reserve_gpus`: kept free beyond it for failures, of `reserve_wanted_gpus`. `short_gpus`: GPUs that
    the demand asks for and that are not there. `carries`: times which the demand of its peak could grow before a GPU is
    missing; None: nothing is asked of it. `runs_out_at`: when that is, at the growth that was asked about; None: not
    asked, or not within ten years.
    """

    pool: str
    node_sku: str | None
    gpu_sku: str | None
    region: str | None
    nodes_today: int
    nodes_after: int
    rented: int
    gpus_today: int
    gpus_after: int
    gpus_needed_today: Amount
    gpus_needed: Amount
    peak_at: Moment | None
    reserve_gpus: int
    reserve_wanted_gpus: int
    short_gpus: int
    carries: float | None
    runs_out_at: Moment | None = None


@dataclass(frozen=True, slots=True)
class RentedNode:
    """A node to rent before its step, or one that is missing. `usd_per_month` None: no price is known."""

    name: str
    pool: str
    node_sku: str | None
    gpu_sku: str | None
    gpus: int
    usd_per_month: float | None
    price: str | None


@dataclass(frozen=True, slots=True)
class ReturnedNode(RentedNode):
    """A node that is empty after the plan. `step`: number of the step that empties it; None: it is empty already.

    `realisation`: ``cash-now``, ``cash-at`` with the date in `available_from` (ISO), or ``capacity-freed`` where it is
    owned, committed without an end, or without a price. `drains`: jobs run there today, and are let finish first.
    """

    name: str = field(metadata={"json": "node"})
    realisation: Realisation
    available_from: str | None
    step: int | None
    drains: bool


@dataclass(frozen=True, slots=True)
class Move:
    """One replica: `start` None: it is new, `end` None: it ends. `gpus`: that it holds."""

    unit: str
    start: str | None = field(metadata={"json": "from"})
    end: str | None = field(metadata={"json": "to"})
    gpus: int


@dataclass(frozen=True, slots=True)
class PlanStep:
    """What is done at once: a recommendation (``option``), replicas that are only placed elsewhere (``relocate``),
    nodes to ``rent``, or nodes that are empty already (``give-up``). `recommendation`: its id; None: it is none.

    `moves`: each started at its target before it stops at its source. `frees`: nodes that are empty after it and can be
    given back; `rents`: nodes that are there from then on. `after`: numbers of the steps that make room for it.
    `staging`: why it needs capacity for a moment that is not there; None: it does not. Rules that a staged step breaks
    hold again at the end of the steps at the latest.
    """

    number: int
    kind: Literal["rent", "give-up", "option", "relocate"]
    action: Action | None = None
    recommendation: str | None = None
    series: str | None = None
    workload: str | None = None
    name: str = ""
    team: str | None = None
    moves: tuple[Move, ...] = ()
    frees: tuple[str, ...] = ()
    rents: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    risk: Risk | None = None
    staging: CodedText | None = None

    @property
    def sources(self) -> frozenset[str]:
        return frozenset(move.start for move in self.moves if move.start is not None)

    @property
    def targets(self) -> frozenset[str]:
        return frozenset(move.end for move in self.moves if move.end is not None)


@dataclass(frozen=True, slots=True)
class StartNode:
    node: str
    gpus: int


@dataclass(frozen=True, slots=True)
class PlanStart:
    """Waiting jobs that get GPUs. `waiting`: id of their group in the advice. `gpus`: all that they take, by node in
    `nodes`: no other start has them. `step`: number of the step after which they are free; None: they are today."""

    waiting: str
    jobs: int
    gpus: int
    pool: str
    nodes: tuple[StartNode, ...]
    step: int | None


@dataclass(frozen=True, slots=True)
class NotInPlan:
    """A recommendation that is no part of the plan. `would_bring_usd_per_month`: by itself, at the median; None: it
    claims no dollars. `advise_usd_per_month`: what of it `advise` counts as recoverable; None: nothing, or its work
    is in the plan another way. `risk_alone`: it is left out for nothing but its risk."""

    recommendation: str
    action: Action
    workload: str | None
    why: CodedText
    risk: Risk
    would_bring_usd_per_month: float | None
    risk_alone: bool
    advise_usd_per_month: float | None = None


@dataclass(frozen=True, slots=True)
class ReservedNode:
    """A node that `advise` counts as recoverable and that the plan keeps free for failures. `recommendation`: the one
    that would free it."""

    node: str
    usd_per_month: float
    recommendation: str
    reason: CodedText


@dataclass(frozen=True, slots=True)
class CashDate:
    """What a month saves from a date (ISO) on, all earlier dates together; None of `date`: from now on."""

    date: str | None
    nodes: int
    saving_usd_per_month: Interval


@dataclass(frozen=True, slots=True)
class SolverFigures:
    """`value`, `bound`: of the goal in `unit`, net of what moves and nodes that are not there cost; `gap`: how far from
    the best it may be, share of the bound. None of either: no bound is known."""

    unit: str
    value: float
    bound: float | None
    gap: Amount | None
    seconds: float
    proven: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """`start`, `end`: of the window it rests on. `risk`, `max_moves`: as in `PlanRequest`. `gpus_freed`: GPUs of the
    fleet that services hold today and no longer hold afterwards. `rented`: nodes to rent before the steps that need
    them; `missing`: of a demand or a fleet that is not today's, nodes without which it cannot be carried. `cash`: by
    date, the last with everything. `energy_kwh_per_month`: of GPUs at rest that are switched off, as far as it was
    measured. `beside`: ids of recommendations that go with any layout. `workloads`: considered, `touched`: changed or
    moved.

    `starts`: with goal capacity, jobs of the queue (`waiting`) that start on GPUs which are free or fall free, in their
    turns; nodes that they get are not returned.

    `plan_usd_per_month` (cash now, at the median) - `combined_usd_per_month` + the sums of `reserve` and of
    `not_in_plan[].advise_usd_per_month` = `advise_usd_per_month`, which is `recoverable_usd_per_month` of the advice.
    `combined_usd_per_month`: what moves together bring beyond what `advise` counts for each, negative: less. None: the
    plan is of a fleet that is not today's, or nothing was judged.
    """

    goal: Goal
    risk: Risk
    max_moves: int | None
    generated_at: Moment
    start: Moment
    end: Moment
    source: Mapping[str, object]
    nodes_today: int
    gpus_today: int
    workloads: int
    touched: int
    gpus_freed: int
    cash: tuple[CashDate, ...]
    energy_kwh_per_month: float | None
    pools: tuple[PoolPlan, ...]
    returned: tuple[ReturnedNode, ...]
    rented: tuple[RentedNode, ...]
    missing: tuple[RentedNode, ...]
    steps: tuple[PlanStep, ...]
    starts: tuple[PlanStart, ...]
    waiting: Waiting | None
    advise_usd_per_month: float | None
    plan_usd_per_month: float | None
    combined_usd_per_month: float | None
    reserve: tuple[ReservedNode, ...]
    not_in_plan: tuple[NotInPlan, ...]
    beside: tuple[str, ...]
    kept_nodes: Mapping[str, CodedText]
    solver: SolverFigures
    notes: tuple[CodedText, ...] = ()
    changes: tuple[CodedText, ...] = ()
