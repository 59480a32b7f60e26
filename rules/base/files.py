"""Small files that anybody may have put there, read whole: bounded in bytes and time, whatever the path leads to.

All faults are OSErrors whose `strerror` completes "FILE cannot be read: ...", so that every reader names the file and
the remedy in its own words.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import time
from pathlib import Path

# What `diff <(...)` and the like hand over is a pipe; one that nobody writes into is left after this.
PATIENCE_SECONDS = 10.0
# One that is read piece by piece and never comes to its end, a byte at a time, is left after this.
MOST_SECONDS = 3600.0
_PIECE_BYTES = 1 << 16
_NULL = os.makedev(1, 3)  # Linux: /dev/null, the usual name for "no file"
_KINDS = {
    stat.S_IFDIR: "it is a folder",
    stat.S_IFCHR: "it is a device or a terminal, not a file",
    stat.S_IFBLK: "it is a disk, not a file",
    stat.S_IFSOCK: "it is a socket, not a file",
}


def read_bounded(path: Path, limit_bytes: int, patience_seconds: float = PATIENCE_SECONDS) -> bytes:
    """The whole content of a file or a pipe; of ``/dev/null`` nothing.

    Raises OSError, for more than `limit_bytes` and for a pipe that is not written to its end in `patience_seconds` too.
    """
    descriptor, about = _open(path)
    try:
        if about.st_rdev == _NULL and stat.S_ISCHR(about.st_mode):
            return b""
        if stat.S_ISREG(about.st_mode) and about.st_size > limit_bytes:
            raise _too_large(limit_bytes)
        ends = time.monotonic() + patience_seconds if stat.S_ISFIFO(about.st_mode) else None
        parts: list[bytes] = []
        left = limit_bytes + 1
        while left > 0:
            if ends is not None:
                left_seconds = max(0.0, ends - time.monotonic())
                _wait(descriptor, left_seconds, f"its end was not written within {patience_seconds:g} s")
            try:
                piece = os.read(descriptor, min(left, _PIECE_BYTES))
            except BlockingIOError:
                continue
            if not piece:
                return b"".join(parts)
            parts.append(piece)
            left -= len(piece)
        raise _too_large(limit_bytes)
    finally:
        os.close(descriptor)


def read_text(path: Path, limit_bytes: int, patience_seconds: float = PATIENCE_SECONDS) -> str:
    """As `read_bounded`, as text. A byte order mark is dropped; what is not UTF-8 is an OSError that says so."""
    raw = read_bounded(path, limit_bytes, patience_seconds)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise OSError(errno.EILSEQ, "it is UTF-16, not UTF-8 text") from None
        line = raw[: error.start].count(b"\n") + 1
        raise OSError(errno.EILSEQ, f"line {line} is not UTF-8 text") from None


def open_stream(path: Path, patience_seconds: float = PATIENCE_SECONDS) -> io.BufferedReader:
    """A file or a pipe to be read piece by piece, by a reader with bounds of its own. Raises OSError.

    A pipe that gives nothing for `patience_seconds` at a time is left with a TimeoutError: here where it is its
    beginning that does not come, else where it is read.
    """
    descriptor, about = _open(path)
    if not stat.S_ISFIFO(about.st_mode):
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    pipe = _PatientPipe(descriptor, patience_seconds, closes=True)  # whose the descriptor is from here on
    try:
        pipe.wait()
        return io.BufferedReader(pipe, _PIECE_BYTES)
    except BaseException:
        pipe.close()
        raise


def standard_input(patience_seconds: float, descriptor: int = 0) -> io.BufferedReader:
    """What a command is handed on stdin, left open: as `open_stream`, where it is something that may keep silent."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor):
        return io.BufferedReader(_PatientPipe(descriptor, patience_seconds, closes=False), _PIECE_BYTES)
    return os.fdopen(descriptor, "rb", closefd=False)


class _PatientPipe(io.RawIOBase):
    """A pipe of which no reading waits longer than `patience_seconds`, and all of them not beyond `MOST_SECONDS`."""

    def __init__(self, descriptor: int, patience_seconds: float, *, closes: bool) -> None:
        self._descriptor, self._patience_seconds, self._closes = descriptor, patience_seconds, closes
        self._ends = time.monotonic() + MOST_SECONDS

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def wait(self) -> None:
        """Until there is something to read, or its end. Raises TimeoutError."""
        now = time.monotonic()
        if now >= self._ends:
            raise TimeoutError(errno.ETIMEDOUT, f"its end was not reached in {MOST_SECONDS / 60:g} min")
        seconds = min(self._patience_seconds, self._ends - now)
        _wait(self._descriptor, seconds, f"no data was written to it for {self._patience_seconds:g} s")

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override] - typeshed has Buffer
        while True:
            self.wait()
            try:
                piece = os.read(self._descriptor, len(buffer))
            except BlockingIOError:
                continue
            buffer[: len(piece)] = piece
            return len(piece)

    def close(self) -> None:
        if self.closed:
            return
        super().close()  # first: once it has a new owner, nothing may close the number again
        if self._closes:
            os.close(self._descriptor)


def _open(path: Path) -> tuple[int, os.stat_result]:
    if "\0" in str(path):
        raise FileNotFoundError(errno.ENOENT, "its name holds a NUL")
    # A device may do something by being opened (a tape winds, a line hangs up), and a pipe waits for its writer.
    _check_kind(path.stat())
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        about = os.fstat(descriptor)
        _check_kind(about)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, about


def _check_kind(about: os.stat_result) -> None:
    kind = stat.S_IFMT(about.st_mode)
    if kind in _KINDS and not (kind == stat.S_IFCHR and about.st_rdev == _NULL):
        raise OSError(errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL, _KINDS[kind])


def _wait(descriptor: int, seconds: float, otherwise: str) -> None:
    """Until there is something to read, or the end. Raises TimeoutError, saying `otherwise`."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)  # and POLLHUP, which is always told
    if not poll.poll(seconds * 1000):
        raise TimeoutError(errno.ETIMEDOUT, otherwise)


def _too_large(limit_bytes: int) -> OSError:
    size = f"{limit_bytes >> 20} MiB" if limit_bytes >= 1 << 20 else f"{limit_bytes >> 10} KiB"
    return OSError(errno.EFBIG, f"it is larger than {size if limit_bytes >= 1024 else f'{limit_bytes} bytes'}")
