"""One state file of several processes, and one on a full disk."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skuwise.tests.support.ledger_builders import kept, propose
from skuwise.tests.support.ledger_processes import MOVE, NOW, advise, fill


def in_processes(target: Callable[..., None], *arguments: tuple[Any, ...]) -> list[Any]:
    """What each process puts into the queue that it is given last."""
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    children = [spawn.Process(target=target, args=(*given, answers)) for given in arguments]
    for child in children:
        child.start()
    received = [answers.get(timeout=120) for _ in children]
    for child in children:
        child.join(60)
    return received


def test_several_advisors_begin_one_file_and_lose_nothing(tmp_path: Path) -> None:
    names = ("ann", "bob", "eve")
    assert in_processes(advise, *((tmp_path / "skuwise", who) for who in names)) == [[], [], []]
    (path,) = (tmp_path / "skuwise").glob("*.db")
    entries = kept(path)
    assert len(entries) == 1 + 3 * 6
    assert all([e.act for e in entry.events].count("proposed") == 1 for entry in entries.values())
    assert [sum(e.by == who for e in entries[MOVE.id].events) for who in names] == [6, 6, 6]


def test_on_a_full_disk_the_file_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    propose(path, MOVE, now=NOW)
    before = kept(path)
    (answer,) = in_processes(fill, (path, path.stat().st_size))
    assert "make room on the disk" in answer
    assert kept(path) == before
