"""A folder of files that save time: written whole or not at all, checked when read, and removed by age.

No file holds a secret, and none is ever executed.
"""

import hashlib
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...rules.base.errors import SkuwiseError
from ...rules.base.output import write_whole

_DIGEST_BYTES = 32


class CacheFolder:
    """Files with one suffix. `path` None: nothing is cached; `refused`: because others could write to the folder."""

    def __init__(self, folder: Path | None, suffix: str) -> None:
        self._suffix, self.refused = suffix, False
        with suppress(OSError):  # the folder may not exist yet
            if folder is not None:
                about = folder.stat()
                self.refused = about.st_uid not in (0, os.geteuid()) or about.st_mode & 0o022 != 0
        self.path = None if self.refused else folder

    def read(self, name: str, form: bytes, most_bytes: int) -> memoryview | None:
        """The content of a file of this form; None: missing, larger, or not as `write` wrote it."""
        head, whole = len(form) + _DIGEST_BYTES, b""
        with suppress(OSError):
            if self.path is not None:
                with (self.path / name).open("rb") as file:
                    whole = file.read(head + most_bytes + 1)
        content = memoryview(whole)[head:]
        is_whole = len(content) <= most_bytes and whole[:head] == form + hashlib.sha256(content).digest()
        return content if is_whole else None

    def write(self, name: str, form: bytes, content: bytes) -> None:
        """Write a content behind its form and its SHA-256. A failure turns the cache off."""
        try:
            if self.path is not None:
                self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
                whole = form + hashlib.sha256(content).digest() + content
                write_whole(self.path / name, whole, into_devices=False, mode=0o600)
        except (OSError, SkuwiseError):
            self.path = None

    def prune(self, most_bytes: int) -> None:
        """Remove the oldest files beyond a total size. Stops silently if another process prunes the same folder."""
        with suppress(OSError):
            files = [(file.stat(), file) for file in self.path.glob(f"*{self._suffix}*")] if self.path else []
            total = 0
            for about, file in sorted(files, key=lambda entry: -entry[0].st_mtime):
                total += about.st_size
                if total > most_bytes:
                    file.unlink()


def cache_folder(setting: str | None, environ: Mapping[str, str], name: str) -> Path | None:
    """The folder as set (empty: none), else `name` in the user's cache; None without a home."""
    if setting is not None:
        return Path(setting) if setting else None
    base = environ.get("XDG_CACHE_HOME") or (f"{environ['HOME']}/.cache" if environ.get("HOME") else "")
    return Path(base) / "skuwise" / name if base.startswith("/") else None
