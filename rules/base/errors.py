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
    """A rules file (shipped or a site's) is invalid."""


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
    text, number, name = str(error), getattr(error, "errno", None), getattr(error, "name", None) or ""
    # Python 3.11 raises this SystemError where an allocation fails while it compiles a module.
    no_memory = isinstance(error, MemoryError) or (isinstance(error, SystemError) and "without exception set" in text)
    no_thread = isinstance(error, RuntimeError) and "can't start new thread" in text
    no_library = isinstance(error, ImportError) and name.partition(".")[0] != "skuwise"
    where = f" ({filename})" if (filename := getattr(error, "filename", None)) else ""
    refused = f"The system refused{where}: {getattr(error, 'strerror', None) or text}."
    sentences = (
        (no_memory, "There is not enough memory for this.", _MEMORY),
        (isinstance(error, RecursionError), "An input is nested too deeply.", "Flatten it; --debug shows the place."),
        (no_thread, "No thread can be started.", _REMEDIES[errno.EAGAIN]),
        (isinstance(error, UnicodeError), f"Invalid text for its encoding: {text}.", "Use UTF-8 (LC_ALL=C.UTF-8)."),
        (no_library, f"A library cannot be loaded: {text}.", f"Install it again; if memory is short: {_MEMORY}"),
        (type(error).__module__ == "sqlite3", f"A database cannot be used: {text}.", "Check the file and its disk."),
        (isinstance(error, OSError) and number, refused, _REMEDIES.get(number or 0, "See above for what failed.")),
    )
    return next((SkuwiseError(sentence, remedy) for applies, sentence, remedy in sentences if applies), None)
