"""Processes that help to read, begun before it is known what they read.

They take as long to load what they need as this process takes to load what it needs: begun first, they are ready when
the first database has been looked at. Each is given its share on stdin, once, and answers on stdout, so that whoever
reads a frame needs no guard around its main module. Its stdout is a file without a name: a pipe would hold it up until
this process has read its own share.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from ....agent.base.self_command import child_command
from ....agent.store.reading.bounds import disk_bytes

_MODULE = "skuwise.advisor.telemetry.sqlite.parallel_read"
# Bytes of databases that are worth a process: it takes as long to start as this process takes to read half as many.
BYTES_A_PROCESS = 24 << 20
# What a file costs beside its bytes, as bytes.
BYTES_A_FILE = 1 << 20


def weight_of(path: Path) -> int:
    """What reading a database costs, as bytes."""
    return disk_bytes(path) + BYTES_A_FILE


def worth_processes(weights: Iterable[int], processes: int, bytes_a_process: int = BYTES_A_PROCESS) -> int:
    """How many of these processes, this one among them, databases of such weights are worth."""
    return max(1, min(processes, sum(weights) // bytes_a_process))


class Helper:
    """One such process. Raises OSError where none can be begun."""

    def __init__(self, command: Sequence[str]) -> None:
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, but in tests
                command, stdin=subprocess.PIPE, stdout=self._answer, stderr=subprocess.DEVNULL
            )
        except OSError:
            self._answer.close()
            raise

    def tell(self, task: Mapping[str, object]) -> None:
        """What to read. Raises OSError where it has ended."""
        assert self._process.stdin is not None
        with self._process.stdin as given:
            given.write(json.dumps(task).encode())

    def answer(self) -> IO[bytes] | None:
        """What it wrote, once it has ended; None where it failed."""
        if self._process.wait() != 0:
            return None
        self._answer.seek(0)
        return self._answer

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        """Idempotent, and from any thread."""
        self._process.kill()
        with contextlib.suppress(OSError):  # what it was not told is not told now
            self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()
        self._answer.close()


class Helpers:
    """Those that wait for their share. `command`: another program than ours, to be told and to answer as it does.

    For several threads. Whoever takes one ends it, or the program does with `end`: a thread that reads may never come
    to its own end.
    """

    def __init__(self, command: Sequence[str] = ()) -> None:
        self._command = command or child_command(_MODULE)
        self._lock = threading.Lock()
        self._idle: list[Helper] = []
        self._taken: list[Helper] = []
        self._over = False

    def begin(self, count: int) -> None:
        """Have so many wait. Where none can be begun, whoever takes one finds out."""
        with self._lock, contextlib.suppress(OSError):
            self._over = False
            self._idle += [Helper(self._command) for _ in range(count - len(self._idle))]

    def take(self) -> Helper | None:
        """One of them, or a new one; None where no process can be begun, or after `end`."""
        with self._lock, contextlib.suppress(OSError):
            if not self._over:
                taken = self._idle.pop() if self._idle else Helper(self._command)
                self._taken = [one for one in self._taken if not one.has_ended] + [taken]
                return taken
        return None

    def close(self) -> None:
        """End those that wait still. Idempotent."""
        with self._lock:
            while self._idle:
                self._idle.pop().end()

    def end(self) -> None:
        """End all of them, and let none begin until `begin`."""
        self.close()
        with self._lock:
            self._over = True
            while self._taken:
                self._taken.pop().end()
