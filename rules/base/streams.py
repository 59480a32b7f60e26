"""The standard streams of a command: bounded in what they may do to it.

A closed stream stays closed for whoever prints, and no database or socket gets its number. Output that cannot be
written is one kind of error (`OutputError`), told apart from a file's. Narration that cannot be written is lost, and
nothing else: an agent whose log lies on a full disk goes on.
"""

from __future__ import annotations

import errno
import io
import os
import sys

from .errors import SkuwiseError
from .sanitize import ESCAPED


class OutputError(SkuwiseError):
    """Standard output takes nothing more."""

    def __init__(self, error: OSError) -> None:
        remedy = "Free some space there." if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Redirect it elsewhere."
        super().__init__(f"Standard output cannot be written: {error.strerror}.", remedy)


class _Output(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error) from error


class _Narration(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError:
            discard(2)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            discard(2)


def own_streams() -> None:
    """Take the process's standard streams over. For a process that is a command, before anything else opens a file."""
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:  # closed: what is opened next would get the number. Writing to 1 fails, as it would have.
            os.open(os.devnull, flags)
    encodings = [getattr(stream, "encoding", None) or "utf-8" for stream in (sys.stdout, sys.stderr)]
    sys.stdout = _stream(_Output, 1, encodings[0], line_buffering=os.isatty(1))
    sys.stderr = _stream(_Narration, 2, encodings[1], line_buffering=True)


def _stream(kind: type[io.TextIOWrapper], number: int, encoding: str, *, line_buffering: bool) -> io.TextIOWrapper:
    raw = io.FileIO(number, "w", closefd=False)
    return kind(io.BufferedWriter(raw), encoding=encoding, errors=ESCAPED, line_buffering=line_buffering)


def discard(number: int) -> None:
    """Let nothing that is still to be written to a stream fail: it goes nowhere."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)
