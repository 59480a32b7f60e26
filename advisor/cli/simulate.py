"""``skuwise simulate``: the command line of the simulator."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from ...agent.base.durations import parse_duration
from ...rules.base.errors import EXIT_DONE
from ..core.timestamps import parse_moment, rfc3339
from ..simulate.scenarios.catalog import SCENARIOS
from ..simulate.simulator import MINUTES_SECONDS, SimulationReport, simulate


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``skuwise simulate``; sets ``run``."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    width = max(map(len, SCENARIOS))
    parser.epilog = "\n".join(["scenarios:", *(f"  {name:<{width}}  {text}" for name, text in SCENARIOS.items())])
    parser.add_argument("scenario", metavar="SCENARIO", help="which fleet to make (see below)")
    parser.add_argument(
        "--db", metavar="PATH", type=Path, required=True, help="FILE.db for one database, else a folder with one a node"
    )
    parser.add_argument("--days", metavar="N", type=float, default=14, help="length of the window (default: 14)")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="another seed, another fleet (default: 0)")
    parser.add_argument("--until", metavar="T", help="end of the window, RFC 3339 (default: the last full hour)")
    parser.add_argument(
        "--minutes", metavar="SPAN", help=f"how far back minutes are kept (default: {MINUTES_SECONDS / 3600:g}h)"
    )
    parser.add_argument("--samples", metavar="SPAN", help="how far back 1 s samples are kept (default: none)")


def run(options: argparse.Namespace) -> int:
    report = simulate(
        options.scenario,
        options.db,
        days=options.days,
        seed=options.seed,
        until=parse_moment(options.until) if options.until else time.time(),
        minutes_seconds=parse_duration(options.minutes) if options.minutes else MINUTES_SECONDS,
        samples_seconds=parse_duration(options.samples) if options.samples else 0,
        progress=lambda line: print(f"skuwise: {line}", file=sys.stderr),  # noqa: T201
    )
    print(_text(report, options.db))  # noqa: T201
    return EXIT_DONE


def _text(report: SimulationReport, path: Path) -> str:
    kinds = Counter(truth.kind for truth in report.truths)
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return (
        f"{report.scenario}, seed {report.seed}: {len(report.nodes)} nodes, {report.gpu_count} GPUs, "
        f"{rfc3339(report.start)} to {rfc3339(report.end)}\n"
        f"workloads: {listed} (the truth about each is in the table truth)\n"
        f"next: skuwise advise --db {path}"
    )
