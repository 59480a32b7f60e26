"""What runs beside the loop: rollups, kept off its thread and, where they are heavy, out of its process.

Jobs at their times, on threads beside the loop.

In place of APScheduler, which brings asyncio, multiprocessing and importlib.metadata into the process:
7 of the 40 MB that an agent may hold (docs/operations.md).
"""

from __future__ import annotations

import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...rules.base.errors import StoreError
from ..base.retention_limits import Limits
from ..base.self_command import child_command
from ..store.database import checkpoint
from ..store.retention import arguments_for
from ..store.rollups import RollupJob
from .bursts import Bursts

# How long a wait lasts at most before the wall clock is asked again: it may be set while nobody looks.
_LOOK_SECONDS = 30.0


def every(period_seconds: float, offset_seconds: float = 0.0) -> Callable[[float], float]:
    """The first moment after a given one (both Unix seconds) that lies `offset_seconds` into a period, in UTC."""

    def next_after(now: float) -> float:
        return ((now - offset_seconds) // period_seconds + 1) * period_seconds + offset_seconds

    return next_after


@dataclass(frozen=True, slots=True)
class ScheduledJob:
    """Something to be run at the times that `next_after` names; None from it: never again.

    One that could not begin within `grace_seconds` waits for its next time.
    """

    run: Callable[[], object]
    next_after: Callable[[float], float | None]
    grace_seconds: float = 3600.0


class Schedule:
    """Which of some jobs are due. Pure: the caller says what time it is."""

    def __init__(self, jobs: Sequence[ScheduledJob], now: float) -> None:
        self._jobs = jobs
        self._times = [job.next_after(now) for job in jobs]

    def take(self, now: float) -> list[ScheduledJob]:
        """The jobs whose time has come since this was last asked, each once however often it came."""
        due: list[ScheduledJob] = []
        for place, job in enumerate(self._jobs):
            at, following = self._times[place], job.next_after(now)
            if at is not None and at <= now:
                if now - at <= job.grace_seconds:
                    due.append(job)
                at = None
            # A clock that was put back brings the next time nearer.
            self._times[place] = following if at is None or following is None else min(at, following)
        return due

    def seconds_left(self, now: float) -> float:
        """Until the next time of any, or until the clock is to be looked at."""
        return min([_LOOK_SECONDS, *(max(0.0, at - now) for at in self._times if at is not None)])


class Timetable:
    """A thread that runs jobs at their times, one after the other. `failed` hears what one of them raises."""

    def __init__(
        self,
        name: str,
        jobs: Sequence[ScheduledJob],
        failed: Callable[[Exception], object],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._plan = Schedule(jobs, now())
        self._failed = failed
        self._now = now
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Run nothing more, and wait for the job that runs."""
        self._stopped.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stopped.wait(self._plan.seconds_left(self._now())):
            for job in self._plan.take(self._now()):
                if self._stopped.is_set():
                    return
                try:
                    job.run()
                except Exception as error:
                    self._failed(error)


# A period's last samples are committed up to 10 s after its end (Writer.open), so the minute's job waits for them; the
# hour's runs half a minute later, between two of the minute's.
_MINUTES_AT = every(60, 17)
_HOURS_AT = every(3600, 47)
# Retention runs between those, every ten minutes; the whole file is looked over once a day, at 03:33:32 UTC.
_RETENTION_AT = every(600, 7 * 60 + 32)
_CHECK_AT = every(86400, 3 * 3600 + 33 * 60 + 32)
# A burst that comes late is the next one's.
_BURST_GRACE_SECONDS = 5.0
# A run of retention ends by itself after 30 s (RetentionJob); a look at the whole file takes seconds.
_CHILD_SECONDS = 300.0
_DEFAULT_LIMITS = Limits()


def start_jobs(
    db: Path, say: Callable[[str], None], bursts: Bursts, limits: Limits = _DEFAULT_LIMITS
) -> Callable[[], None]:
    """Start the jobs; call what is returned to stop them. What fails is said, and tried again the next time.

    `limits`: how long what is kept, and how large the database may grow.
    """

    def failed(error: Exception) -> None:
        say(f"a job failed with {type(error).__name__}: {str(error)[:200]}")

    minutes = RollupJob(db)
    keeping = (
        ScheduledJob(lambda: roll_minutes(minutes, say), _MINUTES_AT),
        ScheduledJob(lambda: roll_all(db, say), _HOURS_AT),
        ScheduledJob(lambda: prune(db, limits, say), _RETENTION_AT),
        ScheduledJob(lambda: check(db, say), _CHECK_AT),
    )
    # A burst takes seconds and must be on time; the rollups do not wait for it.
    burst = ScheduledJob(lambda: take_burst(bursts, say), bursts.next_start, _BURST_GRACE_SECONDS)
    tables = (Timetable("jobs", keeping, failed), Timetable("bursts", (burst,), failed))
    for table in tables:
        table.start()

    def stop() -> None:
        for table in tables:
            table.stop()

    return stop


def roll_minutes(job: RollupJob, say: Callable[[str], None]) -> None:
    """Roll up the minutes that are due, on this thread, and bring the log home: the loop's thread never does."""
    try:
        job.run(time.time(), periods=("minute",))
        checkpoint(job.path)
    except (StoreError, sqlite3.Error) as error:
        say(f"rollups are late: {error}")


def take_burst(bursts: Bursts, say: Callable[[str], None]) -> None:
    """Take one burst. What fails is said: the ticks go on."""
    try:
        bursts.run()
    except Exception as error:
        say(f"a burst failed with {type(error).__name__}: {str(error)[:200]}")


def prune(db: Path, limits: Limits, say: Callable[[str], None]) -> None:
    """Let go of what is too old or too much, in a process of its own."""
    _child("retention is late", arguments_for(db, limits), say)


def check(db: Path, say: Callable[[str], None]) -> None:
    """Look the whole file over, in a process of its own. Damage is marked; the writer stops at its next commit."""
    _child("the database was looked over", [str(db), "--check"], say)


def _child(what: str, arguments: list[str], say: Callable[[str], None]) -> None:
    command = child_command("skuwise.agent.store.retention", *arguments)
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, text=True, check=False, timeout=_CHILD_SECONDS
        )
    except subprocess.TimeoutExpired:
        say(f"{what}: it took longer than {_CHILD_SECONDS:.0f} s and was ended")
        return
    if done.returncode != 0:
        say(f"{what}: {done.stderr.strip()[-500:]}")


def roll_all(db: Path, say: Callable[[str], None], *, and_open: bool = False) -> None:
    """Roll up minutes and hours in a process of their own, and wait for it."""
    command = child_command("skuwise.agent.store.rollups", str(db), *(["--and-open"] if and_open else []))
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode != 0:
        # The samples stay; the next run takes up what this one left.
        say(f"rollups are late: {done.stderr.strip()[-500:]}")
