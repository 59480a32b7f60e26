"""What an agent costs the work beside it: a work's time without an agent, with one at 1 Hz, and with one in bursts.

    python -m skuwise.benchmarks.performance.agent.impact --work 'COMMAND' [--rounds 10]

Each round runs every mode once in random order, and a mode is compared with `off` of the same round.
"""

import argparse
import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import psutil
from skuwise.agent.base.self_command import child_command
from skuwise.agent.service.control import ask
from skuwise.rules.base.errors import SkuwiseError, SourceError
from skuwise.rules.base.output import columns

DRAWS = 4000
# The widest interval that n rounds allow for a median, from the least to the greatest of them, holds it with
# probability 1 - 2^(1-n): 0.969 for six, 0.938 for five. Below six, no 95 % interval can be given.
MIN_ROUNDS = 6
# Before each run, with and without an agent: what it does at its start is over, and a GPU's heat meets all alike.
SETTLE_SECONDS = 3.0
_START_SECONDS, _STOP_SECONDS, _ASK_EVERY_SECONDS = 60.0, 30.0, 0.1
# How the work is watched: ``SKUWISE_*`` variables; None: no agent runs. A burst each 10 s is as often as the settings
# allow; by default it is each 300 s.
MODES: Mapping[str, Mapping[str, str] | None] = {
    "off": None,
    "1 Hz": {"SKUWISE_INTERVAL": "1s", "SKUWISE_BURST_EVERY": "0"},
    "burst": {"SKUWISE_INTERVAL": "1s", "SKUWISE_BURST_EVERY": "10s", "SKUWISE_BURST_SECONDS": "5s"},
}


@contextlib.contextmanager
def started_agent(settings: Mapping[str, str]) -> Iterator[psutil.Process]:
    """`skuwise agent run` on its own database, from when it answers until the block ends. Raises SourceError where it
    does not start."""
    with tempfile.TemporaryDirectory(prefix="skuwise-impact-") as name:
        folder = Path(name)
        socket, log = folder / "agent.sock", folder / "agent.log"
        options = ("--db", str(folder / "node.db"), "--socket", str(socket), "--listen", "")
        command, quiet = (*child_command("skuwise"), "agent", "run", *options), subprocess.DEVNULL
        with log.open("wb") as errors:
            process = subprocess.Popen(
                command, stdin=quiet, stdout=quiet, stderr=errors, env={**os.environ, **settings}
            )
        try:
            _await_answer(process, socket, log)
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            try:
                process.wait(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_answer(process: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        with contextlib.suppress(SkuwiseError):  # it is not there yet
            ask(socket, {"command": "status"})
            return
        time.sleep(_ASK_EVERY_SECONDS)
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no output"]
    raise SourceError(f"The agent to be measured did not start: {said[-1][:300]}", "Try: skuwise agent run.")


def cpu_seconds(agent: psutil.Process) -> float:
    """CPU time of the agent and its children so far, with children that ended."""
    spent = 0.0
    for process in (agent, *agent.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            spent += sum(process.cpu_times()[:4])
    return spent


def timed_run(command: Sequence[str], settings: Mapping[str, str] | None) -> tuple[float, float, float]:
    """Seconds of one run of the work, and what the agent beside it cost (0: there was none): its CPU time over wall
    time, children included, and its resident bytes."""
    with contextlib.nullcontext() if settings is None else started_agent(settings) as agent:
        time.sleep(SETTLE_SECONDS)
        began, spent = time.monotonic(), cpu_seconds(agent) if agent else 0.0
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
        seconds = time.monotonic() - began
        return (
            seconds,
            (cpu_seconds(agent) - spent) / seconds if agent else 0.0,
            agent.memory_info().rss if agent else 0.0,
        )


def slowdown(watched: Sequence[float], alone: Sequence[float], rng: np.random.Generator) -> tuple[float, float, float]:
    """The time of a mode over that of the same round without an agent, less 1: the median over rounds, and its 95 %
    interval, NaN where there are too few rounds.

    The interval is a percentile bootstrap over rounds (Efron and Tibshirani, 1993): rounds are drawn, not runs, so that
    what a round's runs share does not count as noise.
    """
    logs = np.log(watched) - np.log(alone)
    medians = np.median(rng.choice(logs, (DRAWS, len(logs))), axis=1)
    low, high = np.percentile(medians, (2.5, 97.5)) if len(logs) >= MIN_ROUNDS else (np.nan, np.nan)
    return np.expm1(np.median(logs)), np.expm1(low), np.expm1(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", metavar="COMMAND", required=True, help="one unit of work, of some ten seconds")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    command, rng = shlex.split(options.work), np.random.default_rng()
    runs: dict[str, list[tuple[float, float, float]]] = {mode: [] for mode in MODES}
    for number in range(1, options.rounds + 1):
        for mode in rng.permutation(list(MODES)):
            runs[mode].append(timed_run(command, MODES[mode]))
        took = ", ".join(f"{mode} {timed[-1][0]:.3f} s" for mode, timed in runs.items())
        print(f"round {number} of {options.rounds}: {took}", file=sys.stderr)
    seconds = {mode: [run[0] for run in timed] for mode, timed in runs.items()}
    rows = []
    for mode in ("1 Hz", "burst"):
        median, low, high = slowdown(seconds[mode], seconds["off"], rng)
        interval = f"{low:+.2%} to {high:+.2%}" if low == low else f"needs {MIN_ROUNDS} rounds"
        cpu, resident = np.median(np.array(runs[mode])[:, 1:], axis=0)
        rows.append((mode, f"{median:+.2%}", interval, f"{cpu:.2%} of a core", f"{resident / 1e6:.0f} MB"))
    print(columns(("AGENT", "WORK SLOWER BY", "95% INTERVAL", "ITS OWN CPU", "ITS MEMORY"), rows))
    print(f"{np.median(seconds['off']):.3f} s alone (median of {options.rounds})")


if __name__ == "__main__":
    main()
