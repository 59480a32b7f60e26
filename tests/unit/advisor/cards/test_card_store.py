"""Kept cards: what goes in comes out, whatever it is called; what is not ours is refused; kills lose nothing."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from skuwise.advisor.cards.card_json import MOST_BYTES, packed, unpacked
from skuwise.advisor.cards.kept import compared_with_kept, kept_card, with_kept_ones
from skuwise.advisor.cards.store import CardStore, default_cards
from skuwise.advisor.core.naming import AmbiguousError
from skuwise.advisor.core.verdict_types import Owner
from skuwise.advisor.ledger.file.paths import default_ledgers
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.card_cases import HOSTILE, HOUR, card

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


@pytest.mark.parametrize("asked", ["w-1f2e3d4c5b6a7988", "1f2e", "4711", "eu/4711", "train-7b"])
def test_it_is_found_by_what_it_is_called(store: CardStore, asked: str) -> None:
    store.keep([card(), card(id="w-999", name="other", job_id="4712", series_id="s-2")], NOW)
    found = kept_card(store, asked, str)
    assert found is not None and found.id == card().id


def test_tasks_of_an_array_are_several(store: CardStore) -> None:
    store.keep([card(id=f"w-a{n}", job_id=f"4800_{n}", name="sweep") for n in range(3)], NOW)
    with pytest.raises(AmbiguousError):
        kept_card(store, "4800", str)
    found = kept_card(store, "4800_1", str)
    assert found is not None and found.id == "w-a1"


def test_a_job_that_runs_is_not_kept_nor_one_of_a_clock_that_is_ahead(store: CardStore) -> None:
    assert store.keep([card(state="running"), card(state="unknown"), card(id="w-2", end=NOW + 9 * DAY)], NOW) == 0
    assert not store.path.exists() and store.named("4711") == ()


def test_a_card_of_a_part_of_its_life_does_not_replace_the_whole(store: CardStore) -> None:
    store.keep([card()], NOW)
    assert store.keep([card(gpu_hours=4.0)], NOW + DAY) == 0
    assert store.named("4711")[0].gpu_hours == 16.0
    assert compared_with_kept(store, card(gpu_hours=4.0)).gpu_hours == 16.0
    assert store.keep([card(gpu_hours=17.0)], NOW + DAY) == 1


def test_lists_go_beyond_telemetry(store: CardStore) -> None:
    bob = card(id="w-b", owner=Owner(user="bob"), series_id="s-b")
    old = card(id="w-old", start=card().start - 30 * DAY, end=card().end - 30 * DAY)
    store.keep([card(), bob, old], NOW)
    owners = {"user": "ann", "account": None, "namespace": None}
    assert {one.id for one in with_kept_ones(store, [card()], NOW - DAY, None, **owners)} == {card().id}
    assert {one.id for one in with_kept_ones(store, [], NOW - 60 * DAY, None, **owners)} == {card().id, "w-old"}


def test_what_is_older_than_its_retention_goes(tmp_path: Path) -> None:
    store = CardStore(tmp_path / "cards.db", retention_seconds=10 * DAY)
    store.keep([card()], NOW)
    store.keep([card(id="w-2", end=NOW + 11 * DAY)], NOW + 11 * DAY)
    assert [one.id for one in store.listed(0.0)] == ["w-2"]


def test_hostile_names_are_bounded_and_no_sql(store: CardStore) -> None:
    name = f"x'); DROP TABLE cards; --{HOSTILE * 500}\ud800"
    store.keep([card(name=name, job_id=name, owner=Owner(user=name), nodes=(name,) * 3)], NOW)
    assert len(store.named(card().id)) == 1 and store.named(name) == ()
    assert store.path.stat().st_size < 200_000


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


def test_what_unpacks_to_more_than_a_card_is_refused() -> None:
    import zlib

    squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = squeeze.compress(b"[" * (MOST_BYTES * 100)) + squeeze.flush()
    for kept in (bomb, b"", packed(card())[:-9], bomb[:40]):
        with pytest.raises(ValueError):
            unpacked(kept, None)


def test_it_lies_beside_the_ledgers() -> None:
    for environ in ({"HOME": "/h"}, {"HOME": "/h", "XDG_STATE_HOME": "/s"}, {"XDG_STATE_HOME": "relative"}, {}):
        ledger = default_ledgers(environ)
        assert default_cards(environ) == (ledger.with_name("cards.db") if ledger else None)


_WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from skuwise.advisor.cards.store import CardStore
from skuwise.tests.support.card_cases import card
for n in range(100_000):
    CardStore(Path(sys.argv[1])).keep([card(id=f"w-{n:06}")], card().end + 60)
    print(n, flush=True)
"""


@pytest.mark.slow
def test_a_killed_writer_loses_no_card_that_it_kept(tmp_path: Path) -> None:
    path, known = tmp_path / "cards.db", 0
    for after in (1, 3, 7, 12):
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        for _ in range(after):
            known = max(known, int(writer.stdout.readline()))
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        kept = {one.id for one in CardStore(path).listed(0.0)}
        assert {f"w-{n:06}" for n in range(known + 1)} <= kept
