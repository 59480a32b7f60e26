"""Where a plan stands: its steps and nodes, and what it has saved of what was planned. Events in, states out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ...core.advice_types import Interval
from ...core.formatting import counted, listed
from ...core.timestamps import day
from ..entries import LedgerEntry
from .records import KeptNode, KeptPlan, KeptStep, PlanAct

StepState = Literal["done", "pending", "waiting", "regressed", "obsolete"]


@dataclass(frozen=True, slots=True)
class NodeStanding:
    """A node of the plan. `state`: of one to return in-use, empty, silent, returned, replaced (a new node of its type
    came instead) or reused; of one to rent rented or missing. `since`: Unix seconds, None: since before the plan.
    `why`: what it runs, or what the rented one is called.
    """

    node: KeptNode
    state: PlanAct
    since: float | None
    why: str | None = None

    @property
    def paid_usd_per_month(self) -> float | None:
        """What it costs a month although it could be returned; None: nothing, or no price is known."""
        idle = self.state in ("empty", "silent") and self.node.realisation != "capacity-freed"
        return self.node.usd_per_month if idle else None


@dataclass(frozen=True, slots=True)
class StepStanding:
    """A step of the plan. `since`: Unix seconds, None: since the plan was kept. `why`: what it waits for, or what went
    wrong, a clause. `waits_for`: steps that come first and are not done. Dollars are those of the nodes that it frees,
    net of those that it rents; None: it frees and rents none with a price."""

    step: KeptStep
    state: StepState
    since: float | None
    why: str | None
    waits_for: tuple[int, ...]
    planned_usd_per_month: float | None
    realised_usd_per_month: float | None


@dataclass(frozen=True, slots=True)
class CashStanding:
    """Planned and realised from a date (ISO; None: from now on), all earlier dates together, in the plan's prices, net
    of rented nodes. `predicted`: with its interval, of the joint draws of the plan; None: it has none of that date."""

    date: str | None
    nodes_planned: int
    nodes_returned: int
    planned_usd_per_month: float
    realised_usd_per_month: float
    predicted: Interval | None


@dataclass(frozen=True, slots=True)
class PlanStanding:
    """A plan with where it stands. `seen_until`: end of the newest telemetry that told something new of it (Unix
    seconds). `cash`: by date; empty where no node has a price. `unpriced`: nodes without one."""

    plan: KeptPlan
    seen_until: float
    steps: tuple[StepStanding, ...]
    nodes: tuple[NodeStanding, ...]
    cash: tuple[CashStanding, ...]
    today: str

    @property
    def returning(self) -> tuple[NodeStanding, ...]:
        return tuple(n for n in self.nodes if n.node.role == "return")

    def count(self, state: StepState) -> int:
        return sum(s.state == state for s in self.steps)

    @property
    def returned(self) -> int:
        """Nodes that were returned, or that are put to other use where they could not be."""
        return sum(n.state in ("returned", "reused") for n in self.returning)

    @property
    def replaced(self) -> int:
        """Nodes that are gone while new ones of the same type came: that saves nothing."""
        return sum(n.state == "replaced" for n in self.returning)

    @property
    def unpriced(self) -> int:
        return sum(n.node.usd_per_month is None for n in self.nodes)

    @property
    def realised_usd_per_month(self) -> float | None:
        """What a month costs less today; None: no node has a price."""
        if not self.cash:
            return None
        due = [c for c in self.cash if c.date is None or c.date <= self.today]
        return due[-1].realised_usd_per_month if due else 0.0

    @property
    def planned_usd_per_month(self) -> float | None:
        return self.cash[-1].planned_usd_per_month if self.cash else None

    def of_steps(self, numbers: Iterable[int]) -> PlanStanding:
        """The part of some steps, with the nodes that they free and rent: a team's own."""
        own = set(numbers)
        steps = tuple(s for s in self.steps if s.step.number in own)
        rents = {name for s in steps for name in s.step.parts.rents}
        nodes = tuple(n for n in self.nodes if n.node.step in own or n.node.node in rents)
        return replace(self, steps=steps, nodes=nodes, cash=_cash(nodes, {}))


