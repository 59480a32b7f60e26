"""The terminal: first paint and overview as a process on a terminal of its own.

Each run begins once without a cache and once with what that run left. Of one node, or of the database that is named.

Usage: python -m skuwise.benchmarks.performance.advisor.screens [RUNS] [DATABASE]
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

from skuwise.benchmarks.generators.first import simulate

UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
PATIENCE_SECONDS = 120.0


def start(db: Path, cache: Path) -> tuple[float, float]:
    """Seconds from the start of the process until the first page and until the overview stand on the terminal.

    It is let go on until the source has been read, too, and has left `cache`.
    """
    begun = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm-256color", "XDG_CACHE_HOME": str(cache)}
        command = [sys.executable, "-m", "skuwise", "tui", "--db", str(db), "--no-ledger"]
        os.execv(sys.executable, command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    told, paint, overview = b"", 0.0, 0.0
    before = newest(cache)
    try:
        while time.perf_counter() - begun < PATIENCE_SECONDS:
            if select.select([terminal], [], [], 1.0)[0]:
                told += os.read(terminal, 1 << 16)
            paint = paint or (time.perf_counter() - begun if b"Overview" in told else 0.0)
            overview = overview or (time.perf_counter() - begun if b"recoverable" in told else 0.0)
            if overview and newest(cache) > before:
                return paint, overview
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)
    raise SystemExit("the overview never came")


def newest(cache: Path) -> float:
    """When the last look was kept, Unix seconds; 0.0: none was."""
    return max((path.stat().st_mtime for path in cache.glob("skuwise/looks/[!.]*")), default=0.0)


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    times: dict[str, list[tuple[float, float]]] = {"without a cache": [], "with what the last run left": []}
    with tempfile.TemporaryDirectory() as folder:
        db = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(folder) / "node.db"
        if not db.exists():
            simulate("fine-tuning", db, days=14, seed=0, until=UNTIL)
        for run in range(runs):
            for taken in times.values():
                taken.append(start(db, Path(folder) / f"cache{run}"))
    for how, runs_taken in times.items():
        for name, taken in zip(("first page", "overview"), zip(*runs_taken, strict=True), strict=True):
            told = f"{statistics.median(taken):.2f} s ({min(taken):.2f} to {max(taken):.2f})"
            print(f"{name} {how}, {db.name}: {told}, {runs} runs")


if __name__ == "__main__":
    main()
