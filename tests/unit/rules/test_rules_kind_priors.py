"""Priors of kinds: what words fit, a site's own lines before those that ship, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.rules.base.errors import RulesError
from skuwise.rules.policy.kind_priors import ABOUT, FILE, KindPriors, load_kind_priors

LINE = """priors:
  ours:
    of: namespace
    names: [prod-llm]
    words: [llm*]
    log_odds: {online-inference: 4.0, interactive: -2.0}
    says: where only services run
    reason: nothing else is admitted there
"""


def loaded(folder: Path, text: str) -> KindPriors:
    (folder / FILE).write_text(text)
    return load_kind_priors(folder)


def test_every_subject_has_lines_and_every_line_its_reason() -> None:
    shipped = load_kind_priors()
    assert set(shipped.lines) == set(ABOUT)
    assert all(len(line.reason) > 15 and line.says and line.log_odds for line in shipped.every)


@pytest.mark.parametrize(
    ("word", "text", "fits"),
    [
        ("vllm", "docker.io/vllm/vllm-openai", True),
        ("vllm", "acme/notvllm", False),
        ("vllm*", "vllmserver", True),
        ("*fsdp*", "run_myfsdp2.py", True),
        ("api-server", "python -m a.api_server --x", True),
        ("api-server", "apiserver", False),
        ("api-server", "api / --- server", False),
        ("train", "pretraining", False),
    ],
)
def test_a_word_fits_whole_words_whatever_parts_them(tmp_path: Path, word: str, text: str, fits: bool) -> None:
    found = loaded(tmp_path, LINE.replace("[llm*]", f'["{word}"]')).first("namespace", text, 1.0)
    assert (found is not None and found[0].name == "ours") == fits


def test_a_sites_line_speaks_before_ours_replaces_one_of_its_name_and_silences_by_zeros(tmp_path: Path) -> None:
    one = loaded(tmp_path, LINE).first("namespace", "Prod-LLM", 0.0)
    assert one is not None
    assert (one[0].name, one[0].origin, one[1]) == ("ours", "site", "prod-llm")
    renamed = LINE.replace("ours:", "owner-kept:").replace("of: namespace", "of: owner").replace("prod-llm", "Widget")
    own = loaded(tmp_path, renamed)
    assert own.first("owner", "Deployment", 100.0)[0].name == "owner-kept-new"  # type: ignore[index]
    assert own.first("owner", "Widget", 100.0)[0].name == "owner-kept"  # type: ignore[index]
    silent = loaded(tmp_path, LINE.replace("{online-inference: 4.0, interactive: -2.0}", "{training: 0}"))
    assert not any(silent.first("namespace", "llm-serving", 1.0)[0].log_odds.values())  # type: ignore[index]


def test_a_line_may_ask_how_long_the_work_has_run() -> None:
    priors = load_kind_priors()
    kept = [priors.first("owner", "Deployment", hours) for hours in (1.0, 2.0)]
    assert [one and one[0].name for one in kept] == ["owner-kept-new", "owner-kept"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("of: namespace", "of: colour", ":3: 'of' is 'colour', not one of engine, framework, image"),
        ("interactive: -2.0", "interaktive: -2.0", "unknown kind 'interaktive'"),
        ("interactive: -2.0", "idle: 2.0", "unknown kind 'idle'"),
        ("interactive: -2.0", "interactive: -9", "'interactive' is -9 and must be at least -8"),
        ("interactive: -2.0", "interactive: .inf", "must be a number"),
        ("{online-inference: 4.0, interactive: -2.0}", "{}", "no kind is named"),
        ("llm*", '"(a+)+$"', ":5: '(a+)+$' is no word"),
        ("llm*", '"*"', "is no word"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in LINE
    with pytest.raises(RulesError, match=FILE) as refused:
        loaded(tmp_path, LINE.replace(old, new))
    assert said in str(refused.value)
