"""The rows of plans in a ledger: what was planned, in tables that nothing is changed in, and what happened, as events.

Events of a plan stand in the table of events under the plan's id, where triggers keep them. The tables of plans have no
triggers, which an older version would refuse a file for: the plan's id is a digest of its rows instead, and is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, get_args

from sqlite_utils import Database

from ....rules.base.errors import StoreError
from ....rules.base.sanitize import clean
from ..guard import FLAG, MOMENT, OPTIONAL_NUMBER, OPTIONAL_TEXT, TEXT, WHOLE, CellRule, FileForm, Guarded
from ..plans.records import (
    KeptCash,
    KeptNode,
    KeptPlan,
    KeptStep,
    PlanAct,
    PlanEvent,
    Role,
    StepKind,
    StepParts,
    content_id,
    node_order,
)
from ..records import EventFigures, PlanMark, from_json, to_json

_MOST_STEP = 2**31
PLANS_FORM = {
    "plans": {
        "id": TEXT, "fleet": TEXT, "name": OPTIONAL_TEXT, "goal": TEXT, "kept_at": MOMENT, "by": TEXT,
        "generated_at": MOMENT, "seen_until": MOMENT, "source": TEXT, "nodes_today": WHOLE,
        "cash": CellRule(str, read=partial(from_json, tuple[KeptCash, ...])),
    },
    "plan_steps": {
        "plan": TEXT, "number": WHOLE, "kind": CellRule(str, words=get_args(StepKind)), "action": OPTIONAL_TEXT,
        "recommendation": OPTIONAL_TEXT, "series": OPTIONAL_TEXT, "name": TEXT, "team": OPTIONAL_TEXT, "what": TEXT,
        "risk": OPTIONAL_TEXT, "parts": CellRule(str, read=partial(from_json, StepParts)),
    },
    "plan_nodes": {
        "plan": TEXT, "node": TEXT, "role": CellRule(str, words=get_args(Role)), "pool": TEXT,
        "node_sku": OPTIONAL_TEXT, "gpus": WHOLE, "usd_per_month": OPTIONAL_NUMBER, "realisation": OPTIONAL_TEXT,
        "available_from": OPTIONAL_TEXT, "step": CellRule(int, optional=True, least=0, most=_MOST_STEP),
        "drains": FLAG,
    },
}  # fmt: skip
_KEYS = {"plans": "id", "plan_steps": ("plan", "number"), "plan_nodes": ("plan", "node", "role")}
_PLAN = [f.name for f in fields(KeptPlan) if f.name not in ("steps", "nodes", "events")]


def begin_plans(db: Database) -> None:
    """The tables, where they are not there yet."""
    for table, key in _KEYS.items():
        if not db.table(table).exists():
            rules = PLANS_FORM[table]
            needed = {name for name, rule in rules.items() if not rule.optional}
            db.table(table).create(FileForm(PLANS_FORM).kinds(table), pk=key, not_null=needed)


def add_plan(db: Database, plan: KeptPlan) -> None:
    """Write a plan down; one that is there already is not written again. Its events are not of it."""
    row: dict[str, Any] = {name: getattr(plan, name) for name in _PLAN} | {"cash": to_json(plan.cash)}
    if db.execute("SELECT 1 FROM plans WHERE id = ?", [plan.id]).fetchone() is not None:
        return
    db.table("plans").insert(row)
    db.table("plan_steps").insert_all(
        {"plan": plan.id, **{f.name: getattr(s, f.name) for f in fields(s)}, "parts": to_json(s.parts)}
        for s in plan.steps
    )
    db.table("plan_nodes").insert_all(
        {"plan": plan.id, **{f.name: getattr(n, f.name) for f in fields(n)}, "drains": int(n.drains)}
        for n in plan.nodes
    )


def read_plans(file: Guarded, *, strict: bool = True) -> tuple[KeptPlan, ...]:
    """All plans, in the order in which they were kept. One that is not as it was kept is left out; StoreError is raised
    where it is followed (`strict`). Raises sqlite3.DataError for cells that we cannot have written."""
    rows = file.rows("plans", "ORDER BY id")
    if not rows:
        return ()
    steps: dict[str, list[KeptStep]] = {}
    for row in file.rows("plan_steps", "ORDER BY plan, number"):
        steps.setdefault(row.pop("plan"), []).append(KeptStep(**row))
    nodes: dict[str, list[KeptNode]] = {}
    for row in file.rows("plan_nodes"):
        nodes.setdefault(row.pop("plan"), []).append(KeptNode(**_node(row)))
    events: dict[str, list[PlanEvent]] = {}
    for row in file.rows("events", "WHERE recommendation IN (SELECT id FROM plans) ORDER BY seq"):
        event = _event(row)
        if event is not None:
            events.setdefault(row["recommendation"], []).append(event)
    found = []
    for row in rows:
        plan = KeptPlan(
            **row, steps=tuple(steps.get(row["id"], ())), nodes=tuple(sorted(nodes.get(row["id"], ()), key=node_order))
        )
        plan = replace(plan, events=tuple(events.get(plan.id, ())))
        if content_id(plan) == plan.id:
            found.append(plan)
        elif strict and plan.state == "followed":
            raise StoreError(
                f"The plan {clean(plan.id[:20])} was changed after it was kept.",
                "Run 'skuwise plan SOURCE --keep' to follow a new one.",
            )
    # By the order in which they were written, which no clock can move.
    written = {id_: n for n, id_ in enumerate(events)}
    return tuple(sorted(found, key=lambda p: written.get(p.id, -1)))


def _node(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"drains": bool(row["drains"])}


def _event(row: dict[str, Any]) -> PlanEvent | None:
    """None: what a later version notes."""
    mark = row["figures"].plan if row["figures"] is not None else None
    if mark is None or row["act"] not in get_args(PlanAct):
        return None
    return PlanEvent(row["act"], row["at"], row["by"], row["why"], mark.step, mark.node, mark.since, mark.seen_until)


def add_plan_events(db: Database, plan: str, events: Iterable[PlanEvent]) -> None:
    db.table("events").insert_all(
        {
            "recommendation": plan, "act": e.act, "at": e.at, "by": e.by, "until": None, "why": e.why,
            "figures": to_json(EventFigures(plan=PlanMark(e.step, e.node, e.since, e.seen_until))),
        }
        for e in events
    )  # fmt: skip


def followed_ids(file: Guarded, fleet: str) -> list[str]:
    """Ids of the plans that a fleet follows, whether or not they are as they were kept."""
    ids = [row["id"] for row in file.rows("plans", "WHERE fleet = ?", [fleet])]
    last: dict[str, str] = dict.fromkeys(ids, "kept")
    for row in file.rows("events", "WHERE act IN ('kept', 'superseded', 'dropped') ORDER BY seq"):
        if row["recommendation"] in last:
            last[row["recommendation"]] = row["act"]
    return [id_ for id_, act in last.items() if act == "kept"]


def followed(plans: Sequence[KeptPlan], fleet: str) -> KeptPlan | None:
    """The plan that a fleet follows; None: none."""
    return next((p for p in reversed(plans) if p.fleet == fleet and p.state == "followed"), None)
