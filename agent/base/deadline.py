"""One limit of time for a whole talk over a network, kept from outside of whoever reads.

A timeout of a socket is for one wait: a server that sends a byte now and then is never given up by it, wherever the
byte stands (a status line, a header, a chunk's size, a TLS handshake). So the talk has a clock in a thread of its own,
which shuts its sockets down when time is up: whoever waits or loops on one comes to its end there.
"""

from __future__ import annotations

import math
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol

_AT_ONCE = struct.pack("ii", 1, 0)
SocketAddress = tuple[socket.AddressFamily, tuple[Any, ...]]


class HasSocket(Protocol):
    """A socket, or what wraps one."""

    def fileno(self) -> int: ...


class Deadline:
    """A talk may take so many seconds, names and connecting included. A context manager.

    `over`: time was up, and what was read last may have been cut short.
    """

    def __init__(self, seconds: float, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._end = monotonic() + seconds
        self._lock = threading.Lock()
        self._held: list[socket.socket] = []
        self._done = False
        self.over = False
        self._clock = threading.Timer(seconds, self._cut)
        self._clock.name = "skuwise-deadline"
        self._clock.daemon = True

    def __enter__(self) -> Deadline:
        self._clock.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clock.cancel()
        with self._lock:
            self._done = True
            held, self._held = self._held, []
        for own in held:
            own.close()
        self._clock.join()

    def left(self) -> float:
        """Seconds until the end. Raises TimeoutError where there are none."""
        left = self._end - self._monotonic()
        if left <= 0 or self.over:
            raise TimeoutError("no time is left")
        return left

    def guard(self, connection: HasSocket) -> None:
        """Shut this connection down at the end, whoever uses it then and whatever has been wrapped around it."""
        # A socket of our own on the same connection: TLS takes the number of the first one away, and closing that one
        # in its own thread must not let ours meet a stranger's.
        own = socket.socket(fileno=os.dup(connection.fileno()))
        with self._lock:
            if not self._done:
                self._held.append(own)
                if self.over:
                    _shut(own)
                return
        own.close()

    def connect(self, host: str, port: int, *, most_seconds: float = math.inf) -> socket.socket:
        """A connection over TCP, guarded; each wait on it ends with the deadline. `most_seconds`: for connecting alone.

        Raises what `socket.create_connection` raises.
        """
        until = self._monotonic() + min(most_seconds, self.left())
        failed: OSError | None = None
        for family, address in resolve_host(host, port, until - self._monotonic()):
            connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            try:
                if (left := until - self._monotonic()) <= 0:
                    raise TimeoutError("no time is left to connect")
                connection.settimeout(left)
                connection.connect(address)
                connection.settimeout(self.left())
                self.guard(connection)
            except OSError as error:
                connection.close()
                failed = error
            else:
                return connection
        raise failed or OSError(f"{host} has no address")

    def _cut(self) -> None:
        with self._lock:
            self.over = True
            for own in self._held:
                _shut(own)


def resolve_host(host: str, port: int, seconds: float) -> list[SocketAddress]:
    """The addresses of a name. Raises TimeoutError where nobody tells them in time, OSError where there are none.

    No resolver of libc can be told to stop, so it is asked in a thread that is left behind where it is late; it ends
    with the resolver's own limit.
    """
    try:
        return _addresses(host, port, socket.AI_NUMERICHOST)
    except OSError:
        pass
    told: list[list[SocketAddress] | OSError] = []

    def ask() -> None:
        try:
            told.append(_addresses(host, port, 0))
        except OSError as error:
            told.append(error)
        except UnicodeError:
            told.append(socket.gaierror(socket.EAI_NONAME, "not a name of a host"))

    asking = threading.Thread(target=ask, name="skuwise-resolve", daemon=True)
    asking.start()
    asking.join(max(seconds, 0.0))
    if not told:
        raise TimeoutError("the name was not resolved in time")
    if isinstance(told[0], OSError):
        raise told[0]
    return told[0]


def _addresses(host: str, port: int, flags: int) -> list[SocketAddress]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError:
        if flags:
            raise OSError("not a number") from None
        raise
    return [(family, address) for family, _, _, _, address in found]


def _shut(own: socket.socket) -> None:
    with suppress(OSError):  # closed by the server, or not connected yet
        # Closing it then ends the connection for the server, too, however much it has still to send.
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        own.shutdown(socket.SHUT_RDWR)
