"""The difference of two texts as ``patch`` takes it, for files whose every byte counts."""

from __future__ import annotations

import difflib
import re
import shlex

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from .model import PatchFile, PatchPart
from .names import file_slug
from .subject import GivenFile

_NO_NEWLINE = "\\ No newline at end of file\n"


def text_of(given: GivenFile) -> str:
    """Raises UsageError where it is no text."""
    try:
        text = given.raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{clean(given.name)} is not UTF-8 text.", "Convert it, or change it by hand.") from error
    if "\0" in text:
        raise UsageError(f"{clean(given.name)} is not a text file.", "Name a text file.")
    return text


def unified(before: str, after: str, label: str) -> str:
    """The difference, with three lines around each change; empty: there is none. `label`: a plain word."""
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (before, after))
    lines = difflib.unified_diff(old, new, f"a/{label}", f"b/{label}")
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


def text_part(given: GivenFile, before: str, after: str) -> PatchPart:
    """Both ways between two texts of a file. Raises UsageError where nothing is to be changed."""
    if before == after:
        raise UsageError(
            f"{clean(given.name)} has what the recommendation asks for already.", "Name the file that is in use."
        )
    label = file_slug(given.name) or "file"
    patch = PatchFile(f"patch-{label}.diff", unified(before, after, label))
    undo = PatchFile(f"undo-{label}.diff", unified(after, before, label))
    # GNU patch refuses to change a file through a link.
    path = str(given.path.resolve() if given.path.is_symlink() else given.path.absolute())
    where = shlex.quote(path) if path.isprintable() else "FILE"
    steps = [(f"patch {where} {file.name}",) for file in (patch, undo)]
    return PatchPart(clean(given.name), patch, undo, steps[0], steps[1])
