"""Patches of Slurm: directives of a batch script."""

from __future__ import annotations

import re

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean, quoted
from ..moves.kinds.rest_clocks import VARIABLE
from .model import PatchFile, PatchPart, PatchSet
from .names import slurm_name
from .slurm_script import BatchScript
from .subject import Subject
from .text_diff import text_of, text_part

_REMEDY = "Use --manifest FILE with the batch script."
# The supported SM clocks of NVIDIA's data center GPUs are 15 MHz apart (nvidia-smi -q -d SUPPORTED_CLOCKS).
_STEP_MEGAHERTZ = 15


def slurm_patch(subject: Subject) -> PatchSet:
    """Raises UsageError where something is missing that only the user knows."""
    if not subject.asked.manifests:
        raise UsageError(f"A patch of {subject.action} for Slurm changes a file, and none is given.", _REMEDY)
    parts: list[PatchPart] = []
    notes: list[str] = []
    for given in subject.asked.manifests:
        before = text_of(given)
        after, note = _script(subject, before, clean(given.name))
        parts.append(text_part(given, before, after))
        notes += [one for one in note if one not in notes]
    originals = tuple(
        PatchFile(f"original-{p.patch.name[6:-5]}", text_of(g))
        for p, g in zip(parts, subject.asked.manifests, strict=True)
    )
    return PatchSet(tuple(parts), tuple(notes), originals)


def _script(subject: Subject, text: str, name: str) -> tuple[str, tuple[str, ...]]:
    script, asked = BatchScript(text), subject.asked
    notes = ["Jobs that are queued or running keep the directives they were submitted with."]
    match subject.action:
        case "move-sku" | "swap-placement":
            if asked.partition is None and asked.feature is None:
                raise UsageError(
                    f"Slurm partition or feature of {subject.ground.target.node_sku or 'the target'} unknown.",
                    "Set --partition NAME or --feature NAME ('sinfo -o \"%P %f %G\"' lists them).",
                )
            if subject.action == "move-sku":
                notes += _resize(script, subject, name, keep_type=False)
            if asked.partition is not None:
                script.set("partition", slurm_name(asked.partition, "partition"))
            notes += _constrained(script, asked.feature, name)
        case "reduce-gpus":
            notes += _resize(script, subject, name, keep_type=True)
        case "mig-slice":
            option, _, count, _ = _asks(script)
            if count != 1:
                raise UsageError(f"The script asks for {count} GPUs; a MIG instance takes the place of one.", _REMEDY)
            script.set_gpus(option, subject.mig_profile(), 1)
        case "lower-clock":
            asks = (script.value("gpu-freq") or "").split(",")
            others = [one for one in asks if re.fullmatch(r"memory=\w+|verbose", one)]
            script.set("gpu-freq", ",".join([str(_clock_megahertz(subject)), *others]))
            notes.append("--gpu-freq needs the gres/gpu plugin with NVML; without it Slurm ignores the option.")
        case "rest-clocks":
            script.export(VARIABLE, "1")
        case _:
            raise AssertionError(subject.action)
    return script.text, tuple(notes)


def _asks(script: BatchScript) -> tuple[str, str | None, int, int]:
    found = script.gpus()
    if found is None:
        raise UsageError(
            "The script does not ask for GPUs with --gres=gpu:N, --gpus, --gpus-per-node or --gpus-per-task alone.",
            "Change it by hand.",
        )
    return found


def _constrained(script: BatchScript, feature: str | None, name: str) -> list[str]:
    """Nodes with a feature, in place of the one that was asked for; and what else still chooses its nodes.

    Raises UsageError for a constraint of several features: which of them the target has too is not known.
    """
    old, notes = script.value("constraint"), []
    if feature is not None:
        if old is not None and not re.fullmatch(r"[\w.-]+", old):
            raise UsageError(f"{name} has the constraint {quoted(old)} of several features.", "Change it by hand.")
        script.set("constraint", slurm_name(feature, "feature"))
        if old not in (None, feature):
            notes.append(f"{name} asked for the feature {old}; it asks for {feature} instead.")
    elif old is not None:
        notes.append(f"{name} still asks for --constraint={clean(old)}: the nodes of the target must have it.")
    nodes = script.value("nodelist")
    if nodes is not None:
        notes.append(f"{name} still asks for --nodelist={clean(nodes)}: set it to nodes of the target.")
    return notes


def _resize(script: BatchScript, subject: Subject, name: str, *, keep_type: bool) -> list[str]:
    """As many GPUs as the target has: fewer nodes (tasks) where they are whole, else fewer of each.

    Returns what of the old size is still asked for.
    """
    option, kind, count, times = _asks(script)
    before, after = subject.ground.source.gpu_count, subject.ground.target.gpu_count
    if count * times != before:
        raise UsageError(
            f"The script asks for {count * times} GPUs; the recommendation starts from {before}.",
            "Name the script of the whole workload; of several jobs, change each by hand.",
        )
    kind = kind if keep_type or subject.ground.source.gpu_sku == subject.ground.target.gpu_sku else None
    # What the count of GPUs is of, and what follows it.
    settled = {"gpus": (), "gpus-per-task": ("ntasks",)}.get(option, ("nodes",))
    if after % count == 0 and times > 1:
        script.set(settled[0], str(after // count))
        script.set_gpus(option, kind, count)
        settled = ("nodes", "ntasks-per-node") if settled == ("nodes",) else settled
    elif after % times == 0 and after:
        script.set_gpus(option, kind, after // times)
    else:
        raise UsageError(
            f"{times} x {count} GPUs cannot become {after} by fewer nodes or fewer GPUs.", "Change it by hand."
        )
    kept = [(one, script.value(one)) for one in ("nodes", "ntasks", "ntasks-per-node") if one not in settled]
    return [
        f"{name} still asks for --{one}={clean(told)}: set it to what {after} GPUs need."
        for one, told in kept
        if told not in (None, "1") and after != before
    ]


def _clock_megahertz(subject: Subject) -> int:
    """The SM clock, rounded down to a step. Raises UsageError where the clock of today was not measured."""
    if subject.asked.megahertz is not None:
        return subject.asked.megahertz
    share, before, gpu = subject.told.clock_share, subject.ground.before, subject.gpu
    ratio = before.clock_ratio if before is not None else None
    if share is None or ratio is None or gpu is None:
        raise UsageError(
            "The ledger does not know the SM clock of this recommendation: set --mhz.",
            f"Run 'skuwise ledger show {subject.id}' for the recommended change, and set it here.",
        )
    return int(share * ratio * gpu.tensor_reference_hertz / 1e6 // _STEP_MEGAHERTZ) * _STEP_MEGAHERTZ
