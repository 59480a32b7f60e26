"""The one root of every error that a person may see."""

from __future__ import annotations

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOTHING = 3


class SkuwiseError(Exception):
    """Something a person must know: one sentence, and what to do about it.

    Printed in one place (`skuwise.__main__`) as ``skuwise: MESSAGE REMEDY`` on stderr, without a traceback.
    `exit_status` is the process's exit status: 1 failed, 2 wrong usage, 3 nothing to work on.
    """

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
    """A file under rules/ (ours or a site's) does not say what it must. `others`: what else is wrong with its kind."""

    others: tuple[RulesError, ...] = ()


class StoreError(SkuwiseError):
    """The database cannot be read or written."""


class SourceError(SkuwiseError):
    """A source of telemetry cannot be read at all."""
