"""One agent per database, also where the one before hangs in the driver and cannot die."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from pathlib import Path

import psutil
import pytest
from skuwise.agent.service.exporter.process_stats import resident_bytes, started_ts
from skuwise.agent.service.runtime.notify import Notifier
from skuwise.agent.service.runtime.run_database import DatabaseLock, Holder, is_wedged
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import StoreError


def proc(
    root: Path, pid: int, *, state: str, pending: int = 0, threads: tuple[str, ...] = (), started: int = 777
) -> None:
    """A process as /proc shows it; the main thread in `state`, the others in `threads`' states."""
    for number, one in enumerate((state, *threads)):
        task = root / str(pid) / "task" / str(pid + number)
        task.mkdir(parents=True)
        fields = [one, *["0"] * 18, "777", "0", "0"]
        (task / "stat").write_text(f"{pid + number} (sku) wise) {' '.join(fields)}\n")
        (task / "status").write_text(f"Name:\tskuwise\nSigPnd:\t{pending:016x}\nShdPnd:\t{pending:016x}\n")
    (root / str(pid) / "stat").write_text((root / str(pid) / "task" / str(pid) / "stat").read_text())


@pytest.mark.parametrize(
    ("state", "pending", "threads", "wedged"),
    [
        ("S", 0, ("D",), False),  # hangs in the driver, but nobody told it to die
        ("S", 0x100, ("D",), True),
        ("D", 0x100, (), True),
        ("Z", 0, ("D",), True),  # dead but for the thread that hangs
        ("Z", 0, (), False),
        ("R", 0x100, (), False),  # about to die
    ],
)
def test_who_cannot_die_is_told_from_who_does_not_want_to(
    tmp_path: Path, state: str, pending: int, threads: tuple[str, ...], wedged: bool
) -> None:
    proc(tmp_path, 40, state=state, pending=pending, threads=threads)
    assert is_wedged(tmp_path, Holder(40, 777)) is wedged
    assert not is_wedged(tmp_path, Holder(40, 778))  # another process with the same number
    assert not is_wedged(tmp_path, Holder(41, 777))
    assert not is_wedged(tmp_path, Holder())


def held_by(database: Path, holder: Holder) -> int:
    """The lock of `database`, held by a descriptor of ours that stands for another process."""
    descriptor = os.open(database.with_name(database.name + ".lock"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, json.dumps({"pid": holder.pid, "started": holder.started, "restarted_at": 5.0}).encode())
    return descriptor


def test_a_wedged_agent_keeps_its_file_and_a_new_one_is_begun(tmp_path: Path) -> None:
    database = tmp_path / "node.db"
    old = Writer.open(database)
    proc(tmp_path / "proc", 40, state="S", pending=0x100, threads=("D",))
    descriptor = held_by(database, Holder(40, 777))
    with DatabaseLock.take(database, procfs=tmp_path / "proc", wait_seconds=0.0, now=lambda: 1.8e9) as instance:
        assert instance.aside is not None
        assert instance.aside.kept_as.name == "node.db.wedged-20270115T080000Z"
        assert instance.restarted_at == 5.0  # what the lock remembered is not lost
        with Writer.open(database):
            pass
        with pytest.raises(StoreError, match="Another agent"):
            DatabaseLock.take(database, procfs=tmp_path / "proc", wait_seconds=0.0)
    os.close(descriptor)
    with pytest.raises(StoreError, match="replaced"):
        old.close()  # should it ever wake up, it writes nothing
    with sqlite3.connect(instance.aside.kept_as) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_living_agent_is_never_passed_over(tmp_path: Path) -> None:
    database = tmp_path / "node.db"
    with DatabaseLock.take(database), pytest.raises(StoreError, match=f"PID {os.getpid()}"):
        DatabaseLock.take(database, wait_seconds=0.3, sleep=lambda _: None)
    assert not list(tmp_path.glob("*wedged*"))
    with DatabaseLock.take(database, wait_seconds=0.0) as again:
        assert again.aside is None


def test_a_predecessor_that_is_about_to_end_is_waited_for(tmp_path: Path) -> None:
    database = tmp_path / "node.db"
    first = DatabaseLock.take(database)
    first.note_restart(123.0)
    first.note_pause(456.0)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            first.release()

    with DatabaseLock.take(database, sleep=sleep) as second:
        assert len(slept) == 3
        assert (second.restarted_at, second.paused_until) == (123.0, 456.0)


def test_memory_and_start_are_those_of_this_process() -> None:
    own = psutil.Process()
    assert resident_bytes() == pytest.approx(own.memory_info().rss, rel=0.1)
    assert started_ts() == pytest.approx(own.create_time(), abs=2.0)  # psutil takes the boot's time in whole seconds


def test_who_starts_us_again_is_systemd_or_the_kubelet() -> None:
    assert not Notifier({}).supervised
    assert Notifier({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}).supervised
    notifier = Notifier({"NOTIFY_SOCKET": "@nobody-listens"})
    assert notifier.supervised
    notifier.close()
