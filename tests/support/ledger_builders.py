# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false
# pyright: reportOperatorIssue=false, reportAttributeAccessIssue=false
"""What tests of the ledger share: a fleet whose service moves, and windows and grounds built by hand."""

import math
from dataclasses import replace
from pathlib import Path

from skuwise.advisor.core.advice_types import (
    Advice,
    Configuration,
    Interval,
    NodeStanding,
    Recommendation,
    Reconciliation,
    SavingsBaseline,
    Summary,
)
from skuwise.advisor.core.frame import Window
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.pipeline import reason_on
from skuwise.advisor.recommend.progress import Measure, Observation, PredictionSnapshot, observation_of
from skuwise.advisor.state import ledger
from skuwise.advisor.state.file import State, cells
from skuwise.advisor.state.fleets import StateBeside
from skuwise.advisor.state.ledger import LedgerEntry, LedgerEvent
from skuwise.tests.support.moves_builders import END, IB, PLAIN, START, catalog, node, usage, verdicts, workload
from skuwise.tests.support.rulebooks import rulebook

DAY = 86400.0
MOVED = END + 3 * DAY  # the service went to nodes without the fabric then
SAVING = 2 * (98.32 - 88.488) * 730  # two nodes, list prices, a month


def fleet(days: float, back: float = math.inf, kept: bool = False, beside: StateBeside | None = None) -> Advice:
    """Advice over the 14 days up to `days` after END: a service on n1 and n2 (InfiniBand), on p1 and p2 (without) from
    MOVED to `back`. `kept`: the nodes that it left stay, and go on reporting."""
    start, end = START + days * DAY, END + days * DAY
    runs, nodes = [], []
    for names, sku, spans in (
        (("n1", "n2"), IB, ((start, min(MOVED, end)), (back, end))), (("p1", "p2"), PLAIN, ((MOVED, min(back, end)),)),
    ):  # fmt: skip
        live = [(max(a, start), b) for a, b in spans if b > max(a, start)]
        runs += [
            workload("chat", (name,), id=f"w-{name}-{a:.0f}", start=a, end=b, node_sku=sku)
            for name in names for a, b in live
        ]  # fmt: skip
        if live or (kept and sku == IB):
            last = end if kept or not live else live[-1][1]
            first = start if sku == IB else live[0][0]
            hours = (last - first) / 3600
            seen = {"first_seen": first, "last_seen": last, "hours_observed": hours, "span_hours": (end - first) / 3600}
            nodes += [node(name, sku, **seen, **({} if sku == IB else {"fabric": None})) for name in names]
    given_ = verdicts(nodes, runs, uses=[usage(w, u_n=0.2) for w in runs if w.end - w.start >= 3600])
    return reason_on(
        replace(given_, window=Window(start, end)), rulebook(catalog()), end, 1,
        decisions=ledger.decisions_of(beside.entries() if beside else (), end),
        source={"kind": "sqlite", "databases": ["fleet.db"]},
    ).advice  # fmt: skip


def seen(runs, nodes=(), source="fleet.db") -> Observation:
    about = IB, "H100-SXM5", 8, "eastus", 98.32, (END - START) / 3600, START
    stands = {name: NodeStanding(name, *about, last) for name, last in nodes}
    return Observation(START, END, source, tuple(runs), stands, frozenset(), frozenset())


def ground(**changes) -> PredictionSnapshot:
    h100 = Configuration("H100-SXM5", IB, 16)
    values = {
        "series_id": "s-chat", "serving": True, "nodes": ("n1", "n2"), "source": h100,
        "target": replace(h100, gpu_count=8), "saving_usd_per_month": Interval(60_000.0, 71_773.6, 75_000.0),
        "time_ratio": None, "yardstick": SavingsBaseline(2 * 98.32 * 730),
        "before": Measure(16.0, 16 * 730.0, busy=0.4),
        "usd_per_hour": {IB: 98.32}, "prices": "at list price", "seen_until": START,
    }  # fmt: skip
    return PredictionSnapshot(**{**values, **changes})


def recommendation(id_: str = "r-0123456789ab", **changes) -> Recommendation:
    """A move of a service as it was proposed."""
    made = Recommendation(
        id_, (), None, "move-sku", Configuration("H100-SXM5", "a", 8), Configuration("H100-SXM5", "b", 8), None,
        Interval(1000.0, 1234.5, 1500.0), 0.0, "cash-now", "low", (), (), (), (), "Move it.",
    )  # fmt: skip
    return replace(made, **changes)


def entry_of(
    made: Recommendation, *events: LedgerEvent, snapshot: PredictionSnapshot | None = None, at: float = START,
    about: str = "chat", source: str = "fleet.db",
) -> LedgerEntry:  # fmt: skip
    """A recommendation in the ledger, proposed at `at`."""
    return LedgerEntry(made, about, source, snapshot, at, at, events)


def keep(path: Path, *entries: LedgerEntry) -> None:
    """Write entries to a state file as they are."""
    with State(path).writing() as db:
        for e in entries:
            row = cells(
                id=e.recommendation.id, action=e.recommendation.action, about=e.about, source=e.source,
                first_proposed=e.first_proposed, last_proposed=e.last_proposed, recommendation=e.recommendation,
                snapshot=e.snapshot,
            )  # fmt: skip
            db.table("recommendations").insert(row)
            for event in e.events:
                ledger.add(db, e.recommendation.id, event)


def kept(path: Path) -> dict[str, LedgerEntry]:
    """The entries of a state file, by id."""
    with State(path).reading() as db:
        return {e.recommendation.id: e for e in ledger.entries(db)}


def decide(path: Path, id_: str, act: ledger.Act, at: float, **event) -> None:
    with State(path).writing() as db:
        ledger.add(db, id_, LedgerEvent(act, at, event.pop("by", "ann"), **event))


def advice_with(*made: Recommendation, end: float) -> Advice:
    """Advice over 14 days of an empty fleet that recommends these."""
    summary = Summary(0, 0.0, None, None, None, Reconciliation(*[None] * 7))
    source = {"kind": "sqlite", "databases": ["fleet.db"]}
    return Advice(end, end - 14 * DAY, end, source, summary, (), (), (), made)


def propose(path: Path, *made: Recommendation, now: float, end: float | None = None) -> int:
    """Note advice on telemetry up to `end` (None: `now`) that recommends these. Returns how many are new."""
    with State(path).writing() as db:
        advice = advice_with(*made, end=now if end is None else end)
        return ledger.note(db, advice, observation_of(advice), now)


L40S = Configuration("L40S", "azure/other", 16)
RATIO = Interval(0.8, 1.0, 1.25)


def moved_run(**features: float) -> WorkloadVerdict:
    return workload("chat", ("p1",), start=END - 4 * DAY, gpu_sku="L40S", node_sku="azure/other", features=features)
