"""A patch as values: what is changed, the undo, and the commands of whoever applies it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Target = Literal["kubernetes", "kueue", "slurm"]


@dataclass(frozen=True, slots=True)
class PatchFile:
    """A file to be written: its name, and its text without the head."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class PatchPart:
    """One object or file that is changed.

    `about`: what it is, for people. `patch`, `undo`: the two ways. `apply`, `revert`: command lines that name the files
    by `PatchFile.name`, run in their folder.
    """

    about: str
    patch: PatchFile
    undo: PatchFile
    apply: tuple[str, ...]
    revert: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PatchSet:
    """Everything that one recommendation changes in one target.

    `notes`: what whoever applies it has to know: what was assumed, and what the patch does not do. `originals`: the
    given files as they were, byte by byte. `more`: files beside them that have no undo of their own (a kustomization).
    """

    parts: tuple[PatchPart, ...]
    notes: tuple[str, ...] = ()
    originals: tuple[PatchFile, ...] = ()
    more: tuple[PatchFile, ...] = field(default=())
