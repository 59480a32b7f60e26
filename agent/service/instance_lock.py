"""One agent per database: a lock that a living agent holds, and that a wedged one cannot hold for ever.

The lock is ``flock`` on ``DATABASE.lock``; the file also says who holds it, when the agent last restarted itself and
until when it is paused. A process whose GPU call never returns cannot die: SIGKILL waits for the driver, and so do its
lock and its open files. It will never run again, though, so whoever finds such a holder removes the lock's name, sets
the database aside and begins a new file. A holder that may still run is never passed over.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ...rules.base.errors import StoreError
from ..store.database import SetAside, set_database_aside
from ..store.disk_errors import opening_error

WAIT_SECONDS = 15.0  # a predecessor that is being stopped writes its last ticks and rollups
_POLL_SECONDS = 0.1
_SIGKILL_BIT = 1 << 8  # SIGKILL is 9; bit n - 1 of the mask
_MOST_BYTES = 4096
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Holder:
    """What the lock file says. `started` is the process's start in clock ticks since boot: PIDs are used again.

    Times are Unix seconds; `restarted_at`: when an agent last ended by itself so as to be started again;
    `paused_until`: when a pause ends that outlives a restart.
    """

    pid: int = 0
    started: int = 0
    restarted_at: float = 0.0
    paused_until: float = 0.0


class InstanceLock:
    """The right to write one database, once `take` got it, and what outlives a restart.

    `aside`: the database of a wedged agent that was set aside. Until the lock is held nobody knows when the agent last
    ended by itself: `restarted_at` is then the time it began, so that it does not end by itself within the hour.
    """

    def __init__(
        self,
        database: Path,
        *,
        procfs: Path = _PROC,
        now: Callable[[], float] = time.time,
        wait: Callable[[float], bool] = lambda _: True,
    ) -> None:
        self.aside: SetAside | None = None
        self._database, self._procfs, self._now, self._wait = database, procfs, now, wait
        self._path = database.with_name(database.name + ".lock")
        self._descriptor = -1
        self._holder = Holder(restarted_at=now())
        self._paused_until: float | None = None  # noted before there was a lock

    def take(self) -> None:
        """Lock the database, where that is not done. The first call waits a little for an agent that is about to end, by
        `wait`, which is given seconds and returns True where there is no time.

        Raises StoreError where another agent holds it, or the lock cannot be made (a PassingError where that may pass).
        """
        left = WAIT_SECONDS
        while self._descriptor < 0:
            try:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
            except OSError as error:
                raise opening_error(self._path, error) from error
            locked = _lock(descriptor) and self._is_still(descriptor)
            holder = _read(descriptor)
            if locked:
                until = holder.paused_until if self._paused_until is None else self._paused_until
                self._descriptor = descriptor
                started = _started(_PROC, os.getpid()) or 0
                self._holder = Holder(os.getpid(), started, holder.restarted_at, until)
                self._write()
                break
            wedged = self.aside is None and is_wedged(self._procfs, holder) and self._is_still(descriptor)
            os.close(descriptor)
            if wedged:
                self._pass_over(holder)
                continue
            if left <= 0 or self._wait(_POLL_SECONDS):
                raise StoreError(
                    f"Another agent (PID {holder.pid or 'unknown'}) writes {self._database}.",
                    "Stop it, or name another file with --db.",
                )
            left -= _POLL_SECONDS
        self._wait = lambda _: True  # the loop cannot wait for another agent

    @property
    def restarted_at(self) -> float:
        return self._holder.restarted_at

    @property
    def paused_until(self) -> float:
        return self._holder.paused_until

    def note_restart(self, ts: float) -> bool:
        """Remember that we end by ourselves now, so that the next agent does not do so within the hour. Whether that
        could be written down."""
        self._holder = replace(self._holder, restarted_at=ts)
        return self._write()

    def note_pause(self, until: float) -> None:
        """Remember a pause (0.0: its end), so that a restart does not take up what was let go."""
        self._paused_until = until
        self._holder = replace(self._holder, paused_until=until)
        self._write()

    def release(self) -> None:
        """Let go. The file stays: removing it would let two agents lock two files of one name. Idempotent."""
        if self._descriptor >= 0:
            self._holder = replace(self._holder, pid=0, started=0)
            self._write()
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self) -> bool:
        if self._descriptor < 0:
            return False
        text = json.dumps(asdict(self._holder)).encode().ljust(256)
        try:
            return os.pwrite(self._descriptor, text, 0) == len(text)
        except OSError:  # a full disk: the lock itself holds without its text
            return False

    def _is_still(self, descriptor: int) -> bool:
        """Whether the name still means the file that we opened."""
        try:
            return os.path.samestat(self._path.lstat(), os.fstat(descriptor))
        except OSError:
            return False

    def _pass_over(self, holder: Holder) -> None:
        """Take the wedged holder's lock away by its name, keep what it remembered, and set its database aside."""
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._path.write_text(json.dumps(asdict(replace(holder, pid=0, started=0))), encoding="ascii")
        if self._database.exists():
            why = f"the agent that wrote it (PID {holder.pid}) hangs in the driver and cannot end"
            self.aside = set_database_aside(self._database, why, "wedged", self._now())


def is_wedged(procfs: Path, holder: Holder) -> bool:
    """Whether the holder was told to die (SIGKILL is pending, or it is dead but for a thread) and cannot."""
    folder = procfs / str(holder.pid)
    if not holder.pid or _started(procfs, holder.pid) != holder.started:
        return False
    try:
        state = _stat(folder)[0]
        tasks = list((folder / "task").iterdir())
    except OSError:
        return False
    return any(_kill_waits(task) for task in tasks) or (state in ("Z", "X") and len(tasks) > 1)


def _started(procfs: Path, pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None where there is none."""
    try:
        return int(_stat(procfs / str(pid))[19])
    except (OSError, ValueError, IndexError):
        return None


def _stat(folder: Path) -> list[str]:
    """The fields after the name, which may hold anything, a parenthesis too."""
    return (folder / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()


def _kill_waits(task: Path) -> bool:
    try:
        lines = (task / "status").read_text(encoding="utf-8", errors="replace").splitlines()
        masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
        return _stat(task)[0] == "D" and any(mask & _SIGKILL_BIT for mask in masks)
    except (OSError, ValueError, IndexError):
        return False


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: the writer's own hand-over is what is left
    return True


def _read(descriptor: int) -> Holder:
    try:
        said = json.loads(os.pread(descriptor, _MOST_BYTES, 0) or b"{}")
        times = float(said.get("restarted_at", 0.0)), float(said.get("paused_until", 0.0))
        return Holder(int(said.get("pid", 0)), int(said.get("started", 0)), *times)
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return Holder()
