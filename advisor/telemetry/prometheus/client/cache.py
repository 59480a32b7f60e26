"""Answers kept on this machine, so that the same window is not asked twice.

Only what the server will not change is kept: moments that lay far enough back when they were asked, each day under what
the server told of itself at that day's ends, so that another server behind the same address is not taken for it. A file
that does not read back as what was written is no answer and is asked again. No file holds a secret, and none is ever
executed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ...cache_folder import CacheFolder
from .cache_file import MOST_BYTES, packed, unpacked
from .response import Grid, SeriesAnswer

# Of the way answers are kept: other files are not read.
_FORM = "3"
MAX_BYTES = 512 * 1024 * 1024
_SUFFIX = ".answer"
_REFUSED = (
    "Answers are not cached: other users can write to the folder in prometheus.cache. Remove their write permission."
)
_MOST_TOLD_BYTES = 1024 * 1024


class Cache:
    """Answers in a folder, or nowhere where it is None. `scope`: what an answer depends on beside its query.

    `refused` says why the folder is not used: others could write to it. `mark` gives what the server tells of itself at
    the time of an answer; None: nothing, so that the answer is not kept.
    """

    def __init__(self, folder: Path | None, scope: str) -> None:
        self._scope = scope
        self.mark: Callable[[Grid], str | None] = lambda _: ""
        self.hits = 0
        self._folder = CacheFolder(folder, _SUFFIX)
        self.refused = _REFUSED if self._folder.refused else ""

    @property
    def used(self) -> bool:
        return self._folder.path is not None

    def get(self, query: str, grid: Grid, kept: Sequence[str]) -> SeriesAnswer | None:
        """The answer of before, or None."""
        if not self.used or (mark := self.mark(grid)) is None:
            return None
        content = self._folder.get(self._name(query, grid, kept, mark), MOST_BYTES)
        answer = None if content is None else unpacked(content, grid.count)
        if answer is not None:
            self.hits += 1
        return answer

    def put(self, query: str, grid: Grid, kept: Sequence[str], answer: SeriesAnswer) -> None:
        """Keep an answer. A folder that cannot be written to costs only time."""
        if not self.used or (mark := self.mark(grid)) is None:
            return
        if (content := packed(answer)) is not None:
            self._folder.put(self._name(query, grid, kept, mark), [content])

    def told_before(self, query: str, told: Mapping[float, str]) -> Mapping[float, str]:
        """What the server told of moments of its past at the last run, in place of which `told` is kept; nothing where
        that is not known."""
        if not self.used:
            return {}
        name = f"server-{_digest([_FORM, self._scope, query])}.json"
        before: dict[float, str] = {}
        with suppress(ValueError, AttributeError, RecursionError):  # not as we write it
            held = self._folder.get(name, _MOST_TOLD_BYTES) or b"{}"
            before = {float(at): str(mark) for at, mark in json.loads(held).items()}
        self._folder.put(name, [json.dumps({str(at): mark for at, mark in told.items()}).encode()])
        return before

    def prune(self, most_bytes: int = MAX_BYTES) -> None:
        """Let the oldest files go where all together are too large, and what killed runs left."""
        self._folder.prune(most_bytes)

    def _name(self, query: str, grid: Grid, kept: Sequence[str], mark: str) -> str:
        asked = [_FORM, self._scope, mark, query, grid.start, grid.end, grid.step, list(kept)]
        return f"{_digest(asked)}{_SUFFIX}"


def _digest(asked: object) -> str:
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:40]
