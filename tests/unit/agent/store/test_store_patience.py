"""A disk that does not take the database yet: what is waited for, what is kept meanwhile, and what is wrong usage."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from skuwise.agent.model import Absence, Gpu, Node, Tick, Workload, WorkloadUse
from skuwise.agent.store.file.disk_errors import PassingError, opening_error
from skuwise.agent.store.writing.deferred_writer import PatientWriter
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import StoreError
from skuwise.tests.support.stored_rows import rows

T0 = 1_800_000_000.0
NODE = Node("gpu-1", "train", "m", "b", None, None, None, None, None, 1, "0.1")


class Disk:
    """Opens the database, unless it is told to fail."""

    def __init__(self, path: Path, error: OSError | sqlite3.Error | None) -> None:
        self.path = path
        self.error = error
        self.seconds = 0.0
        self.tried = 0

    def open(self) -> Writer:
        self.tried += 1
        if self.error is not None:
            raise opening_error(self.path, self.error) from self.error
        return Writer.open(self.path)

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "node.db", OSError(errno.ENOSPC, "No space left on device"))


@pytest.fixture
def begin(disk: Disk) -> Callable[..., PatientWriter]:
    return lambda hold_ticks=600: PatientWriter(disk.open, hold_ticks=hold_ticks, monotonic=disk.monotonic)


def tick(second: int) -> Tick:
    return Tick(T0 + second, 1.0, gpus={"GPU-1": {"power_watts": 100.0 + second}}, host={"cpu_util": 0.5})


def test_a_start_on_a_full_disk_keeps_what_it_samples_until_there_is_room(
    disk: Disk, begin: Callable[..., PatientWriter]
) -> None:
    writer = begin()
    opened: list[bool] = []
    writer.when_open(lambda: opened.append(True))
    assert writer.fault is not None and writer.fault.reason == "disk-full"
    node = writer.for_node(NODE, T0)
    node.set_gpus([Gpu("GPU-1", 0, "H100")], T0)
    node.set_absences([writer.fault], T0)
    node.set_workloads([Workload("w", "s", "train", "process")], [WorkloadUse("w", "GPU-1", "process")], T0 + 1)
    node.note(Absence("source", "clock", "*", "suspended", "It slept."), T0 + 2)
    for second in range(1, 31):
        disk.seconds = float(second)
        node.add_tick(tick(second))
    assert (disk.tried, writer.waiting_ticks, opened) == (1 + 3, 30, [])
    disk.error = None
    disk.seconds = 40.0
    node.add_tick(tick(31))
    assert writer.is_open and writer.fault is None and opened == [True]
    node.set_absences([], T0 + 31)
    node.add_tick(tick(32))
    writer.close()
    assert rows(disk.path, "SELECT count(*), min(power_watts), max(power_watts) FROM gpu_samples") == [(32, 101, 132)]
    assert rows(disk.path, f"SELECT reason, since - {T0}, until - {T0} FROM absences ORDER BY since") == [
        ("disk-full", 0, 31), ("suspended", 2, 2)
    ]  # fmt: skip
    assert rows(disk.path, "SELECT count(*) FROM workload_gpus") == [(1,)]
    assert writer.lost_ticks == 0


def test_what_waits_is_bounded_and_the_gap_is_recorded(disk: Disk, begin: Callable[..., PatientWriter]) -> None:
    writer = begin(hold_ticks=50)
    node = writer.for_node(NODE, T0)
    node.set_gpus([Gpu("GPU-1", 0, "H100")], T0)
    for second in range(1, 2001):
        node.add_tick(tick(second))
    assert (writer.waiting_ticks, writer.lost_ticks) == (50, 1950)
    disk.error = None
    writer.close()
    assert rows(disk.path, f"SELECT count(*), min(ts) - {T0} FROM gpu_samples") == [(50, 1951)]
    assert rows(disk.path, f"SELECT reason, since - {T0}, until - {T0} FROM absences") == [("ticks-lost", 0, 1950)]


def _sqlite(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("it did not work")
    error.sqlite_errorcode, error.sqlite_errorname = code, "SQLITE_SOMETHING"
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "full"), "disk-full"),
        (OSError(errno.EROFS, "read-only"), "store-read-only"),
        (OSError(errno.EIO, "broken"), "disk-error"),
        (_sqlite(sqlite3.SQLITE_FULL), "disk-full"),
        (_sqlite(sqlite3.SQLITE_BUSY), "store-busy"),
        (_sqlite(sqlite3.SQLITE_IOERR_WRITE), "disk-error"),
        (OSError(errno.ENOENT, "no folder"), None),
        (OSError(errno.EACCES, "denied"), None),
        (_sqlite(sqlite3.SQLITE_PERM), None),
    ],
    ids=repr,
)
def test_what_passes_is_told_from_wrong_usage(
    tmp_path: Path, error: OSError | sqlite3.Error, reason: str | None
) -> None:
    told = opening_error(tmp_path / "node.db", error)
    assert (told.reason if isinstance(told, PassingError) else None) == reason
    assert told.remedy


def test_a_folder_that_is_not_there_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file") as raised:
        PatientWriter(lambda: Writer.open(tmp_path / "none" / "node.db"))
    assert not isinstance(raised.value, PassingError)
    cannot = _sqlite(sqlite3.SQLITE_CANTOPEN)
    assert not isinstance(opening_error(tmp_path / "none" / "node.db", cannot), PassingError)
    assert isinstance(opening_error(tmp_path / "node.db", cannot), PassingError)
