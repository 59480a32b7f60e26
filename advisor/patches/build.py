"""Which target a recommendation has a patch for, and the patch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import PurePath

from ...rules.base.errors import UsageError
from .kubernetes import kubernetes_patch
from .kueue import kueue_patch
from .model import PatchFile, PatchPart, PatchSet, Target
from .slurm import slurm_patch
from .subject import Subject


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


_MOVES: Mapping[Target, Callable[[Subject], PatchSet]] = {
    "kubernetes": kubernetes_patch, "kueue": kueue_patch, "slurm": slurm_patch,
}  # fmt: skip

# Action -> target -> what makes its patch. An action that is not here has none.
PATCHES: Mapping[str, Mapping[Target, Callable[[Subject], PatchSet]]] = {
    "move-sku": _MOVES,
    "swap-placement": {"kubernetes": kubernetes_patch, "slurm": slurm_patch},
    "reduce-gpus": _MOVES,
    "mig-slice": _MOVES,
    "release": {"kubernetes": kubernetes_patch, "kueue": kueue_patch},
    "consolidate": {"kubernetes": kubernetes_patch, "kueue": kueue_patch},
    "rest-clocks": {"kubernetes": kubernetes_patch, "slurm": slurm_patch},
    "lower-clock": {"slurm": slurm_patch},
}


def patch_for(subject: Subject, target: Target) -> PatchSet:
    """The patch of a recommendation for a target. Raises UsageError where there is none, or something is missing."""
    makers = PATCHES.get(subject.action, {})
    if not makers:
        raise UsageError(f"A {subject.action} has no patch.", f"Run 'skuwise ledger show {subject.id}' for what to do.")
    if target not in makers:
        raise UsageError(f"A {subject.action} has no patch for {target}.", f"Use --for {' or '.join(sorted(makers))}.")
    return distinct(makers[target](subject))
