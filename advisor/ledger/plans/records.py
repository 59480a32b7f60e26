"""A plan as the ledger keeps it: its steps and nodes as they were planned, and what happened to them since.

What was planned never changes: the plan's id is a digest of it. What happened are events of the ledger.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal

from ....rules.base.quantities import Moment
from ...core.advice_types import Interval
from ..records import to_json

PlanState = Literal["followed", "superseded", "dropped"]
# Of the plan itself; of a step; of a node that is to be returned; of a node to rent.
PlanAct = Literal[
    "kept", "superseded", "dropped", "done", "regressed", "obsolete", "open",
    "in-use", "empty", "silent", "returned", "replaced", "reused", "rented", "missing",
]  # fmt: skip
# Nodes to return and to rent; `there`: known when the plan was kept, so that they are neither of those to rent nor new
# ones in the place of those that were returned.
Role = Literal["return", "rent", "there"]
# A recommendation, replicas placed elsewhere, nodes rented, nodes returned that are empty already.
StepKind = Literal["option", "relocate", "rent", "give-up"]


@dataclass(frozen=True, slots=True)
class KeptCash:
    """What a month saves from a date (ISO; None: from now on), all earlier dates together, as the plan predicted it."""

    date: str | None
    nodes: int
    usd_per_month: Interval


@dataclass(frozen=True, slots=True)
class StepParts:
    """What a step is to bring about. `leaves`: node -> replicas of its series that stay there (0: it is left);
    `frees`: nodes that are empty after it; `after`: steps that come first; `rents`: names of nodes to rent."""

    leaves: Mapping[str, int]
    frees: tuple[str, ...] = ()
    after: tuple[int, ...] = ()
    rents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeptStep:
    """One step. `what`: its title; `recommendation`: None where replicas are only placed elsewhere, or nodes rented;
    `series`, `team`: None where it has none, or none is known."""

    number: int
    kind: StepKind
    action: str | None
    recommendation: str | None
    series: str | None
    name: str
    team: str | None
    what: str
    risk: str | None
    parts: StepParts


@dataclass(frozen=True, slots=True)
class KeptNode:
    """One node of a plan. `usd_per_month`: in the plan's prices; None: no price was known. `realisation`,
    `available_from` (ISO) and `step` (that empties it; None: it is empty already) are of nodes to return."""

    node: str
    role: Role
    pool: str
    node_sku: str | None
    gpus: int
    usd_per_month: float | None
    realisation: str | None
    available_from: str | None
    step: int | None
    drains: bool


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """One thing that happened to a plan, to its step `step`, or to its node `node`. `at`: Unix seconds, by the clock;
    `since`: from then on, by telemetry that ends at `seen_until`; None: it is a person's."""

    act: PlanAct
    at: float
    by: str
    why: str | None = None
    step: int | None = None
    node: str | None = None
    since: Moment | None = None
    seen_until: Moment | None = None


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan in the ledger. `fleet`: key of whose it is; `kept_at`, `generated_at`: Unix seconds, by the clock;
    `seen_until`: end of the telemetry it rests on. `events`: oldest first."""

    id: str
    fleet: str
    name: str | None
    goal: str
    kept_at: Moment
    by: str
    generated_at: Moment
    seen_until: Moment
    source: str
    nodes_today: int
    cash: tuple[KeptCash, ...]
    steps: tuple[KeptStep, ...]
    nodes: tuple[KeptNode, ...]
    events: tuple[PlanEvent, ...] = ()

    @property
    def state(self) -> PlanState:
        """Whether it is followed; the last word of whoever kept, replaced or dropped it holds."""
        ended = next((e.act for e in reversed(self.events) if e.act in ("kept", "superseded", "dropped")), "kept")
        return "superseded" if ended == "superseded" else "dropped" if ended == "dropped" else "followed"

    def to(self, role: Role) -> tuple[KeptNode, ...]:
        """Its nodes to return or to rent, or those that were there."""
        return tuple(n for n in self.nodes if n.role == role)

    def last(self, *, step: int | None = None, node: str | None = None) -> PlanEvent | None:
        """The newest event of a step or of a node; None: nothing was noted yet."""
        return next((e for e in reversed(self.events) if (e.step, e.node) == (step, node)), None)


def node_order(n: KeptNode) -> tuple[str | int, ...]:
    """What is returned first, first; then what is rented."""
    return n.role != "return", n.role, n.available_from or "", n.step or 0, n.node


def named(plan: KeptPlan) -> KeptPlan:
    """The plan with the id that its content has, its nodes in their order."""
    return replace(plan, id=content_id(plan), nodes=tuple(sorted(plan.nodes, key=node_order)))


def content_id(plan: KeptPlan) -> str:
    """``p-0123456789ab``: whatever of a plan is changed or missing makes it another one. Events are none of it.

    What is None is none of it either: a field that comes later must be None in the plans of today.
    """
    values = {f.name: getattr(plan, f.name) for f in fields(plan) if f.name not in ("id", "events")}
    values["steps"] = sorted(plan.steps, key=lambda s: s.number)
    values["nodes"] = sorted(plan.nodes, key=node_order)
    told = json.dumps(json.loads(to_json(values)), sort_keys=True)
    return f"p-{hashlib.sha256(told.encode()).hexdigest()[:12]}"
