# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
from dataclasses import replace

import pytest
from skuwise.advisor.core.verdict_types import BottleneckVerdict
from skuwise.advisor.moves.base.constraints import gates
from skuwise.advisor.moves.base.workload_groups import groups_of
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
    verdicts,
    workload,
)


def by_action(advice):
    return {(r.action, r.target.node_sku): r for r in advice.recommendations}


def test_every_way_out_of_the_founding_case_is_told():
    advice = advice_of(founding())
    ways = by_action(advice)
    assert {a for a, _ in ways} == {"move-sku", "reduce-gpus", "swap-placement"}
    twin = ways["move-sku", PLAIN]
    assert twin.time_ratio.p50 == 1.0
    assert twin.realisation == "cash-now"
    assert twin.target.gpu_sku == "H100-SXM5"
    assert twin.saving_usd_per_month.p50 == pytest.approx(2 * 9.832 * 730)
    other = next(r for r in advice.recommendations if r.action == "move-sku" and r.target.node_sku != PLAIN)
    assert other.rejected
    assert all(r.reason for r in other.rejected)
    assert all(r.would_change_if for r in advice.recommendations)


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
    ways = by_action(advice)
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
