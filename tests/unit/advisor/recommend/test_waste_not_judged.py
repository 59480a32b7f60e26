# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""Not judged is not clean: what each rule cannot know; and a site's own rules, teams' thresholds and exceptions."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.classify.types import NodeFacts
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.verdict_types import Alternative, BottleneckVerdict, KindVerdict, Owner
from skuwise.advisor.pipeline import fleet_of, reason_on
from skuwise.advisor.recommend.fleet import Found
from skuwise.advisor.recommend.groups import Group
from skuwise.advisor.recommend.rule import WorkloadRule
from skuwise.advisor.recommend.rules import RULES
from skuwise.advisor.recommend.waste import find_waste
from skuwise.advisor.show.writers.formats import render
from skuwise.tests.support import moves_builders as made
from skuwise.tests.support.moves_builders import END, advice_of, bare, fired, gpus_of, node, usage, verdicts, workload
from skuwise.tests.support.rulebooks import rulebook, rules_folder
from skuwise.tests.support.schemas import validate

MEASURED = {"engine_active": 0.9, "cpu": 0.1, "mem_flat": 0.0}
STANDBY = {"engine_active": 0.01}
LOW = {"u_c": 0.05, "u_m": 0.2}
DECODE = {"power_over_idle": 4.0, "power_watts": 400.0, "tensor_of_sustained_p95": 0.1}
PERHAPS = KindVerdict("unknown", 0.5, (), (Alternative("training", 0.4), Alternative("online-inference", 0.4)))


def seen(kind="online-inference", label="hbm-bandwidth", share=1.0, host=None, hours=336, ready=True, **changes):
    """A workload on one node, with `features` and its rows of use."""
    use = changes.pop("use", {})
    bound = BottleneckVerdict(label, 0.9, {label: share, "mixed": 1 - share})
    values = {"start": END - hours * 3600, "features": MEASURED, "bottleneck": bound, **changes}
    w = workload("w", kind=kind, **values)
    return verdicts([node(fabric=None, **(host or {}))], [w], uses=[usage(w, **use)], ready=ready)


