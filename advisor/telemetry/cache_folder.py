"""A folder of files that save asking again: written whole or not at all, removed by age, and never believed blindly.

A file that does not read back as it was written is none. No file holds a secret, and none is ever executed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_DIGEST_BYTES = 32


class CacheFolder:
    """A folder of files of one sort, or nowhere where it is None. `suffix`: of their names.

    `refused` says why the folder is not used: others could write to it. One that cannot be written to costs only time.
    """

    def __init__(self, folder: Path | None, suffix: str) -> None:
        self._suffix = suffix
        self.refused = "" if folder is None else _writable_by_others(folder)
        self.path = None if self.refused else folder
        """Where files are kept; None: nowhere."""

    def read(self, name: str, form: bytes, most_bytes: int) -> memoryview | None:
        """The content of a file of this form; None: there is none, it is larger, or not as `write` wrote it."""
        if self.path is None:
            return None
        head = len(form) + _DIGEST_BYTES
        try:
            with (self.path / name).open("rb") as file:
                whole = file.read(head + most_bytes + 1)
        except OSError:
            return None
        content = memoryview(whole)[head:]
        if len(content) > most_bytes or whole[:head] != form + hashlib.sha256(content).digest():
            return None
        return content

    def write(self, name: str, form: bytes, content: bytes | memoryview) -> None:
        """Keep a content behind its form and its SHA-256. A folder that cannot be written to is used no more."""
        if self.path is None:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, half_written = tempfile.mkstemp(dir=self.path, prefix=".", suffix=self._suffix)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(form + hashlib.sha256(content).digest())
                    file.write(content)
                Path(half_written).replace(self.path / name)
            except BaseException:
                Path(half_written).unlink(missing_ok=True)
                raise
        except OSError:
            self.path = None

    def prune(self, most_bytes: int) -> None:
        """Remove the files that were written the longest ago where all together are larger.

        Another process may prune the same folder: then the rest is left to it.
        """
        if self.path is None:
            return
        with suppress(OSError):
            files = [(file.stat(), file) for file in self.path.iterdir() if file.suffix == self._suffix]
            total = 0
            for about, file in sorted(files, key=lambda one: -one[0].st_mtime):
                total += about.st_size
                if total > most_bytes:
                    file.unlink()


def cache_folder(setting: str | None, environ: Mapping[str, str], name: str) -> Path | None:
    """Where files of a sort (`name`) are kept: as it is set (empty: nowhere), else under the user's cache; None without
    a home."""
    if setting is not None:
        return Path(setting) if setting else None
    base = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else "")
    return Path(base) / "skuwise" / name if base.startswith("/") else None


def _writable_by_others(folder: Path) -> str:
    """Why others could have put files there; empty where they could not, or where the folder is still to be made."""
    try:
        about = folder.stat()
    except OSError:
        return ""
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users can write to {folder}"
    return ""
