"""What tests of the ledger share: recommendations, their grounds and entries built by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from skuwise.advisor.core.advice_types import Advice, Configuration, Interval, Recommendation, SavingsBaseline
from skuwise.advisor.recommend.progress import Measure, PredictionSnapshot, observation_of
from skuwise.advisor.state import ledger
from skuwise.advisor.state.file import State, cells
from skuwise.advisor.state.ledger import Act, LedgerEntry, LedgerEvent, Realised
from skuwise.tests.support.moves_builders import IB, START
from skuwise.tests.support.report_fixtures import END, nothing

DAY = 86400.0


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


def moved(
    id_: str = "r-1", about: str = "chat-0-0", act: Act = "done", *, why: str = "seen", **changes: Any
) -> LedgerEntry:
    """A move in the ledger: what was predicted of it, and `changes` of how it was measured."""
    values: dict[str, Any] = {
        "since": END, "until": END, "hours": 168.0, "predicted_saving_usd_per_month": Interval(900.0, 1000.0, 1100.0),
        "predicted_time_ratio": None, "usd_per_month_before": None, "usd_per_month_after": None,
        "saving_usd_per_month": 950.0, "saving_missing": None, "gpu_hours_per_month_before": 700.0,
        "gpu_hours_per_month_after": 50.0, "time_ratio": None, "time_missing": None,
    }  # fmt: skip
    real = None if act == "accepted" else Realised(**{**values, **changes})
    saving = changes.get("predicted_saving_usd_per_month", values["predicted_saving_usd_per_month"])
    event = LedgerEvent(act, END, "ann", None, why, real)
    made = recommendation(id_, freed_gpu_hours_per_month=700.0, action="release")
    return entry_of(made, event, snapshot=ground(saving_usd_per_month=saving), at=END, about=about)


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
    source = {"kind": "sqlite", "databases": ["fleet.db"]}
    return replace(nothing(end=end), start=end - 14 * DAY, source=source, recommendations=made)


def propose(path: Path, *made: Recommendation, now: float, end: float | None = None) -> int:
    """Note advice on telemetry up to `end` (None: `now`) that recommends these. Returns how many are new."""
    with State(path).writing() as db:
        advice = advice_with(*made, end=now if end is None else end)
        return ledger.note(db, advice, observation_of(advice), now)
