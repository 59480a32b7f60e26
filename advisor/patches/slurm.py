"""Patches of Slurm: directives of a batch script, lines of slurm.conf and gres.conf, and nodes drained."""

from __future__ import annotations

import re
import shlex

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean, quoted
from ..moves.kinds.rest_clocks import VARIABLE
from .clocks import clock_megahertz
from .mig_nodes import mig_counts
from .model import PatchFile, PatchPart, PatchSet
from .names import slurm_name
from .slurm_conf import is_conf, is_gres, with_detected_gres, with_feature, with_mig_gres, with_partition
from .slurm_script import BatchScript
from .subject import Subject
from .text_diff import text_of, text_part

_REMEDY = "Use --manifest FILE with the batch script, slurm.conf or gres.conf."
_RELOAD = (
    "slurm.conf must be the same on all nodes. Then run 'scontrol reconfigure'; restart slurmd where Gres changed."
)


def slurm_patch(subject: Subject) -> PatchSet:
    """Raises UsageError where something is missing that only the user knows."""
    if subject.action == "consolidate" or (subject.action == "release" and (subject.of_nodes or subject.asked.nodes)):
        return _drained(subject)
    if subject.action == "release":
        raise UsageError(
            "Slurm has no patch that stops a job and starts it again.",
            "Ask its owner to cancel it (scancel), or drain its nodes with --node NAME.",
        )
    if not subject.asked.manifests:
        raise UsageError(f"A patch of {subject.action} for Slurm changes a file, and none is given.", _REMEDY)
    parts: list[PatchPart] = []
    notes: list[str] = []
    for given in subject.asked.manifests:
        before = text_of(given)
        after, note = _script(subject, before, clean(given.name)) if before.startswith("#!") else _conf(subject, before)
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
            script.set("gpu-freq", ",".join([str(clock_megahertz(subject)), *others]))
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


def _conf(subject: Subject, text: str) -> tuple[str, tuple[str, ...]]:
    if not is_conf(text):
        raise UsageError("The manifest is neither a batch script nor slurm.conf or gres.conf.", _REMEDY)
    asked = subject.asked
    if subject.action == "mig-slice":
        counts = {slurm_name(node, "node"): count for node, count in mig_counts(subject).items()}
        if is_gres(text):
            return with_detected_gres(text, tuple(counts)), (_RELOAD,)
        return with_mig_gres(text, counts, subject.mig_per_gpu(), subject.mig_profile()), (_RELOAD,)
    if subject.action == "move-sku" and asked.nodes and (asked.partition or asked.feature) and not is_gres(text):
        nodes = [slurm_name(node, "node") for node in asked.nodes]
        if asked.feature is not None:
            text = with_feature(text, nodes, slurm_name(asked.feature, "feature"))
        if asked.partition is not None:
            text = with_partition(text, slurm_name(asked.partition, "partition"), nodes)
        return text, (_RELOAD,)
    raise UsageError(
        f"A {subject.action} changes the batch script, not this file.",
        "For slurm.conf, set --node of the target's nodes and --partition or --feature."
        if subject.action == "move-sku"
        else "Use --manifest FILE with the batch script.",
    )


def _drained(subject: Subject) -> PatchSet:
    """Nodes that take no new jobs, so that they fall free."""
    nodes = ",".join(slurm_name(node, "node") for node in subject.nodes_to_change())
    reason = shlex.quote(f"skuwise {subject.id}")
    there = f"scontrol update nodename={nodes} state=drain reason={reason}"
    back = f"scontrol update nodename={nodes} state=resume"
    part = PatchPart(
        f"nodes {nodes}", PatchFile("patch-nodes.sh", f"{there}\n"), PatchFile("undo-nodes.sh", f"{back}\n"),
        ("sh patch-nodes.sh",), ("sh undo-nodes.sh",),
    )  # fmt: skip
    notes = (
        "Running jobs go on to their end; the nodes take no new ones.",
        "The undo returns the nodes to service: apply it only if they were in service before ('sinfo -R').",
    )
    return PatchSet((part,), notes)
