"""Answers for whole past days, kept on this machine so that a later run reads them from files.

Only whole UTC days are kept, each under what the server held at its ends (`rows.identity`): another is told apart.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import orjson

from ....core.cache_folder import CacheFolder
from .response import Grid, Labels, SeriesAnswer

DAY = 86400.0
MAX_BYTES, MAX_FILE_BYTES = 512 * 1024 * 1024, 48 * 1024 * 1024  # of all, and of one file
_SUFFIX = ".answer"
_FORM = b"skuwise-answer-5\n"
_REFUSED = "Answers are not cached: other users can write to the folder in prometheus.cache. Remove their permission."


class Cache:
    """Answers in a folder, or nowhere where it is None. `scope`: what an answer depends on beside its query; `refused`:
    why the folder is not used."""

    def __init__(self, folder: Path | None, scope: str) -> None:
        self._scope = scope
        self._held: Mapping[float, str] | None = None
        self._labels: dict[bytes, tuple[Labels, ...]] = {}
        self._folder = CacheFolder(folder, _SUFFIX)
        self.hits = 0
        self.refused = _REFUSED if self._folder.refused else ""

    @property
    def used(self) -> bool:
        return self._folder.path is not None

    def mark_days(self, held: Mapping[float, str], labels: Mapping[str, str]) -> None:
        """`held`: midnight (Unix seconds) -> a digest of what the server held then; `labels`: its external labels."""
        self._held = held
        self._scope += f"\n{sorted(labels.items())}"

    def get(self, query: str, day: Grid, kept: Sequence[str]) -> SeriesAnswer | None:
        """The answer of an earlier run, or None. Days with the same series share their labels."""
        name = self._name(query, day, kept)
        content = None if name is None else self._folder.read(name, _FORM, MAX_FILE_BYTES)
        if content is None:
            return None
        self.hits += 1
        text, _, numbers = zlib.decompress(content).partition(b"\n")
        labels = self._labels.get(text) or self._labels.setdefault(text, tuple(orjson.loads(text)))
        return SeriesAnswer(labels, np.frombuffer(numbers).reshape(len(labels), day.count))

    def put(self, query: str, day: Grid, kept: Sequence[str], answer: SeriesAnswer) -> None:
        """Keep an answer, if it is one for a whole day."""
        name = self._name(query, day, kept)
        if name is not None:
            content = zlib.compress(orjson.dumps(answer.labels) + b"\n" + answer.values.tobytes(), 1)
            if len(content) <= MAX_FILE_BYTES:
                self._folder.write(name, _FORM, content)

    def prune(self, most_bytes: int = MAX_BYTES) -> None:
        """Remove the oldest files where all together are too large."""
        self._folder.prune(most_bytes)

    def _name(self, query: str, day: Grid, kept: Sequence[str]) -> str | None:
        """None: the grid is not a whole UTC day, or the server held nothing at its ends."""
        begin = day.start - day.step
        ends = [""] if self._held is None else [self._held.get(begin, ""), self._held.get(day.end, "")]
        if not self.used or day.end % DAY or begin != day.end - DAY or (self._held is not None and not any(ends)):
            return None
        asked = json.dumps([self._scope, ends, query, day.start, day.end, day.step, list(kept)])
        return f"{hashlib.sha256(asked.encode()).hexdigest()[:40]}{_SUFFIX}"
