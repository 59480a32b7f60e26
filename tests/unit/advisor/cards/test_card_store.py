"""Kept cards: what goes in comes out, whatever it is called; what is not ours is refused; kills lose nothing."""

from __future__ import annotations

import sqlite3
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.cards.card_json import packed
from skuwise.advisor.cards.kept import compared_with_kept
from skuwise.advisor.cards.runs import Run, named_run
from skuwise.advisor.cards.store import CardStore
from skuwise.advisor.core.naming import AmbiguousError
from skuwise.rules.base.errors import NothingToDo, StoreError
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


ONE = Run("w-1f2e3d4c", "s-1", "train-7b", 1000.0, 5000.0, "slurm", "4711", cluster="eu", nodes=("n1",))
TASKS = [
    replace(ONE, id=f"w-aaaa{n}", name="sweep", job_id=f"{4800 + n}", task=f"4800_{n}", array_job_id="4800")
    for n in range(1, 4)
]
POD = Run("w-bbbb0001", "s-2", "chat", 0.0, 9.0, "kubernetes", namespace="ads", pod="chat-7f9c", nodes=("n2",))
ALL = [ONE, *TASKS, POD]


@pytest.mark.parametrize(
    ("asked", "id_"),
    [
        ("w-1f2e3d4c", "w-1f2e3d4c"), ("1f2e", "w-1f2e3d4c"), ("4711", "w-1f2e3d4c"), ("eu/4711", "w-1f2e3d4c"),
        ("4711@eu", "w-1f2e3d4c"), ("train-7b", "w-1f2e3d4c"), ("4800_2", "w-aaaa2"), ("4802", "w-aaaa2"),
        ("chat-7f9c", "w-bbbb0001"), ("ads/chat-7f9c", "w-bbbb0001"), (" chat ", "w-bbbb0001"),
    ],
)  # fmt: skip
def test_a_job_is_found_by_all_that_it_is_called(asked: str, id_: str) -> None:
    assert named_run(asked, ALL, str).run.id == id_


@pytest.mark.parametrize("asked", ["4800", "sweep"])
def test_several_jobs_are_listed(asked: str) -> None:
    with pytest.raises(AmbiguousError) as raised:
        named_run(asked, ALL, str)
    assert {one.id for one in raised.value.found} == {one.id for one in TASKS}


def test_of_a_requeued_job_it_is_the_newest_run() -> None:
    again = replace(ONE, id="w-2222", start=6000.0, end=7000.0)
    chosen = named_run("4711", [ONE, again], str)
    assert chosen.run.id == "w-2222" and [one.id for one in chosen.others] == [ONE.id]


@pytest.mark.parametrize("asked", ["train-8b", "9999", "us/4711", "", "n1", "';DROP TABLE cards;--"])
def test_what_names_nothing_is_nothing_to_work_on(asked: str) -> None:
    with pytest.raises(NothingToDo) as raised:
        named_run(asked, [], str, lambda: ALL)
    assert raised.value.exit_status == 3
    if asked == "train-8b":
        assert "train-7b" in raised.value.remedy
