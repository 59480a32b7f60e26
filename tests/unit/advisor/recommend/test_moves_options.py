# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""Options of a workload: which are told, and those that keep its GPU."""

from dataclasses import replace

import pytest
from skuwise.advisor.core.verdict_types import BottleneckVerdict
from skuwise.advisor.recommend.constraints import gates
from skuwise.advisor.recommend.groups import groups_of
from skuwise.advisor.recommend.predict.clock_model import ClockMove, lower_clock, predict_clock, watts_at
from skuwise.advisor.recommend.predict.mig_model import predict_slice, weigh_slices
from skuwise.advisor.recommend.prediction import Prediction, Refusal
from skuwise.advisor.recommend.whatif import predict_count
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.models.power_model import load_power_model
from skuwise.tests.support.moves_builders import (
    END,
    IB,
    PLAIN,
    advice_of,
    catalog,
    fabric,
    founding,
    gpus_of,
    node,
    usage,
    use_of,
    verdicts,
    workload,
)


def test_a_finished_job_that_does_not_recur_saves_nothing():
    gone = [replace(w, end=END - 3 * 86400) for w in founding().workloads[:1]]
    advice = advice_of(verdicts([node()], gone))
    assert [f.rule for f in advice.findings] == ["idle-fabric", "over-tier"]
    assert not advice.recommendations
    assert advice.summary.recoverable_usd_per_month == 0.0
    assert any(n.code == "work-is-over" for n in advice.notes)


def test_a_move_is_credited_only_beyond_the_right_sized_count():
    pods = [workload("api", (f"n{i}",), id=f"w-{i}") for i in range(1, 5)]
    uses = [usage(w, u_c=0.05, u_m=0.15, u_n=0.2) for w in pods]
    advice = advice_of(verdicts([node(w.nodes[0]) for w in pods], pods, uses=uses))
    (found,) = [f for f in advice.findings if f.rule == "too-many-gpus"]
    assert {e.metric: e.threshold for e in found.evidence}["gpus_held"] == 16.0
    assert found.cost_usd == pytest.approx(2 * 98.32 * 336)
    ways = {(r.action, r.target.node_sku): r for r in advice.recommendations}
    fewer = ways["reduce-gpus", IB]
    assert (fewer.target.gpu_count, fewer.realisation) == (16, "cash-now")
    assert "x the current peak demand" in (fewer.break_even or "")
    assert ways["reduce-gpus", IB].saving_usd_per_month.p50 == pytest.approx(2 * 98.32 * 730)
    assert ways["move-sku", PLAIN].target.gpu_count == 16
    assert ways["move-sku", PLAIN].saving_usd_per_month.p50 == pytest.approx(2 * 9.832 * 730)
    assert advice.summary.recoverable_usd_per_month == pytest.approx((2 * 98.32 + 2 * 9.832) * 730)


def test_training_that_starves_swaps_with_the_silent_service():
    chat = workload("chat", ("n1", "n2"), gpus=(*gpus_of("n1"), *gpus_of("n2")))
    job = workload(
        "job", ("e1", "e2"), kind="training", node_sku=PLAIN, gpus=(*gpus_of("e1"), *gpus_of("e2")), features={},
        bottleneck=BottleneckVerdict("network", 0.9, {"network": 0.6, "compute": 0.4}),
    )  # fmt: skip
    slow = fabric(util_p995=0.9, util_max=1.0, link_layer="Ethernet", line_rate_bytes_per_second=10e9)
    nodes = [node("n1"), node("n2"), node("e1", PLAIN, fabric=slow), node("e2", PLAIN, fabric=slow)]
    advice = advice_of(verdicts(nodes, [chat, job], uses=[usage(chat, u_n=0.2), usage(job, u_c=0.4, u_i=0.5)]))
    swap = next(r for r in advice.recommendations if r.action == "swap-placement")
    assert not swap.blocked_by
    assert 0.4 < swap.time_ratio.p50 < 0.6
    assert swap.saving_usd_per_month is None
    assert swap.realisation == "capacity-freed"
    assert swap.freed_gpu_hours_per_month == pytest.approx(16 * 730 * (1 - swap.time_ratio.p50), rel=1e-6)
    assert "1.00x the time" in swap.text


def group_of(w, **use):
    return groups_of(verdicts([node(n) for n in w.nodes], [w], uses=[usage(w, **use)]))[0]


@pytest.mark.parametrize(
    ("changes", "use", "target", "said"),
    [
        ({}, {}, "azure/Standard_ND96amsr_A100_v4", "no FP8"),
        ({}, {}, "azure/Standard_ND96is_MI300X_v5", "software stack"),
        ({}, {}, "aws/g6.48xlarge", "required memory unknown"),
        ({"features": {}}, {"memory": 0.8}, "aws/g6e.48xlarge", "uses up to"),
        ({"features": {}}, {"memory": 0.1, "u_n": 0.3}, "aws/g6e.48xlarge", "only by PCIe"),
        ({"shared": True}, {}, "azure/Standard_ND96isr_H200_v5", "shared"),
        ({"nodes": ("n1", "n2"), "kind": "training"}, {}, PLAIN, "needs a fabric"),
        ({}, {"u_n": 0.3}, "azure/Standard_ND128isr_NDR_GB200_v6", "Arm"),
    ],
)
def test_gates_close_with_their_reason(changes, use, target, said):
    w = workload(**changes)
    sold = catalog().node(target)
    reasons = gates(group_of(w, **use), catalog().gpu("H100-SXM5"), catalog().node(IB), catalog().gpu(sold.gpu), sold)
    assert any(said in r.text for r in reasons), reasons


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
    assert heavy[0].name == "1g.10gb" and heavy[0].load > 1


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
