# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""Moves that keep the GPU: slices of it, other clocks, other counts."""

import pytest
from skuwise.advisor.moves.base.prediction import Prediction, Refusal
from skuwise.advisor.moves.predict.clock_model import ClockMove, lower_clock, predict_clock, watts_at
from skuwise.advisor.moves.predict.gpu_count_model import predict_count
from skuwise.advisor.moves.predict.mig_model import load_on_slice, predict_slice, weigh_slices
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models.power_model import load_power_model
from skuwise.tests.support.moves_builders import use_of

DECODE = use_of(u_c=0.10, u_m=0.75, g=0.97)
GEMM = use_of(u_c=0.85, u_m=0.30, g=0.98)
LIGHT = use_of(u_c=0.02, u_m=0.08, g=0.10)
CATALOG = load_catalog()
POWER = load_power_model()
H100 = CATALOG.gpu("H100-SXM5")


def profile(name, gpu=H100):
    return next(p for p in gpu.mig_profiles if p.name(gpu.mem_bytes) == name)


def test_profiles_are_called_as_the_driver_calls_them():
    assert [p.name(H100.mem_bytes) for p in H100.mig_profiles] == [
        "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb",
    ]  # fmt: skip
    h200 = CATALOG.gpu("H200-SXM")
    assert {"1g.18gb", "3g.71gb", "7g.141gb"} <= {p.name(h200.mem_bytes) for p in h200.mig_profiles}


def test_compute_follows_real_sms_and_memory_follows_eighths():
    half = profile("3g.40gb")
    compute = predict_slice(H100, half, GEMM, "training")
    memory = predict_slice(H100, half, DECODE, "training")
    assert isinstance(compute, Prediction)
    assert isinstance(memory, Prediction)
    assert 0.9 * 132 / 60 < compute.median < 132 / 60
    assert 1.5 < memory.median < 2.0


def test_light_work_fits_a_small_slice_and_heavy_work_none():
    light = weigh_slices(H100, LIGHT, "serving", needed_bytes=4e9, headroom=0.7)
    heavy = weigh_slices(H100, DECODE, "serving", needed_bytes=4e9, headroom=0.7)
    assert next(f for f in light if not f.blocked_by).profile.memory_slices <= 2
    assert all(f.blocked_by for f in heavy)
    assert load_on_slice(H100, profile("1g.10gb"), DECODE)[0] > 1


@pytest.mark.parametrize(("needed", "reason"), [(None, "required memory unknown"), (70e9, "room for")])
def test_memory_blocks_a_slice(needed, reason):
    found = weigh_slices(H100, LIGHT, "serving", needed_bytes=needed, headroom=0.7)
    assert any(reason in r.text for r in found[0].blocked_by)


def test_a_lower_clock_costs_decode_little_and_a_gemm_all_of_it():
    decode, gemm = predict_clock(DECODE, "serving", 0.75), predict_clock(GEMM, "training", 0.75)
    assert isinstance(decode, Prediction)
    assert isinstance(gemm, Prediction)
    assert 1.0 < decode.median < 1.10
    assert 1.25 < gemm.median < 1 / 0.75
    assert isinstance(predict_clock(DECODE, "serving", 0.3), Refusal)


def test_lower_clock_saves_energy_for_memory_bound_work_alone():
    bound = use_of(u_c=0.10, u_m=0.95, g=0.99)
    found = lower_clock(bound, "serving", watts=300, idle_watts=80, model=POWER)
    assert isinstance(found, ClockMove)
    assert found.clock_share < 1
    assert found.joules_ratio < 0.95
    assert found.saves
    assert found.prediction.interval.p90 <= 1.05
    refused = lower_clock(GEMM, "training", watts=650, idle_watts=80, model=POWER)
    assert isinstance(refused, Refusal)
    assert refused.reason.code == "clock-needed"


def test_the_published_point_of_power_against_clock_is_met():
    # A100 serving, 1110 of 1410 MHz: a fifth less at the peak
    assert watts_at(400, 60, 1110 / 1410, POWER) == pytest.approx(320, rel=0.01)
    assert watts_at(400, 60, 1.0, POWER) == pytest.approx(400)


def test_twice_the_gpus_are_less_than_twice_as_fast_where_they_talk():
    use = use_of(u_c=0.6, u_m=0.3, u_n=0.5, g=0.95)
    found = predict_count(use, "training", 4, 8)
    assert isinstance(found, Prediction)
    assert 0.5 < found.median < 1
    assert isinstance(predict_count(use, "training", 1, 2), Refusal)
