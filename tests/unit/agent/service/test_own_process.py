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


def test_memory_and_start_are_those_of_this_process() -> None:
    own = psutil.Process()
    assert resident_bytes() == pytest.approx(own.memory_info().rss, rel=0.1)
    assert started_ts() == pytest.approx(own.create_time(), abs=2.0)  # psutil takes the boot's time in whole seconds
