"""Custom rules, exceptions and teams: whose workloads they apply to; and settings that are refused by name."""

import pytest
from skuwise.advisor.core.verdict_types import Owner
from skuwise.rules.policy.teams import load_exceptions
from skuwise.rules.policy.thresholds import load_custom_rules, load_waste_rules
from skuwise.tests.support.rulebooks import rules_folder
from skuwise.tests.support.rules_files import CUSTOM

KNOWN = load_waste_rules().keys()


def test_a_rule_in_ten_lines(tmp_path):
    rules = load_custom_rules(rules_folder(tmp_path, {"custom/slow-input.yaml": CUSTOM}))
    (custom,) = rules.of(Owner(user="ann"))
    assert (custom.rule.id, custom.rule.severity, custom.kinds) == (
        "custom/slow-input",
        "medium",
        ("training", "fine-tuning"),
    )
    assert [(c.feature, c.operator, c.value, c.unit) for c in custom.conditions] == [
        ("cpu", "above", 0.8, "ratio"),
        ("engine_active", "below", 0.6, "ratio"),
    ]
    for operator, held in (("above", (0, 0, 1)), ("at-least", (0, 1, 1)), ("below", (1, 0, 0)), ("at-most", (1, 1, 0))):
        rules = load_custom_rules(rules_folder(tmp_path, {"custom/slow-input.yaml": CUSTOM.replace("above", operator)}))
        assert tuple(rules.of(Owner())[0].conditions[0].holds(value) for value in (0.7, 0.8, 0.9)) == held


def test_a_teams_rule_is_for_its_workloads_and_replaces_the_sites_of_that_name(tmp_path):
    files = {
        "custom/a.yaml": CUSTOM,
        "teams/ml/custom/a.yaml": CUSTOM.replace("0.8", "0.9"),
        "teams/ml/custom/b.yaml": CUSTOM.replace("slow-input", "other"),
        "teams/ml/team.yaml": "user: [ann]\n",
    }
    rules = load_custom_rules(rules_folder(tmp_path, files))
    assert [(r.rule.id, r.conditions[0].value) for r in rules.of(Owner(user="ann"))] == [
        ("custom/slow-input", 0.9),
        ("custom/other", 0.9 - 0.1),
    ]
    assert [r.conditions[0].value for r in rules.of(Owner(user="bob"))] == [0.8] and len(rules) == 3


def why(exceptions, rule="idle-fabric", owner=None, name="chat", command=None, today="2026-11-21"):
    exception = exceptions.of_workload(rule, owner or Owner(), name, command, today)
    return exception and (exception.id, exception.origin)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python -m sglang.launch_server --ep-size=8", ("mixture-of-experts", "shipped")),
        ("vllm serve m --kv-transfer-config {}", ("disaggregated-serving", "shipped")),
        ("vllm serve my--enable-expert-parallel-model", None),
        (None, None),
    ],
)
def test_command_lines_show_what_needs_the_fabric(command, expected):
    exceptions = load_exceptions(known_rules=KNOWN)
    assert (
        why(exceptions, command=command) == expected and why(exceptions, rule="too-many-gpus", command=command) is None
    )


def test_a_teams_exception_is_for_its_own_work_alone(tmp_path):
    files = {
        "teams/moe/exceptions.yaml": "exceptions: {mixture-of-experts: {reason: we route between nodes}}\n",
        "teams/moe/team.yaml": "namespace: [moe]\n",
    }
    exceptions = load_exceptions(rules_folder(tmp_path, files), known_rules=KNOWN)
    assert why(exceptions, owner=Owner(namespace="moe")) == ("mixture-of-experts", "team moe")
    assert why(exceptions, owner=Owner(namespace="other")) is None


HELD = "id: held-idle\nthresholds: {sm_max: {value: %s, reason: %s}}\n"


def test_a_team_lies_over_its_site_and_a_site_over_what_ships(tmp_path):
    files = {
        "waste/held.yaml": "id: held-idle\nthresholds:\n  sm_max: {value: 0.1}\n  minutes: {value: 60}\n",
        "teams/search/waste/held.yaml": HELD % (0.2, "our probes"),
        "teams/search/team.yaml": "namespace: [search, search-staging]\naccount: [srch]\n",
    }
    rules = load_waste_rules(rules_folder(tmp_path, files))
    held = rules["held-idle"]
    of_team = held.of(Owner(namespace="search"))
    assert [r.value("sm_max") for r in (held, of_team)] == [0.1, 0.2]
    assert of_team.value("minutes") == 60  # the site's, which the team left alone
    assert [of_team.thresholds[n].origin for n in ("sm_max", "minutes", "dram_max")] == [
        "team search",
        "site",
        "shipped",
    ]
    assert of_team.thresholds["sm_max"].source.endswith("teams/search/waste/held.yaml), in place of 0.1")
    assert held.of(Owner(namespace="Search")) is held  # names match whole and as they are
    assert held.of(Owner(user="ann")) is held and rules["idle"].of(Owner(namespace="search")) is rules["idle"]


def test_a_label_or_namespace_decides_before_an_account_and_that_before_a_user(tmp_path):
    files = {
        "teams/a/team.yaml": "user: [ann]\nnamespace: [one]\n",
        "teams/b/team.yaml": "account: [acc]\nnamespace: [two]\n",
        "teams/a/waste/held.yaml": HELD % (0.2, "a"),
        "teams/b/waste/held.yaml": HELD % (0.3, "b"),
    }
    held = load_waste_rules(rules_folder(tmp_path, files))["held-idle"]
    values = {
        Owner(user="ann"): 0.2,
        Owner(user="ann", account="acc"): 0.3,
        Owner(user="ann", account="acc", namespace="one"): 0.2,
        Owner(namespace="one", team="b"): 0.3,  # telemetry labels it with the team's name
        Owner(): 0.05,
    }
    assert {owner: held.of(owner).value("sm_max") for owner in values} == values