def standing_of(plan: KeptPlan, entries: Iterable[LedgerEntry], now: float) -> PlanStanding:
    """`entries`: the ledger's, for the states of the steps' recommendations; `now`: Unix seconds."""
    known = {entry.proposal.id: entry for entry in entries}
    nodes = tuple(_node(plan, n) for n in plan.nodes if n.role != "there")
    own = {s.number: _own_state(plan, s, known.get(s.recommendation or ""), nodes, now) for s in plan.steps}
    done = {number for number, (state, _, _) in own.items() if state == "done"}
    steps = tuple(_step(s, own[s.number], done, nodes) for s in plan.steps)
    told = [e.seen_until for e in plan.events if e.seen_until is not None]
    return PlanStanding(
        plan,
        max([plan.seen_until, *told]),
        steps,
        nodes,
        _cash(nodes, {c.date: c.usd_per_month for c in plan.cash}),
        day(now),
    )


def _node(plan: KeptPlan, n: KeptNode) -> NodeStanding:
    last = plan.last(node=n.node)
    if last is not None:
        return NodeStanding(n, last.act, last.since, last.why)
    if n.role == "rent":
        return NodeStanding(n, "missing", None)
    given_up = any(s.number == n.step and s.kind == "give-up" and not s.parts.after for s in plan.steps)
    return NodeStanding(n, "empty" if (n.step is None or given_up) and not n.drains else "in-use", None)


_Own = tuple[StepState, float | None, str | None]


def _own_state(
    plan: KeptPlan, step: KeptStep, entry: LedgerEntry | None, nodes: Iterable[NodeStanding], now: float
) -> _Own:
    """The state of a step by itself, whatever has to come first."""
    last = plan.last(step=step.number)
    if step.kind == "rent":
        return _rent(plan, step, nodes)
    if step.kind == "give-up":
        return _given_up(plan, step, nodes)
    if step.recommendation is not None:
        told = _recommended(entry, now)
        if told[0] == "done" and last is not None and last.act == "regressed":
            return "regressed", last.since, last.why
        return told
    if last is None or last.act == "open":
        return "pending", last.since if last is not None else None, None
    if last.act in ("done", "regressed", "obsolete"):
        return last.act, last.since, last.why  # type: ignore[return-value]
    return "pending", None, None


def _rent(plan: KeptPlan, step: KeptStep, nodes: Iterable[NodeStanding]) -> _Own:
    wanted = [n for n in nodes if n.node.role == "rent" and n.node.node in step.parts.rents]
    there = [n for n in wanted if n.state == "rented"]
    if len(there) == len(wanted):
        return "done", max((n.since for n in there if n.since is not None), default=None), None
    told = f"{len(there)} of {counted(len(wanted), 'node')} rented"
    if not _was_complete(plan, wanted, ("rented",)):
        return "pending", None, told
    lost = next(n for n in wanted if n.state == "missing")
    return "regressed", lost.since, f"{told}; it was complete before"


def _was_complete(plan: KeptPlan, nodes: Iterable[NodeStanding], acts: Collection[PlanAct]) -> bool:
    """Whether all nodes of a step were there, or gone, at one time."""
    names = {n.node.node for n in nodes}
    so_far: set[str] = set()
    for e in plan.events:
        if e.node in names:
            (so_far.add if e.act in acts else so_far.discard)(e.node)
            if so_far == names:
                return True
    return False


