"""`skuwise agent doctor --impact`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from ...rules.base.errors import SkuwiseError, UsageError
from ..config import AgentConfig
from .agent_process import MODES, Mode, running_agent, watching
from .measure import SETTLE_SECONDS, Impact, Run, measure, run_beside
from .report import GPU_FREE_WORK
from .workload import probe_work, users_work

MAX_ROUNDS = 1000


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asks for. `work` None: the built-in probe, of `probe_seconds` a run."""

    work: str | None
    work_prints: bool
    rounds: int
    probe_seconds: float


def measure_impact(
    asked: Asked,
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

    def run(mode: Mode) -> Run:
        if mode.settings is None:
            return run_beside(once, None, settle_seconds=settle_seconds)
        with watching(mode.settings, arguments, environ) as agent:
            return run_beside(once, agent, settle_seconds=settle_seconds)

    first = once()  # thrown away: it fills caches that all others find filled
    minutes = asked.rounds * len(MODES) * (first + settle_seconds + 1) / 60
    say(f"one run takes {first:.1f} s, {asked.rounds} rounds of {len(MODES)} runs about {minutes:.0f} min")
    if first < 1:
        say("a run of less than a second tells little: let the work take some seconds")
    return measure(work.meaning, run, MODES, asked.rounds, rng=rng, say=say), notes
