"""Runs `skuwise` with the arguments given, and counts what its threads and its children use between two moments.

    python -m skuwise.benchmarks.performance.agent.observed_run FROM UNTIL agent run ...

Seconds are counted from the start. One line of JSON goes to stdout: CPU seconds of the loop's thread, of the driver's,
of the whole process and of the children that ended meanwhile, the ticks of the loop, and the process's resident bytes.
"""

import json
import resource
import sys
import threading
import time
from pathlib import Path

from skuwise.__main__ import main as skuwise

_PAGE_BYTES = resource.getpagesize()


def snapshot() -> dict[str, float]:
    """CPU seconds so far. A thread has its own clock (pthread_getcpuclockid)."""
    start_times = {"at": time.monotonic(), "process": time.process_time(), "loop": 0.0, "driver": 0.0}
    names = {"MainThread": "loop", "loop": "loop", "nvml": "driver"}
    for thread in threading.enumerate():
        if thread.name in names and thread.ident is not None:
            start_times[names[thread.name]] += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    start_times["children"] = children.ru_utime + children.ru_stime
    return start_times


def observe(start: float, end: float, lines: list[str]) -> None:
    time.sleep(start)
    before = snapshot()
    time.sleep(end - start)
    after = snapshot()
    used = {name: after[name] - before[name] for name in after}
    used["rss_bytes"] = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
    lines.append(json.dumps(used))


def main() -> int:
    lines: list[str] = []
    start, end = float(sys.argv[1]), float(sys.argv[2])
    thread = threading.Thread(target=observe, args=(start, end, lines), daemon=True)
    thread.start()
    status = skuwise(sys.argv[3:])
    thread.join()
    print(lines[0])
    return status


if __name__ == "__main__":
    sys.exit(main())
