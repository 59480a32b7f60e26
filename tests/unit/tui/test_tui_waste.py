# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""The waste over time: every dollar of a finding in the hours of its GPUs, and an honest place where there is none."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from skuwise.advisor.views.move_words import waste_of
from skuwise.tests.support.fleet_on_screen import HOURS, fleet
from skuwise.tui.content.waste_history import waste_history
from skuwise.tui.screens.recommendations import fold_words, recommendation_rows
from skuwise.tui.widgets.waste_chart import RuleWaste, WasteHistory, bands, per_cell


def test_a_rule_has_what_its_findings_cost_in_the_hours_of_their_gpus() -> None:
    loaded = fleet()
    history = waste_history(loaded.frame, loaded.advice)
    wanted: dict[str, float] = {}
    for f in loaded.advice.findings:
        if waste_of(f.rule) != "none":
            wanted[f.rule] = wanted.get(f.rule, 0.0) + (f.cost_usd or 0.0)
    assert history.priced
    assert history.unplaced == 0
    assert {one.rule: one.total for one in history.rules} == pytest.approx(wanted)
    for one in history.rules:
        assert math.fsum(one.values) == pytest.approx(one.total)
        assert len(one.values) == HOURS
        assert max(one.values) == pytest.approx(one.total / HOURS, rel=0.05)  # the service runs evenly


def test_without_a_price_it_is_in_gpu_hours() -> None:
    loaded = fleet()
    bare = tuple(replace(f, cost_usd=None) for f in loaded.advice.findings)
    history = waste_history(loaded.frame, replace(loaded.advice, findings=bare))
    assert not history.priced
    hours = {f.rule: f.gpu_hours for f in bare if waste_of(f.rule) != "none"}
    assert {one.rule: one.total for one in history.rules} == pytest.approx(hours)


def test_what_has_no_place_in_the_window_is_told_apart_and_nothing_is_no_waste() -> None:
    loaded = fleet()
    lost = tuple(replace(f, gpus=("GPU-gone",)) for f in loaded.advice.findings)
    history = waste_history(loaded.frame, replace(loaded.advice, findings=lost))
    assert history.rules == ()
    assert history.unplaced > 0
    empty = replace(loaded.frame, gpu=loaded.frame.gpu.iloc[:0])
    assert waste_history(empty, loaded.advice).rules == ()
    none = waste_history(empty, replace(loaded.advice, findings=()))
    assert (none.rules, none.unplaced) == ((), 0)


def test_cells_hold_whole_hours_and_tell_a_day() -> None:
    assert per_cell([1.0] * 48, 24) == (2, (24.0,) * 24)
    assert per_cell([1.0] * 5, 2) == (3, (24.0, 24.0))
    assert per_cell([2.0], 50) == (1, (48.0,))
    rules = tuple(RuleWaste(f"r{n}", 10.0 - n, (10.0 - n,)) for n in range(7))
    drawn = bands(rules, 3)
    assert [one.rule for one in drawn] == ["r0", "r1", "5 other rules"]
    assert sum(one.total for one in drawn) == sum(one.total for one in rules)
    assert bands(WasteHistory(0.0, True, ()).rules, 3) == ()


def test_recommendations_that_save_nothing_are_counted_by_their_reason() -> None:
    advice = fleet().advice
    rows = recommendation_rows(advice)
    assert {row.recommendation.id for row in rows} == {r.id for r in advice.recommendations}
    shown = [row for row in rows if row.folded is None]
    assert rows[: len(shown)] == tuple(shown)
    assert all(not row.recommendation.blocked_by for row in shown)
    assert all(row.title[0].isupper() and row.id.startswith("r-") for row in rows)
    folded = len(rows) - len(shown)
    assert folded > 0
    assert fold_words(rows, advice).startswith(f"{folded} more recommendation")
    assert fold_words(tuple(shown), advice) == ""
