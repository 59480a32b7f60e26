# pyright: reportOptionalMemberAccess=false, reportArgumentType=false
"""A site's own rules, its teams' thresholds and its exceptions, in the advice that they lead to."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.core.advice_types import Advice
from skuwise.advisor.core.verdict_types import Owner
from skuwise.advisor.pipeline import AdviseOptions, advise_on
from skuwise.advisor.render import render
from skuwise.tests.support.moves_builders import END, catalog, fabric, fired, found, node, usage, verdicts, workload
from skuwise.tests.support.schemas import validate

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
    for name, text in (files or {}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    book = replace(load_rulebook(root, None, END), catalog=catalog())
    return advise_on(given, book, AdviseOptions(END), np.random.default_rng(1), source={"kind": "sqlite"})


def train(features=SLOW, **changes):
    return workload("job", kind="training", features=features, **changes)


def one(w):
    return verdicts([node()], [w], uses=[usage(w, u_c=0.3, u_m=0.3, label="compute")])


def test_a_custom_rule_tells_its_evidence_with_unit_and_threshold_and_claims_no_money(tmp_path):
    told = advice(one(train()), tmp_path, {"custom/a.yaml": RULE})
    finding = found(told, "custom/slow-input")
    assert [(e.metric, e.value, e.threshold, e.unit) for e in finding.evidence] == [
        ("cpu", 0.9, 0.8, "ratio"),
        ("power_watts", 250.0, 300.0, "watts"),
    ]
    assert finding.text == "The training job job (ann): CPUs 90 % busy at 250 watts."
    assert (finding.severity, finding.cost_usd, finding.gpu_hours) == ("medium", None, 8 * 336)
    assert [one.text for one in finding.would_change_if] == ["The loader is given more than 8 cores."]
    without = advice(one(train()), tmp_path / "none_of_its_own", {"waste/idle.yaml": "id: idle\n"})
    assert told.summary == without.summary
    assert told.recommendations == without.recommendations
    validate(json.loads(render(told, "json")), "advice")


@pytest.mark.parametrize(
    "w",
    [
        train({"cpu": 0.9}),
        train({**SLOW, "cpu": 0.8}),
        train({**SLOW, "fault_share": 0.5}),
        train(shared=True),
        workload("job", kind="unknown", features=SLOW),
    ],
)
def test_a_custom_rule_is_silent_where_it_cannot_hold(tmp_path, w):
    assert "custom/slow-input" not in fired(advice(one(w), tmp_path, {"custom/a.yaml": RULE}))


def silent(**changes):
    w = workload(**changes)
    return verdicts([node(fabric=fabric(util_p995=0.0008))], [w], uses=[usage(w, u_n=0.2)])


def test_a_teams_threshold_holds_for_its_work_and_on_the_nodes_it_shares(tmp_path):
    files = {
        "teams/strict/waste/idle-fabric.yaml": "id: idle-fabric\nthresholds: {util_p995_max: {value: 0.0005}}\n",
        "teams/strict/team.yaml": "namespace: [strict]\n",
    }
    assert "idle-fabric" in fired(advice(silent(), tmp_path, files))
    assert "idle-fabric" not in fired(advice(silent(owner=Owner(namespace="strict")), tmp_path))
    both = [workload("a", shared=True), workload("b", shared=True, owner=Owner(namespace="strict"))]
    given = verdicts([node(fabric=fabric(util_p995=0.0008))], both, uses=[usage(w, u_n=0.2) for w in both])
    assert "idle-fabric" not in fired(advice(given, tmp_path))


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
    told = advice(silent(**changes), tmp_path, files)
    assert ("idle-fabric" in fired(told)) is (why is None)
    said = [n for n in told.notes if n.code == "silenced-by-exception" and n.fields["rule"] == "idle-fabric"]
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
        told = advice(verdicts([node()], [w], uses=[usage(w, u_c=0.02, u_m=0.2)]), tmp_path, files)
        (fewer,) = [r for r in told.recommendations if r.action == "reduce-gpus"]
        needed = next(e.threshold for e in found(told, "too-many-gpus").evidence if e.metric == "gpus_held")
        assert fewer.target.gpu_count == needed
        held[namespace] = needed
    assert held == {"calm": 6, "other": 3}  # of 8, at 0.2 of what they sustain
