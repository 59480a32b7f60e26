"""Talking to systemd: sd_notify's datagrams (sd_notify(3)), and the watchdog that the main loop feeds."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping

_FEED_SHARE = 0.25  # of the watchdog's time; systemd asks for half of it at least


class Notifier:
    """Tells the service manager how we are. Does nothing where there is none, and never raises.

    Only the loop calls `alive`: a loop that stands still is what the watchdog is for, so no thread feeds it.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of an abstract address.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        if self._address.startswith(("/", "\0")):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)  # a manager that does not read must not stop the loop
        self._in_pod = "KUBERNETES_SERVICE_HOST" in environ  # every container of a pod has it
        self._feed_every = _watchdog_seconds(environ) * _FEED_SHARE
        self._fed_at: float | None = None

    @property
    def supervised(self) -> bool:
        """Whether someone is there who starts us again when we end: systemd, or the kubelet (a DaemonSet's pods have
        restartPolicy Always and no other).
        """
        return self._socket is not None or self._in_pod

    def ready(self, status: str) -> None:
        """Started, or done with reloading."""
        self._send("READY=1", f"STATUS={_line(status)}")

    def status(self, status: str) -> None:
        self._send(f"STATUS={_line(status)}")

    def reloading(self) -> None:
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", f"STATUS={_line(status)}")

    def alive(self, monotonic_seconds: float) -> None:
        """The loop came by. Feeds the watchdog where it is time."""
        if self._feed_every and (self._fed_at is None or monotonic_seconds - self._fed_at >= self._feed_every):
            self._fed_at = monotonic_seconds
            self._send("WATCHDOG=1")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *lines: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto("\n".join(lines).encode(), self._address)


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    """How long systemd waits for a sign of life; 0.0 where it does not wait, or waits for another process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    try:
        return max(0, int(environ.get("WATCHDOG_USEC", "0"))) / 1e6
    except ValueError:
        return 0.0


def _line(text: str) -> str:
    return " ".join(text.split())
