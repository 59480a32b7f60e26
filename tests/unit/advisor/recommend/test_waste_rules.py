# pyright: reportOptionalMemberAccess=false, reportOptionalOperand=false, reportArgumentType=false, reportOperatorIssue=false
"""Which thresholds a rule reads: it finds on one side of each of them and not on the other, and what it finds costs."""

import pytest
from skuwise.advisor.core.verdict_types import Alternative, BottleneckVerdict, KindVerdict
from skuwise.rules.catalog.types import PowerPrice
from skuwise.tests.support.moves_builders import (
    IB,
    PLAIN,
    advice_of,
    fabric,
    fired,
    found,
    gpus_of,
    node,
    price_of,
    usage,
    verdicts,
    ways,
    workload,
)

L40S = {"node_sku": "aws/g6e.48xlarge", "gpu_sku": "L40S"}
ETHERNET = fabric(util_p995=0.9, util_max=1.0, link_layer="Ethernet", line_rate_bytes_per_second=10e9)
DECODE = {"power_watts": 400.0, "power_over_idle": 4.0, "tensor_of_sustained_p95": 0.1, "mem_flat": 1.0, "cpu": 0.1}


def bound_by(label: str, share: float) -> BottleneckVerdict:
    return BottleneckVerdict(label, 0.9, {label: share, "mixed": 1 - share})


def on_one_node(w, *, host=None, uses=None, **use):
    """A workload on a node without a fabric port, so that only the rule in question has something to say."""
    return verdicts([host or node(fabric=None)], [w], uses=uses or [usage(w, **use)])


def nvlink(util):
    return on_one_node(workload(gpus=gpus_of("n1", 1)), host=node(fabric=None, nvlink_util_p995=util))


def decoding(fabric_of_it=None, share=1.0, **features):
    """Eight replicas of one L40S each, bound by memory bandwidth."""
    told = {"tensor_of_sustained_p95": 0.2, "mem_flat": 0.0, "cpu": 0.01, **features}
    own = [
        workload("api", id=f"w-{i}", gpus=(f"GPU-n1-{i}",), features=told, bottleneck=bound_by("hbm-bandwidth", share),
                 **L40S)
        for i in range(8)
    ]  # fmt: skip
    host = node(sku="aws/g6e.48xlarge", provider="aws", region="us-east-1", gpu_sku="L40S", fabric=fabric_of_it)
    return verdicts([host], own, uses=[usage(w, u_m=0.8, memory=0.3) for w in own])


def memory(most):
    return on_one_node(workload(gpus=gpus_of("n1", 1), features={"engine_active": 0.9}), memory=most)


def starved(share=0.2, sku=PLAIN, **changes):
    """Training on two nodes that waits for the network between them."""
    values = {"kind": "training", "node_sku": sku, "features": {}, "bottleneck": bound_by("network", share)}
    job = workload("job", ("n1", "n2"), **{**values, **changes})
    nodes = [node(name, sku, fabric=ETHERNET) for name in ("n1", "n2")]
    return verdicts(nodes, [job], uses=[usage(job, u_i=0.4, u_c=0.4)])


def clocked(**features):
    return on_one_node(workload(features=DECODE | features), u_m=0.85, u_c=0.05)


def drawing(watts):
    """Training bound by compute that draws so much of the 700 W that an H100 may."""
    features = {"tensor_of_sustained_p95": 0.95, "power_watts": watts, "power_over_idle": watts / 70}
    w = workload(kind="training", bottleneck=bound_by("compute", 0.9), features=DECODE | features)
    return on_one_node(w, uses=[usage(w, u_c=0.9, u_m=0.4, label="compute").assign(power_watts=watts)])


def mended(kind, label, share):
    w = workload(kind=kind, bottleneck=bound_by(label, share), features={})
    use = usage(w, u_c=0.1, u_m=0.1, g=0.4, label=label).assign(sm=0.3, lost=0.25, clock_ratio=0.8)
    return on_one_node(w, uses=[use])


def doubtful(gpus, chance, label="batch-inference"):
    """A job that may be training after all, on so many GPUs of a node with a silent fabric that others serve on."""
    kind = KindVerdict(label, 0.7, (), (Alternative("training", chance),))
    of_node, compute = gpus_of("n1"), BottleneckVerdict("compute", 0.9, {"compute": 1.0})
    job = workload("job", kind=kind, gpus=of_node[:gpus], bottleneck=compute)
    return verdicts([node()], [job, workload("chat", gpus=of_node[gpus:])])


