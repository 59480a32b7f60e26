"""`skuwise agent run`: the loop, the store and the jobs, from start to a clean stop."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping

import psutil

from ..clock import SystemClock
from ..config import AgentConfig
from ..sampler import run_loop
from ..store.writer import Writer
from .assembly import Agent, assemble
from .jobs import roll_all, start_jobs
from .recorder import Recorder


def run_agent(config: AgentConfig, environ: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Sample into `config.db` until the duration is over or SIGTERM or SIGINT comes. Returns the ticks kept.

    Raises `StoreError` where the database cannot be opened, or the last ticks could not be written.
    """
    clock = SystemClock()
    with Writer.open(config.db) as writer:
        agent = assemble(config, environ, clock.now())
        process = psutil.Process()
        recorder = Recorder(
            writer,
            agent.node,
            agent.survey,
            attribution=agent.attribution,
            resurvey=agent.resurvey,
            ts=clock.now().wall_seconds,
        )
        writer.commit()
        stopping = _stop_on_signals(clock)
        say(_opening(agent, config))
        scheduler = start_jobs(config.db, say)
        try:
            kept = run_loop(
                agent.sampler,
                clock,
                recorder.keep,
                recorder.report,
                lambda: process.memory_info().rss,
                duration_seconds=config.duration_seconds,
                stopped=stopping,
            )
        finally:
            scheduler.shutdown(wait=True)
            agent.sampler.close()
    roll_all(config.db, say, and_open=True)
    return kept


def _stop_on_signals(clock: SystemClock) -> Callable[[], bool]:
    received: list[int] = []

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        clock.wake()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return lambda: bool(received)


def _opening(agent: Agent, config: AgentConfig) -> str:
    gpus, ports = len(agent.survey.gpus), len(agent.survey.ports)
    text = (
        f"sampling {gpus} GPUs, {ports} fabric ports and the host every {config.interval_seconds:g} s into {config.db}"
    )
    return text if gpus else f"{text}; no GPU can be read: 'skuwise agent doctor' says why"


def say_on_stderr(text: str) -> None:
    """Narration: data alone goes to stdout."""
    print(f"skuwise agent: {text}", file=sys.stderr, flush=True)  # noqa: T201
