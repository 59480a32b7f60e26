"""`skuwise patch` as a command: what it refuses, prints and writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from skuwise.__main__ import main
from skuwise.advisor.ledger.entries import LedgerEvent
from skuwise.advisor.ledger.file.store import Ledger
from skuwise.tests.support.patch_cases import DEPLOYMENT, ID, NOW, accepted, kept_in, sized

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
