"""Answers kept on this machine, so that the same window is not asked twice.

Only what the server will not change is kept: moments that lay far enough back when they were asked, each day under what
the server told of itself at that day's ends, so that another server behind the same address is not taken for it. A file
that does not read back as what was written is no answer and is asked again. No file holds a secret, and none is ever
executed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from .answers import Answer, Grid

# Of the way answers are kept: other files are not read.
_FORM = "2"
MAX_BYTES = 512 * 1024 * 1024


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

    def get(self, query: str, grid: Grid, kept: Sequence[str]) -> Answer | None:
        """The answer of before, or None."""
        if self._folder is None or (mark := self.mark(grid)) is None:
            return None
        path = self._path(query, grid, kept, mark)
        try:
            with np.load(path, allow_pickle=False) as held:
                values = np.asarray(held["values"], dtype=float)
                labels = json.loads(bytes(held["labels"]))
        except (OSError, ValueError, KeyError, EOFError, RecursionError, TypeError, ArithmeticError, MemoryError):
            return None
        except Exception as error:  # a damaged archive raises whatever its reader pleases
            if type(error).__module__ not in ("zipfile", "zlib", "tokenize", "builtins"):
                raise
            return None
        if not isinstance(labels, list) or values.shape != (len(labels), grid.count):
            return None
        if not all(isinstance(one, dict) and all(isinstance(v, str) for v in one.values()) for one in labels):
            return None
        self.hits += 1
        return Answer(tuple(labels), values)

    def put(self, query: str, grid: Grid, kept: Sequence[str], answer: Answer) -> None:
        """Keep an answer. A folder that cannot be written to costs only time."""
        if self._folder is None or (mark := self.mark(grid)) is None:
            return
        labels = np.frombuffer(json.dumps([dict(one) for one in answer.labels]).encode(), dtype=np.uint8)
        packed = io.BytesIO()
        np.savez_compressed(packed, values=answer.values, labels=labels)
        self._write(self._path(query, grid, kept, mark), packed.getvalue())

    def told_before(self, query: str, told: Mapping[float, str]) -> Mapping[float, str]:
        """What the server told of moments of its past at the last run, in place of which `told` is kept; nothing where
        that is not known."""
        if self._folder is None:
            return {}
        path = self._folder / f"server-{_digest([_FORM, self._scope, query])}.json"
        before: dict[float, str] = {}
        with suppress(OSError, ValueError, AttributeError, RecursionError):  # none yet, or not as we write it
            before = {float(at): str(mark) for at, mark in json.loads(path.read_bytes()).items()}
        self._write(path, json.dumps({str(at): mark for at, mark in told.items()}).encode())
        return before

    def _write(self, path: Path, content: bytes) -> None:
        """All or nothing. A folder that cannot be written to is used no more."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".answer.")
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
        """Let the oldest files go where all together are too large."""
        if self._folder is None:
            return
        try:
            files = sorted((p.stat().st_mtime, p.stat().st_size, p) for p in self._folder.glob("*.npz"))
            total = sum(size for _, size, _ in files)
            for _, size, path in files:
                if total <= most_bytes:
                    break
                path.unlink(missing_ok=True)
                total -= size
        except OSError:
            return

    def _path(self, query: str, grid: Grid, kept: Sequence[str], mark: str) -> Path:
        assert self._folder is not None
        asked = [_FORM, self._scope, mark, query, grid.start, grid.end, grid.step, list(kept)]
        return self._folder / f"{_digest(asked)}.npz"


def _digest(asked: object) -> str:
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:40]


def _strangers(folder: Path) -> str:
    """Why others could have put answers there; empty where they could not, or where the folder is still to be made."""
    try:
        about = folder.stat()
    except OSError:
        return ""
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "Answers are not cached: other users can write to the folder that prometheus.cache names."
    return ""


def cache_folder(setting: str | None, environ: Mapping[str, str]) -> Path | None:
    """Where answers are kept: as it is set (empty: nowhere), else under the user's cache; None without a home."""
    if setting is not None:
        return Path(setting) if setting else None
    base = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else "")
    return Path(base) / "skuwise" / "prometheus" if base.startswith("/") else None
