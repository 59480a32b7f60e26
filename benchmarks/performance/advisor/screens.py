"""The terminal: first paint and overview as a process on its own terminal, and keys at 10,000 rows.

Each run begins once without a cache and once with what that run left. Of one node, or of the database that is named.

Usage: python -m skuwise.benchmarks.performance.advisor.screens [RUNS] [DATABASE]
"""

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
from collections.abc import Callable, Mapping
from pathlib import Path

from skuwise.benchmarks.generators.first import simulate
from skuwise.tests.support.fleet_on_screen import NOW, HandLoader, many, wide
from skuwise.tui.app import SkuwiseApp
from skuwise.tui.widgets.table import ItemTable, SearchTable
from textual.widget import Widget

UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
ROWS = 10_000
PATIENCE_SECONDS = 120.0


def start(db: Path, cache: Path) -> tuple[float, float]:
    """Seconds from the start of the process until the first page and until the overview stand on the terminal.

    It goes on until the source has been read and has left `cache`.
    """
    begun = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= {"TERM": "xterm-256color", "XDG_CACHE_HOME": str(cache)}
        command = [sys.executable, "-m", "skuwise", "tui", "--db", str(db), "--no-ledger"]
        os.execv(sys.executable, command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    output, paint, overview = b"", 0.0, 0.0
    before = newest(cache)
    try:
        while time.perf_counter() - begun < PATIENCE_SECONDS:
            if select.select([terminal], [], [], 1.0)[0]:
                output += os.read(terminal, 1 << 16)
            paint = paint or (time.perf_counter() - begun if b"Overview" in output else 0.0)
            overview = overview or (time.perf_counter() - begun if b"Recoverable" in output else 0.0)
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


async def keys() -> None:
    loader = HandLoader(held=wide(many(ROWS), 1_000))
    app = SkuwiseApp(loader, clock=lambda: NOW)
    async with app.run_test(size=(160, 50)) as pilot:
        while app.state.loaded is None:
            await pilot.pause(0.05)
        app.action_page("workloads")
        await pilot.pause(0.5)
        table = app.screen.query_one(ItemTable)
        finder = app.screen.query_one(SearchTable)
        await told(
            table,
            {
                "down": (table.action_cursor_down, 50),
                "page down": (table.action_page_down, 50),
                "sort by the next column": (table.action_sort, 22),
                "open the search": (finder.action_find, 1),
                "search": (lambda: table.filter("job 12"), 10),
                "search for nothing": (lambda: table.filter(""), 10),
            },
        )
    print(f"RSS at most: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


async def told(widget: Widget, actions: Mapping[str, tuple[Callable[[], object], int]]) -> None:
    for name, (act, times) in actions.items():
        taken = [await painted(widget, act) for _ in range(times)]
        wall, used = ([1e3 * sample[n] for sample in taken] for n in (0, 1))
        print(
            f"{name}: {statistics.median(wall):.0f} ms ({max(wall):.0f} at most) until painted, "
            f"{statistics.median(used):.0f} ms ({max(used):.0f}) of processor"
        )


async def painted(widget: Widget, act: Callable[[], object]) -> tuple[float, float]:
    """Seconds from what a key does until the screen is drawn, and of processor."""
    done = asyncio.Event()
    begun, used = time.perf_counter(), time.process_time()
    act()
    widget.app.call_after_refresh(done.set)
    await done.wait()
    return time.perf_counter() - begun, time.process_time() - used


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
            figure = f"{statistics.median(taken):.2f} s ({min(taken):.2f} to {max(taken):.2f})"
            print(f"{name} {how}, {db.name}: {figure}, {runs} runs")
    if len(sys.argv) > 2:
        return
    print(f"{ROWS:,} workloads in the table, 160 x 50:")
    asyncio.run(keys())


if __name__ == "__main__":
    main()
