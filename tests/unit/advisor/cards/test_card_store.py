"""Kept cards: what goes in comes out, whatever it is called; what is not ours is refused; kills lose nothing."""

from __future__ import annotations

import sqlite3
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.cards.card_json import packed
from skuwise.advisor.cards.kept import compared_with_kept
from skuwise.advisor.cards.store import CardStore
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.card_cases import HOUR, card

NOW = card().end + HOUR
DAY = 86400.0


@pytest.fixture
def store(tmp_path: Path) -> CardStore:
    return CardStore(tmp_path / "state" / "cards.db")


def test_a_card_comes_back_as_it_was_in_a_few_hundred_bytes(store: CardStore) -> None:
    assert store.keep([card()], NOW) == 1
    (kept,) = store.named("4711")
    assert replace(kept, kept_at=None, course=card().course, price=card().price) == card()
    assert kept.kept_at == NOW and len(packed(card())) < 700
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_a_job_that_runs_is_not_kept_nor_one_of_a_clock_that_is_ahead(store: CardStore) -> None:
    assert store.keep([card(state="running"), card(state="unknown"), card(id="w-2", end=NOW + 9 * DAY)], NOW) == 0
    assert not store.path.exists() and store.named("4711") == ()


def test_a_card_of_a_part_of_its_life_does_not_replace_the_whole(store: CardStore) -> None:
    store.keep([card()], NOW)
    assert store.keep([card(gpu_hours=4.0)], NOW + DAY) == 0
    assert store.named("4711")[0].gpu_hours == 16.0
    assert compared_with_kept(store, card(gpu_hours=4.0)).gpu_hours == 16.0
    assert store.keep([card(gpu_hours=17.0)], NOW + DAY) == 1


def test_what_is_older_than_its_retention_goes(tmp_path: Path) -> None:
    store = CardStore(tmp_path / "cards.db", retention_seconds=10 * DAY)
    store.keep([card()], NOW)
    store.keep([card(id="w-2", end=NOW + 11 * DAY)], NOW + 11 * DAY)
    assert [one.id for one in store.listed(0.0)] == ["w-2"]


def test_a_foreign_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    before = path.read_bytes()
    for act in (lambda: CardStore(path).keep([card()], NOW), lambda: CardStore(path).named("x")):
        with pytest.raises(StoreError):
            act()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE cards SET card = x'00ff'", "UPDATE cards SET card = zeroblob(60000)", "UPDATE cards SET card = 'text'",
        "CREATE TRIGGER t AFTER INSERT ON cards BEGIN DELETE FROM cards; END", "UPDATE cards SET ended_at = 'soon'",
    ],
)  # fmt: skip
def test_a_store_that_somebody_changed_is_refused_in_a_sentence(store: CardStore, change: str) -> None:
    store.keep([card()], NOW)
    with sqlite3.connect(store.path) as other:
        other.execute(change)
    with pytest.raises(StoreError):
        store.named("4711")
