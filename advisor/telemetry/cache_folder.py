"""A folder of files that save asking again: written whole or not at all, let go by age, and never believed blindly.

A file that does not read back as what was written is none. No file holds a secret, and none is ever executed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

_DIGEST_BYTES = 32
# What another run writes at this moment is left to it.
_LEFT_SECONDS = 86400.0


class CacheFolder:
    """A folder of files of one sort, or nowhere where it is None. `suffix`: of their names.

    `refused` says why the folder is not used: others could write to it. One that cannot be written to costs only time.
    """

    def __init__(self, folder: Path | None, suffix: str) -> None:
        self.suffix = suffix
        self.refused = "" if folder is None else _strangers(folder)
        self._folder = None if self.refused else folder

    @property
    def path(self) -> Path | None:
        """Where files are kept; None: nowhere."""
        return self._folder

    def get(self, name: str, most_bytes: int) -> bytes | None:
        """What a file holds; None: there is none of that size."""
        if self._folder is None:
            return None
        try:
            return read_file(self._folder / name, most_bytes)
        except OSError:
            return None

    def put(self, name: str, parts: Iterable[bytes | memoryview]) -> None:
        """Keep a file, all of its parts or nothing. A folder that cannot be written to is used no more."""
        folder = self._folder
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, half = tempfile.mkstemp(dir=folder, prefix=self._half_written)
            try:
                with os.fdopen(handle, "wb") as file:
                    for part in parts:
                        file.write(part)
                Path(half).replace(folder / name)
            except BaseException:
                Path(half).unlink(missing_ok=True)
                raise
        except OSError:
            self._folder = None

    def read(self, name: str, form: bytes, most_bytes: int) -> memoryview | None:
        """The content of a file of this form; None: there is none, it is larger, or not as `write` wrote it."""
        head = len(form) + _DIGEST_BYTES
        held = self.get(name, most_bytes + head)
        if held is None or not held.startswith(form):
            return None
        content = memoryview(held)[head:]
        return content if hashlib.sha256(content).digest() == held[len(form) : head] else None

    def write(self, name: str, form: bytes, content: bytes | memoryview) -> None:
        """Keep a content behind its form and its SHA-256."""
        self.put(name, (form, hashlib.sha256(content).digest(), content))

    def prune(self, most_bytes: int) -> None:
        """Let the files go that were written the longest ago where all together are too large, and what killed runs
        left.

        Another process may prune the same folder: what is gone already is gone.
        """
        if self._folder is None:
            return
        with suppress(OSError):
            found = [(about, Path(one)) for one in os.scandir(self._folder) if (about := _ordinary(one)) is not None]
            now = max((about.st_mtime for about, _ in found), default=0.0)
            total = 0
            for about, path in sorted(found, key=lambda one: -one[0].st_mtime):
                if path.suffix == self.suffix:
                    total += about.st_size
                    old = total > most_bytes
                else:
                    old = path.name.startswith(self._half_written) and about.st_mtime < now - _LEFT_SECONDS
                if old:
                    path.unlink(missing_ok=True)

    @property
    def _half_written(self) -> str:
        return f"{self.suffix}."


def cache_folder(setting: str | None, environ: Mapping[str, str], name: str) -> Path | None:
    """Where files of a sort (`name`) are kept: as it is set (empty: nowhere), else under the user's cache; None without
    a home."""
    if setting is not None:
        return Path(setting) if setting else None
    base = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else "")
    return Path(base) / "skuwise" / name if base.startswith("/") else None


def read_file(path: Path, most_bytes: int) -> bytes | None:
    """What an ordinary file holds; None: there is none of that size. Never waits: a FIFO, a device and a link are none.

    Raises OSError where it cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size > most_bytes:
            return None
        content = file.read(most_bytes + 1)
    return content if len(content) <= most_bytes else None


def _ordinary(file: os.DirEntry[str]) -> os.stat_result | None:
    """What an ordinary file is like; None: it is none, or is gone."""
    try:
        return file.stat(follow_symlinks=False) if file.is_file(follow_symlinks=False) else None
    except OSError:
        return None


def _strangers(folder: Path) -> str:
    """Why others could have put files there; empty where they could not, or where the folder is still to be made."""
    try:
        about = folder.stat()
    except OSError:
        return ""
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users can write to {folder}"
    return ""
