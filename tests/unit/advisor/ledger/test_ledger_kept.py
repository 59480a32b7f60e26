# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false
# pyright: reportOperatorIssue=false, reportAttributeAccessIssue=false
"""What the ledger's file keeps of moves: states, grounds, figures, and what was mailed."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.core.advice_types import Interval
from skuwise.advisor.ledger.entries import LedgerEvent, Proposal, decision_from
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.ledger.records import from_json, to_json
from skuwise.advisor.ledger.sync import proposals
from skuwise.advisor.moves.tracking.observation import Measure
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.ledger_builders import DAY, fleet, ground, the_move
from skuwise.tests.support.moves_builders import END

MOVE = Proposal(
    "r-1", "move-sku", "chat", "a", "b", 10.0, 0.0, "cash-now", "low", False, "t", "fleet.db", ground()
)  # fmt: skip


@pytest.mark.parametrize(
    ("acts", "after_days", "state"),
    [
        (["proposed", "done"], 300, "done"),
        (["accepted", "done", "measured"], 300, "done"),
        (["done", "regressed"], 29, "regressed"),
        (["done", "regressed"], 31, "expired"),
        (["done", "regressed", "accepted"], 300, "accepted"),
        (["done", "proposed"], 1, "proposed"),
        (["done", "proposed"], 31, "expired"),
        (["accepted", "measured"], 300, "accepted"),
    ],
)
def test_what_telemetry_tells_is_a_state_like_a_decision(acts, after_days, state) -> None:
    assert decision_from([LedgerEvent(act, END, "skuwise") for act in acts], END, END + after_days * DAY).state == state


def test_what_is_no_number_is_kept_as_missing() -> None:
    first = fleet(0)
    assert from_json(Measure, to_json(Measure(1.0, 2.0, busy=math.nan))) == Measure(1.0, 2.0)
    broken = replace(the_move(first), saving_usd_per_month=Interval(0.0, math.nan, math.inf))
    (proposal,) = proposals(replace(first, recommendations=(broken,)))
    assert proposal.ground.saving_usd_per_month is None


@pytest.mark.parametrize("text", ["", "[]", '{"realised": 3}', '{"realised": {}}', "[" * 100_000])
def test_figures_that_we_cannot_have_written_are_told_as_damage(tmp_path: Path, text) -> None:
    path = tmp_path / "ledger.db"
    Ledger(path).propose([MOVE], END)
    with closing(sqlite3.connect(path)) as db:
        db.execute(
            "INSERT INTO events (recommendation, act, at, by, figures) VALUES (?, 'done', 1, 'x', ?)", (MOVE.id, text)
        )
        db.commit()
    with pytest.raises(StoreError, match="figures holds an unreadable value"):
        Ledger(path).entries()


def test_what_was_mailed_is_told_again_after_the_cooldown(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    assert ledger.mailed_since("a", 0.0) == frozenset()
    ledger.propose([MOVE], 1.0)
    ledger.note_mailed("a", ["r-1"], 5.0)
    assert ledger.mailed_since("a", 5.0) == ledger.mailed_since("a", 5.0, before=5.1) == {"r-1"}
    assert ledger.mailed_since("a", 0.0, before=5.0) == frozenset()
    assert ledger.mailed_since("a", 5.1) == ledger.mailed_since("b", 0.0) == frozenset()
