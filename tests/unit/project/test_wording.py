"""The words that users read: those of rules/wording.yaml appear nowhere, and the linter finds what it should."""

from __future__ import annotations

from pathlib import Path

import pytest
from skuwise.tests.support.wording.terms import complaints, found_in, load_wording, sentences, sources
from skuwise.tests.support.wording.texts import ROOT, Shown, shown

LONG = "word " * 31


def of(tmp_path: Path, name: str, source: str) -> list[str]:
    path = tmp_path / name
    path.write_text(source)
    return [one.text for one in complaints(shown(path), load_wording())]


def test_no_text_that_a_user_sees_needs_to_be_rewritten() -> None:
    paths = sources()
    assert len(paths) > 500
    assert [str(one) for one in found_in(paths, load_wording())] == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.py", 'say("Ways out: none")'),
        ("a.py", 'raise E(f"{path} is no TOML.", "Fix it.")'),
        ("a.py", 'coded("a-b", "It is held " "back by {x}.")'),
        ("a.py", f'help = "{LONG}"'),
        ("a.md", "Here the tool\ntells what it is.\n"),
        ("a.md", "- one\n- mend it first\n"),
        ("a.yaml", "why: it is not known to the advisor\n"),
        ("a.json", '{"description": "what it comes to"}'),
        ("a.html", "<p>What is\n<b>to be had</b> today</p>"),
        ("a.service", "Description=says what is wasted\n"),
    ],
)
def test_a_planted_phrase_is_found_in_every_kind_of_file(tmp_path: Path, name: str, source: str) -> None:
    assert len(of(tmp_path, name, source)) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.py", '"""Tells what is told."""\n'),
        ("a.py", 'coded("nobody-tells", "No data.")'),
        ("a.py", 'rows = db.execute("SELECT told FROM sheet WHERE a > 1")'),
        ("a.py", f'NAMES = frozenset("{LONG}".split())'),
        ("a.py", 'say("It is recommended to retell the foretold misunderstanding first-seen")'),
        ("a.md", "```\nskuwise says told\n```\nRun `tell me` now. MFU stands for model FLOPs utilization.\n"),
        ("a.yaml", "tell: told\nname: mend\n"),
        ("a.html", "<style>.told { mend: 1 }</style><p>Savings</p>"),
    ],
)
def test_code_and_usual_phrases_are_left_alone(tmp_path: Path, name: str, source: str) -> None:
    assert of(tmp_path, name, source) == []


def test_sentences_end_where_readers_see_an_end() -> None:
    assert sentences("One 0.5 s step, e.g. here. Two {n} GPUs. `three` is a list:\n- four\n- five") == [
        "One 0.5 s step, e.g. here.", "Two {n} GPUs.", "`three` is a list", "four", "five",
    ]  # fmt: skip


def test_a_sentence_of_thirty_words_passes_and_one_more_does_not() -> None:
    wording = load_wording()
    place = ROOT / "README.md"
    assert not list(complaints([Shown(place, 1, "word " * wording.max_words)], wording))
    assert len(list(complaints([Shown(place, 1, LONG)], wording))) == 1


def test_a_key_that_nothing_reads_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wording.yaml"
    path.write_text("max_words_per_sentence: 30\nterms: [{pattern: a, say: b, alow: [c]}]\n")
    with pytest.raises(ValueError, match="alow"):
        load_wording(path)
