"""Runs a target to its end whatever its reader does: a worker that stands still is killed, counted, and begun anew."""

from __future__ import annotations

import collections
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from .target import Target
from .worker import KEPT_EACH, Told, Work, start

HANG_SECONDS = 10.0
# Caches of bounded size fill while a process reads; what grows by more is a leak.
GROWTH_BYTES = 200 * 2**20
PREPARE_SECONDS = 300.0
_WARM = 2000
_LOOK_SECONDS = 0.05


@dataclass
class Report:
    """What became of a target's mutations. `growth_bytes`: of a worker's memory from its warm-up to its end."""

    target: str
    mutations: int = 0
    read: int = 0
    refused: int = 0
    failures: int = 0
    hangs: int = 0
    growth_bytes: float = 0.0
    start_bytes: float = 0.0
    peak_bytes: float = 0.0
    peak_at: int = 0
    slowest_seconds: float = 0.0
    slowest_at: int = 0
    seconds: float = 0.0
    faults: list[dict[str, object]] = field(default_factory=list)

    @property
    def grew(self) -> bool:
        return self.growth_bytes > GROWTH_BYTES

    @property
    def good(self) -> bool:
        return not (self.failures or self.hangs or self.grew)

    def kinds(self) -> list[tuple[str, int]]:
        return collections.Counter(str(fault["signature"]) for fault in self.faults).most_common()


@dataclass
class _Running:
    pid: int
    told: Told
    work: Work
    last: int
    since: float


class HarnessError(Exception):
    """The harness itself failed: a target that cannot be prepared."""


def run_target(target: Target, mutations: int, seed: int, jobs: int = 1, hang_seconds: float = HANG_SECONDS) -> Report:
    """All mutations of a target, in `jobs` processes side by side."""
    mutations = mutations if target.most is None else min(mutations, target.most)
    report = Report(target.name)
    began = time.monotonic()
    with _scratch() as folder:
        faults = folder / "faults.jsonl"
        edges = [mutations * n // jobs for n in range(jobs + 1)]
        running: list[_Running] = []
        try:
            for n, (first, last) in enumerate(pairwise(edges)):
                if first < last:
                    work = Work(target, seed, Told(), folder / f"w{n}", faults)
                    running.append(_begin(work, first, last))
            while running:
                time.sleep(_LOOK_SECONDS)
                running = [after for one in running if (after := _look(one, report, hang_seconds)) is not None]
        finally:
            for one in running:
                _kill(one.pid)
        if faults.exists():
            lines = faults.read_text(encoding="utf-8").splitlines()
            report.faults = [json.loads(line) for line in lines] + report.faults
    report.seconds = time.monotonic() - began
    report.failures = len(report.faults) - report.hangs
    return report


def _begin(work: Work, first: int, last: int) -> _Running:
    warm = min(_WARM, (last - first) // 10)
    said = work.faults.with_name(f"{work.folder.name}.stderr")
    return _Running(start(work, first, last, warm, said), work.told, work, last, time.monotonic())


def _look(one: _Running, report: Report, hang_seconds: float) -> _Running | None:
    """The worker as it goes on; None: it is done."""
    pid, status = os.waitpid(one.pid, os.WNOHANG)
    told = one.told
    number, since = int(told["number"]), told["since"]
    if pid == 0:
        now = time.monotonic()
        if not told["ready"] and now - one.since > PREPARE_SECONDS:
            _kill(one.pid)
            raise HarnessError(f"{one.work.target.name} is not prepared in {PREPARE_SECONDS:g} s")
        if not since or now - since <= hang_seconds:
            return one
        _kill(one.pid)
        _take(report, told)
        report.hangs += 1
        return _again(one, report, number, f"hang: more than {hang_seconds:g} s")
    _take(report, told)
    if os.WIFSIGNALED(status):
        return _again(one, report, number, f"killed by signal {os.WTERMSIG(status)}")
    if os.WEXITSTATUS(status):
        said = one.work.faults.with_name(f"{one.work.folder.name}.stderr").read_text(errors="replace")
        if not told["since"]:
            raise HarnessError(f"{one.work.target.name}: {said[-4000:]}")
        return _again(one, report, number, f"ended itself: {said[-2000:]}")
    told.close()
    return None


def _again(one: _Running, report: Report, number: int, what: str) -> _Running | None:
    report.mutations += 1
    report.faults.append({"number": number, "input": "", "signature": what.partition("\n")[0], "detail": what})
    shutil.rmtree(one.work.folder, ignore_errors=True)
    one.told.close()
    if number + 1 >= one.last:
        return None
    old = one.work
    return _begin(Work(old.target, old.seed, Told(), old.folder, old.faults), number + 1, one.last)


def _take(report: Report, told: Told) -> None:
    report.mutations += int(told["done"])
    report.read += int(told["read"])
    report.refused += int(told["refused"])
    report.start_bytes = max(report.start_bytes, told["start_rss"])
    if told["warm_rss"]:
        report.growth_bytes = max(report.growth_bytes, told["rss"] - told["warm_rss"])
    if told["peak_rss"] > report.peak_bytes:
        report.peak_bytes, report.peak_at = told["peak_rss"], int(told["peak_at"])
    if told["slowest"] > report.slowest_seconds:
        report.slowest_seconds, report.slowest_at = told["slowest"], int(told["slowest_at"])


def _kill(pid: int) -> None:
    """The worker and what it started: it leads a session of its own."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@contextmanager
def _scratch() -> Iterator[Path]:
    shared = Path("/dev/shm")  # files in memory, where there are any
    base = shared if os.access(shared, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="skuwise-fuzz.", dir=base))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep(report: Report, folder: Path, seed: int) -> list[Path]:
    """Write the bytes of faults, some of each origin, and how to repeat them."""
    kept: list[Path] = []
    counts: collections.Counter[str] = collections.Counter()
    for fault in report.faults:
        signature = str(fault["signature"])
        counts[signature] += 1
        if counts[signature] > KEPT_EACH:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{report.target}-{seed}-{fault['number']}"
        if "bytes" in fault:
            path.with_suffix(".bin").write_bytes(bytes.fromhex(str(fault["bytes"])))
        about = (
            f"{signature}\ninput: {fault['input']}\n"
            f"python -m skuwise.benchmarks.fuzzing replay {report.target} {seed} {fault['number']}\n\n"
        )
        path.with_suffix(".txt").write_text(about + str(fault.get("detail", "")), encoding="utf-8", errors="replace")
        kept.append(path.with_suffix(".txt"))
    return kept
