"""The scenario `mig`: every workload has its cost, idle instances are found, and every dollar is somewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.frame import Frame
from skuwise.advisor.doctor.line import coverage_line
from skuwise.advisor.pipeline import AdviseOptions, advise
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.benchmarks.generators.first import simulate
from skuwise.tests.support.rulebooks import rulebook

NOW = 1_790_000_000.0 // 3600 * 3600


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> Frame:
    path = tmp_path_factory.mktemp("mig") / "x.db"
    simulate("mig", path, days=4, seed=0, until=NOW)
    return read_frame([path], since_seconds=4 * 86400.0)


@pytest.fixture(scope="module")
def advice(frame: Frame) -> Advice:
    return advise(frame, rulebook(), AdviseOptions(NOW), np.random.default_rng(1))


def test_every_workload_on_an_instance_costs_its_part(advice: Advice) -> None:
    for one in advice.workloads:
        assert one.cost_usd is not None and one.cost_usd > 0, one.name
        assert 0 < one.gpu_part < 1 and not one.shared


def test_every_dollar_is_somewhere_and_none_is_shared(advice: Advice) -> None:
    r = advice.summary.reconciliation
    parts = [r.workloads, r.shared, r.allocated_idle, r.unallocated, r.drained, r.unobserved]
    assert r.total is not None and sum(part or 0.0 for part in parts) == pytest.approx(r.total, rel=1e-3)
    assert r.shared == 0
    costs = sum(one.cost_usd or 0.0 for one in advice.workloads)
    assert costs == pytest.approx((r.workloads or 0.0) + (r.allocated_idle or 0.0), rel=1e-6)


def test_an_instance_that_nobody_uses_is_found_at_its_part_of_the_price(advice: Advice) -> None:
    (found,) = [one for one in advice.findings if one.rule == "idle"]
    assert len(found.gpus) == 1 and "MIG instance (1 x 1g.10gb)" in found.text
    assert found.gpu_hours == pytest.approx(96 / 7, rel=0.03)
    assert found.cost_usd is not None and found.cost_usd < 0.15 * (advice.summary.cost_usd or 0.0) / 2


def test_no_cash_is_claimed_for_parts_of_gpus(advice: Advice) -> None:
    assert advice.recommendations and all(one.saving_usd_per_month is None for one in advice.recommendations)
    assert advice.summary.recoverable_usd_per_month == 0


def test_power_is_not_missed_where_the_driver_tells_it_of_the_whole_gpu(frame: Frame, advice: Advice) -> None:
    sliced = frame.gpus["parent_uuid"].notna()
    powered = frame.gpu.dropna(subset=["power_watts_mean"])
    assert sliced.any() and not powered["gpu_uuid"].isin(frame.gpus.loc[sliced, "gpu_uuid"]).any()
    assert coverage_line(frame, advice, "doctor") is None
    blind = replace(frame, gpu=frame.gpu.assign(power_watts_mean=np.nan))
    assert "power on 0" in (coverage_line(blind, advice, "doctor") or "")
