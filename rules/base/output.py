"""Where a command's data and narration go: stdout, stderr, and files that are there whole or not at all.

A closed standard stream stays closed, and no database or socket gets its number. A failed write to stdout is an
`OutputError`; failed narration is dropped: an agent whose log lies on a full disk goes on.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .errors import SkuwiseError
from .sanitize import ESCAPED, clean

_NAME = "skuwise"


class OutputError(SkuwiseError):
    """Standard output cannot be written."""

    def __init__(self, error: OSError) -> None:
        remedy = "Free some space there." if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Redirect it elsewhere."
        super().__init__(f"Standard output cannot be written: {error.strerror}.", remedy)


class _Output(io.TextIOWrapper):
    """Stdout of a command."""

    def fail(self, error: OSError) -> None:
        if isinstance(error, BrokenPipeError):
            raise error
        raise OutputError(error) from error

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self.fail(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self.fail(error)


class _Narration(_Output):
    def fail(self, error: OSError) -> None:  # noqa: ARG002 - it is dropped
        discard(2)


def own_streams() -> None:
    """Take over the process's standard streams. For a process that is a command, before anything else opens a file."""
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:  # closed: what is opened next would get the number. Writing to 1 fails, as it would have.
            os.open(os.devnull, flags)
    encodings = [getattr(stream, "encoding", None) or "utf-8" for stream in (sys.stdout, sys.stderr)]
    raw = [io.BufferedWriter(io.FileIO(number, "w", closefd=False)) for number in (1, 2)]
    sys.stdout = _Output(raw[0], encoding=encodings[0], errors=ESCAPED, line_buffering=os.isatty(1))
    sys.stderr = _Narration(raw[1], encoding=encodings[1], errors=ESCAPED, line_buffering=True)


def discard(number: int) -> None:
    """Redirect a stream to /dev/null, so that pending output cannot fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


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


def write_output(content: str, output: Path | None, note: str = "written to {output}") -> None:
    """Write a command's result to a file, with a `note` on stderr, or to stdout."""
    if output is None:
        write_stdout(content)
    else:
        write_whole(output, content)
        say(note.format(output=clean(str(output))))


def write_whole(
    path: Path, content: str | bytes | Iterable[str], *, into_devices: bool = True, mode: int | None = None
) -> None:
    """Write a file so that a reader sees the old or the new content, never a part. `mode` None: as the umask has it.

    A link is replaced, not followed. A device or a pipe is written into. `into_devices`: False where the name is not
    the caller's choice: a pipe there is replaced, too. Raises SkuwiseError.
    """
    parts = (content,) if isinstance(content, (str, bytes)) else content
    raw = (part if isinstance(part, bytes) else part.encode("utf-8", "backslashreplace") for part in parts)
    is_device = str(path).startswith(("/dev/", "/proc/")) or path.is_char_device() or path.is_fifo()
    remedy = "Name an ordinary file." if into_devices and is_device else "Name a folder you can write to."
    temporary: Path | None = None
    try:
        if into_devices and is_device:
            path.write_bytes(b"".join(raw))
            return
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary, remedy = Path(name), "Free some space, or name another file."
        with os.fdopen(handle, "wb") as file:
            file.writelines(raw)
        if mode is None:
            umask = os.umask(0)
            os.umask(umask)
            mode = 0o666 & ~umask
        temporary.chmod(mode)
        temporary.replace(path)
        temporary = None
    except OSError as error:
        raise SkuwiseError(f"Cannot write {path}: {error.strerror}.", remedy) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Lines of aligned cells under a header; `right`: indices of columns that are aligned to the right.

    Every cell is cleaned: it may come from a driver, a process name or a site's file.
    """
    table = [[clean(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def program(*, anywhere: bool = False) -> str:
    """The words that start this installation in a shell: ``skuwise`` where the PATH leads to it, else the path that
    started it, else its interpreter with ``-m skuwise``. `anywhere`: paths are absolute, for readers elsewhere."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        started = Path(sys.prefix, "bin", _NAME)
        if not anywhere or not os.access(started, os.X_OK):
            return f"{shlex.quote(sys.executable)} -m {_NAME}"
    in_path = shutil.which(_NAME)
    if started.name != _NAME or (in_path is not None and Path(in_path).resolve() == started.resolve()):
        return _NAME
    return shlex.quote(str(started.absolute() if anywhere else started))


def install_command(extra: str) -> str:
    """The command that adds `extra` to this installation: from its checkout if that exists, else from an index."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - for an error alone

    checkout, is_editable = Path(__file__).resolve().parents[2], True  # run from a checkout by PYTHONPATH
    try:
        record = json.loads(distribution("skuwise").read_text("direct_url.json") or "{}")  # as PEP 610 has it
        if (Path(unquote(urlsplit(record["url"]).path)) / "pyproject.toml").is_file():
            checkout = Path(unquote(urlsplit(record["url"]).path))
            is_editable = record.get("dir_info", {}).get("editable", False)
    except (PackageNotFoundError, ValueError, LookupError, TypeError, OSError):
        pass  # no record, or one that is damaged
    is_here = (checkout / "pyproject.toml").is_file()
    what = shlex.quote(f"{checkout}[{extra}]" if is_here else f"skuwise[{extra}]")
    return f"{shlex.quote(sys.executable)} -m pip install {'-e ' if is_here and is_editable else ''}{what}"