def decoding(compute=0.0, **features):
    """On a GPU of which a cheaper one would do. `compute`: share of its time that compute limits."""
    sku = {"gpu_sku": "L40S", "node_sku": "aws/g6e.48xlarge"}
    bound = BottleneckVerdict("hbm-bandwidth", 0.9, {"hbm-bandwidth": 1.0 - compute, "compute": compute})
    return seen(features={"tensor_of_sustained_p95": 0.2, "mem_flat": 0.0, **features}, bottleneck=bound, **sku,
                host={"sku": sku["node_sku"], "provider": "aws", "region": "us-east-1", "gpu_sku": "L40S"},
                gpus=gpus_of("n1", 1), use={"u_m": 0.8, "memory": 0.3})  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "given", "said"),
    [
        ("idle", verdicts([node()], [], bare_gpus=[bare("n1", idle_hours=0.0, engine_mean=None, dram_mean=None)]),
         ["activity-not-measured"]),
        ("idle", verdicts([node(hours_observed=20.0)], [], bare_gpus=[bare("n1", hours=20.0)]), ["seen-too-short"]),
        ("idle", verdicts([node(hours_observed=0.0)], []), ["not-observed"]),
        ("held-idle", seen(host={"hours_observed": 20.0}), ["seen-too-short"]),
        ("held-idle", seen(features={"engine_active": 0.0}), ["zero-not-confirmed"]),
        ("held-idle", seen(use={"g": math.nan}), ["activity-not-measured"]),
        ("held-idle", seen(shared=True), ["gpus-shared"]),
        ("held-idle", seen(gpu_part=0.5), []),  # an instance is judged by itself
        ("too-many-gpus", seen(hours=20), ["seen-too-short"]),
        ("too-many-gpus", seen(use={"u_c": math.nan}), ["use-not-measured"]),
        ("too-many-gpus", seen(kind=PERHAPS, use=LOW), ["kind-unknown"]),
        ("too-many-gpus", seen(use={**LOW, "u_n": math.nan, "g": 0.9}), ["nvlink-not-measured"]),
        ("too-many-gpus", seen(gpus=gpus_of("n1", 1), use=LOW), []),
        ("too-many-gpus", seen(kind="training", use=LOW), []),
        ("fix-first", seen(kind="training", hours=2, label="latency"), ["seen-too-short"]),
        ("fix-first", seen(kind="training", label="unknown", share=0.6), ["bottleneck-unknown"]),
        ("fix-first", seen(kind=PERHAPS, label="latency"), ["kind-unknown"]),
        ("under-tier", seen(kind="training", ready=False), ["seen-too-short"]),
        ("under-tier", seen(kind="training", label="unknown", host={"sku": None}), ["bottleneck-unknown"]),
        ("under-tier", seen(kind="training", label="network", host={"sku": None}), ["links-unknown"]),
        ("over-tier", seen(use={"u_c": math.nan}), ["compute-not-measured"]),
        ("over-tier", seen(label="unknown", share=0.6), ["bottleneck-unknown"]),
        ("over-tier", seen(gpu_sku="a GPU of tomorrow"), ["gpu-unknown"]),
        ("over-tier", seen(host={"sku": None}), ["no-price"]),
        ("over-tier", decoding(), ["cpu-not-measured"]),  # what the cheaper node's host must carry
        ("over-tier", decoding(cpu=0.01), []),
        ("over-tier", decoding(cpu=0.01, compute=0.15), ["finding-contradicted"]),
        ("idle-nvlink", seen(), ["nvlink-not-measured"]),
        ("idle-nvlink", seen(kind=PERHAPS, host={"nvlink_util_p995": 0.0}), ["kind-unknown"]),
        ("idle-nvlink", seen(features=STANDBY, host={"nvlink_util_p995": 0.0}), ["on-standby"]),
        ("idle-nvlink", seen(hours=20, ready=False, host={"nvlink_util_p995": 0.0}), ["seen-too-short"]),
        ("memory-unused", seen(use={"memory": math.nan}), ["memory-not-measured"]),
        ("memory-unused", seen(features=STANDBY, use={"memory": 0.1}), ["on-standby"]),
        ("memory-unused", seen(hours=20, use={"memory": 0.1}), ["seen-too-short"]),
        ("memory-unused", seen(hours=20, use={"memory": 0.9}), []),  # what it took it took
        ("memory-unused", seen(features={"mem_flat": 1.0}, use={"memory": 0.1}), []),  # its need is never known
        ("energy", seen(), ["power-not-measured"]),
        ("energy", seen(kind="unknown", features=DECODE, use={"u_m": 0.85, "u_c": 0.05}), ["kind-unknown"]),
        ("telemetry-fault", seen(hours=0.5), ["seen-too-short"]),
        ("telemetry-fault", seen(nodes=("elsewhere",), gpus=("GPU-x",)), ["nodes-unknown"]),
    ],
)  # fmt: skip
def test_what_a_rule_cannot_know_is_not_judged_with_the_reason(rule, given, said):
    assert [not_judged.reason.code for not_judged in advice_of(given).not_judged if not_judged.rule == rule] == said


def test_those_of_one_reason_are_told_together_with_their_gpus():
    two = [workload("b", gpus=gpus_of("n1")[:2]), workload("a", gpus=gpus_of("n1")[2:4])]
    advice = advice_of(verdicts([node(fabric=None)], two))
    (not_judged,) = [n for n in advice.not_judged if n.rule == "idle-nvlink"]
    assert (not_judged.nodes, not_judged.workloads) == (("n1",), ("w-a", "w-b"))
    assert (not_judged.gpu_count, not_judged.usd_per_month) == (4, None)
    (judged,) = [j for j in advice.judged if j.rule == "idle-nvlink"]
    assert (judged.flagged, judged.clean, judged.not_judged) == (0, 0, 2)


KINDS = st.sampled_from(["training", "online-inference", "batch-inference", "interactive", "idle", "unknown"])
LABELS = st.sampled_from(["hbm-bandwidth", "compute", "network", "latency", "unknown", "idle"])
SHARES = st.one_of(st.just(math.nan), st.floats(0.0, 1.0))
FEATURES = st.sampled_from([{}, {"fault_share": 0.3}, {"engine_active": 0.0}, {"engine_active": 0.9}])


