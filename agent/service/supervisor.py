"""What the loop looks after between ticks: systemd's watchdog, requests, a hung or changed driver, a disk that takes
nothing."""

import contextlib
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..base.clock import SystemClock
from ..model import Absence
from ..store.writer import Writer
from .control import ControlServer, Message
from .driver_thread import DriverThread
from .instance_lock import InstanceLock

MAX_PAUSE_SECONDS = 3600.0  # a forgotten pause ends within the hour
RESTART_AFTER_SECONDS = 60.0  # a driver that is reset answers again within this; one that is wedged does not
RESTART_EVERY_SECONDS = 3600.0
_FEED_SHARE = 0.25  # of the watchdog's time; systemd asks for half of it at least


class Notifier:
    """Reports the state of the agent to the service manager (sd_notify(3)), where there is one. `supervised`: someone
    starts us again when we end. Only the loop calls `alive`: the watchdog is for one that stands still."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of an abstract address.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if self._address.startswith(("/", "\0")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)  # a manager that does not read must not stop the loop
        # The kubelet restarts the pods of a DaemonSet always; its variable is in every container.
        self.supervised = self._socket is not None or "KUBERNETES_SERVICE_HOST" in environ
        usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", str(os.getpid()))
        self._feed_every = int(usec) / 1e6 * _FEED_SHARE if usec.isdecimal() and pid == str(os.getpid()) else 0.0
        self._fed_at = -math.inf

    def tell(self, state: str = "", status: str = "") -> None:
        """Report a state of sd_notify(3) (READY, RELOADING, STOPPING; empty: as it was) and the status line."""
        lines = [f"{state}=1"] if state else []
        lines += [f"STATUS={' '.join(status.split())}"] if status else []
        lines += [f"MONOTONIC_USEC={time.monotonic_ns() // 1000}"] if state == "RELOADING" else []
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto("\n".join(lines).encode(), self._address)

    def alive(self, monotonic_seconds: float) -> None:
        """The loop came by. Feeds the watchdog where it is time."""
        if self._feed_every and monotonic_seconds - self._fed_at >= self._feed_every:
            self._fed_at = monotonic_seconds
            self.tell("WATCHDOG")


@dataclass(eq=False)
class Supervisor:
    """Called by the loop on each of its rounds. `wants_restart`: whether the agent is to be started again."""

    clock: SystemClock
    notifier: Notifier
    driver: DriverThread
    lock: InstanceLock
    store: Writer
    server: ControlServer | None
    note: Callable[[Absence, float], None]
    say: Callable[[str], None]
    wants_restart: bool = False
    _told: tuple[str, str] = ("", "")
    _refused_restart: bool = False

    def __post_init__(self) -> None:
        self._paused = self.driver.paused_until is not None

    def attend(self) -> None:
        now = self.clock.now()
        self.notifier.alive(now.monotonic_seconds)
        if self.server is not None:
            self.server.serve(self._answer)
        if self._paused and self.driver.paused_until is None:
            self._paused = False
            self.lock.remember(paused_until=0.0)
            self.say("the pause is over: taking up the GPUs again")
        self._tell()
        self._look_at_driver(now.wall_seconds)

    def clock_stepped(self, step: float, ts: float) -> None:
        """The wall clock was set by `step` seconds; `ts` is the time after it."""
        text = f"wall clock was set {'forward' if step > 0 else 'back'} by {abs(step):.3f} s"
        self.say(f"the {text}")
        self._event("clock", "clock-stepped", f"The {text}; times before and after it do not compare.", ts)

    def _event(self, subject: str, reason: str, detail: str, ts: float) -> None:
        self.note(Absence("source", subject, "*", reason, detail), ts)

    def _tell(self) -> None:
        """Say what changed about the driver and the database, and let systemd's status line hold what is wrong."""
        driver, store = self.driver.fault, self.store.fault
        texts = (
            f"no GPU is read ({driver.reason}): {driver.detail}" if driver else "",
            f"nothing is written ({store.reason}): {store.detail} {store.remedy}" if store else "",
        )
        wells = ("the GPUs are read again", "ticks are written again")
        reasons = (driver.reason if driver else "", store.reason if store else "")
        # By the codes: sizes in a text change at every attempt to write.
        lines = zip(texts, wells, reasons, self._told, strict=True)
        news = [text or well for text, well, new, old in lines if new != old]
        for text in news:
            self.say(text)
        if news:
            self.notifier.tell(status="; ".join([text for text in texts if text] or news))
        self._told = reasons

    def _look_at_driver(self, wall: float) -> None:
        """End by ourselves where only a new process can read the GPUs: as a last resort, and once an hour at most."""
        reason = self.driver.wants_restart(RESTART_AFTER_SECONDS)
        if reason is None:
            self._refused_restart = False
            return
        lately = 0 <= wall - self.lock.memory.restarted_at < RESTART_EVERY_SECONDS
        # What cannot be written down would be done again a minute after the restart.
        if self.notifier.supervised and not lately and self.lock.remember(restarted_at=wall):
            self._event(self.driver.name, "self-restart", f"{reason} The agent restarted itself.", wall)
            self.say(f"{reason} Stopping for a restart")
            self.wants_restart = True
        elif not self._refused_restart:
            self._refused_restart = True
            why = "it did so within the last hour." if lately else "the restart could not be recorded."
            why = why if self.notifier.supervised else "no service manager would start it again."
            self.say(f"{reason} The agent does not restart itself: {why}")

    def _answer(self, message: Message) -> Message:
        command, seconds, now = message.get("command"), message.get("seconds"), self.clock.now()
        if command == "resume":
            self.driver.resume()
        elif command == "pause":
            if not isinstance(seconds, (int, float)) or not 0 < seconds <= MAX_PAUSE_SECONDS:  # NaN too
                return {"ok": False, "error": "A pause is a number of seconds, at most an hour of them."}
            free = self.driver.pause(now, float(seconds))
            self._paused = True
            self.lock.remember(paused_until=now.wall_seconds + seconds)
            return {"ok": True, "released": free}
        elif command != "status":
            return {"ok": False, "error": "The agent knows pause, resume and status."}
        fault, until, store = self.driver.fault, self.driver.paused_until, self.store.fault
        return {
            "ok": True,
            "state": fault.reason if fault else "reading",
            "detail": fault.detail if fault else "",
            "gpus": sum(gpu.kind == "gpu" for gpu in self.driver.gpus),
            "pause_left_seconds": None if until is None else max(0.0, until - now.monotonic_seconds),
            "hung_seconds": self.driver.hung_seconds or None,
            "store": store.reason if store else "writing",
            "store_detail": f"{store.detail} {store.remedy}" if store else "",
            "waiting_ticks": self.store.waiting_ticks,
            "database": str(self.lock.database),
            "pid": os.getpid(),
        }
