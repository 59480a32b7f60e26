"""Files read by several processes side by side: making tables of rows keeps one core busy, and holds Python's lock.

Small files are dealt out whole; of a large one each process reads the hours of a part of the window. A child is given
its share on stdin and answers on stdout, so that whoever reads a frame needs no guard around its main module. Its
stdout is a file without a name: a pipe would hold it up until this process has read its own share. What a child fails
to answer is read here. No file is opened by any of them: each has its own `ReadingProcess`, which does.
"""

from __future__ import annotations

import gc
import io
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np

from ....agent.base.self_command import child_command
from ....agent.store.reading.bounds import disk_bytes
from ....rules.base.progress import Steps, no_steps
from ...core.frame import Window
from ..resolution import HOUR
from .database import HOURS, Parts, Shared, Span, read_each, read_part
from .ipc import Told, read_told, write_told
from .kept_hours import DAY, KeptHours
from .reading_process import ReadingProcess

# Bytes of databases that are worth a process: it takes as long to start as this process takes to read half as many.
BYTES_A_PROCESS = 24 << 20
# What a file costs beside its bytes, as bytes.
_BYTES_A_FILE = 1 << 20
# The children take a while to start: their share of the files is smaller by so much, and so is their part of a window.
_LATE_SHARE, _OWN_PART = 0.2, 1.25


def read_parallel(
    spans: Mapping[Path, Span],
    window: Window,
    refined: int,
    processes: int,
    apart: ReadingProcess,
    *,
    steps: Steps = no_steps,
    kept: KeptHours | None = None,
    bytes_a_process: int = BYTES_A_PROCESS,
    command: tuple[str, ...] = (),
) -> Told:
    """What `read_each` tells of these files, in their order, from up to `processes` processes.

    `spans`: of each file what it holds data for. `steps`: files read. `kept`: where hours are kept.
    `bytes_a_process`: what is worth a process.
    `command`: another program than this module's, to be told and to answer as it does.
    """
    done = 0

    def read(count: int = 1) -> None:
        nonlocal done
        done += count
        steps(done, len(spans))

    weights = {path: disk_bytes(path) + _BYTES_A_FILE for path in spans}
    if kept is not None:
        weights |= {
            path: _BYTES_A_FILE for path, weight in weights.items() if weight > bytes_a_process and kept.has(path)
        }
    shares = dealt(weights, max(1, min(processes, sum(weights.values()) // bytes_a_process)))
    large = [path for path in spans if not any(path in share for share in shares)]
    # Days that are to be kept are read whole.
    begin = window.start if kept is None else math.floor(window.start / DAY) * DAY
    cuts = {path: _cuts(spans[path], Window(begin, window.end), len(shares)) for path in large}
    children = [
        _Child(
            share,
            {path: cut[n + 1] for path, cut in cuts.items()},
            window,
            refined,
            kept,
            command or child_command(__name__),
        )
        for n, share in enumerate(shares[1:])
    ]
    try:
        told = read_each(shares[0], window, refined, apart, read=read, kept=kept)
        for path in large:
            rest = cuts[path][1:]

            def beside(path: Path = path, rest: Sequence[Span] = rest) -> Iterator[Parts | Span]:
                for child, part in zip(children, rest, strict=True):
                    yield child.part(path) or part

            told |= read_each(
                [path], window, refined, apart, read=read, shared=Shared(cuts[path][0], beside), kept=kept
            )
        for child in children:
            told |= child.files() or read_each(child.paths, window, refined, apart, kept=kept)
            read(len(child.paths))
    finally:
        for child in children:
            child.end()
    return {path: told[path] for path in spans}


def dealt(weights: Mapping[Path, int], processes: int) -> list[list[Path]]:
    """The files of each process, this one first. One that outweighs what a process should have is in none of them: it
    is cut. `weights`: in bytes."""
    if processes == 1:
        return [list(weights)]
    total = sum(weights.values())
    # This process reads on while the others start, write and are read: their share is smaller by that.
    load = [0.0, *[_LATE_SHARE * total / processes] * (processes - 1)]
    shares: list[list[Path]] = [[] for _ in load]
    for path, weight in weights.items():
        if weight <= total / processes:
            least = load.index(min(load))
            shares[least].append(path)
            load[least] += weight
    return shares


def _cuts(span: Span, window: Window, count: int) -> list[Span]:
    """The parts of the window, in full hours, by which `count` processes read a file that holds data for `span`."""
    start, end = max(window.start, span[0]), min(window.end, span[1])
    weights = np.cumsum([0.0, _OWN_PART, *[1.0] * (count - 1)])
    inner = np.floor((start + (end - start) * weights / weights[-1]) / HOUR) * HOUR
    edges = [window.start, *inner[1:-1].tolist(), window.end]
    return list(pairwise(edges))


class _Child:
    """A process that reads some of the files, and of some the hours of a part of the window."""

    def __init__(  # noqa: PLR0917
        self,
        paths: Sequence[Path],
        parts: Mapping[Path, Span],
        window: Window,
        refined: int,
        kept: KeptHours | None,
        command: Sequence[str],
    ) -> None:
        self.paths = paths
        self._told: tuple[Told, Told] | None = None
        self._is_answered = False
        self._process: subprocess.Popen[bytes] | None = None
        self._answer: IO[bytes] = io.BytesIO()
        task = {
            "paths": [str(path) for path in paths], "parts": {str(path): list(part) for path, part in parts.items()},
            "window": [window.start, window.end], "refined": refined,
            "kept": None if kept is None or kept.folder.path is None else str(kept.folder.path),
        }  # fmt: skip
        try:
            self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
            self._process = subprocess.Popen(  # noqa: S603 - our own module, but in tests
                command, stdin=subprocess.PIPE, stdout=self._answer, stderr=subprocess.DEVNULL
            )
            self._process.stdin.write(json.dumps(task).encode())  # type: ignore[union-attr]
            self._process.stdin.close()  # type: ignore[union-attr]
        except OSError:
            self.end()
            self._process = None
        self._wanted = set(parts)

    def files(self) -> Told | None:
        """What it read of its files; None where it failed to."""
        told = self._all()
        return None if told is None else told[0]

    def part(self, path: Path) -> Parts | None:
        """What it read of its part of a file, once; None where it failed to."""
        told = self._all()
        part = None if told is None else told[1].pop(path, None)
        return part if isinstance(part, Parts) else None

    def _all(self) -> tuple[Told, Told] | None:
        if not self._is_answered:
            self._is_answered = True
            self._told = self._read()
        return self._told

    def _read(self) -> tuple[Told, Told] | None:
        if self._process is None or self._process.wait() != 0:
            return None
        self._answer.seek(0)
        try:
            files, parts = read_told(self._answer), read_told(self._answer)
        except (OSError, ValueError):
            return None
        return (files, parts) if (set(files), set(parts)) == (set(self.paths), self._wanted) else None

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._answer.close()


def main() -> None:
    """The child: its share on stdin, the tables on stdout."""
    gc.disable()  # it ends before garbage matters, and looking for it took a sixth of the time
    task = json.load(sys.stdin)
    kept = KeptHours.at(Path(task["kept"]), HOURS) if task["kept"] else None
    with ReadingProcess() as apart:
        told = read_each(
            [Path(path) for path in task["paths"]], Window(*task["window"]), task["refined"], apart, kept=kept
        )
        parts = {Path(path): read_part(Path(path), (part[0], part[1]), apart) for path, part in task["parts"].items()}
    write_told(told, sys.stdout.buffer)
    write_told(parts, sys.stdout.buffer)


if __name__ == "__main__":
    main()
