"""What runs beside the loop at its own times: rollups and bursts on threads, heavy work in separate processes."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ...rules.base.errors import StoreError
from ..base.self_command import child_command
from ..config import AgentConfig
from ..store.database import checkpoint
from ..store.retention import arguments_for
from ..store.rollups import RollupJob
from .bursts import Bursts, next_start

# How long a wait lasts at most before the wall clock is asked again: it may be set meanwhile.
_LOOK_SECONDS = 30.0
# A run of retention ends by itself after 30 s (RetentionJob); a look at the whole file takes seconds.
_CHILD_SECONDS = 300.0

# What to run, and its first time after a given one (both Unix seconds).
Job = tuple[Callable[[], object], Callable[[float], float]]


def every(period_seconds: float, offset_seconds: float = 0.0) -> Callable[[float], float]:
    """The first moment after a given one (both Unix seconds) that lies `offset_seconds` into a period, in UTC."""
    return lambda now: ((now - offset_seconds) // period_seconds + 1) * period_seconds + offset_seconds


def run_jobs(
    jobs: Sequence[Job], stopped: threading.Event, say: Callable[[str], None], now: Callable[[], float] = time.time
) -> None:
    """Run jobs at their times, one after the other, until `stopped`; each once however often its time came meanwhile.
    What one of them raises is said, and it is tried again the next time."""
    times = [next_after(now()) for _, next_after in jobs]
    while not stopped.wait(max(0.0, min(_LOOK_SECONDS, min(times) - now()))):
        for place, (run, next_after) in enumerate(jobs):
            is_due, following = times[place] <= now(), next_after(now())
            # A clock that was put back brings the next time nearer.
            times[place] = following if is_due else min(times[place], following)
            if is_due and not stopped.is_set():
                try:
                    run()
                except Exception as error:
                    say(f"a job failed with {type(error).__name__}: {str(error)[:200]}")


def start_jobs(config: AgentConfig, node: str, bursts: Bursts, say: Callable[[str], None]) -> Callable[[], None]:
    """Start the jobs of this node; call what is returned to stop them."""
    db, burst_every = config.db, config.burst_every_seconds
    minutes, stopped = RollupJob(db), threading.Event()

    def roll_minutes() -> None:
        minutes.run(time.time(), periods=("minute",))
        checkpoint(db)  # the log is brought home here, for the loop's thread never does

    def child(what: str, module: str, *arguments: str) -> None:
        """Run what is heavy in its own process. systemd ends it with the agent; nothing is lost by that."""
        command = child_command(f"skuwise.agent.store.{module}", *arguments)
        done = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, check=False, timeout=_CHILD_SECONDS
        )
        if done.returncode != 0 and not stopped.is_set():
            say(f"{what}: {done.stderr.strip()[-500:]}")

    roll_hours = partial(child, "rollups are late", "rollups", str(db))
    retain = partial(child, "retention is late", "retention", *arguments_for(db, config.limits))
    # A period's last samples are committed some seconds after its end, so the minute's job waits for them; the hour's
    # runs between two of the minute's, and so does retention.
    store_jobs: list[Job] = [
        (roll_minutes, every(60, 17)),
        (roll_hours, every(3600, 47)),
        (retain, every(600, 7 * 60 + 32)),
    ]
    tables = [store_jobs]
    if burst_every > 0:  # a burst takes seconds and must be on time: it does not wait for the rollups
        tables.append([(bursts.run, partial(next_start, node, every_seconds=burst_every))])
    threads = [threading.Thread(target=run_jobs, args=(table, stopped, say), daemon=True) for table in tables]
    for thread in threads:
        thread.start()

    def stop() -> None:
        bursts.stop()
        stopped.set()
        for thread in threads:
            thread.join(0.3)  # they die with the process

    return stop


def roll_last(db: Path, say: Callable[[str], None]) -> None:
    """Roll up all that a stopping agent saw, also of the periods that are not over."""
    try:
        RollupJob(db).run(time.time(), and_open=True)
    except (StoreError, sqlite3.Error) as error:
        say(f"rollups are late: {error}")  # the samples stay; the next run takes up what this one left
