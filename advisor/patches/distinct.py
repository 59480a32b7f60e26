"""Files of one patch with names that differ: two files, or long names of nodes, can come down to the same slug."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from .model import PatchFile, PatchPart, PatchSet


def distinct(patches: PatchSet) -> PatchSet:
    """Every file whose name is there already gets a number, in the commands too.

    Originals follow the same rule in the same order, so that the number of an original is that of its patch.
    """
    taken: set[str] = set()
    parts = tuple(_numbered(part, taken) for part in patches.parts)
    originals = tuple(PatchFile(_free((one.name,), taken)[0], one.text) for one in patches.originals)
    return replace(patches, parts=parts, originals=originals)


def _numbered(part: PatchPart, taken: set[str]) -> PatchPart:
    patch, undo = _free((part.patch.name, part.undo.name), taken)
    return PatchPart(
        part.about, PatchFile(patch, part.patch.text), PatchFile(undo, part.undo.text),
        _named(part.apply, part.patch.name, patch), _named(part.revert, part.undo.name, undo),
    )  # fmt: skip


def _free(names: tuple[str, ...], taken: set[str]) -> tuple[str, ...]:
    """The names, or all of them with the first number that none of them has yet."""
    found, number = names, 1
    while taken.intersection(found):
        number += 1
        found = tuple(f"{path.stem}-{number}{path.suffix}" for path in map(PurePath, names))
    taken.update(found)
    return found


def _named(commands: tuple[str, ...], old: str, new: str) -> tuple[str, ...]:
    """Commands with another name of their file: it stands after the object or file that they change, which could have
    the same letters in its own name."""
    return tuple(_last_replaced(command, old, new) for command in commands)


def _last_replaced(command: str, old: str, new: str) -> str:
    head, found, tail = command.rpartition(old)
    return f"{head}{new}{tail}" if found else command
