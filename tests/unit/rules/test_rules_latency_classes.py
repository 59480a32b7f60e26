"""Classes of latency: those that ship, a site's own, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.advisor.core.verdict_types import Owner
from skuwise.agent.statistics.latency_bins import LATENCY_EDGES, REACH_SECONDS
from skuwise.rules.base.errors import RulesError
from skuwise.rules.policy.latency_classes import load_latency_classes


def site(folder: Path, text: str) -> Path:
    (folder / "latency_classes.yaml").write_text(text)
    return folder


def test_those_that_ship_are_told_strictest_first_and_their_limits_are_edges_of_the_bins() -> None:
    found = load_latency_classes()
    assert list(found.classes) == ["interactive", "documents", "waited-for", "batch"]
    assert found.classes["interactive"].limits == {
        "first_token_p90_seconds": 0.1, "output_token_p90_seconds": 0.05, "first_token_p99_seconds": 2.0,
    }  # fmt: skip
    assert found.classes["batch"].limits == {}
    limits = [limit for one in found.classes.values() for limit in one.limits.values()]
    assert set(limits) <= set(LATENCY_EDGES)
    assert max(limits) <= REACH_SECONDS
    assert found.kinds == {"online-inference": "waited-for", "batch-inference": "batch"}
    assert found.set_for(Owner(namespace="chat"), "chat", "s-1") is None


SITE = """classes:
  reads-along: {first_token_p90_seconds: 0.3, output_token_p90_seconds: 0.08, says: read as it comes, reason: agreed}
  documents: {first_token_p90_seconds: 1.0, reason: our prompts are longer}
services:
  chat: {class: interactive, match: {namespace: [chat]}, reason: people type}
  rest: {class: reads-along, match: {name: [api], series: [s-9], team: [assist]}, reason: agreed with them}
kinds: {online-inference: documents}
"""


def test_a_site_adds_classes_changes_figures_and_says_whose_is_which(tmp_path: Path) -> None:
    found = load_latency_classes(site(tmp_path, SITE))
    assert list(found.classes) == ["reads-along", "interactive", "documents", "waited-for", "batch"]
    assert found.classes["documents"].limits == {"first_token_p90_seconds": 1.0}
    assert found.classes["documents"].origin == "site"
    assert found.kinds["online-inference"] == "documents"

    def label(owner: Owner, name: str = "x", series: str = "s") -> str | None:
        said = found.set_for(owner, name, series)
        return said.label if said is not None else None

    assert label(Owner(namespace="chat"), "api") == "interactive"  # the first that fits
    assert {label(Owner(), "api"), label(Owner(), series="s-9"), label(Owner(team="assist"))} == {"reads-along"}
    assert label(Owner(namespace="chat-2")) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("services:\n  a: {class: interactve, match: {name: [x]}, reason: r}\n", "unknown class 'interactve'"),
        ("services:\n  a: {class: batch, match: {}, reason: r}\n", "names no service"),
        ("services:\n  a: {class: batch, match: {pod: [x]}, reason: r}\n", "pod"),
        ("services:\n  a: {class: batch, match: {name: [x]}}\n", "reason"),
        ("classes:\n  fast: {first_token_p90_seconds: 0, reason: r}\n", "at least 0.005"),
        ("classes:\n  fast: {first_token_p90_seconds: 100 ms, reason: r}\n", "first_token_p90_seconds"),
        ("classes:\n  fast: {first_token_p90_seconds: 90, reason: r}\n", "at most 20"),
        ("classes:\n  fast: {first_token_p50_seconds: 0.1, reason: r}\n", "first_token_p50_seconds"),
    ],
)
def test_what_is_wrong_is_refused_with_file_and_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(RulesError) as refused:
        load_latency_classes(site(tmp_path, text))
    assert said in str(refused.value)
    assert "latency_classes.yaml" in str(refused.value)