@pytest.mark.parametrize(
    ("rule", "given", "said"),
    [
        ("idle-fabric", doubtful(1, 0.3), True),
        ("idle-fabric", doubtful(3, 0.3), True),
        ("idle-fabric", doubtful(6, 0.3), False),
        ("idle-fabric", doubtful(1, 0.33), False),
        ("idle-nvlink", nvlink(0.01), True),
        ("idle-nvlink", nvlink(0.011), False),
        ("over-tier", decoding(), True),
        ("over-tier", decoding(tensor_of_sustained_p95=0.3), False),
        ("over-tier", decoding(share=0.5), True),
        ("over-tier", decoding(share=0.49), False),
        ("memory-unused", memory(0.49), True),
        ("memory-unused", memory(0.5), False),
        ("under-tier", starved(), 16 * 336 * 0.2),  # bounded by the link's use, and by its share of the time
        ("under-tier", starved(0.19), False),
        ("under-tier", starved(sku=IB), False),
        ("under-tier", starved(kind="batch-inference"), False),
        ("under-tier", starved(sku=None), True),  # its ports are Ethernet, though nobody knows the node
        ("energy", clocked(), True),
        ("energy", clocked(tensor_of_sustained_p95=0.3), False),
        ("energy", drawing(500.0), True),
        ("energy", drawing(400.0), False),
        ("fix-first", mended("training", "host-input", 0.5), 8 * 336 * 0.6),
        ("fix-first", mended("training", "straggler", 0.9), 8 * 336 * 0.25),
        ("fix-first", mended("batch-inference", "latency", 0.9), 8 * 336 * 0.7),
        ("fix-first", mended("fine-tuning", "throttled", 0.9), 8 * 336 * 0.2),
        ("fix-first", mended("training", "host-input", 0.49), False),
        ("fix-first", mended("training", "compute", 0.9), False),
        ("fix-first", mended("online-inference", "latency", 0.9), False),
        ("fix-first", mended("interactive", "latency", 0.9), False),
    ],
)
def test_a_rule_finds_on_one_side_of_its_threshold(rule, given, said):
    """`said`: the GPU-hours of the finding, where they are not all that were held (True)."""
    findings = [f for f in advice_of(given).findings if f.rule == rule]
    assert len(findings) == (said is not False)
    if said is not False and said is not True:
        assert findings[0].gpu_hours == pytest.approx(said)


def test_what_nvlink_and_a_too_good_gpu_cost_is_their_part_of_the_price():
    link = found(advice_of(nvlink(0.01)), "idle-nvlink")
    assert 0 < link.cost_usd < 98.32 / 8 * 336 * 0.2
    tier = found(advice_of(decoding()), "over-tier")
    evidence = {e.metric: e.value for e in tier.evidence}
    assert evidence["cheaper_sku_bandwidth"] >= 0.95
    assert tier.cost_usd == pytest.approx(evidence["price_less"] * 8 * 336)
    assert tier.cost_usd < 30.13118 * 336


def test_a_lower_clock_is_energy_and_dollars_only_where_the_team_pays_for_the_power():
    (way,) = ways(advice_of(clocked()), "lower-clock")
    assert (way.realisation, way.saving_usd_per_month) == ("energy", None)
    assert way.time_ratio.p90 <= 1.1
    power = (PowerPrice("eastus", 0.10, "utility bill", "2026-10-01"),)
    advice = advice_of(clocked(), (price_of(usd=60.0, basis="owned"),), power=power)
    finding, (way,) = found(advice, "energy"), ways(advice, "lower-clock")
    kwh = next(e.value for e in finding.evidence if e.metric == "energy_saved_per_month")
    assert way.saving_usd_per_month.p50 == pytest.approx(kwh * 0.10, rel=0.05)
    assert finding.cost_usd == pytest.approx(kwh * 0.10 * 336 / 730)
    assert advice.summary.recoverable_usd_per_month == 0
    (rented,) = ways(advice_of(clocked(), power=power), "lower-clock")
    assert rented.saving_usd_per_month is None


def test_compute_that_draws_most_of_its_limit_is_capped_at_a_known_loss():
    advice = advice_of(drawing(640.0))
    assert all(1.0 < r.time_ratio.p50 <= 1.1 and r.time_ratio.p90 <= 1.2 for r in ways(advice, "power-cap"))
    assert found(advice, "energy").confidence < 0.7  # H100: none of the measured runs is on Hopper


def test_what_no_other_gpu_changes_is_mended_before_anything_else():
    advice = advice_of(mended("training", "straggler", 0.9))
    assert [r.blocked_by for r in ways(advice, "fix-first")] == [()]
    others = [r for r in advice.recommendations if r.action != "fix-first"]
    assert all(any(b.code == "mend-first" for b in r.blocked_by) for r in others)
    assert advice.summary.recoverable_usd_per_month == 0


@pytest.mark.parametrize(("share", "said"), [(0.05, True), (0.049, False)])
def test_a_fault_of_the_telemetry_is_told_once_a_node_and_stops_every_verdict_and_move(share, said):
    runs = [workload(name, kind="training", features={"fault_share": share}) for name in ("a", "b")]
    advice = advice_of(verdicts([node(fabric=None)], runs))
    assert fired(advice).count("telemetry-fault") == int(said)
    if said:
        assert {r.action for r in advice.recommendations} == {"fix-first"}
        assert {n.reason.code for n in advice.not_judged if n.workloads} == {"signals-contradict"}
        assert [(j.found, j.clean) for j in advice.judged if j.rule == "telemetry-fault"] == [(2, 0)]


def test_what_is_wasted_is_counted_once_though_several_rules_say_so():
    advice = advice_of(decoding(fabric(link_layer="EFA", line_rate_bytes_per_second=50e9)))
    silent, tier = found(advice, "idle-fabric").cost_usd, found(advice, "over-tier").cost_usd
    assert advice.summary.wasted_usd == pytest.approx(max(silent, tier))
