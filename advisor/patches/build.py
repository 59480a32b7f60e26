"""Which target a recommendation has a patch for, the patch with its head, and the next step once it is accepted."""

import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from ...rules.catalog.loader import Catalog
from ..core import formatting as words
from ..core.timestamps import minute
from ..state.ledger import LedgerEntry, configuration_words
from .change import Change, Patch, PatchFile, Target, change_of
from .kubernetes import kubernetes_patch, kueue_patch
from .slurm import slurm_patch

_MAKERS: Mapping[Target, Callable[[Change], Patch]] = {
    "kubernetes": kubernetes_patch, "kueue": kueue_patch, "slurm": slurm_patch,
}  # fmt: skip
# Action -> the targets that it has a patch for. An action that is not here has none.
PATCHES: Mapping[str, tuple[Target, ...]] = {
    "move-sku": ("kubernetes", "kueue", "slurm"),
    "swap-placement": ("kubernetes", "slurm"),
    "reduce-gpus": ("kubernetes", "kueue", "slurm"),
    "mig-slice": ("kubernetes", "slurm"),
    "release": ("kubernetes", "kueue"),
    "consolidate": ("kubernetes", "kueue"),
    "rest-clocks": ("kubernetes", "slurm"),
    "lower-clock": ("slurm",),
}


def patch_for(
    entry: LedgerEntry, target: Target, catalog: Catalog, typed: Mapping[str, Any], command: str = "skuwise patch"
) -> Patch:
    """The patch of a recommendation for a target; `typed`, `command` as in `change_of`. Raises UsageError."""
    r = entry.recommendation
    action, targets = r.action, PATCHES.get(r.action, ())
    if not targets:
        raise UsageError(f"A {action} has no patch.", f"Run 'skuwise ledger show {r.id}' for what to do.")
    if target not in targets:
        raise UsageError(f"A {action} has no patch for {target}.", f"Use --for {' or '.join(targets)}.")
    change = change_of(entry, target, catalog, command, typed)
    try:
        return _MAKERS[target](change)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if change.manifest is None:
            raise
        what = "The manifest is not valid: a value has another form than kubectl prints."
        raise UsageError(what, "Export it with 'kubectl get -o yaml'.") from error


def next_step(entry: LedgerEntry, program: str, place: str) -> str:
    """What to do once it is accepted: the command that prints its patch for the scheduler of the workload, else the
    recommendation in words. `place`: options that name the state file."""
    r, snapshot = entry.recommendation, entry.snapshot
    at, targets = snapshot.address if snapshot is not None else None, PATCHES.get(r.action, ())
    target = at.scheduler if at is not None else "kubernetes"
    if snapshot is None or target not in targets:
        lead = "Blocked, so there is nothing to apply" if snapshot is None else "Next, by hand (no patch for it)"
        return f"{lead}: {clean(' '.join(r.text.split()))}"
    nodes = shlex.quote(clean(",".join(snapshot.yardstick.freed or snapshot.yardstick.nodes)))
    other = f"; on Slurm: scontrol update NodeName={nodes} State=DRAIN Reason={r.id}" if at is None else ""
    return f"Next: {' '.join([program, 'patch', r.id, '--for', target, place]).rstrip()}{other}"


def comment(lines: list[str]) -> str:
    """Lines of comment: none leaves its line, whatever is in it, and none is continued on the next."""
    plain = [clean(line).rstrip() for line in lines]
    return "".join(f"# {line} .\n" if line.endswith("\\") else f"# {line}".rstrip() + "\n" for line in plain)


def with_head(entry: LedgerEntry, made: Patch, check: str, *, undo: bool) -> PatchFile:
    """The patch or the undo under its head. `check`: the command that verifies it."""
    r, snapshot, accepted = entry.recommendation, entry.snapshot, entry.last("accepted")
    assert snapshot is not None
    saving = words.saving_words(snapshot.saving_usd_per_month, r.freed_gpu_hours_per_month, r.realisation)
    lines = [
        *_folded("skuwise", f"{'undo of ' if undo else ''}{r.id}, {r.action} of {entry.about}"),
        *_folded("Change", f"{configuration_words(r.source)} to {configuration_words(r.target)}"),
        *_folded("Evidence", r.text),
        *_folded("Predicted", f"{saving}; time: {words.time_words(snapshot.time_ratio)}; risk: {r.risk}"),
        *(_folded("Accepted", f"by {accepted.by} on {minute(accepted.at)}") if accepted is not None else ()),
        *(line for note in made.notes for line in _folded("Note", note)),
        f"{'Redo' if undo else 'Apply':<11}{made.apply}",
        f"{'Undo':<11}{made.revert}",
        f"{'Check':<11}{check} (done as soon as 'skuwise advise' measures it)",
    ]
    file = made.undo if undo else made.patch
    return PatchFile(file.name, comment(lines) + file.text)


def _folded(label: str, text: str) -> Iterator[str]:
    for n, line in enumerate(textwrap.wrap(clean(" ".join(text.split())), 89) or [""]):
        yield f"{'' if n else label:<11}{line}"
