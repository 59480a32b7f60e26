"""Spoil what every reader reads, 100,000 times each: is it read, or refused in a sentence, and nothing else?

    python -m skuwise.benchmarks.fuzzing list
    python -m skuwise.benchmarks.fuzzing run --mutations 100000 [--targets advice,outbox] [--jobs 1] [--seed N]
        [--keep DIR]
    python -m skuwise.benchmarks.fuzzing replay TARGET SEED N [--bytes FILE]

A mutation must end within 10 s and 1 GiB. It is read, or refused by one printable sentence that does not speak Python;
all else is a failure, kept in --keep with what repeats it. A seed is drawn and printed where none is given. Honest
inputs come from the project's own writers, so that the same seed gives the same bytes on the same version of skuwise
and SQLite; `replay --bytes` takes the kept ones.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: its threads would count as memory

from skuwise.rules.base.errors import SkuwiseError

from .supervise import HarnessError, Report, keep, run_target
from .target import Target, mutation
from .targets import TARGETS


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    listing = commands.add_parser("list")
    listing.set_defaults(run=_list)
    running = commands.add_parser("run")
    running.add_argument("--mutations", type=int, default=100_000)
    running.add_argument("--targets", default="", help="names with commas between them (default: all)")
    running.add_argument("--jobs", type=int, default=1)
    running.add_argument("--seed", type=int, default=None)
    running.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "skuwise-fuzz-failures")
    running.set_defaults(run=_run)
    again = commands.add_parser("replay")
    again.add_argument("target")
    again.add_argument("seed", type=int)
    again.add_argument("number", type=int)
    again.add_argument("--bytes", type=Path, default=None, help="these instead; SEED and N name the input they are of")
    again.add_argument("--write", type=Path, default=None, help="write the mutated bytes there")
    again.set_defaults(run=_replay)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what is begun is ended, and its folder taken away
    return options.run(options)


def _list(options: argparse.Namespace) -> int:  # noqa: ARG001
    for target in TARGETS.values():
        print(f"{target.name:<16} {target.about}")
    return 0


def _run(options: argparse.Namespace) -> int:
    seed = options.seed if options.seed is not None else secrets.randbelow(2**31)
    names = [name for name in options.targets.split(",") if name] or list(TARGETS)
    if unknown := [name for name in names if name not in TARGETS]:
        print(f"There is no target {', '.join(unknown)}: see list.", file=sys.stderr)
        return 2
    print(f"seed {seed}, {options.mutations} mutations a target", flush=True)
    reports = []
    for name in names:
        try:
            report = run_target(TARGETS[name], options.mutations, seed, options.jobs)
        except HarnessError as error:
            print(f"{name}: not fuzzed, for the harness itself failed.\n{error}", file=sys.stderr)
            return 2
        reports.append(report)
        print(_line(report), flush=True)
        for signature, count in report.kinds():
            print(f"    {count} x {signature}")
        for path in keep(report, options.keep, seed)[:12]:
            print(f"    {path}")
        sys.stdout.flush()
    print()
    print("\n".join(table(reports)))
    return 0 if all(report.good for report in reports) else 1


def _line(r: Report) -> str:
    return (
        f"{r.target}: {r.mutations} mutations, {r.read} read, {r.refused} refused, {r.failures} failures, {r.hangs} "
        f"hangs, peak RSS {r.peak_bytes / 2**20:.0f} MiB, growth {r.growth_bytes / 2**20:+.0f} MiB"
        f"{' (TOO MUCH)' if r.grew else ''}, slowest {r.slowest_seconds:.2f} s, {r.seconds:.0f} s, "
        f"{r.mutations / max(r.seconds, 1e-9):.0f} mutations/s"
    )


def table(reports: Sequence[Report]) -> list[str]:
    """The figures as Markdown."""
    head = ("reader", "mutations", "read", "refused", "failures", "hangs", "peak RSS, MiB", "growth, MiB", "slowest, s",
            "seconds", "mutations/s")  # fmt: skip
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for r in reports:
        cells = (
            r.target, f"{r.mutations:,}", f"{r.read:,}", f"{r.refused:,}", f"{r.failures:,}", f"{r.hangs:,}",
            f"{r.peak_bytes / 2**20:.0f}", f"{r.growth_bytes / 2**20:.0f}", f"{r.slowest_seconds:.2f}",
            f"{r.seconds:.0f}", f"{r.mutations / max(r.seconds, 1e-9):,.0f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _replay(options: argparse.Namespace) -> int:
    target: Target = TARGETS[options.target]
    with tempfile.TemporaryDirectory() as folder:
        prepared = target.prepare(Path(folder))
        chosen, data = mutation(prepared, target.name, options.seed, options.number)
        if options.bytes is not None:
            data = options.bytes.read_bytes()
        if options.write is not None:
            options.write.write_bytes(data)
        print(f"input {chosen.name}, {len(data)} bytes")
        with contextlib.suppress(*target.refusals):
            try:
                print(f"read: {str(prepared.read(chosen.name, data))[:2000]}")
            except SkuwiseError as error:
                print(f"refused: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
