"""What runs beside the loop at its own times: rollups and bursts on threads, what is heavy in processes of its own."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ...rules.base.errors import StoreError
from ..base.retention_limits import Limits
from ..base.self_command import child_command
from ..store.prune_main import arguments_for
from ..store.rollups import RollupJob
from ..store.wal import checkpoint
from .bursts import Bursts

# How long a wait lasts at most before the wall clock is asked again: it may be set while nobody looks.
_LOOK_SECONDS = 30.0
# A run of retention ends by itself after 30 s (RetentionJob); a look at the whole file takes seconds.
_CHILD_SECONDS = 300.0

# What to run, and its first time after a given one (both Unix seconds).
Job = tuple[Callable[[], object], Callable[[float], float]]


def every(period_seconds: float, offset_seconds: float = 0.0) -> Callable[[float], float]:
    """The first moment after a given one (both Unix seconds) that lies `offset_seconds` into a period, in UTC."""
    return lambda now: ((now - offset_seconds) // period_seconds + 1) * period_seconds + offset_seconds


class Timetable:
    """Runs jobs at their times, one after the other, on a thread. `failed` hears what one of them raises."""

    def __init__(self, name: str, jobs: Sequence[Job], failed: Callable[[Exception], object], now: float) -> None:
        self._jobs, self._failed = jobs, failed
        self._times = [next_after(now) for _, next_after in jobs]
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._work, name=name, daemon=True)  # it dies with the process

    def take(self, now: float) -> list[Callable[[], object]]:
        """What has come due since this was last asked, each once however often it came."""
        due = [run for (run, _), at in zip(self._jobs, self._times, strict=True) if at <= now]
        for place, (_, next_after) in enumerate(self._jobs):
            at, following = self._times[place], next_after(now)
            # A clock that was put back brings the next time nearer.
            self._times[place] = following if at <= now else min(at, following)
        return due

    def seconds_left(self, now: float) -> float:
        """Until the next time of any, or until the clock is to be looked at."""
        return max(0.0, min(_LOOK_SECONDS, min(self._times) - now))

    def _work(self) -> None:
        while not self.stopped.wait(self.seconds_left(time.time())):
            for run in self.take(time.time()):
                if self.stopped.is_set():
                    return
                try:
                    run()
                except Exception as error:
                    self._failed(error)


class Children:
    """The processes of jobs that are too heavy for this one: what fails is said, and tried again the next time."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._running: subprocess.Popen[str] | None = None
        self._stopped = False

    def run(self, what: str, module: str, *arguments: str) -> None:
        """Run `module` of the store to its end. `what` is said before its error."""
        command = child_command(f"skuwise.agent.store.{module}", *arguments)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:  # noqa: S603
            self._running = child
            try:
                _, said = child.communicate(timeout=_CHILD_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                said = f"it took longer than {_CHILD_SECONDS:.0f} s and was ended"
        if child.returncode != 0 and not self._stopped:
            self._say(f"{what}: {said.strip()[-500:]}")

    def stop(self) -> None:
        """End the one that runs: what it had not committed is done the next time."""
        self._stopped = True
        if self._running is not None:
            self._running.kill()


def start_jobs(db: Path, say: Callable[[str], None], bursts: Bursts, limits: Limits) -> Callable[[], None]:
    """Start the jobs; call what is returned to stop them.

    `limits`: how long what is kept, and how large the database may grow.
    """
    children, minutes = Children(say), RollupJob(db)

    def roll_minutes() -> None:
        minutes.run(time.time(), periods=("minute",))
        checkpoint(db)  # the log is brought home here, for the loop's thread never does

    def failed(error: Exception) -> None:
        say(f"a job failed with {type(error).__name__}: {str(error)[:200]}")

    # A period's last samples are committed some seconds after its end, so the minute's job waits for them; the hour's
    # runs between two of the minute's, and so does retention. The whole file is looked over once a day: damage is
    # marked, and the writer stops at its next commit.
    prune = ("retention is late", "prune_main", *arguments_for(db, limits))
    check = ("the database was looked over", "prune_main", str(db), "--check")
    keeping = [
        (roll_minutes, every(60, 17)),
        (lambda: children.run("rollups are late", "rollups", str(db)), every(3600, 47)),
        (lambda: children.run(*prune), every(600, 7 * 60 + 32)),
        (lambda: children.run(*check), every(86400, 3 * 3600 + 33 * 60 + 32)),
    ]
    tables = [Timetable("jobs", keeping, failed, time.time())]
    if bursts.every_seconds > 0:  # a burst takes seconds and must be on time; it does not wait for the rollups
        tables.append(Timetable("bursts", [(bursts.run, bursts.next_start)], failed, time.time()))
    for table in tables:
        table.thread.start()

    def stop() -> None:
        bursts.stop()
        for table in tables:
            table.stopped.set()
        children.stop()
        for table in tables:
            table.thread.join(0.5)

    return stop


def roll_last(db: Path, say: Callable[[str], None]) -> None:
    """Roll up all that a stopping agent saw, also of the periods that are not over."""
    try:
        RollupJob(db).run(time.time(), and_open=True)
    except (StoreError, sqlite3.Error) as error:
        say(f"rollups are late: {error}")  # the samples stay; the next run takes up what this one left
