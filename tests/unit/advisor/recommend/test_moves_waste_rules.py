# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOperatorIssue=false
"""Which thresholds a rule reads, and that it fires on one side of each of them and not on the other."""

import math

import pytest
from skuwise.advisor.classify.types import NodeFacts
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.verdict_types import BottleneckVerdict
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


def quiet(**changes) -> NodeFacts:
    """A node without a fabric port, so that only the rule in question has something to say."""
    return node(fabric=None, **changes)


def bound_by(label: str, share: float) -> BottleneckVerdict:
    return BottleneckVerdict(label, 0.9, {label: share, "mixed": 1 - share})


@pytest.mark.parametrize(("util", "said"), [(0.01, True), (0.011, False), (None, False)])
def test_nvlink_that_nothing_crosses_is_told_with_what_it_adds(util, said):
    alone = workload(gpus=gpus_of("n1", 1))
    advice = advice_of(verdicts([quiet(nvlink_util_p995=util)], [alone]))
    assert ("idle-nvlink" in fired(advice)) == said
    if said:
        told = found(advice, "idle-nvlink")
        assert "assumed" in told.text
        assert told.cost_usd is not None
        assert 0 < told.cost_usd < 98.32 / 8 * 336 * 0.2


def decoding(**changes):
    """Eight replicas of one L40S each, bound by memory bandwidth."""
    values = {
        "gpus": gpus_of("n1", 1),
        "features": {"tensor_of_sustained_p95": 0.2, "mem_flat": 0.0, "cpu": 0.01},
        **L40S,
    }
    return [workload("api", id=f"w-{i}", **{**values, "gpus": (f"GPU-n1-{i}",), **changes}) for i in range(8)]


def over(replicas, memory=0.3) -> Advice:
    host = node(sku="aws/g6e.48xlarge", provider="aws", region="us-east-1", gpu_sku="L40S", fabric=None)
    return advice_of(verdicts([host], replicas, uses=[usage(w, u_m=0.8, memory=memory) for w in replicas]))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, True),
        ({"features": {"tensor_of_sustained_p95": 0.3, "mem_flat": 0.0, "cpu": 0.01}}, False),
        ({"bottleneck": bound_by("hbm-bandwidth", 0.5)}, True),
        ({"bottleneck": bound_by("hbm-bandwidth", 0.49)}, False),
        ({"features": {"tensor_of_sustained_p95": 0.2, "fault_share": 0.2}}, False),
    ],
)
def test_a_cheaper_gpu_that_reads_as_fast_makes_the_present_one_too_good(changes, said):
    advice = over(decoding(**changes))
    assert ("over-tier" in fired(advice)) == said
    if said:
        told = found(advice, "over-tier")
        evidence = {e.metric: e.value for e in told.evidence}
        assert evidence["cheaper_sku_bandwidth"] >= 0.95
        assert told.cost_usd is not None
        assert evidence["price_less"] is not None
        assert told.cost_usd == pytest.approx(evidence["price_less"] * 8 * 336)
        assert told.cost_usd < 30.13118 * 336


@pytest.mark.parametrize(("memory", "said"), [(0.49, True), (0.5, False), (math.nan, False)])
def test_memory_that_was_never_taken_is_unused(memory, said):
    w = workload(gpus=gpus_of("n1", 1), features={"engine_active": 0.9})
    advice = advice_of(verdicts([quiet()], [w], uses=[usage(w, memory=memory)]))
    assert ("memory-unused" in fired(advice)) == said


def training(**changes):
    values = {"kind": "training", "node_sku": PLAIN, "features": {}, "bottleneck": bound_by("network", 0.2)}
    return workload("job", ("n1", "n2"), **{**values, **changes})


def starved(job, sku=PLAIN) -> Advice:
    nodes = [node("n1", sku, fabric=ETHERNET), node("n2", sku, fabric=ETHERNET)]
    return advice_of(verdicts(nodes, [job], uses=[usage(job, u_i=0.4, u_c=0.4)]))


@pytest.mark.parametrize(
    ("job", "sku", "said"),
    [
        (training(), PLAIN, True),
        (training(bottleneck=bound_by("network", 0.19)), PLAIN, False),
        (training(node_sku=IB), IB, False),
        (training(kind="batch-inference"), PLAIN, False),
        (training(features={"fault_share": 0.1}), PLAIN, False),
        (training(node_sku=None), None, True),  # its ports are Ethernet, though nobody knows the node
    ],
)
def test_training_that_waits_for_a_link_its_nodes_lack_is_under_tier(job, sku, said):
    advice = starved(job, sku)
    assert ("under-tier" in fired(advice)) == said
    if said:
        # The use of the line bounds what is lost from below, its share of the time from above.
        assert found(advice, "under-tier").gpu_hours == pytest.approx(16 * 336 * min(0.2, 0.4))


def saving(w, *, prices=(), power=(), uses=None) -> Advice:
    given = verdicts([quiet()], [w], uses=uses or [usage(w, u_m=0.85, u_c=0.05, g=0.95)])
    return advice_of(given, prices, power=power)


