"""Files read by several processes side by side: making tables of rows keeps one core busy, and holds Python's lock.

A child is given its files on stdin and answers on stdout, so that whoever reads a frame needs no guard around its main
module. Its stdout is a file without a name: a pipe would hold it up until this process has read its own share. What a
child fails to answer is read here. No file is opened by any of them: each has its own `ReadingProcess`, which does.
"""

from __future__ import annotations

import gc
import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ....agent.base.self_command import child_command
from ....rules.base.progress import Steps, no_steps
from ...core.frame import Window
from .database import read_each
from .ipc import Told, read_told, write_told
from .reading_process import ReadingProcess

# Files that are worth a process: it takes as long to start as this process takes to read half as many.
FILES_A_PROCESS = 12


def read_parallel(
    paths: Sequence[Path],
    window: Window,
    refined: int,
    processes: int,
    apart: ReadingProcess,
    *,
    steps: Steps = no_steps,
) -> Told:
    """What `read_each` tells of these files, in their order, from up to `processes` processes. `steps`: files read."""
    done = 0

    def read(count: int = 1) -> None:
        nonlocal done
        done += count
        steps(done, len(paths))

    count = max(1, min(processes, len(paths) // FILES_A_PROCESS))
    # This process reads on while the others start, write and are read: their share is smaller by that.
    ahead = FILES_A_PROCESS if count > 1 else 0
    shares = [paths[ahead + n :: count] for n in range(count)]
    shares[0] = [*paths[:ahead], *shares[0]]
    children = [_Child(share, window, refined) for share in shares[1:]]
    try:
        told = read_each(shares[0], window, refined, apart, read)
        for child in children:
            told |= child.answer() or read_each(child.paths, window, refined, apart)
            read(len(child.paths))
    finally:
        for child in children:
            child.end()
    return {path: told[path] for path in paths}


class _Child:
    """A process that reads some of the files."""

    def __init__(self, paths: Sequence[Path], window: Window, refined: int) -> None:
        self.paths = paths
        self._process: subprocess.Popen[bytes] | None = None
        self._answer: IO[bytes] = io.BytesIO()
        task = {"paths": [str(path) for path in paths], "window": [window.start, window.end], "refined": refined}
        try:
            self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                child_command(__name__), stdin=subprocess.PIPE, stdout=self._answer, stderr=subprocess.DEVNULL
            )
            self._process.stdin.write(json.dumps(task).encode())  # type: ignore[union-attr]
            self._process.stdin.close()  # type: ignore[union-attr]
        except OSError:
            self.end()
            self._process = None

    def answer(self) -> Told | None:
        """What it read; None where it failed to."""
        if self._process is None or self._process.wait() != 0:
            return None
        self._answer.seek(0)
        try:
            told = read_told(self._answer)
        except (OSError, ValueError):
            return None
        return told if set(told) == set(self.paths) else None

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._answer.close()


def main() -> None:
    """The child: files on stdin, their tables on stdout."""
    gc.disable()  # it ends before garbage matters, and looking for it took a sixth of the time
    task = json.load(sys.stdin)
    with ReadingProcess() as apart:
        told = read_each([Path(path) for path in task["paths"]], Window(*task["window"]), task["refined"], apart)
    write_told(told, sys.stdout.buffer)


if __name__ == "__main__":
    main()
