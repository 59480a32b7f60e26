# pyright: reportArgumentType=false
"""Plans as the ledger keeps them, and windows of telemetry on their fleet, built by hand."""

from __future__ import annotations

from dataclasses import replace

from skuwise.advisor.core.advice_types import Fleet, Interval, NodeStanding
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.ledger.identity import fleet_key
from skuwise.advisor.ledger.plans.records import (
    KeptCash,
    KeptNode,
    KeptPlan,
    KeptStep,
    PlanEvent,
    Role,
    StepKind,
    StepParts,
    named,
)
from skuwise.advisor.moves.tracking.observation import Observation
from skuwise.tests.support.moves_builders import END, IB, PLAIN, START, workload

DAY = 86400.0
FLEET = Fleet("f", False, (), frozenset({"c"}), {"GPU-1": "n1"}, frozenset({"n1"}), frozenset({"fleet.db"}), "", {},
              START, END)  # fmt: skip
MOVE = "r-0123456789ab"


def step(number: int, kind: StepKind = "relocate", **changes) -> KeptStep:
    """Of chat, which leaves n2 for n1, by default."""
    parts = {"leaves": {"n2": 0}, "frees": ("n2",), "after": (), "rents": ()} | changes.pop("parts", {})
    values = {
        "action": None, "recommendation": None, "series": "s-chat", "name": "chat", "team": "search",
        "what": "Move 1 replica of chat to another node", "risk": "low",
    }  # fmt: skip
    return KeptStep(number=number, kind=kind, **{**values, **changes}, parts=StepParts(**parts))


def node(name: str, step_: int | None, role: Role = "return", **changes) -> KeptNode:
    values = {
        "pool": "pool", "node_sku": IB if role == "return" else PLAIN, "gpus": 8, "usd_per_month": 1000.0,
        "realisation": "cash-now" if role == "return" else None, "available_from": None, "drains": False,
    }  # fmt: skip
    return KeptNode(node=name, role=role, step=step_, **{**values, **changes})


def plan(steps=None, nodes=None, events=(), **changes) -> KeptPlan:
    """Two steps: chat leaves n2, and the recommended move of etl, which leaves n3, follows; n4 is empty."""
    move = step(
        2, "option", action="move-sku", recommendation=MOVE, series="s-etl", name="etl", team="ads", what="Move etl",
        parts={"leaves": {"n3": 0}, "frees": ("n3",), "after": (1,)},
    )  # fmt: skip
    asked = tuple(nodes if nodes is not None else (node("n2", 1), node("n3", 2), node("n4", None)))
    others = [name for name in ("n1", "n2", "n3", "n4") if name not in {n.node for n in asked}]
    values = {
        "id": "", "fleet": fleet_key(FLEET), "name": None, "goal": "cash", "kept_at": END, "by": "ann",
        "generated_at": END, "seen_until": END, "source": "fleet.db", "nodes_today": 4,
        "cash": (KeptCash(None, 3, Interval(2000.0, 3000.0, 3000.0)),),
    }  # fmt: skip
    made = KeptPlan(
        **{**values, **changes},
        steps=tuple(steps if steps is not None else (step(1), move)),
        nodes=(*asked, *(node(name, None, "there", node_sku=IB, usd_per_month=None) for name in others)),
    )
    return replace(named(made), events=(PlanEvent("kept", made.kept_at, made.by), *events))


def run(name: str, on: str, start: float = START, end: float = END, **changes) -> WorkloadVerdict:
    return workload(name, (on,), id=f"w-{name}-{on}-{start:.0f}", start=start, end=end, **changes)


def window(runs, nodes, end: float = END, start: float | None = None) -> Observation:
    """`nodes`: name -> when it was last seen, or (node SKU, when it was first seen)."""
    start = end - 14 * DAY if start is None else start
    standings = {}
    for name, told in nodes.items():
        sku, first, last = (IB, start, told) if isinstance(told, float) else (told[0], told[1], end)
        standings[name] = NodeStanding(name, sku, "H100-SXM5", 8, "eastus", 98.32, 24.0, first, last)
    return Observation(start, end, "fleet.db", tuple(runs), standings, frozenset(), frozenset())
