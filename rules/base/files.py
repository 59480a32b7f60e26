"""Small files that anybody may have put there, read whole: bounded in bytes and time, whatever the path leads to.

All faults are OSErrors whose `strerror` completes "FILE cannot be read: ...", so that every reader names the file and
the remedy in its own words.
"""

from __future__ import annotations

import errno
import io
import os
import re
import select
import stat
import time
import tomllib
from pathlib import Path
from typing import Any

from .errors import UsageError

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


TOML_MAX_BYTES = 1 << 20
# Each part of a dotted key costs the parser as much as all before it: a line of 30,000 takes it minutes.
MAX_DOTS = 64
_MANY_DOTS = re.compile(rf"^(?:[^.\n]*\.){{{MAX_DOTS + 1}}}", re.MULTILINE)
# Strings and comments, whose dots and digits are nobody's keys or numbers. One that is not closed ends with its line or
# the file, so that the search never turns back.
_TEXTS = re.compile(
    r"""(?s:\"{3}(?:\\.|[^\\])*?(?:\"{3}|\\?\Z)|'{3}.*?(?:'{3}|\Z)|"(?:\\.|[^"\\\n])*(?:"|(?=\n)|\\?\Z)|'[^'\n]*(?:'|(?=\n)|\Z))|\#[^\n]*"""
)
_MAX_DIGITS = 4000  # of a number; Python's own limit is 4300
_MANY_DIGITS = re.compile(rf"[0-9][0-9_]{{{_MAX_DIGITS}}}")
_FAULTS = ((_MANY_DOTS, f"more than {MAX_DOTS} dots"), (_MANY_DIGITS, "a number that is too long"))


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The tables of a file; `what` names it in errors (``The configuration file /etc/...``).

    Raises FileNotFoundError where there is none, UsageError for anything but TOML within the bounds.
    """
    try:
        text = read_text(path, TOML_MAX_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        remedy = (
            "Check its permissions." if isinstance(error, PermissionError) else "Name an ordinary file of UTF-8 text."
        )
        raise UsageError(f"{what} cannot be read: {error.strerror}.", remedy) from error
    bare = _TEXTS.sub(lambda found: "\n" * found[0].count("\n"), text)
    for pattern, fault in _FAULTS:
        if match := pattern.search(bare):
            line = bare.count("\n", 0, match.start()) + 1
            raise UsageError(f"{what} cannot be read: line {line} has {fault}.", "Correct the line.")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{what} cannot be read: it is nested too deeply.", "Flatten its values.") from None
    except ValueError as error:  # tomllib's own among them
        raise UsageError(f"{what} is not valid TOML: {error}.", "Fix the file or remove it.") from None
