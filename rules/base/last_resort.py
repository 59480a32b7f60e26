"""What a machine that lacks something makes of any command: a sentence and a remedy for errors that nobody foresaw."""

from __future__ import annotations

import errno
import json
import shlex
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .errors import SkuwiseError

MEMORY = "Read fewer nodes or days (--match, --since), or give it more memory (ulimit -v, MemoryMax=)."
_REMEDIES = {
    errno.ENOSPC: "Free some space, or name another disk.",
    errno.EDQUOT: "Free some space, or name another disk.",
    errno.EACCES: "Check the permissions.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
    errno.ENOMEM: MEMORY,
    errno.EAGAIN: "Raise the limit of processes (ulimit -u, TasksMax=).",
    errno.EIO: "Check the disk.",
    errno.ENOENT: "Check the path; is the working directory still there?",
}


def explained(error: BaseException) -> SkuwiseError | None:
    """The error as one that a person may see; None for what can only be a mistake of ours."""
    if isinstance(error, SkuwiseError):
        return error
    if isinstance(error, MemoryError):
        return SkuwiseError("There is not enough memory for this.", MEMORY)
    if isinstance(error, SystemError) and "without exception set" in str(error):
        # Seen of Python 3.11 alone where an allocation fails while it compiles a module.
        return SkuwiseError("Python failed without giving a reason, as it does where memory runs out.", MEMORY)
    if isinstance(error, RecursionError):
        return SkuwiseError("An input is nested too deeply.", "Flatten it; --debug shows where it is read.")
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return SkuwiseError("No thread can be started.", _REMEDIES[errno.EAGAIN])
    if isinstance(error, UnicodeError):
        return SkuwiseError(
            f"A text cannot be read or written in the encoding it is meant for: {error}.",
            "Save inputs as UTF-8, and use a UTF-8 locale (LC_ALL=C.UTF-8).",
        )
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] != "skuwise":
        return SkuwiseError(
            f"A library cannot be loaded: {error}.", f"Install it again; where memory is short: {MEMORY}"
        )
    if type(error).__module__ == "sqlite3":
        return SkuwiseError(f"A database cannot be read or written: {error}.", "Check the file and its disk.")
    if isinstance(error, OSError) and error.errno is not None:
        where = f" ({error.filename})" if error.filename else ""
        why = error.strerror or str(error)
        return SkuwiseError(
            f"The system refused{where}: {why}.", _REMEDIES.get(error.errno, "See above for what failed.")
        )
    return None


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
