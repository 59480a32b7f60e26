"""The database of a run: locked and open, or still to be while its disk takes nothing.

One agent per database: a lock that a living agent holds, and that a wedged one cannot hold for ever.

The lock is ``flock`` on ``DATABASE.lock``; the file also says who holds it and when the agent last restarted itself. A
process whose GPU call never returns cannot die: SIGKILL waits for the driver, and so do its lock and its open files. It
will never run again, though, so whoever finds such a holder removes the lock's name, sets the database aside and begins
a new file. A holder that may still run is never passed over.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ...rules.base.errors import StoreError
from ..base.retention_limits import Limits
from ..store.database import SetAside, set_database_aside
from ..store.disk_errors import disk_error
from ..store.writer import Writer

WAIT_SECONDS = 15.0  # a predecessor that is being stopped writes its last ticks and rollups
_POLL_SECONDS = 0.1
_SIGKILL_BIT = 1 << 8  # SIGKILL is 9; bit n - 1 of the mask
_MOST_BYTES = 4096


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


class DatabaseLock:
    """The right to write one database. `predecessor` is what the lock file said before."""

    def __init__(self, path: Path, descriptor: int, predecessor: Holder, aside: SetAside | None) -> None:
        self.path = path
        self.predecessor = predecessor
        self.aside = aside
        self._descriptor = descriptor
        self._holder = replace(predecessor, pid=os.getpid(), started=process_start(Path("/proc"), os.getpid()) or 0)
        self._write()

    @classmethod
    def take(
        cls,
        database: Path,
        *,
        procfs: Path = Path("/proc"),
        wait_seconds: float = WAIT_SECONDS,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> DatabaseLock:
        """Lock `database`, waiting a little for an agent that is about to end.

        Raises StoreError where another agent holds it, or the lock cannot be made (a PassingError where that may
        pass). Where the holder is wedged, the database is set aside, whole, and `aside` says where.
        """
        path = database.with_name(database.name + ".lock")
        aside: SetAside | None = None
        waited = 0.0
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
            except OSError as error:
                raise disk_error(path, error) from error
            if _lock(descriptor) and _is_still(path, descriptor):
                return cls(path, descriptor, _read(descriptor), aside)
            holder = _read(descriptor)
            wedged = aside is None and is_wedged(procfs, holder) and _is_still(path, descriptor)
            os.close(descriptor)
            if wedged:
                aside = _pass_over(database, path, holder, now())
                continue
            if waited >= wait_seconds:
                raise StoreError(
                    f"Another agent (PID {holder.pid or 'unknown'}) writes {database}.",
                    "Stop it, or name another file with --db.",
                )
            sleep(_POLL_SECONDS)
            waited += _POLL_SECONDS

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
        self._holder = replace(self._holder, paused_until=until)
        self._write()

    def release(self) -> None:
        """Let go. The file stays: removing it would let two agents lock two files of one name."""
        if self._descriptor >= 0:
            self._holder = replace(self._holder, pid=0, started=0)
            self._write()
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> DatabaseLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _write(self) -> bool:
        text = json.dumps(asdict(self._holder)).encode().ljust(256)
        try:
            return os.pwrite(self._descriptor, text, 0) == len(text)
        except OSError:  # a full disk: the lock itself holds without its text
            return False


def is_wedged(procfs: Path, holder: Holder) -> bool:
    """Whether the holder was told to die (SIGKILL is pending, or it is dead but for a thread) and cannot."""
    if not holder.pid or process_start(procfs, holder.pid) != holder.started:
        return False
    try:
        state = _stat(procfs / str(holder.pid) / "stat")[0]
        tasks = list((procfs / str(holder.pid) / "task").iterdir())
    except OSError:
        return False
    return any(_kill_waits(task) for task in tasks) or (state in ("Z", "X") and len(tasks) > 1)


def process_start(procfs: Path, pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None where there is none."""
    try:
        return int(_stat(procfs / str(pid) / "stat")[19])
    except (OSError, ValueError, IndexError):
        return None


def _stat(path: Path) -> list[str]:
    """The fields after the name, which may hold anything, a parenthesis too."""
    return path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()


def _kill_waits(task: Path) -> bool:
    try:
        if _stat(task / "stat")[0] != "D":
            return False
        lines = (task / "status").read_text(encoding="utf-8", errors="replace").splitlines()
        masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    except (OSError, ValueError, IndexError):
        return False
    return any(mask & _SIGKILL_BIT for mask in masks)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: the writer's own hand-over is what is left
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the name still means the file that we locked. If not, `descriptor` is closed by the caller."""
    try:
        named = path.stat(follow_symlinks=False)
    except OSError:
        return False
    ours = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)


def _read(descriptor: int) -> Holder:
    try:
        said = json.loads(os.pread(descriptor, _MOST_BYTES, 0) or b"{}")
        return Holder(
            int(said.get("pid", 0)),
            int(said.get("started", 0)),
            float(said.get("restarted_at", 0.0)),
            float(said.get("paused_until", 0.0)),
        )
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return Holder()


def _pass_over(database: Path, path: Path, holder: Holder, now: float) -> SetAside | None:
    """Take the wedged holder's lock away by its name, keep what it remembered, and set its database aside."""
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.write_text(json.dumps(asdict(replace(holder, pid=0, started=0))), encoding="ascii")
    if not database.exists():
        return None
    why = f"the agent that wrote it (PID {holder.pid}) hangs in the driver and cannot end"
    return set_database_aside(database, why, "wedged", now)


class RunDatabase:
    """The lock, the writer, and what outlives a restart (in the lock file, once there is one).

    Raises StoreError where another agent holds the database, or it cannot be opened for a reason that does not pass.
    Without a lock nobody knows when the agent last ended by itself: `restarted_at` is then the time it began, so that
    it does not end by itself within the hour.
    """

    def __init__(self, database: Path, limits: Limits, wall: Callable[[], float]) -> None:
        self._database = database
        self._instance: DatabaseLock | None = None
        self._restarted_at = wall()
        self._paused_until: float | None = None
        self._wait_seconds = WAIT_SECONDS
        try:
            self.writer = Writer(database, before_opening=self._take_lock, max_log_bytes=limits.log_bytes)
        except BaseException:
            self.release()
            raise

    @property
    def aside(self) -> SetAside | None:
        """The database of a wedged agent that was set aside."""
        return self._instance.aside if self._instance is not None else None

    @property
    def restarted_at(self) -> float:
        return self._instance.restarted_at if self._instance is not None else self._restarted_at

    @property
    def paused_until(self) -> float:
        return self._instance.paused_until if self._instance is not None else self._paused_until or 0.0

    def note_restart(self, ts: float) -> bool:
        """See `DatabaseLock.note_restart`."""
        return self._instance is not None and self._instance.note_restart(ts)

    def note_pause(self, until: float) -> None:
        """See `DatabaseLock.note_pause`."""
        self._paused_until = until
        if self._instance is not None:
            self._instance.note_pause(until)

    def release(self) -> None:
        """Let go of the lock. Idempotent."""
        if self._instance is not None:
            self._instance.release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """At the end what waits is written and the file let go; the lock stays."""
        try:
            yield
        except BaseException:
            with suppress(StoreError):  # what went wrong first is what a person must see
                self.writer.close()
            raise
        self.writer.close()

    def __enter__(self) -> RunDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _take_lock(self) -> None:
        if self._instance is None:
            wait, self._wait_seconds = self._wait_seconds, 0.0  # the loop cannot wait for another agent
            self._instance = DatabaseLock.take(self._database, wait_seconds=wait)
            if self._paused_until is not None:
                self._instance.note_pause(self._paused_until)
