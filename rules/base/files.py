"""Small files from outside, read whole: bounded in bytes and time, regular files and pipes only; and TOML.

Faults of `read_bounded` and `open_stream` are OSErrors whose `strerror` completes "FILE cannot be read: ...", so that
every reader names the file and the remedy.
"""

import errno
import io
import os
import re
import select
import stat
import time
from pathlib import Path
from typing import Any

from .errors import UsageError

TOML_MAX_BYTES = 1 << 20
_NULL = os.makedev(1, 3)  # Linux: /dev/null, the usual name for "no file"
# Each part of a dotted key costs the parser as much as all before it: a key of 30,000 takes it minutes.
_MANY_DOTS = re.compile(r"^(?:[^.\n\"'=#]*\.){65}", re.MULTILINE)


def read_bounded(path: Path, limit_bytes: int, patience_seconds: float = 10.0) -> bytes:
    """The content of a file or a pipe; of ``/dev/null`` nothing. Raises OSError, also beyond `limit_bytes` and for
    a pipe that is not written to its end in time."""
    content = bytearray()
    deadline = time.monotonic() + patience_seconds
    with os.fdopen(_open(path), "rb", buffering=0) as file:
        poll = select.poll()
        poll.register(file, select.POLLIN)
        while len(content) <= limit_bytes:
            # A regular file is always ready.
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise TimeoutError(errno.ETIMEDOUT, f"its end was not written within {patience_seconds:g} s")
            part = file.read(1 << 16)
            if part == b"":
                return bytes(content)
            content += part or b""  # None: another reader of the pipe was faster
    size = f"{limit_bytes >> 20} MiB" if limit_bytes >= 1 << 20 else f"{limit_bytes:,} bytes"
    raise OSError(errno.EFBIG, f"it is larger than {size}")


def read_text(path: Path, limit_bytes: int) -> str:
    """As `read_bounded`, as UTF-8 text without a byte order mark. Raises OSError for other encodings, too."""
    raw = read_bounded(path, limit_bytes)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise OSError(errno.EILSEQ, f"line {line} is not UTF-8 text") from None


def read_token(path: Path, setting: str) -> str:
    """The token in a file: one printable ASCII word. Raises UsageError for a file that others can read."""
    try:
        is_open, token = path.stat().st_mode & 0o007, read_text(path, 16 * 1024).strip()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", f"Check {setting}.") from error
    if is_open:
        raise UsageError(f"Everybody can read {path}.", "Run chmod 0600 on it, and replace the token.")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"{path} has no token of printable ASCII characters.", f"Check {setting}.")
    return token


def open_stream(path: Path) -> io.BufferedReader:
    """A file or a pipe to be read piece by piece, by a reader with its own bounds. Raises OSError."""
    descriptor = _open(path)
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """The tables of a file; `what` names it in errors (``The configuration file /etc/...``). Raises FileNotFoundError,
    and UsageError for anything but TOML within the bounds."""
    import tomllib  # noqa: PLC0415 - most commands read no TOML

    try:
        text = read_text(path, TOML_MAX_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        remedy = "Name an ordinary file of UTF-8 text that you may read."
        raise UsageError(f"{what} cannot be read: {error.strerror}.", remedy) from error
    try:
        if match := _MANY_DOTS.search(text):
            raise ValueError(f"more than 64 dots (at line {text.count(chr(10), 0, match.start()) + 1})")
        return tomllib.loads(text)
    except (RecursionError, ValueError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise UsageError(f"{what} is not valid TOML: {why}.", "Fix the file or remove it.") from None


def _open(path: Path) -> int:
    if "\0" in str(path):
        raise FileNotFoundError(errno.ENOENT, "its name holds a NUL")
    # Checked before it is opened: opening a device may have an effect (a tape winds, a line hangs up).
    status = path.stat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode) or status.st_rdev == _NULL):
        raise OSError(errno.EINVAL, "it is a folder, a device or a socket, not a file")
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
