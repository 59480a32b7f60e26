"""The measurement: every mode once a round in random order, and what comes of it."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...rules.base.errors import SkuwiseError, UsageError
from ..config import AgentConfig
from .agent_process import MODES, OFF, AgentCost, Mode, RunningAgent, running_agent, started_agent
from .statistics import Slowdown, orders, slowdowns
from .workload import probe_work, users_work

# Before each run, with and without an agent: what it does at its start is over, and a GPU's heat meets all alike.
SETTLE_SECONDS = 3.0
MAX_ROUNDS = 1000
GPU_FREE_WORK = (
    "The built-in probe uses no GPU: for what watching costs GPU work, name a unit of it with --work 'COMMAND'."
)


@dataclass(frozen=True, slots=True)
class TimedRun:
    """One run of the work: its seconds, and what the agent beside it cost (None: there was none)."""

    seconds: float
    cost: AgentCost | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True)
class ModeResult:
    """What one way of watching cost the work (`slowdown`) and itself (medians over the rounds)."""

    mode: Mode
    slowdown: Slowdown
    cost: AgentCost


@dataclass(frozen=True, slots=True)
class Impact:
    """`seconds`: of each run by mode, round by round. `gpus`: how many GPUs the agents read."""

    work: str
    modes: tuple[ModeResult, ...]
    seconds: Mapping[str, tuple[float, ...]]
    gpus: int


def run_rounds(
    work: str,
    run: Callable[[Mode], TimedRun],
    modes: Sequence[Mode],
    rounds: int,
    *,
    rng: random.Random,
    say: Callable[[str], None] = lambda _text: None,
) -> Impact:
    """Run `modes` (`OFF` among them) for `rounds` rounds and compare each with `OFF` of the same round."""
    by_name = {mode.name: mode for mode in modes}
    runs: dict[str, list[TimedRun]] = {name: [] for name in by_name}
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


def _median_cost(runs: Sequence[TimedRun]) -> AgentCost:
    costs = [one.cost for one in runs if one.cost is not None]
    return AgentCost(
        statistics.median(cost.cpu_share for cost in costs), round(statistics.median(cost.rss_bytes for cost in costs))
    )


def run_beside(
    work: Callable[[], float],
    agent: RunningAgent | None,
    *,
    settle_seconds: float = SETTLE_SECONDS,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> TimedRun:
    """One run of `work`, which tells its seconds, beside an agent that runs already or alone."""
    sleep(settle_seconds)
    if agent is None:
        return TimedRun(work())
    began, spent = monotonic(), agent.cpu_seconds()
    seconds = work()
    cost = AgentCost((agent.cpu_seconds() - spent) / (monotonic() - began), agent.rss_bytes())
    return TimedRun(seconds, cost, agent.gpus)


@dataclass(frozen=True, slots=True)
class ImpactRequest:
    """What the user asks for. `work` None: the built-in probe, of `probe_seconds` a run."""

    work: str | None
    work_prints: bool
    rounds: int
    probe_seconds: float


def measure_impact(
    asked: ImpactRequest,
    config: AgentConfig,
    arguments: tuple[str, ...],
    environ: Mapping[str, str],
    *,
    say: Callable[[str], None],
    rng: random.Random,
    settle_seconds: float = SETTLE_SECONDS,
) -> tuple[Impact, tuple[str, ...]]:
    """The measurement, and what is to be said beside it.

    `arguments` are the flags that the agents run with. Raises SkuwiseError where an agent runs here already: no run
    would be without one.
    """
    if not 1 <= asked.rounds <= MAX_ROUNDS:
        raise UsageError(f"{asked.rounds} rounds cannot be run.", f"Ask for 1 to {MAX_ROUNDS}.")
    pid = running_agent(config.control_socket)
    if pid is not None:
        raise SkuwiseError(
            f"An agent runs here already (PID {pid}), so there is nothing to compare with.",
            "Stop it for the measurement (systemctl stop skuwise-agent), and start it afterwards.",
        )
    if asked.work is not None:
        work, notes = users_work(asked.work, is_printed=asked.work_prints), ()
    else:
        work, notes = probe_work(asked.probe_seconds, environ), (GPU_FREE_WORK,)

    once = partial(work.run, environ)

    def run(mode: Mode) -> TimedRun:
        if mode.settings is None:
            return run_beside(once, None, settle_seconds=settle_seconds)
        with started_agent(mode.settings, arguments, environ) as agent:
            return run_beside(once, agent, settle_seconds=settle_seconds)

    first = once()  # thrown away: it fills caches that all others find filled
    minutes = asked.rounds * len(MODES) * (first + settle_seconds + 1) / 60
    say(f"one run takes {first:.1f} s, {asked.rounds} rounds of {len(MODES)} runs about {minutes:.0f} min")
    if first < 1:
        say("a run of less than a second is too short to compare: use work that takes some seconds")
    return run_rounds(work.meaning, run, MODES, asked.rounds, rng=rng, say=say), notes
