"""What-if of one workload over the whole catalog: every node gated, predicted and priced, at its lowest list price.

The largest group of each of two simulated fleets, a service and a training job, over 14 days of hours.

Usage: python -m skuwise.benchmarks.performance.advisor.whatif [RUNS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.moves.base.pricing import PriceBook
from skuwise.advisor.moves.base.workload_groups import groups_of
from skuwise.advisor.moves.context.move_context import MoveContext, baseline
from skuwise.advisor.moves.kinds.move_sku import candidates
from skuwise.advisor.moves.market import elsewhere
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.verdicts.judge import judge
from skuwise.benchmarks.generators.first import simulate

UNTIL = 1_794_787_200.0  # 2026-11-16T00:00:00Z
LIMIT_MILLISECONDS = 100


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    book = load_rulebook(None, None, UNTIL)
    catalog = book.catalog
    for scenario in ("founding", "training"):
        with tempfile.TemporaryDirectory() as name:
            db = Path(name) / "fleet.db"
            simulate(scenario, db, days=14, seed=1, until=UNTIL)
            verdicts = judge(read_frame([db]), book)
        scene = MoveContext(
            catalog=catalog, book=PriceBook(catalog), model=book.move_model, headroom=0.7, at=UNTIL,
            window_hours=verdicts.window.hours, seed=1,
        )  # fmt: skip
        walls, used = [], []
        kept, refused = [], 0
        group, sold = groups_of(verdicts)[0], elsewhere(scene, "")
        for _ in range(runs):
            group = groups_of(verdicts)[0]  # anew each time: what it remembers of itself is part of the question
            source = catalog.gpu(group.lead.gpu_sku or "")
            assert source is not None
            sold = elsewhere(scene, "")
            began, cpu = time.perf_counter(), time.process_time()
            base = baseline(scene, group, group.unit, fewer_forbidden=False)
            kept, out = candidates(scene, base, source, sold)
            walls.append(1000 * (time.perf_counter() - began))
            used.append(1000 * (time.process_time() - cpu))
            refused = len(out)
        print(
            f"{scenario}: {len(group.use.g)} rows of {group.gpu_count} GPUs over {len(sold)} nodes: "
            f"{statistics.median(walls):.0f} ms ({min(walls):.0f} to {max(walls):.0f}, {runs} runs; limit "
            f"{LIMIT_MILLISECONDS} ms), {statistics.median(used):.0f} ms of processor; "
            f"{len(kept)} nodes fit, {refused} GPUs are refused"
        )


if __name__ == "__main__":
    main()
