"""Work on all cores at once that touches no GPU: hashing (compute) and copying (memory). Prints its seconds.

    python -m skuwise.agent.impact.probe LOOPS PROCESSES

It stands in for a workload whose host side is fully busy: what an agent takes of the CPU, of its caches and of memory
bandwidth shows as time. What it takes of a GPU cannot show here.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time

_HASHED_BYTES = 1 << 20
_COPIED_BYTES = 16 << 20  # more than the cache that a core has for itself


def _loop(loops: int) -> None:
    hashed, source = bytes(_HASHED_BYTES), bytearray(_COPIED_BYTES)
    target = bytearray(_COPIED_BYTES)
    for _ in range(loops):
        hashlib.sha256(hashed).digest()
        target[:] = source


def main(arguments: list[str]) -> int:
    """Run and print the seconds until the last process was done."""
    loops, processes = int(arguments[0]), int(arguments[1])
    began = time.monotonic()
    children = []
    for _ in range(processes):
        pid = os.fork()
        if pid == 0:
            _loop(loops)
            os._exit(0)
        children.append(pid)
    failed = [pid for pid in children if os.waitpid(pid, 0)[1] != 0]
    print(time.monotonic() - began)  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
