"""Hostile names and texts: refused, or without effect in YAML, shell and Slurm."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from skuwise.__main__ import main
from skuwise.advisor.ledger.entries import LedgerEvent
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.advisor.patches.build import patch_for
from skuwise.advisor.patches.head import comment
from skuwise.advisor.patches.model import PatchSet, Target
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.patch_cases import (
    CLUSTER_QUEUE,
    DEPLOYMENT,
    ID,
    JOB,
    NODES,
    NOW,
    PYTORCH_JOB,
    STATEFUL_SET,
    accepted,
    kept_in,
    sized,
    subject,
)

EVIL = [
    "x\nkind: Secret", "$(touch /tmp/x)", "`id`", "a b", "--all", "-n", "a;b", "'", '"', "\\", "x\\\n#SBATCH --wrap=id",
    "n1 State=DOWN", "n1\nPartitionName=x", "\u202etxt", "\x1b[2J", "\u2028a", "*", "..", "a/b", "%n", "{{x}}",
    "!!python", "&a", "*a", "# c", "\0", "\r\nExecStart=/bin/id", "\ud800", "Ä", "x" * 300,
]  # fmt: skip
HOSTILE = st.one_of(st.sampled_from(EVIL), st.text(max_size=30))


def texts(made: PatchSet) -> list[str]:
    return [file.text for part in made.parts for file in (part.patch, part.undo)]


@given(st.lists(HOSTILE, min_size=1))
def test_no_line_leaves_its_comment(lines: list[str]) -> None:
    text = comment(lines)
    assert all(line.startswith("#") and not line.endswith("\\") for line in text.split("\n")[:-1])
    assert len(text.splitlines()) == len(lines)
    assert yaml.safe_load(text.encode("utf-8", "backslashreplace")) is None


@given(HOSTILE.filter(bool))
def test_hostile_names_of_kubernetes_objects_are_refused(name: str) -> None:
    for field in ("kind", "name", "namespace", "container"):
        asked: dict[str, Any] = {
            "kind": "Deployment",
            "name": "chat",
            "namespace": "llm",
            "container": "server",
            field: name,
        }
        for action in ("move-sku", "rest-clocks"):
            try:
                made = patch_for(subject(action, **asked), "kubernetes")
            except SkuwiseError as error:
                assert error.remedy
                continue
            (part,) = made.parts
            told = yaml.safe_load(part.patch.text)
            assert told["kind"] == asked["kind"] and told["metadata"]["name"] == asked["name"]
            words = shlex.split(part.apply[0])
            assert words[:2] == ["kubectl", "patch"] and words[3:6] == [asked["name"], "-n", asked["namespace"]]


def parts_of(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values inside of a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inside:
        yield (*at, key)
        yield from parts_of(child, (*at, key))


MALFORMED: tuple[tuple[str, Target, str, dict[str, Any]], ...] = (
    *((action, "kubernetes", sized(text, 2, 8), {})
      for text in (DEPLOYMENT, STATEFUL_SET, JOB, PYTORCH_JOB)
      for action in ("move-sku", "reduce-gpus", "rest-clocks", "release")),
    *((action, "kueue", CLUSTER_QUEUE, {}) for action in ("move-sku", "reduce-gpus", "mig-slice")),
    ("consolidate", "kubernetes", NODES, {}),
)  # fmt: skip
JUNK: tuple[Any, ...] = (["x"], "x", "", 5, -1, True, 1.5, {"a": 1}, None, [], {}, [None], [[1]], [{}], "9" * 30)


@given(st.data())
def test_manifests_with_a_value_of_another_form_are_patched_or_refused(data: st.DataObject) -> None:
    action, target, text, asked = data.draw(st.sampled_from(MALFORMED))
    value = yaml.safe_load(text)
    *where, last = data.draw(st.sampled_from(list(parts_of(value))))
    holder = value
    for key in where:
        holder = holder[key]
    holder[last] = data.draw(st.sampled_from(JUNK))
    try:
        assert patch_for(subject(action, ("m.yaml", json.dumps(value)), **asked), target).parts
    except SkuwiseError as error:
        assert error.remedy


MANIFEST = sized(DEPLOYMENT, 2, 8)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "chat.yaml").write_text(MANIFEST)
    return tmp_path


def patch(place: Path, *words: str) -> int:
    return main(["patch", ID[:6], "--ledger", str(place / "ledger.db"), *words])


def test_a_patch_is_printed_and_written_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept_in(place / "ledger.db", accepted("move-sku"))
    given = ["--for", "kubernetes", "--manifest", str(place / "chat.yaml")]
    assert patch(place, *given) == 0
    printed = capsys.readouterr().out
    assert f"ledger show {ID}" in printed and "by ann" in printed and "What was measured." in printed
    assert patch(place, *given, "--output", str(place / "out")) == 0
    names = sorted(one.name for one in (place / "out").iterdir())
    assert names == [
        "README.txt", "kustomization.yaml", "original.yaml", "patch-deployment-chat.yaml", "undo-deployment-chat.yaml",
    ]  # fmt: skip
    assert (place / "out/patch-deployment-chat.yaml").read_text() == printed
    assert (place / "out/original.yaml").read_text() == MANIFEST
    assert "nothing was applied" in capsys.readouterr().err
    assert patch(place, *given, "--output", str(place / "out")) == 2
    assert "not empty" in capsys.readouterr().err
    assert patch(place, *given, "--undo") == 0
    undo = capsys.readouterr().out
    assert undo == (place / "out/undo-deployment-chat.yaml").read_text()
    assert yaml.safe_load(undo)["metadata"]["annotations"] == {"skuwise.dev/recommendation": None}


@pytest.mark.parametrize(
    ("act", "words", "status", "says"),
    [
        (None, [], 2, "ledger accept"), ("dismissed", [], 2, "is dismissed, not accepted"), ("done", [], 2, "--undo"),
        ("done", ["--undo"], 0, ""), ("regressed", [], 2, "ledger accept"),
    ],
)  # fmt: skip
def test_only_what_was_accepted_is_patched(
    act, words: list[str], status: int, says: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = accepted("move-sku")
    kept_in(place / "ledger.db", entry if act is not None else replace(entry, events=entry.events[:1]))
    # Long after it was last proposed nothing that was decided on expires.
    if act is not None:
        Ledger(place / "ledger.db").add(ID, LedgerEvent(act, NOW + 60, "skuwise", None, "told"))
    done = patch(place, "--for", "kubernetes", "--manifest", str(place / "chat.yaml"), *words)
    told = capsys.readouterr()
    assert (done, "Traceback" in told.err) == (status, False)
    assert says in told.err and bool(told.out) is (status == 0)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--for", "slurm"], "batch script"),
        (["--for", "kubernetes", "--manifest", "none"], "none"),
        (["--for", "kubernetes", "--node-label", "a b=c"], "node label"),
        (["--for", "kubernetes", "--node-label", "a"], "KEY=VALUE"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_sentence_with_a_remedy(
    words: list[str], says: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept_in(place / "ledger.db", accepted("move-sku"))
    assert patch(place, *words) == 2
    told = capsys.readouterr()
    assert says in told.err and told.err.count("\n") == 1 and not told.out


def test_what_is_blocked_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = accepted("move-sku")
    kept_in(place / "ledger.db", replace(entry, proposal=replace(entry.proposal, blocked=True, ground=None)))
    assert patch(place, "--for", "kubernetes") == 2
    assert "it is blocked" in capsys.readouterr().err
