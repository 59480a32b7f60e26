"""The measurement: every mode once a round in random order, and what comes of it."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .agent_process import OFF, Cost, Mode, Watching
from .statistics import Slowdown, orders, slowdowns

# Before each run, with and without an agent: what it does at its start is over, and a GPU's heat meets all alike.
SETTLE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the work: its seconds, and what the agent beside it cost (None: there was none)."""

    seconds: float
    cost: Cost | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class ModeResult:
    """What one way of watching cost the work (`slowdown`) and itself (medians over the rounds)."""

    mode: Mode
    slowdown: Slowdown
    cost: Cost


@dataclass(frozen=True, slots=True)
class Impact:
    """`seconds`: of each run by mode, round by round. `gpus`: how many GPUs the agents read."""

    work: str
    modes: tuple[ModeResult, ...]
    seconds: Mapping[str, tuple[float, ...]]
    gpus: int


def measure(
    work: str,
    run: Callable[[Mode], Run],
    modes: Sequence[Mode],
    rounds: int,
    *,
    rng: random.Random,
    say: Callable[[str], None] = lambda _text: None,
) -> Impact:
    """Run `modes` (`OFF` among them) for `rounds` rounds and compare each with `OFF` of the same round."""
    by_name = {mode.name: mode for mode in modes}
    runs: dict[str, list[Run]] = {name: [] for name in by_name}
    for number, order in enumerate(orders(list(by_name), rounds, rng), start=1):
        for name in order:
            runs[name].append(run(by_name[name]))
        took = ", ".join(f"{name} {runs[name][-1].seconds:.3f} s" for name in by_name)
        say(f"round {number} of {rounds}: {took}")
    seconds = {name: tuple(one.seconds for one in found) for name, found in runs.items()}
    slower = slowdowns(seconds, OFF.name, rng)
    watched = [mode for mode in modes if mode is not OFF]
    results = tuple(ModeResult(mode, slower[mode.name], _median_cost(runs[mode.name])) for mode in watched)
    gpus = max((one.gpus or 0 for found in runs.values() for one in found), default=0)
    return Impact(work, results, seconds, gpus)


def _median_cost(runs: Sequence[Run]) -> Cost:
    costs = [one.cost for one in runs if one.cost is not None]
    return Cost(
        statistics.median(cost.cpu_share for cost in costs), round(statistics.median(cost.rss_bytes for cost in costs))
    )


def run_beside(
    work: Callable[[], float],
    agent: Watching | None,
    *,
    settle_seconds: float = SETTLE_SECONDS,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Run:
    """One run of `work`, which tells its seconds, beside an agent that runs already or alone."""
    sleep(settle_seconds)
    if agent is None:
        return Run(work())
    began, spent = monotonic(), agent.cpu_seconds()
    seconds = work()
    cost = Cost((agent.cpu_seconds() - spent) / (monotonic() - began), agent.rss_bytes())
    return Run(seconds, cost, agent.gpus)
