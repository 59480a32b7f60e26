"""``skuwise simulate``: the command line of the simulator."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from pathlib import Path

from click import argument, option

from ...rules.base.click_commands import PATH, Choice, command
from ...rules.base.errors import EXIT_DONE
from ...rules.base.output import Progress, program, write_stdout
from ..core.timestamps import rfc3339
from .options import DURATION, MOMENT, SEED, number


@command("skuwise simulate founding --db founding.db", "skuwise simulate small --db small.db --days 7 --seed 3")
@argument("scenario", type=Choice(("founding", "small", "fleet")), metavar="SCENARIO")
@option("--db", type=PATH, required=True, help="FILE.db for one database, else a folder with one database per node")
@option("--days", type=number("N", "a number of days", 0, 1e6), default=14.0, help="length in days (default: 14)")
@option("--seed", type=SEED, default=0, help="seed of the random numbers (default: 0)")
@option("--until", type=MOMENT, help="end of the window, RFC 3339 in UTC (default: the last full hour)")
@option("--minutes", type=DURATION, default="6h", help="age of the oldest minute (default: 6h)")
def simulate(scenario: str, db: Path, days: float, seed: int, until: float | None, minutes: float) -> int:
    """Simulate a fleet, to try skuwise or to test it.

    SCENARIO: fleet to simulate (see below).

    \b
    founding  online serving on 8xH100 InfiniBand nodes whose fabric is silent
    small     the most common kinds together on 13 nodes: shown by skuwise demo
    fleet     60 nodes of 16 types: training, fine-tuning, serving and idle GPUs
    """
    from ..demo import simulate as simulate_fleet

    with Progress(f"simulating {scenario}", "nodes") as simulating:
        report = simulate_fleet(
            scenario,
            db,
            days=days,
            seed=seed,
            until=time.time() if until is None else until,
            minutes_seconds=minutes,
            steps=simulating.step,
        )
    kinds = Counter(truth.kind for truth in report.truths)
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    nodes = report.fleet.nodes
    write_stdout(
        f"{scenario}, seed {seed}: {len(nodes)} nodes, {sum(len(n.sim.gpus) for n in nodes)} GPUs, "
        f"{rfc3339(report.start)} to {rfc3339(report.end)}\n"
        f"workloads: {counts} (the truth about each is in the table truth)\n"
        f"next: {program()} advise --db {shlex.quote(str(db))}\n"
    )
    return EXIT_DONE
