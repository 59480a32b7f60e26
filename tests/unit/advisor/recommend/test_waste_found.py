# pyright: reportArgumentType=false, reportOperatorIssue=false, reportOptionalMemberAccess=false
# pyright: reportOptionalOperand=false
"""What each rule of waste finds, on which side of its thresholds, and what that costs."""

import numpy as np
import pytest
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.verdict_types import Alternative, BottleneckVerdict, KindVerdict, Phase
from skuwise.rules.catalog.loader import load_catalog
from skuwise.rules.catalog.types import PowerPrice
from skuwise.tests.support import moves_builders as made
from skuwise.tests.support.frame_builder import FREE, HOUR, FrameBuilder
from skuwise.tests.support.frame_builder import START as H_START
from skuwise.tests.support.moves_builders import START, advice_of, fired, found, node, usage, verdicts, ways, workload
from skuwise.tests.support.rulebooks import rulebook

L40S = {"node_sku": "aws/g6e.48xlarge", "gpu_sku": "L40S"}
ETHERNET = made.fabric(util_p995=0.9, util_max=1.0, link_layer="Ethernet", line_rate_bytes_per_second=10e9)
DECODE = {"power_watts": 400.0, "power_over_idle": 4.0, "tensor_of_sustained_p95": 0.1, "mem_flat": 1.0, "cpu": 0.1}


def bound_by(label: str, share: float) -> BottleneckVerdict:
    return BottleneckVerdict(label, 0.9, {label: share, "mixed": 1 - share})


def on_one_node(w, *, uses=None, **use):
    """A workload on a node without a fabric port, so that only the rule in question has something to say."""
    return verdicts([node(fabric=None)], [w], uses=uses or [usage(w, **use)])


def nvlink(util):
    return verdicts([node(fabric=None, nvlink_util_p995=util)], [workload(gpus=made.gpus_of("n1", 1))])


def decoding(fabric_of_it=None, share=1.0, **features):
    """Eight replicas of one L40S each, bound by memory bandwidth."""
    shape = {"tensor_of_sustained_p95": 0.2, "mem_flat": 0.0, "cpu": 0.01, **features}
    workload_verdicts = [
        workload("api", id=f"w-{i}", gpus=(f"GPU-n1-{i}",), features=shape, bottleneck=bound_by("hbm-bandwidth", share),
                 **L40S)
        for i in range(8)
    ]  # fmt: skip
    host = node(sku="aws/g6e.48xlarge", provider="aws", region="us-east-1", gpu_sku="L40S", fabric=fabric_of_it)
    return verdicts([host], workload_verdicts, uses=[usage(w, u_m=0.8, memory=0.3) for w in workload_verdicts])


def memory(most):
    return on_one_node(workload(gpus=made.gpus_of("n1", 1), features={"engine_active": 0.9}), memory=most)


def starved(share=0.2, sku=made.PLAIN, kind="training"):
    """Training on two nodes that waits for the network between them."""
    limit = bound_by("network", share)
    job = workload("job", ("n1", "n2"), kind=kind, node_sku=sku, features={}, bottleneck=limit)
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
    of_node, compute = made.gpus_of("n1"), BottleneckVerdict("compute", 0.9, {"compute": 1.0})
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
        ("under-tier", starved(sku=made.IB), False),
        ("under-tier", starved(kind="batch-inference"), False),
        ("under-tier", starved(sku=None), True),  # its ports are Ethernet, though the node is unknown
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
    assert 30.13118 * 336 > tier.cost_usd == pytest.approx(evidence["price_less"] * 8 * 336)


def test_a_lower_clock_is_energy_and_dollars_only_where_the_team_pays_for_the_power():
    power = (PowerPrice("eastus", 0.10, "utility bill", "2026-10-01"),)
    for rented in (advice_of(clocked()), advice_of(clocked(), power=power)):
        (r,) = ways(rented, "lower-clock")
        assert (r.realisation, r.saving_usd_per_month) == ("energy", None) and r.time_ratio.p90 <= 1.1
    advice = advice_of(clocked(), (made.price_of(usd=60.0, basis="owned"),), power=power)
    finding, (r,) = found(advice, "energy"), ways(advice, "lower-clock")
    kwh = next(e.value for e in finding.evidence if e.metric == "energy_saved_per_month")
    assert r.saving_usd_per_month.p50 == pytest.approx(kwh * 0.10, rel=0.05)
    assert finding.cost_usd == pytest.approx(kwh * 0.10 * 336 / 730)
    assert advice.summary.recoverable_usd_per_month == 0


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
        assert [(j.flagged, j.clean) for j in advice.judged if j.rule == "telemetry-fault"] == [(2, 0)]


