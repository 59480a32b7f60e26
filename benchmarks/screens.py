"""The terminal: first paint and overview of one node as a process on a terminal of its own, and keys at 10,000 rows.

Usage: python benchmarks/screens.py [RUNS]
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import resource
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path

from skuwise.advisor.simulate.simulator import simulate
from skuwise.tests.fleet_on_screen import NOW, HandLoader, many
from skuwise.tui.app import SkuwiseApp
from skuwise.tui.widgets.table import ItemTable

UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
ROWS = 10_000
PATIENCE_SECONDS = 120.0


def start(db: Path) -> tuple[float, float]:
    """Seconds from the start of the process until the first page and until the overview stand on the terminal."""
    begun = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "skuwise", "tui", "--db", str(db), "--no-ledger"])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    told, paint = b"", 0.0
    try:
        while time.perf_counter() - begun < PATIENCE_SECONDS:
            if select.select([terminal], [], [], 1.0)[0]:
                told += os.read(terminal, 1 << 16)
            paint = paint or (time.perf_counter() - begun if b"Overview" in told else 0.0)
            if b"recoverable in cash" in told:
                return paint, time.perf_counter() - begun
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)
    raise SystemExit("the overview never came")


async def keys() -> None:
    app = SkuwiseApp(HandLoader(held=many(ROWS)), clock=lambda: NOW)
    async with app.run_test(size=(160, 50)) as pilot:
        while app.state.loaded is None:
            await pilot.pause(0.05)
        app.action_page("workloads")
        await pilot.pause()
        table = app.screen.query_one(ItemTable)
        actions: dict[str, tuple[Callable[[], object], int]] = {
            "down": (lambda: table.action_move(1), 50),
            "page down": (lambda: table.action_page(1), 50),
            "sort by the next column": (table.action_sort, 22),
            "search": (lambda: table.filter("job 12"), 10),
            "search for nothing": (lambda: table.filter(""), 10),
        }
        for name, (act, times) in actions.items():
            taken = [await painted(table, act) for _ in range(times)]
            print(f"{name}: {statistics.median(taken) * 1e3:.0f} ms ({max(taken) * 1e3:.0f} at most) until painted")
    print(f"RSS at most: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


async def painted(table: ItemTable, act: Callable[[], object]) -> float:
    """Seconds from what a key does until the screen is drawn."""
    done = asyncio.Event()
    begun = time.perf_counter()
    act()
    table.call_after_refresh(done.set)
    await done.wait()
    return time.perf_counter() - begun


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "node.db"
        simulate("fine-tuning", db, days=14, seed=0, until=UNTIL)
        times = [start(db) for _ in range(runs)]
    for name, taken in zip(("first page", "overview of one node"), zip(*times, strict=True), strict=True):
        print(f"{name}: {statistics.median(taken):.2f} s ({min(taken):.2f} to {max(taken):.2f}), {runs} runs")
    print(f"{ROWS:,} workloads in the table, 160 x 50:")
    asyncio.run(keys())


if __name__ == "__main__":
    main()
