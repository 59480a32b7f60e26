"""Why a question has no answer."""

from __future__ import annotations

from .....rules.base.errors import SourceError


class UnreachableError(SourceError):
    """The server does not answer at all, or refuses us: no query can be answered."""


class RefusedError(SourceError):
    """The server refuses this one query, or fails on it."""


class TooMuchError(RefusedError):
    """The query is over a limit of the server or of ours: a smaller part of it may be answered."""


class AnswerError(SourceError):
    """The server's answer is not what the query API promises."""