def test_what_is_wasted_is_counted_once_though_several_rules_say_so():
    advice = advice_of(decoding(made.fabric(link_layer="EFA", line_rate_bytes_per_second=50e9)))
    silent, tier = found(advice, "idle-fabric").cost_usd, found(advice, "over-tier").cost_usd
    assert advice.summary.wasted_usd == pytest.approx(max(silent, tier))


PREMIUM = 9.832  # USD a node-hour: azure/Standard_ND96isr_H100_v5 over ND96is in eastus
DAY = 86400.0


def served(confidence: float = 0.99, training: float = 0.0, label: str = "online-inference") -> KindVerdict:
    others = (Alternative("training", training),) if training else ()
    others += (Alternative("online-inference", 1 - training),) if label == "unknown" else ()
    return KindVerdict(label, confidence, (), others)


SURE, UNSURE = served(), served(0.586, 0.4, "unknown")
PHASES = (Phase(START, START + DAY, "training", "compute"), Phase(START + DAY, made.END, "online-inference", "compute"))


@pytest.mark.parametrize(
    ("kinds", "changes", "seen", "expected", "code"),
    [
        ([SURE], {}, {}, (1, 0, 0), None),
        # One unsure replica does not silence the others of its deployment.
        ([SURE, SURE, SURE, UNSURE], {}, {}, (4, 0, 0), None),
        ([served(0.6, 0.35)] * 2, {}, {}, (0, 0, 2), "may-train"),
        ([served(0.55, 0.4, "unknown")] * 2, {}, {}, (0, 0, 2), "may-train"),
        ([served(0.95, label="training")] * 2, {}, {}, (0, 0, 2), "training-there"),
        ([SURE], {"phases": PHASES}, {}, (0, 0, 1), "may-train"),
        # What a training on two nodes uses in the mean, and the next bin above housekeeping.
        ([SURE], {}, {"util_p995": 0.005, "util_max": 0.005}, (0, 1, 0), None),
        ([SURE], {}, {"util_p995": 0.002, "util_max": 0.0019}, (0, 1, 0), None),
        ([SURE], {}, {"hours": 12.0}, (0, 0, 1), "seen-too-short"),
        ([SURE], {}, {"readable": False, "reason": "port not ACTIVE"}, (0, 0, 1), "counters-unreadable"),
        ([SURE], {}, None, (0, 0, 1), "fabric-not-observed"),
    ],
)
def test_every_node_with_a_fabric_is_found_clean_or_not_judged_with_its_price(kinds, changes, seen, expected, code):
    runs = [workload("chat", (f"n{i}",), id=f"w-{i}", kind=kind, **changes) for i, kind in enumerate(kinds, 1)]
    nodes = [node(w.nodes[0], fabric=None if seen is None else made.fabric(**seen)) for w in runs]
    advice = advice_of(verdicts(nodes, runs, uses=[usage(w, u_c=0.4) for w in runs]))
    (judged,) = [j for j in advice.judged if j.rule == "idle-fabric"]
    assert (judged.flagged, judged.clean, judged.not_judged) == expected
    if judged.flagged:
        finding, cost = found(advice, "idle-fabric"), len(runs) * PREMIUM * 336
        assert (len(finding.nodes), finding.cost_usd) == (len(runs), pytest.approx(cost, rel=1e-3))
    open_ = [n for n in advice.not_judged if n.rule == "idle-fabric"]
    assert [n.reason.code for n in open_] == ([code] if code else [])
    for not_judged in open_:
        assert (not_judged.nodes, not_judged.gpu_count) == (tuple(n.node for n in nodes), 8 * len(runs))
        assert not_judged.usd_per_month == pytest.approx(len(runs) * PREMIUM * 730, rel=1e-3)


HOURS = round((made.END - START) / 3600)
KINDS = ("training", "batch-inference", "online-inference", "interactive", "unknown")
AT_REST = {"u_c": 0, "u_m": 0, "g": 0, "label": "idle"}


def test_a_node_that_runs_nothing_is_idle_and_its_fabric_is_not_counted_again():
    advice = advice_of(verdicts([node()], [], bare_gpus=[made.bare("n1", i) for i in range(8)]))
    assert fired(advice) == ["idle"]
    assert found(advice, "idle").cost_usd == advice.summary.wasted_usd == pytest.approx(98.32 * 336)


def test_a_telemetry_fault_is_told_as_one_and_is_no_waste():
    faulty = [made.bare("n1", i, telemetry_fault="power is high while every counter is zero") for i in range(8)]
    advice = advice_of(verdicts([node()], [], bare_gpus=faulty))
    assert (fired(advice), found(advice, "telemetry-fault").cost_usd) == (["telemetry-fault"], None)
    assert ("idle", "signals-contradict") in {(n.rule, n.reason.code) for n in advice.not_judged}


