"""One agent per database: a lock that a living agent holds, and that a wedged one cannot hold for ever.

The lock is ``flock`` on ``DATABASE.lock``. A process whose GPU call never returns cannot die: SIGKILL waits for the
driver, and so do its lock and its open files. The next agent that finds such a holder removes the lock's name, sets the
database aside and begins a new file. A holder that may still run is never passed over.
"""

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from ...rules.base.errors import StoreError
from ..jobs.processes import read_ascii
from ..store.database import SetAside, set_database_aside
from ..store.disk_errors import disk_error

_SIGKILL_BIT = 1 << 8  # SIGKILL is 9; bit n - 1 of the mask


class Holder(msgspec.Struct, frozen=True):
    """What the lock file says. Times are Unix seconds; `restarted_at`: when an agent last ended by itself so as to be
    started again; `paused_until`: when a pause ends that outlives a restart."""

    pid: int = 0
    restarted_at: float = 0.0
    paused_until: float = 0.0


class InstanceLock:
    """The right to write one database, once `take` got it, and what outlives a restart (`memory`). Until the
    lock is held, the memory has the time it began as that of the last restart, so that the agent does not end by itself
    within the hour."""

    def __init__(self, database: Path, *, procfs: Path = Path("/proc"), now: Callable[[], float] = time.time) -> None:
        self._aside: SetAside | None = None
        self.memory = Holder(restarted_at=now())
        self.database, self._procfs, self._now = database, procfs, now
        self._path = database.with_name(database.name + ".lock")
        self._descriptor = -1

    def take(self) -> SetAside | None:
        """Lock the database, where that is not done. Returns that of a wedged agent which was set aside. Raises
        StoreError where another agent holds it, or it cannot be."""
        while self._descriptor < 0:
            try:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
            except OSError as error:
                raise disk_error(self._path, error) from error
            is_locked = True
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_locked = False
            except OSError:  # a file system without locks
                pass
            try:
                holder = msgspec.json.decode(os.pread(descriptor, 4096, 0) or b"{}", type=Holder)
            except (OSError, msgspec.MsgspecError):
                holder = Holder()
            is_named = os.fstat(descriptor).st_nlink > 0  # else another agent has just taken the name away
            if is_locked and is_named:
                self._descriptor = descriptor
                until = self.memory.paused_until or holder.paused_until
                self.remember(pid=os.getpid(), restarted_at=holder.restarted_at, paused_until=until)
                break
            os.close(descriptor)
            if is_named:
                self._pass_over(holder)
        return self._aside

    def close(self) -> None:
        """Release the lock. The file stays: removing it would let two agents lock two files of one name. Idempotent."""
        if self._descriptor >= 0:
            self.remember(pid=0)
            os.close(self._descriptor)
            self._descriptor = -1

    def remember(self, **changes: float) -> bool:
        """Note for the agent after this one that we restart, or until when it is paused (0.0: no more). Whether it
        worked."""
        self.memory = msgspec.structs.replace(self.memory, **changes)
        try:
            return os.pwrite(self._descriptor, msgspec.json.encode(self.memory).ljust(256), 0) > 0
        except OSError:  # no lock yet, or a full disk: the lock itself holds without its text
            return False

    def _pass_over(self, holder: Holder) -> None:
        """Take a wedged holder's lock away by its name, keep what it remembered, and set its database aside."""
        if not is_wedged(self._procfs, holder.pid):
            raise StoreError(
                f"Another agent (PID {holder.pid or 'unknown'}) writes {self.database}.",
                "Stop it, or name another file with --db.",
            )
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._path.write_bytes(msgspec.json.encode(msgspec.structs.replace(holder, pid=0)))
        if self.database.exists():
            why = f"the agent that wrote it (PID {holder.pid}) hangs in the driver and cannot end"
            self._aside = set_database_aside(self.database, why, "wedged", self._now())


def is_wedged(procfs: Path, pid: int) -> bool:
    """Whether a process was killed (SIGKILL is pending, or it is dead but for a thread) and cannot."""
    texts = {path.name: read_ascii(path / "status") for path in procfs.glob(f"{pid}/task/*")}
    if re.search(r"^State:\s*[ZX]", texts.get(str(pid), ""), re.MULTILINE) and len(texts) > 1:
        return True
    for text in texts.values():
        pending = [int(mask, 16) for mask in re.findall(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)", text, re.MULTILINE)]
        if re.search(r"^State:\s*D", text, re.MULTILINE) and any(mask & _SIGKILL_BIT for mask in pending):
            return True
    return False
