"""What runs beside the loop: rollups, on APScheduler's own thread with a connection of their own."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

# The rollups of a minute wait until its last samples are committed (store: complete 5 s after its end).
_SECOND_OF_MINUTE = 17


def start_jobs(rollup: Callable[[], object]) -> BackgroundScheduler:
    """Start the jobs; the caller shuts the scheduler down. A job that fails is tried again a minute later.

    One thread, one instance: a slow rollup delays the next one and is not run twice.
    """
    # Its INFO lines say that a job was added and ran: nothing a person on a terminal asked for.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(1)},
        job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": 3600},
        timezone=datetime.UTC,
    )
    scheduler.add_job(rollup, "cron", second=_SECOND_OF_MINUTE, id="rollup")
    scheduler.start()
    return scheduler
