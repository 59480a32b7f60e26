"""Where a command's data and narration go: stdout, stderr, and files that are there whole or not at all.

A closed standard stream stays closed, and no database or socket gets its number. Failed narration is dropped: an agent
whose log lies on a full disk goes on.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .errors import SkuwiseError
from .sanitize import ESCAPED, clean

_NAME = "skuwise"
# Reports what is done, and of how many (None: unknown).
Steps = Callable[[int, int | None], None]
_EVERY_SECONDS = 0.2


class _Stream(io.FileIO):
    """Standard output or error. Raises SkuwiseError where output cannot be written; nothing is written after that."""

    def write(self, data: Any, /) -> int | None:  # noqa: ANN401 - as io's
        try:
            return super().write(data)
        except OSError as error:
            if self.fileno() == 2:
                return len(data)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter tries once more
            if isinstance(error, BrokenPipeError):
                raise
            remedy = "Free some space there, or redirect it elsewhere."
            raise SkuwiseError(f"Standard output cannot be written: {error.strerror}.", remedy) from error


class Progress:
    """Progress of one task on stderr: ``reading telemetry: 31 of 62 databases``. On a terminal the line is updated in
    place and removed at the end; elsewhere, with TERM=dumb or SKUWISE_PLAIN, ``reading telemetry ...`` is printed."""

    def __init__(self, what: str, unit: str) -> None:
        self._what, self._unit, self._shown = what, unit, 0.0
        self._live = sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb") and not plain()

    def __enter__(self) -> Progress:
        if not self._live:
            say(f"{self._what} ...")
        self.stage(self._what)
        return self

    def __exit__(self, *_: object) -> None:
        self._show("")

    def step(self, done: int, total: int | None) -> None:
        """Report progress: at most five times a second, and the last step."""
        if done == total or time.monotonic() - self._shown >= _EVERY_SECONDS:
            self._shown = time.monotonic()
            self._show(f"{self._what}: {done}{f' of {total}' if total else ''} {self._unit}")

    def stage(self, what: str) -> None:
        """Begin another part of the work, without counted steps; shown on a terminal only."""
        self._what = what
        self._show(f"{what} ...")

    def _show(self, text: str) -> None:
        if self._live:
            sys.stderr.write(f"\r\x1b[K{clean(text)}")
            sys.stderr.flush()


def no_steps(done: int, total: int | None) -> None:
    """Ignore progress."""


def plain() -> bool:
    """Whether SKUWISE_PLAIN asks for output without colors, boxes and lines that change in place (screen readers)."""
    return os.environ.get("SKUWISE_PLAIN", "") not in ("", "0")


def own_streams() -> None:
    """Take over the process's standard streams. For a process that is a command, before anything else opens a file."""
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:  # closed: what is opened next would get the number. Writing to 1 fails, as it would have.
            os.open(os.devnull, flags)
    encodings = [getattr(stream, "encoding", None) or "utf-8" for stream in (sys.stdout, sys.stderr)]
    out, err = (io.BufferedWriter(_Stream(number, "w", closefd=False)) for number in (1, 2))
    sys.stdout = io.TextIOWrapper(out, encoding=encodings[0], errors=ESCAPED, line_buffering=os.isatty(1))
    sys.stderr = io.TextIOWrapper(err, encoding=encodings[1], errors=ESCAPED, line_buffering=True)


def say(text: str) -> None:
    """Narration: stderr, where it never mixes with data."""
    print(text, file=sys.stderr)  # noqa: T201


def write_stdout(text: str) -> None:
    """Print data as it is, whatever the terminal's encoding can show of it."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, ESCAPED).decode(encoding))
    sys.stdout.flush()


def write_lines(text: str) -> None:
    """Print lines for a person, each cleaned."""
    write_stdout("\n".join(clean(line) for line in text.split("\n")) + "\n")


def write_json(document: object) -> None:
    """Print a document for programs. Raises ValueError for a number that JSON has none for."""
    write_stdout(json.dumps(document, indent=2, allow_nan=False) + "\n")


def write_whole(
    path: Path, content: str | bytes | Iterable[str], *, into_devices: bool = True, mode: int | None = None
) -> None:
    """Write a file so that a reader sees the old or the new content, never a part. `mode` None: as the umask has it. A
    link is replaced, not followed; a device or pipe is written into, or replaced where the name is not the caller's
    choice (`into_devices` False). Raises SkuwiseError."""
    parts = (content,) if isinstance(content, (str, bytes)) else content
    raw = (part if isinstance(part, bytes) else part.encode("utf-8", "backslashreplace") for part in parts)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        is_device = str(path).startswith(("/dev/", "/proc/")) or path.is_char_device() or path.is_fifo()
        if into_devices and is_device:
            path.write_bytes(b"".join(raw))
            return
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
        with os.fdopen(handle, "wb") as file:
            file.writelines(raw)
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        remedy = "Name an ordinary file in a folder with free space that you can write to."
        raise SkuwiseError(f"Cannot write {path}: {error.strerror}.", remedy) from error


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Lines of aligned, cleaned cells under a header; `right`: indices of columns that are aligned to the right."""
    table = [[clean(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    forms = [f"{{:{'>' if index in right else '<'}{width or 1}}}" for index, width in enumerate(widths)]
    return "\n".join("  ".join(forms).format(*row).rstrip() for row in table)


def program(*, anywhere: bool = False) -> str:
    """The words that start this installation in a shell: ``skuwise`` where the PATH leads to it, else the path that
    started it, else its interpreter with ``-m skuwise``. `anywhere`: paths are absolute, for readers elsewhere."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m {_NAME}"
    in_path = shutil.which(_NAME)
    if started.name != _NAME or (in_path is not None and Path(in_path).resolve() == started.resolve()):
        return _NAME
    return shlex.quote(str(started.absolute() if anywhere else started))


def install_command(extra: str, command: str = "") -> str:
    """The command that adds `extra` to this installation: from its checkout if that exists, else from an index. Where
    uv made the environment, which then has no pip, the one that runs `command` of skuwise with it."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - for an error alone

    checkout, flag = Path(__file__).resolve().parents[2], "-e "  # run from a checkout by PYTHONPATH
    with suppress(PackageNotFoundError, ValueError, LookupError, TypeError, OSError):  # no record, or a damaged one
        record = json.loads(distribution("skuwise").read_text("direct_url.json") or "{}")  # as PEP 610 has it
        installed = Path(unquote(urlsplit(record["url"]).path))
        if (installed / "pyproject.toml").is_file():
            checkout, flag = installed, "-e " if record.get("dir_info", {}).get("editable") else ""
    here, flag = (f"{checkout}", flag) if (checkout / "pyproject.toml").is_file() else ("skuwise", "")
    wanted = shlex.quote(f"{here}[{extra}]")
    with suppress(OSError):
        if "\nuv = " in Path(sys.prefix, "pyvenv.cfg").read_text():
            return f"uvx --from {wanted} skuwise {command}".rstrip()
    return f"{shlex.quote(sys.executable)} -m pip install {flag}{wanted}"
