"""One process that reads mutations, one after another, and tells how far it is in memory that its parent sees."""

from __future__ import annotations

import collections
import json
import mmap
import os
import resource
import struct
import sys
import time
import warnings
from pathlib import Path

from skuwise.rules.base.errors import SkuwiseError

from .target import Target, mutation
from .verdict import Fault, fault_of, fault_of_sentence, unfit

# What one mutation may take beyond what the process has when all is prepared.
MAX_GROWTH_BYTES = 1 << 30
# Faults of one origin whose bytes are kept; all are counted.
KEPT_EACH = 3
_FIELDS = ("number", "since", "done", "read", "refused", "failed", "start_rss", "warm_rss", "rss", "peak_rss",
           "slowest", "slowest_at", "ready", "peak_at")  # fmt: skip
_PAGE = resource.getpagesize()


class Told:
    """What a worker tells: numbers in shared memory. `since`: when the present mutation began (monotonic; 0: none)."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 8 * len(_FIELDS))

    def __getitem__(self, field: str) -> float:
        return struct.unpack_from("d", self._shared, 8 * _FIELDS.index(field))[0]

    def __setitem__(self, field: str, value: float) -> None:
        struct.pack_into("d", self._shared, 8 * _FIELDS.index(field), value)

    def close(self) -> None:
        self._shared.close()


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def _limit_memory() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    resource.setrlimit(resource.RLIMIT_AS, (size + MAX_GROWTH_BYTES, size + MAX_GROWTH_BYTES))


class Work:
    """Mutations `first` to `last` (not included) of a target. Faults are added to `faults`, a line of JSON each."""

    def __init__(self, target: Target, seed: int, told: Told, folder: Path, faults: Path) -> None:
        self.target, self.seed, self.told, self.faults = target, seed, told, faults
        self.folder = folder
        self._seen: collections.Counter[str] = collections.Counter()

    def run(self, first: int, last: int, warm: int) -> None:
        told = self.told
        _quiet()
        self.folder.mkdir(parents=True, exist_ok=True)
        prepared = self.target.prepare(self.folder)
        for seed in prepared.seeds:  # what is honest is read: else nothing is tried
            try:
                prepared.read(seed.name, seed.data)
            except Exception as error:
                raise AssertionError(f"the honest {seed.name} is not read: {error}") from error
        _limit_memory()
        told["start_rss"] = told["rss"] = rss_bytes()
        told["ready"] = 1
        parent = os.getppid()
        for number in range(first, last):
            if os.getppid() != parent:  # nobody waits for it any more
                return
            chosen, data = mutation(prepared, self.target.name, self.seed, number)
            told["number"] = number
            began = time.monotonic()
            told["since"] = began
            self._one(prepared.read, chosen.name, data, number)
            took = time.monotonic() - began
            told["since"] = 0
            told["done"] += 1
            if took > told["slowest"]:
                told["slowest"], told["slowest_at"] = took, number
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            if peak > told["peak_rss"] + (1 << 24):
                told["peak_at"] = number
            told["peak_rss"] = max(peak, told["peak_rss"])
            if number - first == warm:
                told["warm_rss"] = rss_bytes()
        told["rss"] = rss_bytes()

    def _one(self, read, name: str, data: bytes, number: int) -> None:
        told = self.told
        try:
            read(name, data)
        except SkuwiseError as error:
            if why := unfit(error):
                self._fault(fault_of_sentence(error, why), name, data, number)
            else:
                told["refused"] += 1
        except self.target.refusals:
            told["refused"] += 1
        except Exception as error:
            self._fault(fault_of(error), name, data, number)
        else:
            told["read"] += 1

    def _fault(self, fault: Fault, name: str, data: bytes, number: int) -> None:
        self.told["failed"] += 1
        self._seen[fault.signature] += 1
        line: dict[str, object] = {"number": number, "input": name, "signature": fault.signature}
        if self._seen[fault.signature] <= KEPT_EACH:
            line |= {"detail": fault.detail, "bytes": data.hex() if len(data) < 1 << 17 else data[: 1 << 17].hex()}
        with self.faults.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def start(work: Work, first: int, last: int, warm: int, stderr: Path) -> int:
    """Fork it, in a session of its own. Gives its pid."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setsid()
        said = os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)
        work.run(first, last, warm)
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _quiet() -> None:
    warnings.simplefilter("ignore")
