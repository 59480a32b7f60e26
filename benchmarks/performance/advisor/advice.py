"""Advice over 14 days from SQLite, as a whole process: start of Python, imports, reading, judging, printing.

Usage: python -m skuwise.benchmarks.performance.advisor.advice [RUNS]
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from skuwise.benchmarks.generators.first import simulate

UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
SCENARIOS = ("decode", "founding", "small")


def nodes_in(db: Path) -> int:
    import sqlite3

    with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as connection:
        return int(connection.execute("SELECT count(*) FROM nodes").fetchone()[0])


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as name:
        for scenario in SCENARIOS:
            db = Path(name) / f"{scenario}.db"
            began = time.perf_counter()
            simulate(scenario, db, days=14, seed=1, until=UNTIL)
            made = time.perf_counter() - began
            command = [sys.executable, "-m", "skuwise", "advise", "--db", str(db), "--format", "json"]
            walls = []
            for _ in range(runs):
                began = time.perf_counter()
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                walls.append(time.perf_counter() - began)
                assert '"schema": "skuwise.advice/1"' in done.stdout
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            print(
                f"{scenario}: {nodes_in(db)} nodes, 14 days: advice in {statistics.median(walls):.2f} s "
                f"({min(walls):.2f} to {max(walls):.2f}, {runs} runs); peak so far {peak:.0f} MiB; "
                f"simulated in {made:.1f} s, {db.stat().st_size / 1e6:.1f} MB"
            )


if __name__ == "__main__":
    main()
