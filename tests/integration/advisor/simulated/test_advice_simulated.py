"""The whole advice on simulated fleets: money that adds up on each, and a fleet in which every kind of move pays."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from skuwise.advisor.core.advice_types import Action, Advice, Recommendation
from skuwise.advisor.pipeline import AdviseOptions, advise
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.benchmarks.generators.first import SCENARIOS, simulate
from skuwise.tests.support.rulebooks import rulebook

UNTIL = 1_790_000_000.0
# Their saving is the price of nodes that are given back; that of the others is a difference of prices.
GIVEN_BACK = ("release", "consolidate", "reduce-gpus")


def advised(path: Path, scenario: str, days: float, seed: int) -> Advice:
    simulate(scenario, path, days=days, seed=seed, until=UNTIL)
    return advise(read_frame([path]), rulebook(), AdviseOptions(UNTIL), np.random.default_rng(1))


def whole_nodes(advice: Advice, r: Recommendation) -> float:
    price = next(p for p in advice.prices if p.id == r.prices[0])
    assert r.saving_usd_per_month is not None
    return r.saving_usd_per_month.p50 / (price.usd_per_hour * 730)


@pytest.mark.parametrize("scenario", sorted(set(SCENARIOS) - {"fleet", "moved"}))
def test_every_dollar_of_a_fleet_has_its_place_and_none_is_claimed_for_part_of_a_node(
    scenario: str, tmp_path: Path
) -> None:
    advice = advised(tmp_path / "fleet.db", scenario, 2.0, 11)
    r = advice.summary.reconciliation
    parts = (r.workloads, r.shared, r.allocated_idle, r.unallocated, r.drained, r.unobserved)
    assert r.total
    assert sum(p or 0.0 for p in parts) == pytest.approx(r.total, rel=1e-3)
    assert min(p or 0.0 for p in parts) >= 0
    wasted, cost = advice.summary.wasted_usd, advice.summary.cost_usd
    assert wasted is not None
    assert cost is not None
    assert 0 <= wasted <= cost
    for way in advice.recommendations:
        if way.action in GIVEN_BACK and way.saving_usd_per_month is not None:
            assert whole_nodes(advice, way) == pytest.approx(round(whole_nodes(advice, way)), abs=1e-6)
            assert whole_nodes(advice, way) >= 1


def test_a_mixed_fleet_gets_a_recommendation_of_every_kind_of_move(tmp_path: Path) -> None:
    advice = advised(tmp_path / "mixed.db", "mixed", 14.0, 3)
    open_ = [r for r in advice.recommendations if not r.blocked_by]
    # One fleet may have no service of several replicas with room to spare; another has.
    other = advised(tmp_path / "other.db", "mixed", 9.0, 0)
    assert {r.action for r in (*open_, *other.recommendations) if not r.blocked_by} == set(get_args(Action))
    findings = {f.id: f for f in advice.findings}
    mended = next(r for r in open_ if r.action == "fix-first")
    others = [r for r in advice.recommendations if r.workload == mended.workload and r.action != "fix-first"]
    assert all(r.blocked_by for r in others)
    swap = next(r for r in open_ if r.action == "swap-placement")
    assert {findings[f].rule for f in swap.findings} == {"idle-fabric", "under-tier"}
    assert advice.summary.recoverable_usd_per_month
    counted = [r for r in open_ if r.realisation == "cash-now" and r.risk in {"very-low", "low"}]
    assert advice.summary.recoverable_usd_per_month <= sum(
        r.saving_usd_per_month.p50 for r in counted if r.saving_usd_per_month is not None
    ) * (1 + 1e-3)  # fmt: skip
