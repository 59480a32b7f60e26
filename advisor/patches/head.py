"""The head of a patch: what it is of, its evidence, how it is applied, undone and checked. Comments in every syntax."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ...rules.base.sanitize import clean
from ..core import formatting as words
from ..core.timestamps import minute
from ..ledger.entries import LedgerEntry
from .model import PatchFile, PatchPart, PatchSet

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
