"""`skuwise job` in process: one card and lists, kept cards, and what cannot be asked."""

import json
from pathlib import Path
from typing import Any

import pytest
from skuwise.__main__ import main
from skuwise.advisor.cli import job
from skuwise.advisor.core.card_types import Card
from skuwise.advisor.core.verdict_types import Owner
from skuwise.rules.base.errors import NothingToDo
from skuwise.tests.support.card_cases import HOUR, card
from skuwise.tests.support.schemas import validate

NOW = card().end + HOUR
DB = ("--db", "nodes")


class Reading:
    """What telemetry tells of jobs."""

    def __init__(self, *cards: Card) -> None:
        self.told = cards

    def card(self, asked: str) -> tuple[Card, tuple[Any, ...]]:
        found = [one for one in self.told if asked in (one.id, one.job_id)]
        if not found:
            raise NothingToDo(f"No job {asked}.", "Use another ID.")
        return found[0], tuple(found[1:])

    def cards(self, wanted: Any) -> tuple[Card, ...]:
        return tuple(filter(wanted, self.told))


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(job.time, "time", lambda: NOW)
    bob = card(id="w-b", job_id="4712", owner=Owner(user="bob"), series_id="s-b", state="running")
    monkeypatch.setattr(job, "_reading", lambda options, *_: Reading(card(), bob) if options.db else None)
    return tmp_path / "state/skuwise/cards.db"


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("table", "Next step"), ("markdown", "| Next step |"), ("html", "<strong>Next step:</strong>"),
        ("admin-comment", "SKW1:w=1f2e3d4c5b6a7988,"),
    ],
)  # fmt: skip
def test_a_card_is_printed_in_each_format(form: str, words: str, capsys) -> None:
    assert main(["job", "4711", *DB, "--format", form]) == 0
    assert words in capsys.readouterr().out


def test_a_finished_job_is_kept_and_shown_without_telemetry(kept: Path, tmp_path: Path, capsys) -> None:
    assert main(["job", "4711", *DB, "--no-keep"]) == 0 and not kept.exists()
    assert (
        main(["job", "4711", *DB, "--format", "json", "--output", str(tmp_path / "card.json")]) == 0 and kept.exists()
    )
    validate(json.loads((tmp_path / "card.json").read_text()), "card")
    capsys.readouterr()
    assert main(["job", "4711"]) == 0
    assert "from the card kept on" in capsys.readouterr().out
    assert main(["job", "4712"]) == 3  # it runs: nothing of it is kept
    kept.write_bytes(b"no database" * 100)
    assert main(["job", "4711", *DB]) == 0
    told = capsys.readouterr()
    assert "train-7b" in told.out and "not used" in told.err


def test_lists_are_of_an_owner_and_know_what_is_kept(capsys) -> None:
    assert main(["job", "--keep-finished", *DB]) == 0
    assert "kept 1 of 2 cards" in capsys.readouterr().err
    assert main(["job", "--user", "ann", "--format", "csv"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("id,job_id,name,user") and [row.split(",")[3] for row in rows] == ["ann"]
    for form in ("table", "json", "markdown", "html"):
        assert main(["job", "--user", "bob", *DB, "--format", form]) == 0
        assert "4712" in capsys.readouterr().out
    assert main(["job", "--user", "nobody", *DB]) == 3
