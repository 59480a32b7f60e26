"""Many files read by several processes side by side: making tables of rows holds Python's lock."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from pathlib import Path

from ....agent.store.reading.bounds import disk_bytes
from ....rules.base.errors import SkuwiseError, StoreError
from ....rules.base.progress import Steps, no_steps
from ...core.frame import Window
from ..resolution import HOUR
from .database import Parts, read_database
from .open import open_database

# Bytes of databases that are worth a process: it takes as long to start as this process takes to read half as many.
BYTES_A_PROCESS = 24 << 20
# What a file costs beside its bytes, as bytes.
_BYTES_A_FILE = 1 << 20
# What a process may hold beside what it begins with: 2 MB of a node's file take some 20 MB.
_MEMORY_BYTES = 1 << 30


def read_file(path: Path, window: Window, refined: int, resolution: float = HOUR) -> Parts | SkuwiseError:
    """The tables of one database, or why it cannot be read."""
    try:
        with open_database(path) as reader:
            return read_database(reader, window, refined, resolution)
    except SkuwiseError as error:
        return error
    except MemoryError:
        return StoreError(f"{path} cannot be read: it takes too much memory.", "Leave the file out.")


def read_files(
    paths: Sequence[Path],
    window: Window,
    refined: int,
    *,
    resolution: float = HOUR,
    processes: int = 1,
    steps: Steps = no_steps,
    bytes_a_process: int = BYTES_A_PROCESS,
) -> dict[Path, Parts | SkuwiseError]:
    """Each database by itself, in their order. `processes`: how many may read, this one among them; `bytes_a_process`:
    what is worth one; `steps`: files read, of all. What another process fails to answer is read here."""
    weights = {path: disk_bytes(path) + _BYTES_A_FILE for path in paths}
    helpers = min(processes, len(paths), sum(weights.values()) // bytes_a_process) - 1
    found: dict[Path, Parts | SkuwiseError] = {}
    waiting: dict[Path, Future[Parts | SkuwiseError]] = {}
    # Others take the largest first, while this process reads the smallest.
    queue = deque(sorted(paths, key=lambda path: -weights[path]))
    # A fork begins with all that is loaded; where other threads run, it may begin with a lock that one of them holds.
    context = multiprocessing.get_context("fork" if threading.active_count() == 1 else "forkserver")
    with ProcessPoolExecutor(helpers, context, initializer=_begin) if helpers > 0 else nullcontext() as pool:
        while queue or waiting:
            try:
                while pool is not None and queue and len(waiting) < 2 * helpers:
                    waiting[queue[0]] = pool.submit(read_file, queue[0], window, refined, resolution)
                    queue.popleft()
            except BrokenProcessPool:
                helpers = 0
            if queue:
                path = queue.pop()
                found[path] = read_file(path, window, refined, resolution)
            for path in [path for path, future in waiting.items() if future.done() or not queue]:
                future = waiting.pop(path)
                is_read = not isinstance(future.exception(), BrokenProcessPool)
                found[path] = future.result() if is_read else read_file(path, window, refined, resolution)
                steps(len(found), len(paths))
            steps(len(found), len(paths))
    return {path: found[path] for path in paths}


def _begin() -> None:
    gc.disable()  # a process ends before garbage matters, and looking for it took a sixth of the time
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        held = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (held + _MEMORY_BYTES, held + _MEMORY_BYTES))
