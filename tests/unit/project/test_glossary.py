"""docs/glossary.md explains every label of the output."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from skuwise.advisor.core.advice_types import Action, DecisionState, Realisation, Risk, Severity
from skuwise.advisor.render.json import load_schema
from skuwise.rules.policy.thresholds import load_waste_rules

PAGE = Path(__file__).parents[3] / "docs/glossary.md"
WORKLOAD = load_schema()["$defs"]["workload"]["properties"]
LABELS = {
    "Kinds of workload": WORKLOAD["kind"]["properties"]["label"]["enum"],
    "Bottlenecks": [*WORKLOAD["bottleneck"]["properties"]["label"]["enum"], "hbm-capacity"],
    "Rules of findings": load_waste_rules(),
    "Actions of recommendations": get_args(Action),
    "Realisation: when and how a gain arrives": get_args(Realisation),
    "Risk": get_args(Risk),
    "Severity": get_args(Severity),
    "Decisions": get_args(DecisionState),
}


def rows(title: str) -> dict[str, str]:
    """The entries below a heading: term and the rest of its row."""
    text = PAGE.read_text("utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([a-z-]+)` \| (.+) \|$", text, re.MULTILINE))


@pytest.mark.parametrize("title", LABELS)
def test_every_label_of_the_code_has_one_plain_sentence_and_no_other_is_listed(title: str) -> None:
    found = rows(title)
    assert sorted(found) == sorted(LABELS[title])
    for text in found.values():
        assert text.endswith(".") and len(text.split()) <= 30


def test_headline_terms_have_a_unit_and_a_place() -> None:
    text = PAGE.read_text("utf-8")
    for term in ("spend", "wasted", "recoverable", "freed", "coverage", "GPU-hour", "SKU", "fabric", "recommendation"):
        assert re.search(rf"^\| {term} \| [^|]+\. \|[^|]*\| [^|]+ \|$", text, re.MULTILINE), term
