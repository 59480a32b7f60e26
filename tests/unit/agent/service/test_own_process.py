"""What the agent says of its own process, against what psutil says of it."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest
from skuwise.agent.service.exporter.process_stats import resident_bytes, started_ts

_HEAPS = """
import threading
from skuwise.rules.base.heap import use_one_arena
{first}
threads = [threading.Thread(target=lambda: [b"x" * 4096 for _ in range(1000)]) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
ends = [[int(end, 16) for end in line.split()[0].split("-")] for line in open("/proc/self/maps") if " ---p " in line]
print(sum(end - start > 32 << 20 for start, end in ends))  # reserved heaps of threads
"""


def heaps(first: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _HEAPS.format(first=first)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_threads_share_one_heap() -> None:
    assert heaps("") > 0
    assert heaps("use_one_arena()") == 0


_GAPS = """
import os
from skuwise.rules.base.heap import give_back, use_one_arena

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 2**20

use_one_arena()
held = [bytes(2048) for _ in range(50_000)]
full = resident()
held[:-1] = []  # what lives on lies behind all that was freed
freed = resident()
give_back()
print(full, freed, resident())
"""


def test_what_was_freed_between_what_is_in_use_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", _GAPS], capture_output=True, text=True, check=True)
    full, freed, after = map(int, done.stdout.split())
    assert full - freed < 10
    assert full - after > 80


def test_memory_and_start_are_those_of_this_process() -> None:
    own = psutil.Process()
    assert resident_bytes() == pytest.approx(own.memory_info().rss, rel=0.1)
    assert started_ts() == pytest.approx(own.create_time(), abs=2.0)  # psutil takes the boot's time in whole seconds
