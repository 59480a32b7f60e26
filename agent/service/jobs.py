"""What runs beside the loop: rollups, kept off its thread and, where they are heavy, out of its process."""

from __future__ import annotations

import datetime
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from ...rules.errors import StoreError
from ..store.rollups import RollupJob

# A period's last samples are committed up to 10 s after its end (Writer.open), so the minute's job waits for them; the
# hour's runs half a minute later, between two of the minute's.
_MINUTE_SECOND, _HOUR_SECOND = 17, 47


def start_jobs(db: Path, say: Callable[[str], None]) -> BackgroundScheduler:
    """Start the jobs; the caller shuts the scheduler down. What fails is said, and tried again the next time."""
    # Its INFO lines say that a job was added and ran: nothing a person on a terminal asked for.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": 3600},
        timezone=datetime.UTC,
    )
    minutes = RollupJob(db)
    scheduler.add_job(lambda: roll_minutes(minutes, say), "cron", second=_MINUTE_SECOND, id="minutes")
    scheduler.add_job(lambda: roll_all(db, say), "cron", minute=0, second=_HOUR_SECOND, id="hours")
    scheduler.start()
    return scheduler


def roll_minutes(job: RollupJob, say: Callable[[str], None]) -> None:
    """Roll up the minutes that are due, on this thread."""
    try:
        job.run(time.time(), periods=("minute",))
    except StoreError as error:
        say(f"rollups are late: {error}")


def roll_all(db: Path, say: Callable[[str], None], *, and_open: bool = False) -> None:
    """Roll up minutes and hours in a process of their own, and wait for it."""
    command = [sys.executable, "-m", "skuwise.agent.store.roll", str(db), *(["--and-open"] if and_open else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode != 0:
        # The samples stay; the next run takes up what this one left.
        say(f"rollups are late: {done.stderr.strip()[-500:]}")
