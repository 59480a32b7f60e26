"""Where a command's data and narration go: stdout, stderr, and files that are there whole or not at all."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from ...rules.base.errors import SkuwiseError
from ...rules.base.sanitize import ESCAPED
from ..core.advice_types import Advice
from ..render import render

WIDTH_OF_A_PIPE = 120


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def say(text: str) -> None:
    """Narration: stderr, where it never mixes with data."""
    print(text, file=sys.stderr)  # noqa: T201


def write_stdout(text: str) -> None:
    """Print data as it is, whatever the terminal's encoding can show of it."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, ESCAPED).decode(encoding))
    sys.stdout.flush()


def _takes_text(path: Path) -> bool:
    """Whether a device or a pipe lies there, or where the system shows its own."""
    return str(path).startswith(("/dev/", "/proc/")) or path.is_char_device() or path.is_fifo()


def write_whole(path: Path, text: str, *, into_devices: bool = True) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part.

    A link is replaced, not followed. A device or a pipe is written into: it must not become a file. `into_devices`:
    False where the name is ours and not the caller's choice: what lies there, a pipe too, is replaced.
    """
    if into_devices and _takes_text(path):
        try:
            path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
        except OSError as error:
            raise SkuwiseError(f"Cannot write {path}: {error.strerror}.", "Name an ordinary file.") from error
        return
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise SkuwiseError(f"Cannot write {path}: {error.strerror}.", "Name a folder you can write to.") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SkuwiseError(
            f"Cannot write {path}: {error.strerror}.", "Free some space, or name another file."
        ) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def print_advice(advice: Advice, options: argparse.Namespace) -> None:
    """The advice in `options.format`, to the file `options.output` or to stdout."""
    terminal = options.output is None and sys.stdout.isatty()
    width = shutil.get_terminal_size((WIDTH_OF_A_PIPE, 24)).columns
    text = render(advice, options.format, width=width, color=terminal and not os.environ.get("NO_COLOR"))
    if options.output is None:
        write_stdout(text)
    else:
        write_whole(options.output, text)
        say(f"written to {options.output}")
