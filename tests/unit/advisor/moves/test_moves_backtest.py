"""Recommendations of one week held against those of the next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from skuwise.advisor.core.advice_types import Advice
from skuwise.benchmarks.evaluation import backtest_moves
from skuwise.tests.support.moves_builders import advice_of, founding


@pytest.fixture(scope="module")
def advice() -> Advice:
    return advice_of(founding())


def outcomes(early: Advice, late: Advice) -> dict[str, int]:
    found = backtest_moves.follow(early, late).outcomes
    return {
        o: sum(n for (_, outcome), n in found.items() if outcome == o) for o in ("holds", "changed", "broke", "gone")
    }


def test_the_same_advice_again_holds_and_its_savings_lie_within(advice: Advice) -> None:
    followed = backtest_moves.follow(advice, advice)
    assert outcomes(advice, advice)["holds"] >= 1
    assert set(followed.within) == {True}
    assert any("not advised any more" in line for line in followed.told())


def test_what_is_not_given_again_broke(advice: Advice) -> None:
    followed = outcomes(advice, replace(advice, recommendations=()))
    assert followed["broke"] >= 1
    assert followed["holds"] == 0


def test_another_target_is_a_change_and_work_that_ended_is_gone(advice: Advice) -> None:
    renamed = tuple(replace(r, id=f"{r.id}-other") for r in advice.recommendations)
    assert outcomes(advice, replace(advice, recommendations=renamed))["changed"] >= 1
    assert outcomes(advice, replace(advice, recommendations=(), workloads=()))["gone"] >= 1


def test_blocked_ones_and_experiments_are_nobodys_advice(advice: Advice) -> None:
    blocked = tuple(replace(r, blocked_by=("because",)) for r in advice.recommendations)
    risky = tuple(replace(r, risk="high") for r in advice.recommendations)
    for none in (blocked, risky):
        assert not backtest_moves.follow(replace(advice, recommendations=none), advice).outcomes


def test_a_saving_that_missed_its_interval_is_told(advice: Advice) -> None:
    paying = [r for r in advice.recommendations if r.saving_usd_per_month and not r.blocked_by]
    assert paying
    missed = tuple(
        replace(r, saving_usd_per_month=replace(r.saving_usd_per_month, p50=r.saving_usd_per_month.p90 * 2 + 1))
        if r.saving_usd_per_month
        else r
        for r in advice.recommendations
    )
    assert False in backtest_moves.follow(advice, replace(advice, recommendations=missed)).within
