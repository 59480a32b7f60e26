"""``skuwise simulate``: the command line of the simulator."""

from __future__ import annotations

import argparse
import shlex
import time
from collections import Counter
from pathlib import Path

from ...agent.base.durations import parse_duration
from ...rules.base.errors import EXIT_DONE
from ...rules.base.progress import progress
from ...rules.base.typed_again import program
from ..core.timestamps import parse_moment, rfc3339
from ..demo import MINUTES_SECONDS, SCENARIOS, SimulationReport, simulate

EXAMPLES = ("skuwise simulate founding --db founding.db", "skuwise simulate small --db small.db --days 7 --seed 3")


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``skuwise simulate``; sets ``run``."""
    width = max(map(len, SCENARIOS))
    parser.epilog = "\n".join(["scenarios:", *(f"  {name:<{width}}  {text}" for name, text in SCENARIOS.items())])
    parser.add_argument("scenario", metavar="SCENARIO", choices=SCENARIOS, help="fleet to simulate (see below)")
    parser.add_argument(
        "--db",
        metavar="PATH",
        type=Path,
        required=True,
        help="FILE.db for one database, else a folder with one database per node",
    )
    parser.add_argument(
        "--days", metavar="N", type=float, default=14, help="length of the time window in days (default: 14)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed of the random numbers (default: 0)")
    parser.add_argument(
        "--until", metavar="T", help="end of the time window, RFC 3339 in UTC (default: the last full hour)"
    )
    parser.add_argument(
        "--minutes", metavar="SPAN", help=f"age of the oldest minute, as in 48h (default: {MINUTES_SECONDS / 3600:g}h)"
    )


def run(options: argparse.Namespace) -> int:
    with progress(f"simulating {options.scenario}", "nodes") as simulating:
        report = simulate(
            options.scenario,
            options.db,
            days=options.days,
            seed=options.seed,
            until=parse_moment(options.until) if options.until else time.time(),
            minutes_seconds=parse_duration(options.minutes) if options.minutes else MINUTES_SECONDS,
            steps=simulating.step,
        )
    print(_text(report, options))  # noqa: T201
    return EXIT_DONE


def _text(report: SimulationReport, options: argparse.Namespace) -> str:
    kinds = Counter(truth.kind for truth in report.truths)
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    nodes = report.fleet.nodes
    return (
        f"{options.scenario}, seed {options.seed}: {len(nodes)} nodes, {sum(len(n.sim.gpus) for n in nodes)} GPUs, "
        f"{rfc3339(report.start)} to {rfc3339(report.end)}\n"
        f"workloads: {listed} (the truth about each is in the table truth)\n"
        f"next: {program()} advise --db {shlex.quote(str(options.db))}"
    )