@st.composite
def fleets(draw):
    nodes, runs, free, idle = [], [], [], {}
    for n in range(draw(st.integers(1, 3))):
        name, hours = f"n{n}", draw(st.sampled_from([0.0, 20.0, 336.0]))
        changes = {"nvlink_util_p995": draw(st.sampled_from([None, 0.0, 0.5])), "hours_observed": hours}
        changes |= draw(st.sampled_from([{}, {"fabric": None}]))
        nodes.append(node(name, draw(st.sampled_from([None, made.IB, made.PLAIN])), **changes))
        for _ in range(draw(st.integers(0, 2))):
            features = {"mem_flat": draw(st.sampled_from([0.0, 1.0])), "cpu": 0.1}
            w = workload(
                f"w{draw(st.integers(0, 3))}", (name,), id=f"id-{len(runs)}", kind=draw(KINDS),
                features=features | draw(FEATURES), gpus=gpus_of(name, draw(st.integers(1, 8))),
                shared=draw(st.booleans()),
                start=END - draw(st.sampled_from([2, 20, 336])) * 3600,
                bottleneck=BottleneckVerdict("x", 0.9, {draw(LABELS): 1.0}),
            )  # fmt: skip
            runs.append(w)
            if draw(st.booleans()):
                idle[w.id] = w.gpu_hours * draw(st.floats(0.0, 1.0))
        fault = draw(st.sampled_from([None, "one of the two signals is wrong"]))
        still = draw(st.floats(0.0, 1.0)) * hours
        free.append(bare(name, hours=max(hours, 0.1), idle_hours=still, telemetry_fault=fault))
    uses = [usage(w, u_c=draw(SHARES), u_m=draw(SHARES), label=draw(LABELS)) for w in runs]
    return verdicts(nodes, runs, uses=uses or None, bare_gpus=free, idle_hours=idle, ready=draw(st.booleans()))


@given(fleets())
@settings(max_examples=100, deadline=None)
def test_a_rule_speaks_once_of_everybody_in_its_scope_and_the_counts_say_so(given):
    book = rulebook(made.catalog())
    fleet = fleet_of(given, book, END, 1)
    counted = {judged.rule: judged for judged in find_waste(fleet, book.exceptions, book.custom).judged}
    for rule in RULES:
        spoken = []
        for outcome in rule.find(fleet):
            if isinstance(outcome, (Group, NodeFacts)):
                spoken.append(outcome.series_id if isinstance(outcome, Group) else outcome.node)
            elif rule.judges_nodes or outcome.group is None:
                spoken += [n.node for n in outcome.nodes]
            else:
                faulty = sorted(outcome.faulty) if isinstance(outcome, Found) else []
                spoken += faulty or [outcome.group.series_id]
        assert len(spoken) == len(set(spoken))
        if isinstance(rule, WorkloadRule):
            assert set(spoken) == {group.series_id for group in rule.scope(fleet)}
        judged = counted[rule.id]
        assert judged.flagged + judged.clean + judged.not_judged == len(spoken)


RULE = """id: slow-input
severity: medium
reason: our loaders
when:
  - {feature: cpu, operator: above, value: 0.8}
  - {feature: power_watts, operator: below, value: 300}
text: "{workload}: CPUs {cpu} busy at {power_watts}."
would_change_if:
  - The loader is given more than {gpu_count} cores.
"""
SLOW = {"cpu": 0.9, "power_watts": 250.0}


def advice(given, root: Path, files: dict[str, str] | None = None) -> Advice:
    book = replace(load_rulebook(rules_folder(root, files or {}), None, END), catalog=made.catalog())
    return reason_on(given, book, END, 1, source={"kind": "sqlite"}).advice


def train(features=SLOW, kind="training", **changes):
    w = workload("job", kind=kind, features=features, **changes)
    return verdicts([node()], [w], uses=[usage(w, u_c=0.3, u_m=0.3, label="compute")])


def test_a_custom_rule_tells_its_evidence_with_unit_and_threshold_and_claims_no_money(tmp_path):
    answer = advice(train(), tmp_path, {"custom/a.yaml": RULE})
    finding = made.found(answer, "custom/slow-input")
    evidence = [(e.metric, e.value, e.threshold, e.unit) for e in finding.evidence]
    assert evidence == [("cpu", 0.9, 0.8, "ratio"), ("power_watts", 250.0, 300.0, "watts")]
    assert finding.text == "The training job job (ann): CPUs 90 % busy at 250 watts."
    assert (finding.severity, finding.cost_usd, finding.gpu_hours) == ("medium", None, 8 * 336)
    assert [reason.text for reason in finding.would_change_if] == ["The loader is given more than 8 cores."]
    without = advice(train(), tmp_path / "none_of_its_own", {"waste/idle.yaml": "id: idle\n"})
    assert (answer.summary, answer.recommendations) == (without.summary, without.recommendations)
    validate(json.loads(render(answer, "json")), "advice")


