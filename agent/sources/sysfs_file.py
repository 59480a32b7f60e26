"""A small file of sysfs or procfs that is kept open and read again at each tick."""

from __future__ import annotations

import errno
import os
from pathlib import Path

# The file behind the descriptor is gone (driver reloaded, device unplugged); the same path may be back already.
_STALE = frozenset({errno.ENODEV, errno.ENXIO, errno.ESTALE})


class SysfsFile:
    """Reads from offset 0 again and again: sysfs and procfs make their text anew at each such read.

    An ordinary file (a fixture) must be rewritten in place: one that was replaced by rename is not noticed.
    """

    __slots__ = ("fd", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd: int | None = None  # None: it is opened when it is read

    def read(self, size: int = 128) -> bytes:
        """The first `size` bytes. Raises `OSError`; a stale descriptor is opened once more first."""
        if self.fd is not None:
            try:
                return os.pread(self.fd, size, 0)
            except OSError as error:
                self.close()
                if error.errno not in _STALE:
                    raise
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = os.pread(fd, size, 0)
        except OSError:
            os.close(fd)
            raise
        self.fd = fd
        return data

    def read_all(self, chunk: int = 4096, limit: int = 1 << 20, longest_line: int = 4096) -> bytes:
        """The whole file, up to `limit` bytes; procfs hands long files out a page at a time.

        It ends where another of its lines (of `longest_line` bytes at most) would have found room in the page.
        """
        data = self.read(chunk)
        if len(data) <= chunk - longest_line or self.fd is None:
            return data
        parts, length = [data], len(data)
        while length < limit and (data := os.pread(self.fd, chunk, length)):
            parts.append(data)
            length += len(data)
        return b"".join(parts)

    def close(self) -> None:
        """Let the descriptor go; the next read opens the path anew."""
        fd, self.fd = self.fd, None  # first: a close that fails has let go all the same, and the number may be reused
        if fd is not None:
            os.close(fd)
