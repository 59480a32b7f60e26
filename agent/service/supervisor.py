"""What the loop looks after between ticks: the watchdog, requests, a hung or changed driver, a disk that takes nothing,
a machine that slept."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..base.clock import SystemClock
from ..model import Absence
from ..store.database import SetAside
from .control import ControlServer, Message
from .gpu_drivers import GpuDrivers
from .notify import Notifier

MAX_PAUSE_SECONDS = 3600.0  # whoever forgets to resume gets the readings back within the hour
DEFAULT_PAUSE_SECONDS = 600.0
RESTART_AFTER_SECONDS = 60.0  # a driver that is reset answers again within this; one that is wedged does not
RESTART_EVERY_SECONDS = 3600.0
_MEND_SECONDS = 30.0  # how often it is seen to that the socket's name is still there
_SLEPT_SECONDS = 1.0  # less is the clocks being read one after the other


class RestartMemory(Protocol):
    """What outlives a restart; see `Instance`."""

    @property
    def restarted_at(self) -> float: ...

    def note_restart(self, ts: float) -> bool: ...

    def note_pause(self, until: float) -> None: ...


class StoreHealth(Protocol):
    """How the database is; see `Writer`."""

    @property
    def fault(self) -> Absence | None: ...

    @property
    def waiting_ticks(self) -> int: ...


@dataclass(eq=False)
class Supervisor:
    """Called by the loop on each of its rounds, and by nothing else: the watchdog stands for the loop alone."""

    clock: SystemClock
    notifier: Notifier
    drivers: GpuDrivers
    instance: RestartMemory
    store: StoreHealth
    server: ControlServer | None
    note: Callable[[Absence, float], None]
    say: Callable[[str], None]
    database: Path
    restart_reason: str | None = None
    _mended_at: float = -math.inf
    _told: tuple[str, str] = ("", "")
    _refused_restart: bool = False

    def __post_init__(self) -> None:
        self._slept = self.clock.suspended_seconds()
        self._paused = self.drivers.paused_until is not None

    def attend(self) -> None:
        now = self.clock.now()
        self.notifier.alive(now.monotonic_seconds)
        if self.server is not None and now.monotonic_seconds - self._mended_at >= _MEND_SECONDS:
            self._mended_at = now.monotonic_seconds
            self.server.mend()
        while self.server is not None and (request := self.server.next_request()) is not None:
            request.answer(self._answer(request.message))
        if self._paused and self.drivers.paused_until is None:
            self._paused = False
            self.instance.note_pause(0.0)
            self.say("the pause is over: taking up the GPUs again")
        self._tell()
        self._look_at_drivers(now.monotonic_seconds, now.wall_seconds)
        slept = self.clock.suspended_seconds()
        if slept - self._slept >= _SLEPT_SECONDS:
            self.suspended(slept - self._slept, now.wall_seconds)
        self._slept = slept

    def clock_stepped(self, step: float, ts: float) -> None:
        """The wall clock was set by `step` seconds; `ts` is the time after it."""
        way = "forward" if step > 0 else "back"
        text = f"The wall clock was set {way} by {abs(step):.3f} s"
        self.say(f"{text[0].lower()}{text[1:]}")
        self._event("clock", "clock-stepped", f"{text}; times before and after it do not compare.", ts)

    def suspended(self, seconds: float, ts: float) -> None:
        """The machine slept for `seconds` and woke at `ts`."""
        self._event("clock", "suspended", f"The machine was suspended for {seconds:.0f} s; nothing was read.", ts)

    def note_aside(self, aside: SetAside) -> None:
        """The database that a wedged agent still holds open was set aside."""
        text = f"The database was set aside as {aside.kept_as.name}: {aside.why}."
        self.say(f"{text[0].lower()}{text[1:]}")
        self._event("store", "wedged-database-set-aside", text, self.clock.now().wall_seconds)

    def _event(self, subject: str, reason: str, detail: str, ts: float) -> None:
        self.note(Absence("source", subject, "*", reason, detail), ts)

    def _tell(self) -> None:
        """Say what changed about the driver and the database, and let systemd's status line hold both."""
        driver, store = self.drivers.fault, self.store.fault
        reasons = ("" if driver is None else driver.reason, "" if store is None else store.reason)
        if reasons == self._told:
            return
        texts = (
            f"no GPU is read ({driver.reason}): {driver.detail}" if driver else "the GPUs are read again",
            f"nothing is written ({store.reason}): {store.detail} {store.remedy}"
            if store
            else "ticks are written again",
        )
        for text, reason, told in zip(texts, reasons, self._told, strict=True):
            if reason != told:
                self.say(text)
        held = [text for text, reason in zip(texts, reasons, strict=True) if reason]
        news = [text for text, reason, told in zip(texts, reasons, self._told, strict=True) if reason != told]
        self.notifier.status("; ".join(held or news))
        self._told = reasons

    # A hung or changed driver.

    def _look_at_drivers(self, monotonic: float, wall: float) -> None:
        wanted = self.drivers.wants_restart(monotonic, RESTART_AFTER_SECONDS)
        if wanted is None:
            self._refused_restart = False
            return
        name, reason = wanted
        since = wall - self.instance.restarted_at
        lately = 0 <= since < RESTART_EVERY_SECONDS
        # What cannot be written down would be done again a minute after the restart.
        if self.notifier.supervised and not lately and self.instance.note_restart(wall):
            self._event(name, "self-restart", f"{reason} The agent restarted itself.", wall)
            self.say(f"{reason} Stopping for a restart")
            self.restart_reason = reason
        elif not self._refused_restart:
            self._refused_restart = True
            why = "it did so within the last hour." if lately else "the restart could not be recorded."
            why = why if self.notifier.supervised else "no service manager would start it again."
            self.say(f"{reason} The agent does not restart itself: {why}")

    # Requests.

    def _answer(self, message: Message) -> Message:
        command = message.get("command")
        if command == "status":
            return self._status()
        if command == "resume":
            self.drivers.resume()
            return self._status()
        if command == "pause":
            seconds = message.get("seconds", DEFAULT_PAUSE_SECONDS)
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
                return {"ok": False, "error": "A pause is a number of seconds."}
            if not 0 < seconds <= MAX_PAUSE_SECONDS:  # NaN too, and integers that no float holds
                return {"ok": False, "error": "A pause is longer than nothing and at most an hour."}
            now = self.clock.now()
            free = self.drivers.pause(now, float(seconds))
            self._paused = True
            self.instance.note_pause(now.wall_seconds + seconds)
            return {**self._status(), "released": free}
        return {"ok": False, "error": "The agent knows pause, resume and status."}

    def _status(self) -> dict[str, object]:
        now = self.clock.now()
        fault, until, store = self.drivers.fault, self.drivers.paused_until, self.store.fault
        hung = self.drivers.hung_seconds(now.monotonic_seconds)
        return {
            "ok": True,
            "state": fault.reason if fault else "reading",
            "detail": fault.detail if fault else "",
            "gpus": sum(gpu.kind == "gpu" for gpu in self.drivers.gpus),
            "pause_left_seconds": None if until is None else max(0.0, until - now.monotonic_seconds),
            "hung_seconds": hung or None,
            "store": store.reason if store else "writing",
            "store_detail": f"{store.detail} {store.remedy}" if store else "",
            "waiting_ticks": self.store.waiting_ticks,
            "database": str(self.database),
            "pid": os.getpid(),
        }
