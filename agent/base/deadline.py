"""A time limit of a whole network exchange, kept outside of the reader.

A socket's timeout is for one wait: it never ends on a server that sends a byte now and then, wherever the byte stands
(a status line, a header, a chunk's size, a TLS handshake). So a timer shuts the sockets down when time is up.
"""

import os
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Self


class Deadline:
    """A time limit of an exchange, connecting included (not resolving). `over`: what was read last may have been
    cut."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._guarded: list[socket.socket] = []
        self.over = False
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        for connection in self._guarded:
            connection.close()

    def left(self) -> float:
        """Seconds until the end. Raises TimeoutError where there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("no time is left")
        return left

    def guard(self, connection: socket.socket) -> None:
        """Shut this connection down at the end, also where another thread uses or wraps it."""
        # A duplicate: TLS takes the original over, and what closes that must not free our number for a stranger.
        duplicate = socket.socket(fileno=os.dup(connection.fileno()))
        self._guarded.append(duplicate)
        if self.over:
            _shut(duplicate)

    def connect(self, host: str, port: int) -> socket.socket:
        """A guarded TCP connection. Raises OSError."""
        try:
            connection = socket.create_connection((host, port), self.left())
        except UnicodeError:
            raise socket.gaierror(socket.EAI_NONAME, "not a name of a host") from None
        self.guard(connection)
        connection.settimeout(max(self._end - time.monotonic(), 0.01))
        return connection

    def _cut(self) -> None:
        self.over = True
        for connection in list(self._guarded):
            _shut(connection)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):  # closed by the server
        # Closing it then ends the connection for the server, too, however much it has still to send.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
