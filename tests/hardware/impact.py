"""What the agent costs the work it watches: off, at 1 s and at 0.1 s, interleaved so that heat meets all alike.

    python tests/hardware/impact.py [--work matmul --work decode --work input] [--rounds 10] [--seconds 5]

Prints, for each kind of work, the rate with the agent over the rate without it (1 = costs nothing), as the median of
the rounds with a 95 % bootstrap interval. A round runs every mode once, in random order.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from skuwise.rules.errors import NothingToDo, SkuwiseError
from skuwise.tests.hardware.figures import median_ratio_interval
from skuwise.tests.hardware.nvml_device import no_gpu_reason
from skuwise.tests.hardware.observe import agent, run_work
from skuwise.tests.hardware.workloads import WORKS

MODES: Mapping[str, float | None] = {"off": None, "1 s": 1.0, "0.1 s": 0.1}
# A throughput-bound one, one that waits on memory, and one that the agent's CPU time could disturb.
DEFAULT_WORK = ("matmul", "decode", "input")
# Every run begins after the same rest, or a GPU that cooled while an agent started would flatter the agent. An agent at
# 1 s stores its first ticks after ten.
REST_SECONDS = 12.0
Measure = Callable[[str, float | None], float]


def run_rounds(work: str, rounds: int, measure: Measure, rng: random.Random) -> dict[str, list[float]]:
    """Steps per second of every mode, one per round. `measure` takes the work and the agent's interval (None: off)."""
    rates: dict[str, list[float]] = {mode: [] for mode in MODES}
    for _ in range(rounds):
        order = list(MODES)
        rng.shuffle(order)
        for mode in order:
            rates[mode].append(measure(work, MODES[mode]))
    return rates


def summarise(rates: Mapping[str, Sequence[float]], rng: random.Random) -> dict[str, dict[str, float]]:
    """For each mode with an agent: the ratio to `off` of the same round, and its interval."""
    found: dict[str, dict[str, float]] = {}
    for mode, with_agent in rates.items():
        if mode != "off":
            ratios = [on / off for on, off in zip(with_agent, rates["off"], strict=True)]
            low, median, high = median_ratio_interval(ratios, rng)
            found[mode] = {"low": low, "ratio": median, "high": high, "rounds": float(len(ratios))}
    return found


def measure_with(python: str, seconds: float, folder: Path) -> Measure:
    """The real measurement: a run of the work, inside an agent or not."""

    def measure(work: str, interval_seconds: float | None) -> float:
        database, ready_at = folder / f"{work}-{interval_seconds}.db", time.monotonic() + REST_SECONDS
        with nullcontext() if interval_seconds is None else agent(database, interval_seconds):
            time.sleep(max(0.0, ready_at - time.monotonic()))
            return run_work(work, seconds, python=python).per_second("iterations")

    return measure


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure what the agent costs the work.")
    parser.add_argument("--work", action="append", choices=sorted(WORKS), help="repeatable")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long the work runs each time")
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/hardware/impact.json"))
    options = parser.parse_args(argv)
    try:
        return _measure_all(options)
    except SkuwiseError as error:
        print(f"impact: {error}", file=sys.stderr)
        return error.exit_status


def _measure_all(options: argparse.Namespace) -> int:
    if reason := no_gpu_reason():
        raise NothingToDo(f"{reason}.", "Run this on a machine with an NVIDIA GPU.")
    if options.rounds < 1:
        raise NothingToDo("No round was asked for.", "Give --rounds 1 or more.")
    rng, found = random.Random(options.seed), {}
    for work in options.work or DEFAULT_WORK:
        with tempfile.TemporaryDirectory(prefix="skuwise-impact-") as folder:
            measure = measure_with(options.python, options.seconds, Path(folder))
            rates = run_rounds(work, options.rounds, measure, rng)
        found[work] = {"rates": rates, "ratios": summarise(rates, rng)}
        for mode, figures in found[work]["ratios"].items():
            print(
                f"{work:8} agent at {mode:5}  {figures['ratio']:.4f} of the rate without it "
                f"(95 %: {figures['low']:.4f} to {figures['high']:.4f}, {options.rounds} rounds)"
            )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
