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
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)  # and POLLHUP, which is always told
                if not poll.poll(max(0.0, ends - time.monotonic()) * 1000):
                    raise TimeoutError(errno.ETIMEDOUT, f"its end was not written within {patience_seconds:g} s")
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


def read_text(path: Path, limit_bytes: int) -> str:
    """As `read_bounded`, as text. A byte order mark is dropped; what is not UTF-8 is an OSError that says so."""
    raw = read_bounded(path, limit_bytes)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise OSError(errno.EILSEQ, "it is UTF-16, not UTF-8 text") from None
        line = raw[: error.start].count(b"\n") + 1
        raise OSError(errno.EILSEQ, f"line {line} is not UTF-8 text") from None


def open_stream(path: Path) -> io.BufferedReader:
    """A file or a pipe to be read piece by piece, by a reader with bounds of its own. Raises OSError."""
    descriptor, _ = _open(path)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


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


def _too_large(limit_bytes: int) -> OSError:
    size = f"{limit_bytes >> 20} MiB" if limit_bytes >= 1 << 20 else f"{limit_bytes >> 10} KiB"
    return OSError(errno.EFBIG, f"it is larger than {size if limit_bytes >= 1024 else f'{limit_bytes} bytes'}")
