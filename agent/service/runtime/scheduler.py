"""Jobs at their times, on threads beside the loop.

In place of APScheduler, which brings asyncio, multiprocessing and importlib.metadata into the process:
7 of the 40 MB that an agent may hold (docs/operations.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
