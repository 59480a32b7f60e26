"""Answers kept on this machine, so that the same window is not asked twice.

Only what the server will not change is kept: moments that lay far enough back when they were asked, each day under what
the server told of itself at that day's ends, so that another server behind the same address is not taken for it. A file
that does not read back as what was written is no answer and is asked again. No file holds a secret, and none is ever
executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .cache_file import packed, read_file, unpacked
from .response import Grid, SeriesAnswer

# Of the way answers are kept: other files are not read.
_FORM = "3"
MAX_BYTES = 512 * 1024 * 1024
_SUFFIX = ".answer"
# What another run writes at this moment is left to it.
_HALF_WRITTEN = ".answer."
_LEFT_SECONDS = 86400.0
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
        self.refused = "" if folder is None else _strangers(folder)
        self._folder = None if self.refused else folder

    @property
    def used(self) -> bool:
        return self._folder is not None

    def get(self, query: str, grid: Grid, kept: Sequence[str]) -> SeriesAnswer | None:
        """The answer of before, or None."""
        folder = self._folder
        if folder is None or (mark := self.mark(grid)) is None:
            return None
        try:
            content = read_file(self._path(folder, query, grid, kept, mark))
        except OSError:
            return None
        answer = None if content is None else unpacked(content, grid.count)
        if answer is not None:
            self.hits += 1
        return answer

    def put(self, query: str, grid: Grid, kept: Sequence[str], answer: SeriesAnswer) -> None:
        """Keep an answer. A folder that cannot be written to costs only time."""
        folder = self._folder
        if folder is None or (mark := self.mark(grid)) is None:
            return
        if (content := packed(answer)) is not None:
            self._write(self._path(folder, query, grid, kept, mark), content)

    def told_before(self, query: str, told: Mapping[float, str]) -> Mapping[float, str]:
        """What the server told of moments of its past at the last run, in place of which `told` is kept; nothing where
        that is not known."""
        folder = self._folder
        if folder is None:
            return {}
        path = folder / f"server-{_digest([_FORM, self._scope, query])}.json"
        before: dict[float, str] = {}
        with suppress(OSError, ValueError, AttributeError, RecursionError):  # none yet, or not as we write it
            held = read_file(path, _MOST_TOLD_BYTES) or b"{}"
            before = {float(at): str(mark) for at, mark in json.loads(held).items()}
        self._write(path, json.dumps({str(at): mark for at, mark in told.items()}).encode())
        return before

    def _write(self, path: Path, content: bytes) -> None:
        """All or nothing. A folder that cannot be written to is used no more."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=_HALF_WRITTEN)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(content)
                Path(name).replace(path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError:
            self._folder = None

    def prune(self, most_bytes: int = MAX_BYTES) -> None:
        """Let the oldest files go where all together are too large, and what earlier versions and killed runs left.

        Another process may prune the same folder: what is gone already is gone.
        """
        folder = self._folder
        if folder is None:
            return
        with suppress(OSError):
            found = [(about, Path(file)) for file in os.scandir(folder) if (about := _ordinary(file)) is not None]
            now = max((about.st_mtime for about, _ in found), default=0.0)
            total = 0
            for about, path in sorted(found, key=lambda one: -one[0].st_mtime):
                if path.suffix == _SUFFIX:
                    total += about.st_size
                    old = total > most_bytes
                else:
                    half_written = path.name.startswith(_HALF_WRITTEN) and about.st_mtime < now - _LEFT_SECONDS
                    old = half_written or path.suffix == ".npz"
                if old:
                    path.unlink(missing_ok=True)

    def _path(self, folder: Path, query: str, grid: Grid, kept: Sequence[str], mark: str) -> Path:
        asked = [_FORM, self._scope, mark, query, grid.start, grid.end, grid.step, list(kept)]
        return folder / f"{_digest(asked)}{_SUFFIX}"


def _ordinary(file: os.DirEntry[str]) -> os.stat_result | None:
    """What an ordinary file is like; None: it is none, or is gone."""
    try:
        return file.stat(follow_symlinks=False) if file.is_file(follow_symlinks=False) else None
    except OSError:
        return None


def _digest(asked: object) -> str:
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:40]


def _strangers(folder: Path) -> str:
    """Why others could have put answers there; empty where they could not, or where the folder is still to be made."""
    try:
        about = folder.stat()
    except OSError:
        return ""
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return (
            "Answers are not cached: other users can write to the folder in prometheus.cache. Remove their "
            "write permission."
        )
    return ""


def cache_folder(setting: str | None, environ: Mapping[str, str]) -> Path | None:
    """Where answers are kept: as it is set (empty: nowhere), else under the user's cache; None without a home."""
    if setting is not None:
        return Path(setting) if setting else None
    base = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else "")
    return Path(base) / "skuwise" / "prometheus" if base.startswith("/") else None
