"""Thresholds and texts: named, explained, replaceable by a site one by one, and never evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.rules.base.errors import RulesError
from skuwise.rules.base.templates import check_template, fill
from skuwise.rules.policy.thresholds import load_bottleneck_thresholds, load_kind_thresholds, load_waste_rules

WASTE = load_waste_rules()


def site(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return tmp_path


def test_the_rules_ask_for_more_than_a_day_of_data():
    assert WASTE["idle-fabric"].value("util_p995_max") == 0.01
    assert WASTE["too-many-gpus"].value("u_p99_max") == 0.35
    floors = [rule.thresholds.get("coverage_hours") for rule in WASTE.values()]
    assert {floor.value for floor in floors if floor is not None} == {30.0}


def test_kinds_and_bottlenecks_have_their_thresholds():
    kinds, bottlenecks = load_kind_thresholds(), load_bottleneck_thresholds()
    assert kinds["abstain_below"].value == 0.5
    assert kinds["idle_share_min"].value == 0.95
    assert bottlenecks["throttled_share"].value == 0.2
    assert bottlenecks["network_correlation"].value == -0.3
    assert bottlenecks["hbm_dominance"].value == 1.25


def test_every_threshold_has_a_unit_a_reason_and_a_source():
    everything = [*load_kind_thresholds().values(), *load_bottleneck_thresholds().values()]
    everything += [threshold for rule in WASTE.values() for threshold in rule.thresholds.values()]
    for threshold in everything:
        assert threshold.unit
        assert threshold.resolution in ("sample", "second", "minute", "hour", "window")
        assert len(threshold.reason) > 10
        assert threshold.source


def test_every_rule_says_what_would_change_it():
    for rule in WASTE.values():
        assert rule.would_change_if
        assert rule.exceptions
        for sentence in (rule.text, *rule.would_change_if):
            assert check_template(sentence, rule.thresholds) is None


def test_a_site_replaces_one_threshold_and_keeps_the_rest(tmp_path):
    text = "id: idle-fabric\nseverity: low\nthresholds: {util_p995_max: {value: 0.02, reason: our storage is chatty}}\n"
    rule = load_waste_rules(site(tmp_path, "waste/ours.yaml", text))["idle-fabric"]
    assert (rule.severity, rule.value("util_p995_max"), rule.value("coverage_hours")) == ("low", 0.02, 30)
    assert rule.thresholds["util_p995_max"].reason == "our storage is chatty"
    assert "in place of 0.01" in rule.thresholds["util_p995_max"].source
    assert rule.text == WASTE["idle-fabric"].text


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        (
            "waste/x.yaml",
            "id: idle-fabrik\n",
            "x.yaml:1: unknown rule 'idle-fabrik' in rule 'idle-fabrik'. Did you mean idle-fabric",
        ),
        ("waste/x.yaml", "id: idle\nseverity: grave\n", "x.yaml:2: 'severity' is 'grave'"),
        ("waste/x.yaml", "id: idle\nwhen: engine < 1\n", "x.yaml:2: unknown key 'when' in rule 'idle'"),
        ("waste/x.yaml", "id: idle\nthresholds: {engine_min: {value: 1}}\n", "unknown threshold 'engine_min'"),
        ("waste/x.yaml", "id: idle\nthresholds: {engine_max: {value: -1}}\n", "impossible for unit ratio"),
        ("waste/x.yaml", "id: idle\nthresholds: {engine_max: {value: 1, unit: hours}}\n", "cannot become hours"),
        ("waste/x.yaml", "id: idle\nthresholds: {engine_max: {}}\n", "'value' is missing"),
        (
            "waste/x.yaml",
            "id: idle\nthresholds: {engine_max: {value: .1, resolution: hour}}\n",
            "'resolution' is 'hour'",
        ),
        ("waste/x.yaml", "id: idle\ntext: 'on {nod}'\n", "x.yaml:2: unknown placeholder {nod}"),
        ("waste/x.yaml", "id: idle\nwould_change_if: ['{x}']\n", "unknown placeholder {x}"),
    ],
)
def test_a_wrong_site_file_is_refused(tmp_path, name, text, part):
    rules_dir = site(tmp_path, name, text)
    with pytest.raises(RulesError) as caught:
        load_waste_rules(rules_dir)
        load_kind_thresholds(rules_dir)
        load_bottleneck_thresholds(rules_dir)
    assert part in str(caught.value)


def test_a_rules_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(RulesError, match="is not a folder of rules"):
        load_waste_rules(tmp_path / "none")


def test_gaps_are_filled_once_and_nothing_is_evaluated():
    values = {"workload": "{node} {0.__class__} %s", "node": "n1", "hours": 31.5}
    assert fill("{workload} on {node} for {hours} h", values) == "{node} {0.__class__} %s on n1 for 31.5 h"