DECODE = {"power_watts": 400.0, "power_over_idle": 4.0, "tensor_of_sustained_p95": 0.1, "mem_flat": 1.0, "cpu": 0.1}


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (DECODE, True),
        (DECODE | {"tensor_of_sustained_p95": 0.3}, False),
        ({k: v for k, v in DECODE.items() if k != "power_over_idle"}, False),
        (DECODE | {"fault_share": 0.05}, False),
    ],
)
def test_a_clock_that_memory_bound_serving_does_not_need_is_told(features, said):
    advice = saving(workload(features=features))
    assert ("energy" in fired(advice)) == said
    if said:
        told = found(advice, "energy")
        assert told.cost_usd is None
        (way,) = ways(advice, "lower-clock")
        assert way.realisation == "energy"
        assert way.saving_usd_per_month is None
        assert way.time_ratio.p90 <= 1.1


def test_energy_is_dollars_only_where_the_team_pays_for_the_power():
    power = (PowerPrice("eastus", 0.10, "utility bill", "2026-10-01"),)
    owned = price_of(usd=60.0, basis="owned")
    advice = saving(workload(features=DECODE), prices=(owned,), power=power)
    (way,) = ways(advice, "lower-clock")
    kwh = next(e.value for e in found(advice, "energy").evidence if e.metric == "energy_saved_per_month")
    assert way.saving_usd_per_month.p50 == pytest.approx(kwh * 0.10, rel=0.05)
    assert found(advice, "energy").cost_usd == pytest.approx(kwh * 0.10 * 336 / 730)
    assert advice.summary.recoverable_usd_per_month == 0
    rented = saving(workload(features=DECODE), power=power)
    assert all(r.saving_usd_per_month is None for r in rented.recommendations if r.action == "lower-clock")


@pytest.mark.parametrize(("watts", "said"), [(640.0, True), (500.0, True), (400.0, False)])
def test_compute_that_draws_most_of_its_limit_is_capped_at_a_known_loss(watts, said):
    w = workload(
        kind="training",
        bottleneck=bound_by("compute", 0.9),
        features=DECODE | {"tensor_of_sustained_p95": 0.95, "power_watts": watts, "power_over_idle": watts / 70},
    )
    use = usage(w, u_c=0.9, u_m=0.4, label="compute").assign(power_watts=watts)
    advice = saving(w, uses=[use])
    assert ("energy" in fired(advice)) == said
    caps = ways(advice, "power-cap")
    assert bool(caps) == said
    assert all(1.0 < r.time_ratio.p50 <= 1.1 for r in caps)
    assert all(r.time_ratio.p90 <= 1.2 for r in caps)
    assert all("no capped run was measured on this architecture" in r.text for r in caps)
    if said:
        assert found(advice, "energy").confidence < 0.7  # H100: none of the measured runs is on Hopper


@pytest.mark.parametrize(
    ("kind", "label", "share", "said"),
    [
        ("training", "host-input", 0.5, True),
        ("training", "host-input", 0.49, False),
        ("training", "straggler", 0.8, True),
        ("batch-inference", "latency", 0.9, True),
        ("fine-tuning", "throttled", 0.9, True),
        ("training", "compute", 0.9, False),
        ("online-inference", "latency", 0.9, False),
        ("interactive", "latency", 0.9, False),
    ],
)
def test_what_no_other_gpu_changes_is_mended_first(kind, label, share, said):
    w = workload(kind=kind, bottleneck=bound_by(label, share), features={})
    use = usage(w, u_c=0.1, u_m=0.1, g=0.4, label=label).assign(sm=0.3, lost=0.25, clock_ratio=0.8)
    advice = advice_of(verdicts([quiet()], [w], uses=[use]))
    assert ("fix-first" in fired(advice)) == said
    if not said:
        return
    lost = {"host-input": 0.6, "straggler": 0.25, "latency": 0.7, "throttled": 0.2}[label]
    assert found(advice, "fix-first").gpu_hours == pytest.approx(8 * 336 * lost)
    mended = ways(advice, "fix-first")
    assert [r.blocked_by for r in mended] == [()]
    others = [r for r in advice.recommendations if r.action != "fix-first"]
    assert all(any(b.code == "mend-first" for b in r.blocked_by) for r in others)
    assert advice.summary.recoverable_usd_per_month == 0


@pytest.mark.parametrize(("share", "said"), [(0.05, True), (0.049, False)])
def test_a_fault_of_the_telemetry_is_told_once_a_node_and_stops_every_move(share, said):
    runs = [
        workload(name, kind="training", gpus=gpus_of("n1", 8), features={"fault_share": share}) for name in ("a", "b")
    ]
    advice = advice_of(verdicts([quiet()], runs))
    assert len([f for f in advice.findings if f.rule == "telemetry-fault"]) == int(said)
    if said:
        assert {r.action for r in advice.recommendations} == {"fix-first"}


def test_what_is_wasted_is_counted_once_though_several_rules_say_so():
    replicas = decoding()
    host = node(
        sku="aws/g6e.48xlarge", provider="aws", region="us-east-1", gpu_sku="L40S",
        fabric=fabric(link_layer="EFA", line_rate_bytes_per_second=50e9),
    )  # fmt: skip
    advice = advice_of(verdicts([host], replicas, uses=[usage(w, u_m=0.8, memory=0.3) for w in replicas]))
    assert {"idle-fabric", "over-tier"} <= set(fired(advice))
    silent, tier = found(advice, "idle-fabric").cost_usd, found(advice, "over-tier").cost_usd
    assert advice.summary.wasted_usd == pytest.approx(max(silent, tier))
