"""Processes that are begun before it is known what they read: they are used, or ended."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
from skuwise.__main__ import main
from skuwise.advisor.core.frame import Window
from skuwise.advisor.simulate.simulator import simulate
from skuwise.advisor.telemetry.source import Databases
from skuwise.advisor.telemetry.sqlite.database import Parts
from skuwise.advisor.telemetry.sqlite.helpers import BYTES_A_FILE, BYTES_A_PROCESS, Helpers, weight_of, worth_processes
from skuwise.advisor.telemetry.sqlite.opening import ReadingProcess
from skuwise.advisor.telemetry.sqlite.parallel_read import read_parallel
from skuwise.rules.base.command import Command
from skuwise.rules.base.errors import UsageError
from skuwise.rules.catalog.loader import load_catalog

UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
NOT_OURS = ("/bin/sh", "-c", "exit 3")


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate("idle", tmp_path_factory.mktemp("fleet") / "fleet.db", days=1, until=UNTIL).files[0]


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


def made_of(source: Databases) -> pd.DataFrame:
    return source.read(load_catalog(), since=86400.0, until=None, now=UNTIL).gpu


def test_as_many_processes_as_the_files_are_worth() -> None:
    assert worth_processes([], 8) == 1
    assert worth_processes([2 * BYTES_A_PROCESS - 1], 8) == 1
    assert worth_processes([BYTES_A_PROCESS, BYTES_A_PROCESS], 8) == 2
    assert worth_processes([BYTES_A_FILE] * 1000, 8) == 8


def test_what_was_begun_reads_the_same_and_is_gone_afterwards(database: Path) -> None:
    before, usual = children(), made_of(Databases((database,)))
    source = Databases((database,), 2)
    with source.prepared():
        source.begun.helpers.begin(1)
        assert len(children() - before) == 2
        pd.testing.assert_frame_equal(made_of(source), usual)
        assert children() == before
    pd.testing.assert_frame_equal(made_of(source), usual)  # what was begun is used once


def test_nothing_helps_where_hours_were_kept_or_the_file_is_small(database: Path, tmp_path: Path) -> None:
    before = children()
    for source in (Databases((database,), 8), Databases((database,), 8, kept=tmp_path)):
        with source.prepared():
            assert len(children() - before) == 1  # the process that opens files
        assert children() == before


def test_what_cannot_be_read_is_told_by_reading_it(tmp_path: Path) -> None:
    before = children()
    source = Databases((tmp_path / "none.db",), 2)
    with source.prepared(), pytest.raises(UsageError, match=r"none\.db"):
        made_of(source)
    empty = Databases((tmp_path,), 2)
    with empty.prepared(), pytest.raises(UsageError, match=r"No \*\.db file"):
        made_of(empty)
    assert children() == before


def test_one_that_ended_while_it_waited_is_done_without(database: Path) -> None:
    before, helpers = children(), Helpers(NOT_OURS)
    helpers.begin(1)
    waiting = psutil.Process((children() - before).pop())
    ends = time.monotonic() + 60
    while waiting.status() != psutil.STATUS_ZOMBIE and time.monotonic() < ends:
        time.sleep(0.01)
    window = Window(UNTIL - 86400.0, UNTIL)
    spans = {database: (window.start, window.end)}
    with ReadingProcess() as apart:
        told, alone = (
            read_parallel(spans, window, 10, n, apart, bytes_a_process=weight_of(database) // 2, helpers=helpers)
            for n in (2, 1)
        )
    assert isinstance(told[database], Parts) and isinstance(alone[database], Parts)
    hours, all_hours = (pd.concat(one[database].tables["gpu"])["ts"].unique() for one in (told, alone))  # type: ignore[union-attr]
    assert sorted(hours) == sorted(all_hours) and len(hours) > 20
    assert children() == before


def test_one_that_a_thread_was_left_with_ends_with_the_command(database: Path) -> None:
    """The terminal is quit while a thread waits for what a process reads."""
    before, source = children(), Databases((database,), 2)
    source.begun.helpers = Helpers(("/bin/sleep", "600"))
    with source.prepared():
        helper = source.begun.helpers.take()
        assert helper is not None
        answers: list[object] = []
        waiting = threading.Thread(target=lambda: answers.append(helper.answer()))
        waiting.start()
    waiting.join(60)
    assert answers == [None] and source.begun.helpers.take() is None
    assert children() == before
    with source.prepared():
        assert source.begun.helpers.take() is not None
    assert children() == before


def test_where_no_process_can_be_begun_one_reads_alone() -> None:
    helpers = Helpers((f"/no/such/program/{os.getpid()}",))
    helpers.begin(2)
    assert helpers.take() is None
    helpers.close()


def test_a_command_that_does_not_run_long_leaves_its_garbage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "collecting.py").write_text(
        "import gc\n\ndef configure(parser):\n    pass\n\ndef run(options):\n    return int(gc.isenabled())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    commands = {"short": Command("collecting", "ends soon"), "long": Command("collecting", "goes on", runs_long=True)}
    assert gc.isenabled()
    assert main(["short"], commands) == 0
    assert main(["long"], commands) == 1
    assert gc.isenabled()
