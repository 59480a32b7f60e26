"""Rules of one's own: conditions as data over named features, refused with file and line where they cannot be meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.advisor.core.verdict_types import Owner
from skuwise.rules.base.errors import RulesError
from skuwise.rules.policy.custom import load_custom_rules
from skuwise.rules.policy.exceptions import load_exceptions
from skuwise.rules.policy.thresholds import load_waste_rules

RULE = """id: slow-input
severity: medium
reason: below this our loaders cannot keep an H100 busy
kinds: [training, fine-tuning]
when:
  - {feature: cpu, operator: above, value: 0.8}
  - {feature: engine_active, operator: below, value: 0.6}
text: "{workload} waits for its input: CPUs {cpu} busy, GPUs at work {engine_active} of the time."
would_change_if:
  - The loader is given more cores.
"""
KNOWN = load_waste_rules().keys()


def folder(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_rule_in_ten_lines(tmp_path):
    assert len(RULE.splitlines()) == 10
    rules = load_custom_rules(folder(tmp_path, {"custom/slow-input.yaml": RULE}))
    (own,) = rules.of(Owner(user="ann"))
    assert (own.rule.id, own.rule.severity, own.kinds) == ("custom/slow-input", "medium", ("training", "fine-tuning"))
    assert [(c.feature, c.operator, c.value, c.unit) for c in own.conditions] == [
        ("cpu", "above", 0.8, "ratio"),
        ("engine_active", "below", 0.6, "ratio"),
    ]
    assert [own.conditions[0].holds(v) for v in (0.79, 0.8, 0.81)] == [False, False, True]


@pytest.mark.parametrize(
    ("word", "held"), [("above", (0, 0, 1)), ("at-least", (0, 1, 1)), ("below", (1, 0, 0)), ("at-most", (1, 1, 0))]
)
def test_the_four_operators(tmp_path, word, held):
    rules = load_custom_rules(folder(tmp_path, {"custom/a.yaml": RULE.replace("above", word)}))
    (own,) = rules.of(Owner())
    assert tuple(own.conditions[0].holds(value) for value in (0.7, 0.8, 0.9)) == held


def test_a_teams_rule_is_for_its_workloads_and_replaces_the_sites_of_that_name(tmp_path):
    files = {
        "custom/a.yaml": RULE,
        "teams/ml/custom/a.yaml": RULE.replace("0.8", "0.9"),
        "teams/ml/custom/b.yaml": RULE.replace("slow-input", "other"),
        "teams/ml/team.yaml": "user: [ann]\n",
    }
    rules = load_custom_rules(folder(tmp_path, files))
    assert [(r.rule.id, r.conditions[0].value) for r in rules.of(Owner(user="ann"))] == [
        ("custom/slow-input", 0.9),
        ("custom/other", 0.9 - 0.1),
    ]
    assert [r.conditions[0].value for r in rules.of(Owner(user="bob"))] == [0.8]
    assert len(rules) == 3


@pytest.mark.parametrize(
    ("old", "new", "part"),
    [
        ("feature: cpu", "feature: cpus", "a.yaml:6: unknown feature 'cpus' in a condition of rule 'slow-input'. Did"),
        ("feature: cpu", "feature: xyzzy", "'skuwise rules features' names them all."),
        ("operator: above", "operator: '>'", "a.yaml:6: 'operator' is '>', not one of above, at-least, at-most, below"),
        ("value: 0.8", "value: cpu > 0.8", "a.yaml:6: 'value' must be a number"),
        ("value: 0.8", "value: -1", "'value' is -1 and must be at least 0"),
        ("value: 0.8", "value: 0.8, unit: percent", "a.yaml:6: the unit of 'cpu' is ratio, not percent"),
        ("value: 0.8", "value: 0.8, code: x", "unknown key 'code'"),
        ("feature: engine_active", "feature: cpu", "a.yaml:7: no 'cpu' is both above 0.8 and below 0.6"),
        ("feature: engine_active, operator: below", "feature: cpu, operator: at-least", "twice from the same side"),
        ("kinds: [training", "kinds: [trainin", "a.yaml:4: unknown kind 'trainin' in rule 'slow-input'. Did you mean"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_refused_with_its_line(tmp_path, old, new, part):
    assert old in RULE
    with pytest.raises(RulesError) as caught:
        load_custom_rules(folder(tmp_path, {"custom/a.yaml": RULE.replace(old, new)}))
    assert part in str(caught.value)


def test_the_same_id_twice_in_one_folder_is_refused(tmp_path):
    with pytest.raises(RulesError, match=r"b.yaml:1: .*custom/a.yaml has the same id"):
        load_custom_rules(folder(tmp_path, {"custom/a.yaml": RULE, "custom/b.yaml": RULE}))


def why(exceptions, rule="idle-fabric", owner=None, name="chat", command=None, today="2026-11-21"):
    found = exceptions.of_workload(rule, owner or Owner(), name, command, today)
    return found and (found.id, found.origin)


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("vllm serve m --enable-expert-parallel", ("mixture-of-experts", "shipped")),
        ("python -m sglang.launch_server --ep-size=8", ("mixture-of-experts", "shipped")),
        ("vllm serve m --kv-transfer-config {}", ("disaggregated-serving", "shipped")),
        ("vllm serve my--enable-expert-parallel-model", None),
        ("vllm serve m", None),
        (None, None),
    ],
)
def test_command_lines_tell_what_needs_the_fabric(command, found):
    exceptions = load_exceptions(known_rules=KNOWN)
    assert why(exceptions, command=command) == found
    assert why(exceptions, rule="too-many-gpus", command=command) is None


def test_a_teams_exception_is_for_its_own_work_alone(tmp_path):
    files = {
        "teams/moe/exceptions.yaml": "exceptions: {mixture-of-experts: {reason: we route between nodes}}\n",
        "teams/moe/team.yaml": "namespace: [moe]\n",
    }
    exceptions = load_exceptions(folder(tmp_path, files), known_rules=KNOWN)
    assert why(exceptions, owner=Owner(namespace="moe")) == ("mixture-of-experts", "team moe")
    assert why(exceptions, owner=Owner(namespace="other")) is None


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("exceptions.yaml", "exceptions:\n  mine: {reason: r, match: {user: [a]}}\n", ":2: 'rules' is missing"),
        ("exceptions.yaml", "exceptions:\n  mine: {rules: [idle], match: {user: [a]}}\n", ":2: 'reason' is missing"),
        ("exceptions.yaml", "exceptions:\n  rdma-storage: {reason: r}\n", ":2: 'match' is missing"),
        ("exceptions.yaml", "exceptions:\n  x:\n    rules: [idel]\n", ":3: unknown rule 'idel' in exception 'x'. Did"),
        ("exceptions.yaml", "exceptions:\n  rdma-storage: {match: {nodes: [a]}}\n", "unknown key 'nodes'"),
    ],
)  # fmt: skip
def test_a_wrong_exception_is_refused_with_its_line(tmp_path, name, text, part):
    with pytest.raises(RulesError) as caught:
        load_exceptions(folder(tmp_path, {name: text}), known_rules=KNOWN)
    assert part in str(caught.value)
