"""The ledger: read in every way, and written to where that is asked for."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path
from typing import Any

from ..sqlite import by_sqlite, packed
from ..target import Prepared, Seed, Target
from ..verdict import finite

NOW = 1_790_000_000.0
DAY = 86400.0


def _prepare(folder: Path) -> Prepared:
    from skuwise.advisor.core.advice_types import Configuration, Fleet, Interval, SavingsBaseline
    from skuwise.advisor.ledger.entries import LedgerEvent, Proposal
    from skuwise.advisor.ledger.file.store import Ledger
    from skuwise.advisor.ledger.plans.standing import standing_of
    from skuwise.advisor.ledger.records import EventFigures, Trial, TrialResult
    from skuwise.advisor.moves.tracking.observation import Measure, PredictionSnapshot

    source, target = Configuration("H100-SXM5", "aws/p5.48xlarge", 8), Configuration("L40S", "aws/g6e.12xlarge", 4)
    yardstick = _yardstick(SavingsBaseline)
    ground = PredictionSnapshot(
        "s", True, ("n1", "n2"), source, target, Interval(1.0, 2.0, 3.0), Interval(0.9, 1.0, 1.1), yardstick,
        Measure(8.0, 5840.0, busy=0.5), {"aws/p5.48xlarge": 98.32}, "at list price", NOW, 4,
    )  # fmt: skip
    proposals = [
        Proposal(f"r-{n}", "move-sku", "chat", "8 x H100", "4 x L40S", 100.0 * n, 10.0, "cash-now", "low", False,
                 "Move chat.", "fleet.db", ground if n else None)
        for n in range(4)
    ]  # fmt: skip
    fleet = Fleet("lab", False, (), frozenset({"c"}), {"GPU-1": "n1"}, frozenset({"n1", "n2"}), frozenset({"fleet.db"}),
                  "", {}, NOW - 14 * DAY, NOW)  # fmt: skip
    path = folder / "ledger.db"
    honest = Ledger(path)
    honest.propose(proposals, NOW, fleet=fleet)
    honest.add("r-1", LedgerEvent("accepted", NOW + DAY, "ann", why="yes"))
    honest.add("r-2", LedgerEvent("snoozed", NOW + DAY, "ann", until=NOW + 9 * DAY))
    honest.add("r-1", LedgerEvent("trial", NOW + 2 * DAY, "ann", figures=EventFigures(trial=Trial("n1"))))
    honest.add(
        "r-1",
        LedgerEvent(
            "tried", NOW + 3 * DAY, "skuwise", figures=EventFigures(tried=TrialResult("better", 0.9, 30.0, "work"))
        ),
    )
    honest.note_mailed("ann@example.org", ["r-1", "r-2"], NOW)
    kept = _plan(fleet)
    honest.keep_plan(kept, _kept(), {})
    honest.note_plan(kept.fleet, _emptied)
    seeds = [Seed("ledger", packed(str(path)))]
    place = folder / "own"

    def read(_: str, data: bytes) -> object:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        own = place / "ledger.db"
        own.write_bytes(data)
        ledger = Ledger(own, busy_seconds=0.05)
        entries = ledger.entries()
        finite(entries, "an entry", texts=False)
        for entry in entries:
            finite((entry.decision(NOW + 5 * DAY), entry.realised), "a decision", texts=False)
        finite(ledger.fleets(), "a fleet", texts=False)
        ledger.mailed()
        ledger.mailed_since("ann@example.org", NOW - DAY)
        plans = ledger.plans()
        finite([standing_of(plan, entries, NOW + 5 * DAY) for plan in plans], "a plan", texts=False)
        if zlib.crc32(data) % 3 == 0:
            ledger.recover()
            ledger.propose(proposals[:2], NOW + 4 * DAY, lambda _: [], fleet=fleet)
            ledger.add("r-1", LedgerEvent("dismissed", NOW + 4 * DAY, "ann", why="no"))
            ledger.note_mailed("ann@example.org", ["r-3"], NOW + 4 * DAY)
            ledger.note_plan(kept.fleet, _emptied)
            ledger.keep_plan(kept, _kept(), {})
            finite(ledger.plans(), "a plan after it was written to", texts=False)
            finite(ledger.entries(), "an entry after it was written to", texts=False)
        return entries

    return Prepared(seeds, read, by_sqlite())


def _plan(fleet: Any) -> Any:
    from skuwise.advisor.core.advice_types import Interval
    from skuwise.advisor.ledger.identity import fleet_key
    from skuwise.advisor.ledger.plans.records import KeptCash, KeptNode, KeptPlan, KeptStep, StepParts, named

    steps = (
        KeptStep(1, "relocate", None, None, "s", "chat", "ads", "Move chat", "low", StepParts({"n1": 0}, ("n1",))),
        KeptStep(2, "option", "move-sku", "r-1", "s", "chat", None, "Move", None, StepParts({}, (), (1,), ("new",))),
    )
    nodes = (
        KeptNode("n1", "return", "pool", "aws/p5.48xlarge", 8, 71000.0, "cash-at", "2027-01-01", 1, False),
        KeptNode("new", "rent", "pool", "aws/g6e.12xlarge", 4, 7000.0, None, None, 2, False),
    )
    cash = (KeptCash("2027-01-01", 1, Interval(1.0, 2.0, 3.0)),)
    return named(KeptPlan("", fleet_key(fleet), "x", "cash", NOW, "ann", NOW, NOW, "fleet.db", 4, cash, steps, nodes))


def _kept() -> Any:
    from skuwise.advisor.ledger.plans.records import PlanEvent

    return PlanEvent("kept", NOW, "ann")


def _emptied(_: Any) -> Any:
    from skuwise.advisor.ledger.plans.records import PlanEvent

    return [PlanEvent("empty", NOW + DAY, "skuwise", None, None, "n1", NOW, NOW + DAY)]


def _yardstick(kind: type) -> Any:
    from dataclasses import MISSING, fields
    from typing import get_type_hints

    hints = get_type_hints(kind)
    given = {
        f.name: _some(hints[f.name]) for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING
    }
    return kind(**given)


def _some(hint: object) -> object:
    """Some honest value of a field that has no default."""
    from typing import Literal, get_args, get_origin

    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if get_origin(hint) is tuple:
        return ()
    if type(None) in get_args(hint):
        return None
    return {str: "x", float: 1.0, int: 1, bool: False}.get(hint, ())  # type: ignore[call-overload]


LEDGER = Target("ledger", "the ledger, read and written (advisor/ledger)", _prepare)
