"""Which target a recommendation has a patch for, and the patch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...rules.base.errors import UsageError
from .distinct import distinct
from .kubernetes import kubernetes_patch
from .kueue import kueue_patch
from .model import PatchSet, Target
from .slurm import slurm_patch
from .subject import Subject

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
