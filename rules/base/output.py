"""Where a command's data and narration go: stdout, stderr, and files that are there whole or not at all."""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .errors import SkuwiseError
from .sanitize import ESCAPED, clean

_NAME = "skuwise"


def say(text: str) -> None:
    """Narration: stderr, where it never mixes with data."""
    print(text, file=sys.stderr)  # noqa: T201


def write_stdout(text: str) -> None:
    """Print data as it is, whatever the terminal's encoding can show of it."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, ESCAPED).decode(encoding))
    sys.stdout.flush()


def write_lines(text: str) -> None:
    """Print lines for a person; what came from outside has no effect on the terminal."""
    write_stdout("\n".join(clean(line) for line in text.split("\n")) + "\n")


def write_json(document: object) -> None:
    """Print a document for programs. Raises ValueError for a number that JSON has none for."""
    write_stdout(json.dumps(document, indent=2, allow_nan=False) + "\n")


def _takes_text(path: Path) -> bool:
    """Whether a device or a pipe lies there, or where the system shows its own."""
    return str(path).startswith(("/dev/", "/proc/")) or path.is_char_device() or path.is_fifo()


def _encoded(content: str | bytes | Iterable[str]) -> Iterator[bytes]:
    """As a file holds it: text as UTF-8, in which what it lacks is written out."""
    if isinstance(content, bytes):
        yield content
        return
    for part in (content,) if isinstance(content, str) else content:
        yield part.encode("utf-8", "backslashreplace")


def write_whole(
    path: Path, content: str | bytes | Iterable[str], *, into_devices: bool = True, mode: int | None = None
) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part. `mode` None: as the umask has it.

    A link is replaced, not followed. A device or a pipe is written into: it must not become a file. `into_devices`:
    False where the name is ours and not the caller's choice: what lies there, a pipe too, is replaced.
    """
    if into_devices and _takes_text(path):
        try:
            path.write_bytes(b"".join(_encoded(content)))
        except OSError as error:
            raise SkuwiseError(f"Cannot write {path}: {error.strerror}.", "Name an ordinary file.") from error
        return
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise SkuwiseError(f"Cannot write {path}: {error.strerror}.", "Name a folder you can write to.") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(_encoded(content))
        if mode is None:
            umask = os.umask(0)
            os.umask(umask)
            mode = 0o666 & ~umask
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SkuwiseError(
            f"Cannot write {path}: {error.strerror}.", "Free some space, or name another file."
        ) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_output(content: str, output: Path | None, told: str = "written to {output}") -> None:
    """A command's result to a file, which is said on stderr, or to stdout. `told`: what is said."""
    if output is None:
        write_stdout(content)
    else:
        write_whole(output, content)
        say(told.format(output=clean(str(output))))


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


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Lines of aligned cells under a header; `right` are the indices of columns of numbers, aligned to the right.

    Every cell is cleaned: it may come from a driver, a process name or a site's file.
    """
    table = [[clean(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(header))]
    lines = [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    return "\n".join(lines)


def program(*, anywhere: bool = False) -> str:
    """The words that start this installation in a shell: ``skuwise`` where the PATH leads to it, else the path that
    started it, else its interpreter with ``-m skuwise``. `anywhere`: a path is absolute, for a reader in another folder."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        started = Path(sys.prefix, "bin", _NAME)
        if not os.access(started, os.X_OK):
            return f"{shlex.quote(sys.executable)} -m {_NAME}"
    in_path = shutil.which(_NAME)
    if started.name != _NAME or (in_path is not None and Path(in_path).resolve() == started.resolve()):
        return _NAME
    return shlex.quote(str(started.absolute() if anywhere else started))


def install_command(extra: str) -> str:
    """The command that adds `extra` to this installation: from the checkout that it was installed from where that is
    there, else from a package index."""
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
