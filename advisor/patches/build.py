"""Which target a recommendation has a patch for, and the patch."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from ..core import formatting as words
from ..core.timestamps import minute
from ..ledger.entries import LedgerEntry
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


_WIDTH = 100


def comment(lines: Sequence[str]) -> str:
    """Lines of comment: none leaves its line, whatever is in it, and none is continued on the next."""
    out = []
    for line in lines:
        plain = clean(line).rstrip()
        out.append(f"# {plain} ." if plain.endswith("\\") else f"# {plain}".rstrip())
    return "\n".join(out) + "\n"


def head_of(entry: LedgerEntry, part: PatchPart, notes: Sequence[str], check: str, *, undo: bool) -> str:
    """The head of one file. `check`: the command that tells whether it worked."""
    p = entry.proposal
    lines = _folded("skuwise", f"{'undo of ' if undo else ''}{p.id}, {p.action} of {p.about}")
    lines += _folded("Change", f"{p.source_config} to {p.target_config}")
    lines += _folded("Evidence", p.text)
    lines += _folded("Predicted", _predicted(entry))
    accepted = entry.last("accepted")
    if accepted is not None:
        lines += _folded("Accepted", f"by {accepted.by} on {minute(accepted.at)}")
    for note in notes:
        lines += _folded("Note", note)
    first, second = (part.revert, part.apply) if undo else (part.apply, part.revert)
    lines += [f"{'Undo' if undo else 'Apply':<11}{clean(line)}" for line in first]
    lines += [f"{'Redo' if undo else 'Undo':<11}{clean(line)}" for line in second]
    lines.append(f"{'Check':<11}{check} (done as soon as 'skuwise advise' measures it)")
    return comment(lines)


def _predicted(entry: LedgerEntry) -> str:
    p, ground = entry.proposal, entry.proposal.ground
    saving = ground.saving_usd_per_month if ground is not None else None
    said = words.saving_words(saving, p.freed_gpu_hours_per_month, p.realisation)
    time = words.time_words(ground.time_ratio) if ground is not None else words.NONE
    return f"{said}; time: {time}; risk: {p.risk}"


def _folded(label: str, text: str) -> list[str]:
    """A text under a label. Blanks in it are one; a long word is broken."""
    folded = textwrap.wrap(clean(" ".join(text.split())), _WIDTH - 11) or [""]
    return [f"{label:<11}{folded[0]}", *(f"{'':<11}{line}" for line in folded[1:])]


def with_head(file: PatchFile, head: str) -> PatchFile:
    return PatchFile(file.name, head + file.text)


def readme(entry: LedgerEntry, patches: PatchSet, check: str) -> PatchFile:
    """A page beside the files: the order in which they are applied and undone."""
    p = entry.proposal
    lines = [f"{p.id}: {p.action} of {p.about}", "", *textwrap.wrap(clean(" ".join(p.text.split())), _WIDTH), ""]
    for title, steps in (
        ("Apply, in this folder:", [s for part in patches.parts for s in part.apply]),
        ("Undo, in this folder:", [s for part in reversed(patches.parts) for s in part.revert]),
        ("Check:", [check]),
    ):
        lines += [title, *(f"    {clean(step)}" for step in steps), ""]
    for note in patches.notes:
        lines += textwrap.wrap(clean(note), _WIDTH, initial_indent="- ", subsequent_indent="  ")
    return PatchFile("README.txt", "\n".join(clean(line) for line in lines) + "\n")
