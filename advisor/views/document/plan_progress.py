"""The plan that is followed as a page: where its steps and nodes stand, and what it has saved of what was planned."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ...core import formatting as words
from ...core.timestamps import day, minute
from ...ledger.plans.standing import CashStanding, NodeStanding, PlanStanding
from ...ledger.plans.words import event_words, heading, idle_words, kept_words, step_why
from .model import Bullets, Document, Table, section
from .plan_document import node_type

_STATES = {
    "in-use": "in use", "empty": "empty", "silent": "no data", "returned": "returned", "replaced": "replaced",
    "reused": "reused", "rented": "rented", "missing": "to rent",
}  # fmt: skip
_NAMES = 4  # of nodes in a cell; the rest is counted


def plan_progress(standing: PlanStanding, fleet: str | None, seen_until: float | None, now: float) -> Document:
    """`fleet`: whose it is, where there are several; `seen_until`: end of the newest telemetry (Unix seconds; None: not
    known)."""
    plan = standing.plan
    label = f" {plan.name!r}" if plan.name else ""
    seen = f"Telemetry until {minute(seen_until)}." if seen_until is not None else ""
    whose = f"Fleet {fleet}. " if fleet is not None else ""
    unpriced = f"{words.counted(standing.unpriced, 'node')} without a price: no savings counted."
    history = tuple(event_words(plan, e) for e in plan.events if e.node is None)
    return Document(
        title=heading(standing),
        heading=heading(standing),
        window=f"{whose}Plan {plan.id}{label}, goal {plan.goal}, {kept_words(plan, now)}",
        summary=seen,
        tiles=(),
        sections=tuple(
            one
            for one in (
                section("Steps", steps_table(standing)),
                section("Nodes", nodes_table(standing)),
                section("Planned and realized savings", cash_table(standing), unpriced if standing.unpriced else ""),
                section("History", Bullets(history)),
            )
            if one.blocks
        ),
    )


def steps_table(standing: PlanStanding) -> Table:
    rows = [
        (
            str(s.step.number), _state(s.state, s.since), s.step.what, s.step.recommendation or words.NONE,
            _of(s.realised_usd_per_month, s.planned_usd_per_month), step_why(s) or words.NONE,
        )
        for s in standing.steps
    ]  # fmt: skip
    return Table(("step", "state", "what", "id", "realized/month", "why"), tuple(rows), (0, 4))


def nodes_table(standing: PlanStanding) -> Table:
    """Nodes alike in a row: those to return, then those to rent."""

    def row(n: NodeStanding) -> tuple[str, ...]:
        kind = node_type(n.node.node_sku, n.node.pool)
        step = str(n.node.step) if n.node.step else words.NONE
        state = _state(_STATES.get(n.state, n.state), n.since)
        return state, kind, _when(n), step, _why(n, standing) or words.NONE

    rows = []
    nodes = sorted(standing.nodes, key=lambda n: (n.node.role == "rent", row(n), n.node.node))
    for (_, cells), own in groupby(nodes, key=lambda n: (n.node.role == "rent", row(n))):
        alike = list(own)
        state, kind, when, step, why = cells
        rows.append((str(len(alike)), state, kind, _total(alike), when, step, why, _named(alike)))
    heads = ("nodes", "state", "node type", "cost/month", "cash", "step", "why", "names")
    return Table(heads, tuple(rows), (0, 3))


def cash_table(standing: PlanStanding) -> Table:
    rows = [
        (
            "now" if c.date is None else f"from {c.date}", str(c.nodes_planned), str(c.nodes_returned),
            words.usd(c.planned_usd_per_month), _interval(c), words.usd(c.realised_usd_per_month),
            words.usd(c.planned_usd_per_month - c.realised_usd_per_month),
        )
        for c in standing.cash
    ]  # fmt: skip
    heads = ("when", "nodes", "returned", "planned/month", "80 % interval", "realized/month", "open/month")
    return Table(heads, tuple(rows), (1, 2, 3, 5, 6))


def _why(n: NodeStanding, standing: PlanStanding) -> str:
    """Why a node has not come back, or was not rented, as far as the plan tells."""
    if n.state in ("empty", "silent"):
        return idle_words(n)
    if n.state == "replaced":
        return "a new node of its type came instead"
    if n.state == "rented" or n.node.role == "rent":
        return ""
    if n.why:
        return n.why
    step = next((s for s in standing.steps if s.step.number == n.node.step), None)
    if n.state == "in-use" and step is not None and step.state != "done":
        return f"step {step.step.number} is {step.state}"
    return "jobs run on it" if n.state == "in-use" and n.node.drains else ""


def _called(n: NodeStanding) -> str | None:
    """A node's name; of one to rent that of the node that came, None: none did."""
    return n.why if n.node.role == "rent" else n.node.node


def _total(nodes: Sequence[NodeStanding]) -> str:
    known = [n.node.usd_per_month for n in nodes if n.node.usd_per_month is not None]
    return words.usd(sum(known)) if len(known) == len(nodes) else "unknown"


def _when(n: NodeStanding) -> str:
    if n.node.role == "rent":
        return "cost"
    how = {"cash-now": "now", "cash-at": f"from {n.node.available_from}"}
    return how.get(n.node.realisation or "", "none, capacity")


def _interval(c: CashStanding) -> str:
    p = c.predicted
    return f"{words.usd(p.p10)} to {words.usd(p.p90)}" if p is not None and p.p10 != p.p90 else words.NONE


def _named(nodes: Sequence[NodeStanding]) -> str:
    names = [name for n in nodes if (name := _called(n)) is not None]
    if not names:
        return words.NONE
    shown = ", ".join(names[:_NAMES])
    return f"{shown} and {len(names) - _NAMES} more" if len(names) > _NAMES else shown


def _of(realised: float | None, planned: float | None) -> str:
    return f"{words.usd(realised)} of {words.usd(planned)}" if planned is not None else words.NONE


def _state(state: str, since: float | None) -> str:
    """A state with the day on which it began; None: before the plan, or not known."""
    return f"{state} {day(since)}" if since is not None else state
