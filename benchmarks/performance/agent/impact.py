"""What an agent costs the work beside it: a work's time without an agent, with one at 1 Hz, and with one in bursts.

    python -m skuwise.benchmarks.performance.agent.impact --work 'COMMAND' [--rounds 10]

Each round runs every mode once in random order, and a mode is compared with `off` of the same round.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from skuwise.agent.base.self_command import child_command
from skuwise.agent.service.control import ask
from skuwise.rules.base.errors import SkuwiseError, SourceError
from skuwise.rules.base.output import columns

LEVEL = 0.95
DRAWS = 4000
# The widest interval that n rounds allow for a median, from the least to the greatest of them, holds it with
# probability 1 - 2^(1-n): 0.969 for six, 0.938 for five. Below six, no 95 % interval can be given.
MIN_ROUNDS = 6
# Before each run, with and without an agent: what it does at its start is over, and a GPU's heat meets all alike.
SETTLE_SECONDS = 3.0
_START_SECONDS, _STOP_SECONDS = 60.0, 30.0
_ASK_EVERY_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Mode:
    """How the work is watched. `settings` are ``SKUWISE_*`` variables; None: no agent runs."""

    name: str
    settings: Mapping[str, str] | None


OFF = Mode("off", None)
# A burst each 10 s is as often as the settings allow; by default it is each 300 s.
MODES = (
    OFF,
    Mode("1 Hz", {"SKUWISE_INTERVAL": "1s", "SKUWISE_BURST_EVERY": "0"}),
    Mode("burst", {"SKUWISE_INTERVAL": "1s", "SKUWISE_BURST_EVERY": "10s", "SKUWISE_BURST_SECONDS": "5s"}),
)


@dataclass(frozen=True, slots=True)
class TimedRun:
    """One run of the work: its seconds, and what the agent beside it cost (None: there was none).

    `cpu_share`: CPU time over wall time, children included; 1 is one core.
    """

    seconds: float
    cpu_share: float | None = None
    rss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Slowdown:
    """How much longer the work took than without an agent: 0.01 is one percent; below 0 it was faster.

    `low` and `high` bound the median over rounds at the level of 95 %; None: too few rounds for that.
    """

    median: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class ModeResult:
    """What one way of watching cost the work (`slowdown`) and itself (medians over the rounds)."""

    mode: str
    slowdown: Slowdown
    cpu_share: float
    rss_bytes: float


def cpu_seconds(agent: psutil.Process) -> float:
    """CPU time of the agent and its children so far."""
    spent = _cpu(agent)
    for child in agent.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            spent += _cpu(child)
    return spent


def _cpu(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:4])  # user and system, of its own and of children that ended


@contextlib.contextmanager
def started_agent(settings: Mapping[str, str], arguments: Sequence[str] = ()) -> Iterator[psutil.Process]:
    """`skuwise agent run` on a database of its own, from when it answers until the block ends.

    `arguments` are further flags of `agent run`. Raises SourceError where it does not start.
    """
    with tempfile.TemporaryDirectory(prefix="skuwise-impact-") as name:
        folder = Path(name)
        socket, log = folder / "agent.sock", folder / "agent.log"
        own = ("--db", str(folder / "node.db"), "--socket", str(socket), "--listen", "")
        with log.open("wb") as output:
            process = subprocess.Popen(
                (*child_command("skuwise"), "agent", "run", *own, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
                env={**os.environ, **settings},
            )
        try:
            yield _once_it_answers(process, socket, log)
        finally:
            process.terminate()
            try:
                process.wait(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _once_it_answers(process: subprocess.Popen[bytes], socket: Path, log: Path) -> psutil.Process:
    for _ in range(int(_START_SECONDS / _ASK_EVERY_SECONDS)):
        if process.poll() is not None:
            break
        try:
            ask(socket, {"command": "status"})
        except SkuwiseError:
            time.sleep(_ASK_EVERY_SECONDS)  # it is not there yet
            continue
        return psutil.Process(process.pid)
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no output"]
    raise SourceError(f"The agent to be measured did not start: {said[-1][:300]}", "Try: skuwise agent run.")


def timed_run(
    work: Callable[[], float], mode: Mode, arguments: Sequence[str] = (), settle_seconds: float = SETTLE_SECONDS
) -> TimedRun:
    """One run of `work`, which tells its seconds, watched as `mode` says."""
    if mode.settings is None:
        time.sleep(settle_seconds)
        return TimedRun(work())
    with started_agent(mode.settings, arguments) as agent:
        time.sleep(settle_seconds)
        began, spent = time.monotonic(), cpu_seconds(agent)
        seconds = work()
        return TimedRun(seconds, (cpu_seconds(agent) - spent) / (time.monotonic() - began), agent.memory_info().rss)


def run_rounds(
    run: Callable[[Mode], TimedRun], modes: Sequence[Mode], rounds: int, rng: random.Random
) -> tuple[list[ModeResult], dict[str, list[float]]]:
    """Run `modes` (`OFF` among them) for `rounds` rounds: what each cost, and the seconds of each run by mode."""
    runs: dict[str, list[TimedRun]] = {mode.name: [] for mode in modes}
    for number in range(1, rounds + 1):
        for mode in rng.sample(modes, len(modes)):
            runs[mode.name].append(run(mode))
        took = ", ".join(f"{name} {found[-1].seconds:.3f} s" for name, found in runs.items())
        print(f"round {number} of {rounds}: {took}", file=sys.stderr)
    seconds = {name: [one.seconds for one in found] for name, found in runs.items()}
    results = [
        ModeResult(
            mode.name,
            slowdown(seconds[mode.name], seconds[OFF.name], rng),
            statistics.median(one.cpu_share for one in runs[mode.name] if one.cpu_share is not None),
            statistics.median(one.rss_bytes for one in runs[mode.name] if one.rss_bytes is not None),
        )
        for mode in modes
        if mode is not OFF
    ]
    return results, seconds


def slowdown(watched: Sequence[float], alone: Sequence[float], rng: random.Random, draws: int = DRAWS) -> Slowdown:
    """The time of a mode over that of the same round without an agent, less 1.

    The interval is a percentile bootstrap over rounds (Efron and Tibshirani, 1993): rounds are drawn, not runs, so that
    what a round's runs share does not count as noise.
    """
    logs = [math.log(beside / by_itself) for beside, by_itself in zip(watched, alone, strict=True)]
    median = math.expm1(statistics.median(logs))
    if len(logs) < MIN_ROUNDS:
        return Slowdown(median, None, None)
    medians = sorted(statistics.median(rng.choices(logs, k=len(logs))) for _ in range(draws))
    tail = int(draws * (1 - LEVEL) / 2)
    return Slowdown(median, math.expm1(medians[tail]), math.expm1(medians[draws - 1 - tail]))


def table(results: Sequence[ModeResult], seconds: Mapping[str, Sequence[float]]) -> str:
    """For a person: a line a mode, and how long the work takes alone."""
    rows = [
        (
            result.mode,
            f"{result.slowdown.median:+.2%}",
            _interval(result.slowdown),
            f"{result.cpu_share:.2%} of a core",
            f"{result.rss_bytes / 1e6:.0f} MB",
        )
        for result in results
    ]
    head = ("AGENT", "WORK SLOWER BY", f"{LEVEL:.0%} INTERVAL", "ITS OWN CPU", "ITS MEMORY")
    alone = seconds[OFF.name]
    return f"{columns(head, rows)}\n{statistics.median(alone):.3f} s alone (median of {len(alone)})"


def _interval(slower: Slowdown) -> str:
    if slower.low is None or slower.high is None:
        return f"needs {MIN_ROUNDS} rounds"
    return f"{slower.low:+.2%} to {slower.high:+.2%}"


def command_seconds(command: Sequence[str]) -> float:
    """Run a command: its wall time."""
    began = time.monotonic()
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", metavar="COMMAND", required=True, help="one unit of work, of some ten seconds")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    work = partial(command_seconds, shlex.split(options.work))
    results, seconds = run_rounds(partial(timed_run, work), MODES, options.rounds, random.Random())
    print(table(results, seconds))


if __name__ == "__main__":
    main()