@pytest.mark.parametrize(
    ("life", "renamed", "released"),
    [(36, False, ["node-3"]), (20, False, []), (144, False, ["node-0"]), (36, True, ["node-3"]), (20, True, [])],
)
def test_a_pool_whose_nodes_are_replaced_is_judged_as_one_node_that_stays(life, renamed, released):
    """One node after another, all of them idle: the floor of 30 h is the pool's, a release needs it of its node.
    `renamed`: it is one machine with other names."""
    b = FrameBuilder(hours=144)
    for n, begin in enumerate(range(0, 144, life)):
        uuids = b.node(f"node-{n}", gpus=8, first_seen=H_START + begin * HOUR)
        if renamed:
            uuids = [f"GPU-node-0-{gpu}" for gpu in range(8)]
            for gpu, uuid in zip(b.gpus[-8:], uuids, strict=True):
                gpu["gpu_uuid"] = uuid
        end = min(begin + life, 144)
        b.nodes[-1]["last_seen"] = H_START + end * HOUR
        for uuid in uuids:
            b.use(FREE, f"node-{n}", uuid, start=begin, end=end)
    advice = advice_of(judge(b.frame(), rulebook(load_catalog())))
    summary = advice.summary
    assert (summary.gpu_count, summary.judged_gpu_count, summary.gpu_hours) == (8, 8, pytest.approx(144 * 8))
    assert 0 < summary.cost_usd == pytest.approx(summary.wasted_usd)
    assert [r.yardstick.nodes[0] for r in advice.recommendations if not r.blocked_by] == released
    assert not {n.code for n in advice.notes} & {"too-little-data", "idle-seen-too-short"}


@pytest.mark.parametrize("idle", ["a", "z"])
def test_an_idle_replica_is_released_without_those_that_serve(idle):
    """Whichever of the replicas names the series."""
    kinds = {name: "idle" if name == idle else "online-inference" for name in "amz"}
    pods = [workload("api", (f"on-{name}",), id=f"w-{name}", kind=kind) for name, kind in kinds.items()]
    uses = [usage(w, **(AT_REST if w.id == f"w-{idle}" else {})) for w in pods]
    nodes, where = [node(w.nodes[0], fabric=None) for w in pods], f"on-{idle}"
    advice = advice_of(verdicts(nodes, pods, uses=uses, idle_hours={f"w-{idle}": 8 * 336.0}))
    finding = found(advice, "held-idle")
    assert (finding.node, finding.gpus, finding.gpu_hours) == (where, made.gpus_of(where), pytest.approx(8 * 336))
    (released,) = ways(advice, "release")
    assert (released.source.gpu_count, released.yardstick.nodes) == (8, (where,))
    assert released.saving_usd_per_month.p50 == pytest.approx(98.32 * 730)


@pytest.mark.parametrize(
    ("kind", "works", "hours"),
    [
        # What is left for days is held whatever its kind, and nights are use.
        *((kind, lambda h: h < HOURS - 60, 60) for kind in KINDS),
        *((kind, lambda h: h % 24 < 4, 0) for kind in KINDS),
        # A rest that work followed before may end the same way: 50 h once, and 60 h at the end.
        ("interactive", lambda h: (h < 100) | ((h >= 150) & (h < HOURS - 60)), 0),
        ("interactive", lambda h: (h < 100) | ((h >= 150) & (h < HOURS - 90)), 90),
    ],
)
def test_a_rest_at_the_end_is_held_where_it_is_longer_than_those_before(kind, works, hours):
    """`works`: in which hours from the window's start; else it rests with its memory held."""
    w = workload("w", kind=kind)
    used = usage(w, label="compute", g=0.5).assign(g_max=1.0)
    rests = ~works((used["ts"].to_numpy() - START) / 3600 - 1)
    used.loc[rests, ["u_c", "u_m", "c", "m", "g", "g_max"]] = 0.0
    used.loc[rests, "bottleneck"] = "idle"
    advice = advice_of(verdicts([node(fabric=None)], [w], uses=[used], idle_hours={w.id: float(rests.sum())}))
    assert sum(f.gpu_hours for f in advice.findings if f.rule == "held-idle") == pytest.approx(8 * hours)


def test_a_request_now_and_then_is_use_however_little_it_is() -> None:
    w = workload("rare", kind="idle")
    used = usage(w, u_c=0, u_m=0, g=0.0, label="idle")
    asked = (used["ts"] / 3600) % 5 < 1
    used["g_max"] = np.where(asked, 0.9, 0.0)
    used.loc[asked, "g"] = 0.01
    advice = advice_of(verdicts([node(fabric=None)], [w], uses=[used], idle_hours={w.id: 8.0 * HOURS}))
    assert "held-idle" not in fired(advice)
