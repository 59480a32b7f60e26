"""Which thresholds a rule reads, and that it fires on one side of each of them and not on the other."""

import re
from importlib.resources import files

import pytest
from skuwise.advisor.moves.waste.registry import RULES
from skuwise.rules.thresholds import load_waste_rules

WASTE = load_waste_rules()


def source(module: str) -> str:
    return files("skuwise.advisor.moves").joinpath("waste", f"{module}.py").read_text("utf-8")


@pytest.mark.parametrize("rule", sorted(WASTE))
def test_every_threshold_of_a_rule_is_read_and_none_that_it_lacks(rule):
    own, shared = source(rule.replace("-", "_")), source("scope")
    assert set(WASTE[rule].thresholds) <= set(re.findall(r'"(\w+)"', own + shared))
    assert set(re.findall(r'rule\.value\("(\w+)"\)', own)) <= set(WASTE[rule].thresholds)


def test_there_is_a_rule_in_code_for_every_rule_in_data():
    assert set(RULES) == set(WASTE)