def _given_up(plan: KeptPlan, step: KeptStep, nodes: Iterable[NodeStanding]) -> _Own:
    """Of nodes that were empty when the plan was kept: whether they were returned, or are in use since."""
    mine = [n for n in nodes if n.node.node in step.parts.frees]
    gone = [n for n in mine if n.state in ("returned", "reused")]
    if len(gone) == len(mine):
        return "done", max((n.since for n in gone if n.since is not None), default=None), None
    busy = next((n for n in mine if n.state == "in-use"), None)
    new = sum(n.state == "replaced" for n in mine)
    if busy is not None and _was_complete(plan, mine, ("returned", "reused")):
        return "regressed", busy.since, f"{busy.node.node} is back"
    told = f"{len(gone)} of {counted(len(mine), 'node')} returned" + (f", {new} replaced" if new else "")
    return "pending", None, f"{told}; {busy.node.node} {busy.why}" if busy is not None and busy.why else told


def _recommended(entry: LedgerEntry | None, now: float) -> _Own:
    """By the state that the ledger gives the step's recommendation."""
    if entry is None:
        return "pending", None, "its recommendation is not in the ledger"
    decision = entry.decision(now)
    by = f" by {decision.by}" if decision.by else ""
    if decision.state == "done":
        realised = entry.realised
        return "done", realised.since if realised is not None else decision.since, None
    if decision.state == "regressed":
        return "regressed", decision.since, decision.why
    if decision.state == "expired":
        return "obsolete", decision.since, "not recommended for 30 days"
    if decision.state == "dismissed":
        return "obsolete", decision.since, f"dismissed{by}{f': {decision.why}' if decision.why else ''}"
    if decision.state == "snoozed":
        return "pending", decision.since, f"snoozed{by} until {day(decision.until or 0.0)}"
    if decision.state == "accepted":
        return "pending", decision.since, f"accepted{by}"
    return "pending", None, "not accepted yet"


def _step(step: KeptStep, own: _Own, done: set[int], nodes: Iterable[NodeStanding]) -> StepStanding:
    state, since, why = own
    waits = tuple(n for n in step.parts.after if n not in done) if state == "pending" else ()
    mine = [n for n in nodes if n.node.node in step.parts.rents or n.node.step == step.number]
    if state == "done":
        still = [n for n in mine if n.state == "in-use"]
        why = f"still in use: {listed([n.node.node for n in still])}" if still else why
    if state == "pending" and why is None:
        why = next((f"{n.node.node} {n.why}" for n in mine if n.state == "in-use" and n.why), None)
    if state == "pending" and why is None:
        new = [n.node.node for n in mine if n.state == "replaced"]
        why = f"replaced by new nodes: {listed(new)}" if new else None
    planned, realised = _sums(mine)
    return StepStanding(step, "waiting" if waits else state, since, why, waits, planned, realised)


def _sums(nodes: Iterable[NodeStanding]) -> tuple[float | None, float | None]:
    """Planned and realised dollars a month of nodes; None: none of them brings or costs any."""
    priced = [(n, _sign(n) * n.node.usd_per_month) for n in nodes if n.node.usd_per_month is not None and _sign(n)]
    if not priced:
        return None, None
    return sum(usd for _, usd in priced), sum(usd for n, usd in priced if n.state in ("returned", "rented"))


def _sign(n: NodeStanding) -> int:
    """Whether a node brings cash once it is gone (1), costs some once it is there (-1), or neither."""
    if n.node.role == "rent":
        return -1
    return 1 if n.node.realisation in ("cash-now", "cash-at") else 0


def _cash(nodes: tuple[NodeStanding, ...], predicted: Mapping[str | None, Interval]) -> tuple[CashStanding, ...]:
    """`predicted`: by date."""
    if _sums(nodes)[0] is None:
        return ()
    dates = sorted({n.node.available_from if n.node.realisation == "cash-at" else None for n in nodes if _sign(n)},
                   key=lambda d: d or "")  # fmt: skip
    found = []
    for date in dates:
        due = [n for n in nodes if _sign(n) and (n.node.available_from or "") <= (date or "")]
        planned, realised = _sums(due)
        own = [n for n in due if n.node.role == "return"]
        found.append(
            CashStanding(
                date, len(own), sum(n.state == "returned" for n in own), planned or 0.0, realised or 0.0,
                predicted.get(date),
            )
        )  # fmt: skip
    return tuple(found)
