"""Files read by several processes side by side: making tables of rows keeps one core busy, and holds Python's lock.

Small files are dealt out whole; of a large one each process reads the hours of a part of the window. What a helper
fails to answer is read here.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ....rules.base.progress import Steps, no_steps
from ...core.frame import Window
from ..resolution import HOUR
from .database import HOURS, Parts, Shared, Span, read_each, read_part
from .helpers import BYTES_A_FILE, BYTES_A_PROCESS, Helper, Helpers, weight_of, worth_processes
from .ipc import Told, read_told, write_told
from .kept_hours import DAY, KeptHours

# What helpers read is written and read once more: their share of the files is smaller by so much, and so is their part
# of a window.
_LATE_SHARE, _OWN_PART = 0.2, 1.4


def read_parallel(
    spans: Mapping[Path, Span],
    window: Window,
    refined: int,
    processes: int,
    *,
    steps: Steps = no_steps,
    kept: KeptHours | None = None,
    bytes_a_process: int = BYTES_A_PROCESS,
    helpers: Helpers | None = None,
) -> Told:
    """What `read_each` tells of these files, in their order, from up to `processes` processes.

    `spans`: of each file what it holds data for. `steps`: files read. `kept`: where hours are kept.
    `bytes_a_process`: what is worth a process. `helpers`: those that wait for a share.
    """
    done = 0

    def read(count: int = 1) -> None:
        nonlocal done
        done += count
        steps(done, len(spans))

    weights = {path: weight_of(path) for path in spans}
    if kept is not None:
        weights |= {
            path: BYTES_A_FILE for path, weight in weights.items() if weight > bytes_a_process and kept.has(path)
        }
    count = worth_processes(weights.values(), processes, bytes_a_process)
    helpers = helpers or Helpers()
    shares = dealt(weights, count)
    large = [path for path in spans if not any(path in share for share in shares)]
    # Days that are to be kept are read whole.
    begin = window.start if kept is None else math.floor(window.start / DAY) * DAY
    cuts = {path: _cuts(spans[path], Window(begin, window.end), len(shares)) for path in large}
    children = [
        _Child(helpers.take(), _Task(share, {path: cut[n + 1] for path, cut in cuts.items()}, window, refined, kept))
        for n, share in enumerate(shares[1:])
    ]
    try:
        told = read_each(shares[0], window, refined, read=read, kept=kept)
        for path in large:
            rest = cuts[path][1:]

            def beside(path: Path = path, rest: Sequence[Span] = rest) -> Iterator[Parts | Span]:
                for child, part in zip(children, rest, strict=True):
                    yield child.part(path) or part

            told |= read_each([path], window, refined, read=read, shared=Shared(cuts[path][0], beside), kept=kept)
        for child in children:
            told |= child.files() or read_each(child.task.paths, window, refined, kept=kept)
            read(len(child.task.paths))
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


@dataclass(frozen=True, slots=True)
class _Task:
    """What a process is to read: files, and of others the hours of a part of the window."""

    paths: Sequence[Path]
    parts: Mapping[Path, Span]
    window: Window
    refined: int
    kept: KeptHours | None

    def written(self) -> dict[str, object]:
        folder = None if self.kept is None else self.kept.folder.path
        return {
            "paths": [str(path) for path in self.paths],
            "parts": {str(path): list(part) for path, part in self.parts.items()},
            "window": [self.window.start, self.window.end],
            "refined": self.refined,
            "kept": None if folder is None else str(folder),
        }


class _Child:
    """A process that does a task, if there is one to do it."""

    def __init__(self, helper: Helper | None, task: _Task) -> None:
        self._helper, self.task = helper, task
        self._told: tuple[Told, Told] | None = None
        self._is_answered = False
        if helper is not None:
            with contextlib.suppress(OSError):  # it has ended, which its answer tells
                helper.tell(task.written())

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
        answer = None if self._helper is None else self._helper.answer()
        if answer is None:
            return None
        try:
            files, parts = read_told(answer), read_told(answer)
        except (OSError, ValueError):
            return None
        return (files, parts) if (set(files), set(parts)) == (set(self.task.paths), set(self.task.parts)) else None

    def end(self) -> None:
        if self._helper is not None:
            self._helper.end()


def main() -> None:
    """The child: its share on stdin, the tables on stdout."""
    gc.disable()  # it ends before garbage matters, and looking for it took a sixth of the time
    task = json.load(sys.stdin)
    kept = KeptHours.at(Path(task["kept"]), HOURS) if task["kept"] else None
    told = read_each([Path(path) for path in task["paths"]], Window(*task["window"]), task["refined"], kept=kept)
    parts = {Path(path): read_part(Path(path), (part[0], part[1])) for path, part in task["parts"].items()}
    write_told(told, sys.stdout.buffer)
    write_told(parts, sys.stdout.buffer)


if __name__ == "__main__":
    main()
