"""A folder of files that save asking again: written whole or not at all, removed by age, and never believed blindly.

A file that does not read back as it was written is none. No file holds a secret, and none is ever executed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...rules.base.errors import SkuwiseError
from ...rules.base.output import write_whole

_DIGEST_BYTES = 32


class CacheFolder:
    """A folder of files of one sort, or nowhere where it is None. `suffix`: of their names.

    `refused`: it is not used, because others could write to it. One that cannot be written to costs only time.
    """

    def __init__(self, folder: Path | None, suffix: str) -> None:
        self._suffix, self.refused = suffix, False
        with suppress(OSError):  # still to be made
            about = folder.stat() if folder is not None else None
            self.refused = about is not None and (
                about.st_uid not in (0, os.geteuid()) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) != 0
            )
        self.path = None if self.refused else folder
        """Where files are kept; None: nowhere."""

    def read(self, name: str, form: bytes, most_bytes: int) -> memoryview | None:
        """The content of a file of this form; None: there is none, it is larger, or not as `write` wrote it."""
        if self.path is None:
            return None
        head, whole = len(form) + _DIGEST_BYTES, b""
        with suppress(OSError), (self.path / name).open("rb") as file:
            whole = file.read(head + most_bytes + 1)
        content = memoryview(whole)[head:]
        is_whole = len(content) <= most_bytes and whole[:head] == form + hashlib.sha256(content).digest()
        return content if is_whole else None

    def write(self, name: str, form: bytes, content: bytes) -> None:
        """Keep a content behind its form and its SHA-256. A folder that cannot be written to is used no more."""
        try:
            if self.path is not None:
                self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
                whole = form + hashlib.sha256(content).digest() + content
                write_whole(self.path / name, whole, into_devices=False, mode=0o600)
        except (OSError, SkuwiseError):
            self.path = None

    def prune(self, most_bytes: int) -> None:
        """Remove the files that were written the longest ago where all together are larger. Another process may prune
        the same folder: then the rest is left to it."""
        with suppress(OSError):
            total = 0
            files = [(file.stat(), file) for file in self.path.glob(f"*{self._suffix}*")] if self.path else []
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
