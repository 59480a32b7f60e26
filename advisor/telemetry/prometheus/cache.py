"""Answers kept on this machine, so that the same window is not asked twice.

Only what the server will not change is kept: moments that lay far enough back when they were asked. A file that does
not read back as what was written is no answer and is asked again. No file holds a secret, and none is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from .answers import Answer, Grid

# Of the way answers are kept: other files are not read.
_FORM = "1"
MAX_BYTES = 512 * 1024 * 1024


class Cache:
    """Answers in a folder, or nowhere where it is None. `scope`: what an answer depends on beside its query.

    `refused` says why the folder is not used: others could write to it.
    """

    def __init__(self, folder: Path | None, scope: str) -> None:
        self._scope = scope
        self.hits = 0
        self.refused = "" if folder is None else _strangers(folder)
        self._folder = None if self.refused else folder

    def get(self, query: str, grid: Grid, kept: Sequence[str]) -> Answer | None:
        """The answer of before, or None."""
        if self._folder is None:
            return None
        path = self._path(query, grid, kept)
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
        if self._folder is None:
            return
        labels = np.frombuffer(json.dumps([dict(one) for one in answer.labels]).encode(), dtype=np.uint8)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=self._folder, prefix=".answer.")
            try:
                with os.fdopen(handle, "wb") as file:
                    np.savez_compressed(file, values=answer.values, labels=labels)
                Path(name).replace(self._path(query, grid, kept))
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

    def _path(self, query: str, grid: Grid, kept: Sequence[str]) -> Path:
        assert self._folder is not None
        asked = [_FORM, self._scope, query, grid.start, grid.end, grid.step, list(kept)]
        return self._folder / f"{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:40]}.npz"


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
