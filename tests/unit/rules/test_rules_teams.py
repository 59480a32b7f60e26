"""What a team sets for itself lies over its site's, for its own workloads alone; contradictions name file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.advisor.core.verdict_types import Owner
from skuwise.rules.base.errors import RulesError
from skuwise.rules.policy.thresholds import load_kind_thresholds, load_waste_rules

HELD = "id: held-idle\nthresholds: {sm_max: {value: %s, reason: %s}}\n"


def folder(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def refused(root: Path, files: dict[str, str]) -> str:
    with pytest.raises(RulesError) as caught:
        load_waste_rules(folder(root, files))
    assert caught.value.remedy
    return str(caught.value)


def test_a_team_lies_over_its_site_and_a_site_over_what_ships(tmp_path):
    rules = load_waste_rules(
        folder(
            tmp_path,
            {
                "waste/held.yaml": "id: held-idle\nthresholds:\n  sm_max: {value: 0.1}\n  minutes: {value: 60}\n",
                "teams/search/waste/held.yaml": HELD % (0.2, "our probes"),
                "teams/search/team.yaml": "namespace: [search, search-staging]\naccount: [srch]\n",
            },
        )
    )
    held = rules["held-idle"]
    own = held.of(Owner(namespace="search"))
    assert [r.value("sm_max") for r in (held, own)] == [0.1, 0.2]
    assert own.value("minutes") == 60  # the site's, which the team left alone
    assert [own.thresholds[n].origin for n in ("sm_max", "minutes", "dram_max")] == ["team search", "site", "shipped"]
    assert own.thresholds["sm_max"].source.endswith("teams/search/waste/held.yaml:2), in place of 0.1")
    assert held.of(Owner(namespace="Search")) is held  # names match whole and as they are
    assert held.of(Owner(user="ann")) is held
    assert rules["idle"].of(Owner(namespace="search")) is rules["idle"]


def test_a_label_or_namespace_decides_before_an_account_and_that_before_a_user(tmp_path):
    files = {
        "teams/a/team.yaml": "user: [ann]\nnamespace: [one]\n",
        "teams/b/team.yaml": "account: [acc]\nnamespace: [two]\n",
        "teams/a/waste/held.yaml": HELD % (0.2, "a"),
        "teams/b/waste/held.yaml": HELD % (0.3, "b"),
    }
    held = load_waste_rules(folder(tmp_path, files))["held-idle"]
    values = {
        Owner(user="ann"): 0.2,
        Owner(user="ann", account="acc"): 0.3,
        Owner(user="ann", account="acc", namespace="one"): 0.2,
        Owner(namespace="one", team="b"): 0.3,  # telemetry labels it with the team's name
        Owner(): 0.05,
    }
    assert {owner: held.of(owner).value("sm_max") for owner in values} == values


def test_two_teams_cannot_claim_one_owner(tmp_path):
    files = {"teams/a/team.yaml": "user: [ann]\n", "teams/b/team.yaml": "account: [x]\nuser:\n  - ann\n"}
    assert "teams/b/team.yaml:2: user 'ann' is already of team 'a'." in refused(tmp_path, files)


@pytest.mark.parametrize(
    ("files", "part"),
    [
        ({"teams/a/waste/x.yaml": "id: idel\n"}, "a/waste/x.yaml:1: unknown rule 'idel'"),
        ({"teams/a/waste/x.yaml": "id: idle\n"}, "a/waste/x.yaml:1: findings are about nodes, which teams share, in"),
        ({"teams/a/kinds.yaml": "thresholds: {}\n"}, "a/kinds.yaml: this is no part of the rules."),
        ({"teams/a/gpus/x.yaml": "vendor: x\n"}, "a/gpus: this is no part of the rules."),
        ({"teams/a.yaml": "user: [x]\n"}, "a.yaml: this is no part of the rules. A team has a folder"),
        ({"teams/a/team.yaml": "users: [x]\n"}, "team.yaml:1: unknown key 'users' in team 'a'. Did you mean user?"),
        ({"waste/deep/x.yaml": "id: idle\n"}, "waste/deep: a folder here is no part of the rules."),
        (
            {"waste/a.yaml": "id: idle\n", "waste/b.yaml": "\nid: idle\n"},
            "b.yaml:2: {root}/waste/a.yaml sets rule 'idle' already",
        ),
    ],
)
def test_contradictions_and_strays_are_refused_with_file_and_line(tmp_path, files, part):
    assert part.format(root=tmp_path) in refused(tmp_path, files)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("  mem_flat_level_min: {value: 0.98}\n", "kinds.yaml:2: mem_flat_level_min is 0.98, above mem_flat_level_max"),
        ("  mem_flat_level_max: {value: 0.2}\n", "kinds.yaml:2: mem_flat_level_min is 0.85, above mem_flat_level_max"),
    ],
)
def test_a_lower_bound_above_its_upper_bound_is_refused(tmp_path, text, part):
    with pytest.raises(RulesError) as caught:
        load_kind_thresholds(folder(tmp_path, {"kinds.yaml": f"thresholds:\n{text}"}))
    assert part in str(caught.value)
