"""What runs beside the loop: rollups, kept off its thread and, where they are heavy, out of its process."""

from __future__ import annotations

import datetime
import logging
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from ...rules.errors import StoreError
from ..child import child_command
from ..store.limits import Limits
from ..store.log import checkpoint
from ..store.prune import arguments_for
from ..store.rollups import RollupJob
from .bursts import Bursts

# A period's last samples are committed up to 10 s after its end (Writer.open), so the minute's job waits for them; the
# hour's runs half a minute later, between two of the minute's.
_MINUTE_SECOND, _HOUR_SECOND = 17, 47
# Retention runs between those, every ten minutes; the whole file is looked over once a day.
_PRUNE_MINUTES, _PRUNE_SECOND = "7-59/10", 32
_CHECK_HOUR, _CHECK_MINUTE, _CHECK_SECOND = 3, 33, 32
# A run of retention ends by itself after 30 s (RetentionJob); a look at the whole file takes seconds.
_CHILD_SECONDS = 300.0
_DEFAULT_LIMITS = Limits()


class _OncePerWindow(BaseTrigger):
    """The moments that the bursts name themselves."""

    def __init__(self, bursts: Bursts) -> None:
        self._bursts = bursts

    def get_next_fire_time(  # pyright: ignore[reportIncompatibleMethodOverride] - the base is untyped and abstract
        self, previous_fire_time: datetime.datetime | None, now: datetime.datetime
    ) -> datetime.datetime | None:
        del previous_fire_time
        start = self._bursts.next_start(now.timestamp())
        return None if start is None else datetime.datetime.fromtimestamp(start, datetime.UTC)


def start_jobs(
    db: Path, say: Callable[[str], None], bursts: Bursts, limits: Limits = _DEFAULT_LIMITS
) -> BackgroundScheduler:
    """Start the jobs; the caller shuts the scheduler down. What fails is said, and tried again the next time.

    `limits`: how long what is kept, and how large the database may grow.
    """
    # Its INFO lines say that a job was added and ran: nothing a person on a terminal asked for.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    scheduler = BackgroundScheduler(
        # A burst takes seconds and must be on time; the rollups do not wait for it.
        executors={"default": ThreadPoolExecutor(1), "bursts": ThreadPoolExecutor(1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": 3600},
        timezone=datetime.UTC,
    )
    minutes = RollupJob(db)
    scheduler.add_job(lambda: roll_minutes(minutes, say), "cron", second=_MINUTE_SECOND, id="minutes")
    scheduler.add_job(lambda: roll_all(db, say), "cron", minute=0, second=_HOUR_SECOND, id="hours")
    scheduler.add_job(
        lambda: prune(db, limits, say), "cron", minute=_PRUNE_MINUTES, second=_PRUNE_SECOND, id="retention"
    )
    scheduler.add_job(
        lambda: check(db, say), "cron", hour=_CHECK_HOUR, minute=_CHECK_MINUTE, second=_CHECK_SECOND, id="check"
    )
    scheduler.add_job(
        lambda: take_burst(bursts, say), _OncePerWindow(bursts), id="bursts", executor="bursts", misfire_grace_time=5
    )
    scheduler.start()
    return scheduler


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
    command = child_command("skuwise.agent.store.prune", *arguments)
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
    command = child_command("skuwise.agent.store.roll", str(db), *(["--and-open"] if and_open else []))
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode != 0:
        # The samples stay; the next run takes up what this one left.
        say(f"rollups are late: {done.stderr.strip()[-500:]}")
