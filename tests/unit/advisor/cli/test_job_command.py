"""`skuwise job` in process: one card and lists, and kept cards."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from skuwise.__main__ import main
from skuwise.advisor.cards import reading
from skuwise.advisor.cards.reading import CardsRead
from skuwise.advisor.cli import job
from skuwise.advisor.cli.options import RulebookOptions
from skuwise.advisor.core.card_types import Card
from skuwise.advisor.core.verdict_types import Owner
from skuwise.rules.base.errors import NothingToDo
from skuwise.tests.support.card_cases import HOUR, card
from skuwise.tests.support.report_fixtures import IDENTITY
from skuwise.tests.support.schemas import validate

NOW = card().end + HOUR
DB = ("--db", "nodes")
FLEET = replace(IDENTITY, clusters=frozenset({"eu"}), start=card().start, end=NOW)


class Reading:
    """The cards of a source."""

    def __init__(self, *cards: Card, fleet=FLEET) -> None:
        self.every, self.fleet = cards, fleet

    def card(self, asked: str) -> CardsRead:
        matches = tuple(card for card in self.every if asked in (card.id, card.job_id))
        if not matches:
            raise NothingToDo(f"No job {asked}.", "Use another ID.")
        return CardsRead(matches, self.fleet)

    def cards(self, wanted: Any) -> CardsRead:
        return CardsRead(tuple(filter(wanted, self.every)), self.fleet)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(job.time, "time", lambda: NOW)
    bob = card(id="w-b", job_id="4712", owner=Owner(user="bob"), series_id="s-b", state="running")
    monkeypatch.setattr(RulebookOptions, "load", lambda *_: None)
    monkeypatch.setattr(reading, "CardReading", lambda *_: Reading(card(), bob))
    return tmp_path / "state/skuwise"


COMPACT = "SKW1:w=1f2e3d4c5b6a7988,"


@pytest.mark.parametrize(
    ("form", "words"),
    {"table": "Next step", "markdown": "Next step: ", "html": "Next step: ", "admin-comment": COMPACT}.items(),
)
def test_a_card_is_printed_in_each_format(form: str, words: str, capsys) -> None:
    assert main(["job", "4711", *DB, "--format", form]) == 0
    assert words in capsys.readouterr().out


def test_a_finished_job_is_kept_and_shown_without_telemetry(folder: Path, tmp_path: Path, capsys) -> None:
    assert main(["job", "4711", *DB, "--no-keep"]) == main(["job", "4712", *DB]) == 0 and not folder.exists()
    assert main(["job", "4711", *DB, "--format", "json", "--output", str(tmp_path / "card.json")]) == 0
    (kept,) = folder.glob("*.db")
    assert kept.stat().st_mode & 0o777 == 0o600
    validate(json.loads((tmp_path / "card.json").read_text()), "card")
    capsys.readouterr()
    for more in ([], ["--state", str(kept)], ["--ledger", str(kept)]):
        assert main(["job", "4711", *more]) == 0
        assert "from the card kept on" in capsys.readouterr().out
    assert main(["job", "4712"]) == main(["job", "4711", "--state", str(tmp_path / "none.db")]) == 3
    kept.write_bytes(b"no database" * 100)
    assert main(["job", "4711"]) == 1
    assert main(["job", "4711", *DB, "--state", str(kept)]) == 0
    printed = capsys.readouterr()
    assert "train-7b" in printed.out and "not used" in printed.err


def test_cards_of_one_fleet_are_not_kept_in_the_file_of_another(folder: Path, monkeypatch, capsys) -> None:
    assert main(["job", "4711", *DB]) == 0
    (kept,) = folder.glob("*.db")
    other = replace(FLEET, clusters=frozenset({"us"}), members={"GPU-2": "n2"})
    monkeypatch.setattr(reading, "CardReading", lambda *_: Reading(card(id="w-us", cluster="us"), fleet=other))
    assert main(["job", "4711", *DB, "--state", str(kept)]) == 0
    assert "Card not kept" in capsys.readouterr().err
    assert main(["job", "4711", *DB]) == 0 and len(list(folder.glob("*.db"))) == 2
    assert main(["job", "us/4711"]) == 0
    assert main(["job", "4711"]) == 2 and "matches 2 items" in capsys.readouterr().err


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
    assert main(["job", *DB, "--no-keep", "--format", "json"]) == 0
    every = json.loads(capsys.readouterr().out)
    assert (every["schema"], {card["job_id"] for card in every["cards"]}) == ("skuwise.cards/1", {"4711", "4712"})
    assert main(["job"]) == main(["job", "4711", "--user", "ann", *DB]) == 2
