"""The work whose time is taken: a command of the user's, or the probe that stands in for it."""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...rules.base.errors import SourceError, UsageError
from ..base.self_command import child_command

_PROBE = "skuwise.agent.impact.probe"
_CALIBRATION_LOOPS = 50


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """A unit of work that can be done again and again. `is_printed`: it prints its seconds on its last line."""

    command: tuple[str, ...]
    is_printed: bool
    meaning: str

    def run(self, environ: Mapping[str, str], monotonic: Callable[[], float] = time.monotonic) -> float:
        """Do it once: how many seconds it took. Raises SourceError where it fails or prints no time."""
        began = monotonic()
        try:
            done = subprocess.run(  # noqa: S603 - the user's own command
                self.command, stdin=subprocess.DEVNULL, capture_output=True, env=dict(environ), check=False
            )
        except OSError as error:
            raise SourceError(
                f"The work cannot be started: {error.strerror} ({self.command[0]}).", "Name a program that is there."
            ) from error
        wall = monotonic() - began
        if done.returncode != 0:
            raise SourceError(
                f"The work failed with exit status {done.returncode}: {_last_line(done.stderr)[:200]}",
                f"Try it alone: {shlex.join(self.command)}",
            )
        return self._printed(done.stdout) if self.is_printed else wall

    def _printed(self, output: bytes) -> float:
        text = _last_line(output)
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise SourceError(
                f"The work's last line is not a number of seconds: {text[:80]!r}.",
                "Leave out --work-prints, or fix what the work prints.",
            )
        return seconds


def _last_line(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "no output"


def users_work(command: str, *, is_printed: bool) -> WorkUnit:
    """The work that a user names. Raises UsageError for a command that is none."""
    try:
        words = tuple(shlex.split(command))
    except ValueError:
        words = ()
    if not words:
        raise UsageError(f"{command!r} is not a command.", "Write --work 'python step.py --steps 100'.")
    measure = "the seconds it prints" if is_printed else "its wall time"
    return WorkUnit(words, is_printed, f"{shlex.join(words)} ({measure})")


def probe_work(seconds: float, environ: Mapping[str, str], cores: Sequence[int] | None = None) -> WorkUnit:
    """The built-in probe with as many loops as take about `seconds` here, on all cores at once."""
    count = len(cores or os.sched_getaffinity(0))
    once = WorkUnit((*child_command(_PROBE), str(_CALIBRATION_LOOPS), str(count)), True, "").run(environ)
    loops = max(1, round(_CALIBRATION_LOOPS * seconds / once))
    command = (*child_command(_PROBE), str(loops), str(count))
    return WorkUnit(command, True, f"the built-in probe: hashing and copying on {count} cores, no GPU in it")
