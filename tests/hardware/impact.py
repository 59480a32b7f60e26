"""What the agent costs labelled GPU work: off, at 1 s and at 0.1 s (benchmarks/performance/agent/impact.py).

    python tests/hardware/impact.py [--work matmul --work decode --work input] [--rounds 10] [--seconds 5]

Prints, for each kind of work, how much longer its iterations take beside an agent. A round runs every mode once, in
random order.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import json
import random
import sys
from functools import partial
from pathlib import Path

from skuwise.benchmarks.performance.agent.impact import OFF, Mode, run_rounds, table, timed_run, told
from skuwise.rules.base.errors import NothingToDo, SkuwiseError
from skuwise.tests.hardware.nvml_device import no_gpu_reason
from skuwise.tests.hardware.observe import run_work
from skuwise.tests.hardware.workloads import WORKS

MODES = (
    OFF,
    Mode("1 s", {"SKUWISE_INTERVAL": "1s", "SKUWISE_BURST_EVERY": "0"}),
    Mode("0.1 s", {"SKUWISE_INTERVAL": "0.1s", "SKUWISE_BURST_EVERY": "0"}),
)
# A throughput-bound one, one that waits on memory, and one that the agent's CPU time could disturb.
DEFAULT_WORK = ("matmul", "decode", "input")
# Every run begins after the same rest, or a GPU that cooled while an agent started would flatter the agent. An agent at
# 1 s stores its first ticks after ten.
REST_SECONDS = 12.0
ITERATIONS = 1000  # of which the seconds are told: one takes a millisecond or less


def seconds_of(work: str, seconds: float, *, python: str, device: str = "cuda:0", tiny: bool = False) -> float:
    """How long `ITERATIONS` iterations of the work take, from a run of about `seconds`."""
    return ITERATIONS / run_work(work, seconds, python=python, device=device, tiny=tiny).per_second("iterations")


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
        once = partial(seconds_of, work, options.seconds, python=options.python)
        results, seconds = run_rounds(
            lambda mode, once=once: timed_run(once, mode, settle_seconds=REST_SECONDS), MODES, options.rounds, rng
        )
        found[work] = told(results, seconds)
        print(f"{work}, {ITERATIONS} iterations\n{table(results, seconds)}", end="\n\n")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
