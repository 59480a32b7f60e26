"""One state file of several processes, and one on a full disk."""

import multiprocessing
import resource
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from skuwise.advisor.state.fleets import StateBeside
from skuwise.rules.base.errors import SkuwiseError
from skuwise.tests.support.ledger_builders import advice_with, decide, kept, propose, recommendation
from skuwise.tests.support.report_fixtures import IDENTITY

NOW = 1_790_000_000.0
MOVE, FLEET = recommendation(), replace(IDENTITY, start=NOW - 86400.0, end=NOW)


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


def advise(folder: Path, who: str, answers: Any) -> None:
    said: list[str] = []
    try:
        for n in range(6):
            beside = StateBeside(said.append, folder=folder).of(FLEET)
            advice = advice_with(MOVE, recommendation(f"r-{who}-{n}"), end=NOW + n)
            beside.note(replace(advice, fleet=FLEET), NOW + n)
            assert beside.state is not None
            decide(beside.state.path, MOVE.id, "accepted", NOW + n, by=who)
    except SkuwiseError as error:
        said.append(f"failed: {error}")
    answers.put([line for line in said if "recorded in" not in line])


def test_several_advisors_begin_one_file_and_lose_nothing(tmp_path: Path) -> None:
    names = ("ann", "bob", "eve")
    assert in_processes(advise, *((tmp_path / "skuwise", who) for who in names)) == [[], [], []]
    (path,) = (tmp_path / "skuwise").glob("*.db")
    entries = kept(path)
    assert len(entries) == 1 + 3 * 6
    assert all([e.act for e in entry.events].count("proposed") == 1 for entry in entries.values())
    assert [sum(e.by == who for e in entries[MOVE.id].events) for who in names] == [6, 6, 6]


def fill(path: Path, limit: int, answers: Any) -> None:
    """Write to files that may not grow beyond `limit` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        propose(path, *(recommendation(f"r-{n}", text="x" * 2000) for n in range(99)), now=NOW)
        answers.put("")
    except SkuwiseError as error:
        answers.put(str(error))


def test_on_a_full_disk_the_file_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "fleet.db"
    propose(path, MOVE, now=NOW)
    before = kept(path)
    (answer,) = in_processes(fill, (path, path.stat().st_size))
    assert "make room on the disk" in answer
    assert kept(path) == before