@pytest.mark.parametrize(
    "given",
    [
        train({"cpu": 0.9}),
        train({**SLOW, "cpu": 0.8}),
        train({**SLOW, "fault_share": 0.5}),
        train(shared=True),
        train(kind="unknown"),
    ],
)
def test_a_custom_rule_is_silent_where_it_cannot_hold(tmp_path, given):
    assert "custom/slow-input" not in fired(advice(given, tmp_path, {"custom/a.yaml": RULE}))


def silent(*works):
    return verdicts([node(fabric=made.fabric(util_p995=0.0008))], works, uses=[usage(w, u_n=0.2) for w in works])


def test_a_teams_threshold_holds_for_its_work_and_on_the_nodes_it_shares(tmp_path):
    files = {
        "teams/strict/waste/idle-fabric.yaml": "id: idle-fabric\nthresholds: {util_p995_max: {value: 0.0005}}\n",
        "teams/strict/team.yaml": "namespace: [strict]\n",
    }
    strict = workload("b", owner=Owner(namespace="strict"))
    assert "idle-fabric" in fired(advice(silent(workload()), tmp_path, files))
    assert "idle-fabric" not in fired(advice(silent(strict), tmp_path))
    both = silent(workload("a", shared=True), replace(strict, shared=True))
    assert "idle-fabric" not in fired(advice(both, tmp_path))


@pytest.mark.parametrize(
    ("changes", "exceptions", "why"),
    [
        ({"command": "vllm serve big --enable-expert-parallel"}, None, "mixture-of-experts (shipped)"),
        ({}, "rdma-storage: {match: {node: [n1]}}", "rdma-storage (site)"),
        ({}, "spare: {rules: [idle-fabric], reason: kept, match: {user: [ann]}}", "spare (site)"),
        ({}, "spare: {rules: [idle-fabric], reason: kept, match: {user: [ann]}, until: 2020-01-01}", None),
        ({}, None, None),
    ],
)
def test_an_exception_silences_a_rule_and_says_so(tmp_path, changes, exceptions, why):
    files = {"exceptions.yaml": f"exceptions:\n  {exceptions}\n"} if exceptions else {"waste/a.yaml": "id: idle\n"}
    answer = advice(silent(workload(**changes)), tmp_path, files)
    assert ("idle-fabric" in fired(answer)) is (why is None)
    said = [n for n in answer.notes if n.code == "silenced-by-exception" and n.fields["rule"] == "idle-fabric"]
    assert len(said) == (why is not None)
    assert all(f"Exception {why}: " in n.text for n in said)


def test_a_team_keeps_the_headroom_it_set_in_findings_and_in_ways_out(tmp_path):
    files = {
        "teams/calm/waste/a.yaml": "id: too-many-gpus\nthresholds: {headroom: {value: 0.3}}\n",
        "teams/calm/team.yaml": "namespace: [calm]\n",
        "waste/x.yaml": "id: too-many-gpus\nthresholds: {headroom: {value: 0.8}}\n",
    }
    held = {}
    features = {"mem_flat": 1.0, "cpu": 0.1, "tensor_of_sustained_p99": 0.05, "hbm_of_sustained_p99": 0.3}
    for namespace in ("calm", "other"):
        w = workload(features=features, owner=Owner(namespace=namespace))
        answer = advice(verdicts([node()], [w], uses=[usage(w, u_c=0.02, u_m=0.2)]), tmp_path, files)
        (fewer,) = [r for r in answer.recommendations if r.action == "reduce-gpus"]
        needed = next(e.threshold for e in made.found(answer, "too-many-gpus").evidence if e.metric == "gpus_held")
        assert fewer.target.gpu_count == needed
        held[namespace] = needed
    assert held == {"calm": 6, "other": 3}  # of 8, at 0.2 of what they sustain
