"""The root of every error that a person may see, and sentences for unforeseen errors."""

from __future__ import annotations

import errno

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOTHING = 3


class SkuwiseError(Exception):
    """One sentence for a person, and a remedy: `skuwise.__main__` prints ``skuwise: MESSAGE REMEDY`` on stderr.
    `exit_status`: of the process."""

    exit_status = EXIT_FAILED

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class UsageError(SkuwiseError):
    """The command line, or a file the user named, is wrong."""

    exit_status = EXIT_USAGE


class NothingToDo(SkuwiseError):  # noqa: N818 - nothing went wrong
    """The command was right, but there is nothing to work on."""

    exit_status = EXIT_NOTHING


class RulesError(UsageError):
    """A rules file (shipped or a site's) is invalid. `others`: further errors in files of the same kind."""

    others: tuple[RulesError, ...] = ()


class StoreError(SkuwiseError):
    """The database cannot be read or written."""


class SourceError(SkuwiseError):
    """A source of telemetry cannot be read at all."""


_MEMORY = "Read fewer nodes or days (--match, --since), or give it more memory (ulimit -v, MemoryMax=)."
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "Free some space, or name another disk."),
    errno.EACCES: "Check the permissions.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
    errno.ENOMEM: _MEMORY,
    errno.EAGAIN: "Raise the limit of processes (ulimit -u, TasksMax=).",
    errno.EIO: "Check the disk.",
    errno.ENOENT: "Check the path; is the working directory still there?",
}


def explained(error: BaseException) -> SkuwiseError | None:
    """The error as one that a person may see; None for a defect of skuwise itself."""
    if isinstance(error, SkuwiseError):
        return error
    text = str(error)
    # Python 3.11 raises this SystemError where an allocation fails while it compiles a module.
    if isinstance(error, MemoryError) or (isinstance(error, SystemError) and "without exception set" in text):
        return SkuwiseError("There is not enough memory for this.", _MEMORY)
    if isinstance(error, RecursionError):
        return SkuwiseError("An input is nested too deeply.", "Flatten it; --debug shows where it is read.")
    if isinstance(error, RuntimeError) and "can't start new thread" in text:
        return SkuwiseError("No thread can be started.", _REMEDIES[errno.EAGAIN])
    if isinstance(error, UnicodeError):
        remedy = "Save inputs as UTF-8, and use a UTF-8 locale (LC_ALL=C.UTF-8)."
        return SkuwiseError(f"Invalid text for its encoding: {text}.", remedy)
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] != "skuwise":
        return SkuwiseError(f"A library cannot be loaded: {text}.", f"Install it again; if memory is short: {_MEMORY}")
    if type(error).__module__ == "sqlite3":
        return SkuwiseError(f"A database cannot be read or written: {text}.", "Check the file and its disk.")
    if isinstance(error, OSError) and error.errno is not None:
        where = f" ({error.filename})" if error.filename else ""
        remedy = _REMEDIES.get(error.errno, "See above for what failed.")
        return SkuwiseError(f"The system refused{where}: {error.strerror or text}.", remedy)
    return None
