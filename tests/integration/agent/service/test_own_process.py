"""What the agent says of its own process, against what psutil says of it."""

from __future__ import annotations

import subprocess
import sys

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
