"""Which files a source of databases is made of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ....rules.base.errors import UsageError


def database_files(paths: Sequence[Path]) -> list[Path]:
    """The databases that `paths` name: files as they are, folders as the ``*.db`` in them."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            # A pipe or a link to nothing is left out with a note, like any other file that cannot be read.
            inside = sorted(p for p in path.glob("*.db") if not p.is_dir())
            if not inside:
                raise UsageError(f"No *.db file in folder {path}.", "Use a folder of node databases.")
            files.extend(inside)
        else:
            files.append(path)
    unique = list(dict.fromkeys(files))
    if not unique:
        raise UsageError("No database given.", "Use --db PATH.")
    return unique
