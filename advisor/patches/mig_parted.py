"""MIG configurations for mig-parted: of the GPUs to divide alone, since it leaves alone what no entry names."""

from __future__ import annotations

from typing import Any

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from .mig_nodes import mig_counts
from .model import PatchFile, PatchPart, PatchSet
from .names import file_slug
from .subject import GivenFile, Subject
from .yaml_documents import read_values, write_document

_EXPORT = "Use the output of 'nvidia-mig-parted export'."
_ONE_EACH = "Make a patch for each node, with --node, --device and the output of its 'nvidia-mig-parted export'."

Entry = dict[str, Any]


def mig_patch(subject: Subject) -> PatchSet:
    """A configuration for each number of GPUs to divide; nodes with the same number share one. Raises UsageError."""
    counts, profile, per_gpu = mig_counts(subject), subject.mig_profile(), subject.mig_per_gpu()
    (given,) = subject.asked.manifests or (None,)  # `nvidia_patch` refuses several
    if given is not None and len(counts) > 1:
        raise UsageError("An export shows the GPUs of one node, and here are several.", _ONE_EACH)
    state = _exported(given) if given is not None else None
    there: dict[str, list[Entry]] = {}
    back: dict[str, list[Entry]] = {}
    notes = ["A GPU must be free when its MIG mode changes; drain the node first."]
    for count in sorted(set(counts.values())):
        name = f"{file_slug(subject.id)}-{count}"
        divided = list(subject.asked.devices or range(count))
        there[name] = [{"devices": divided, "mig-enabled": True, "mig-devices": {profile: per_gpu}}]
        back[f"{name}-undo"] = [{"devices": divided, "mig-enabled": False}]
        if given is not None and state is not None:
            back[f"{name}-undo"] = _narrowed(state, divided, given)
            notes += _in_use(back[f"{name}-undo"], subject)
        nodes = [clean(node) for node, own in counts.items() if own == count]
        notes.append(
            f"Configuration {name} is for: {', '.join(nodes)}. It divides GPU {', '.join(map(str, divided))} and "
            "leaves the others as they are."
        )
    if given is not None:
        notes.append("The undo returns these GPUs to the state in the manifest.")
    else:
        notes.append(
            "The undo turns MIG off on these GPUs. For the state of now, set --manifest to the output of "
            "'nvidia-mig-parted export'."
        )
    notes.append(
        "With the GPU Operator, add the configurations to its ConfigMap and set the node label nvidia.com/mig.config."
    )
    patch, undo = _file("mig-parted.yaml", there), _file("undo-mig-parted.yaml", back)
    part = PatchPart("MIG configuration", patch, undo, _commands(patch, there), _commands(undo, back))
    return PatchSet((part,), tuple(notes))


def _file(name: str, configs: dict[str, list[Entry]]) -> PatchFile:
    return PatchFile(name, write_document({"version": "v1", "mig-configs": configs}))


def _commands(file: PatchFile, configs: dict[str, list[Entry]]) -> tuple[str, ...]:
    return tuple(f"sudo nvidia-mig-parted apply -f {file.name} -c {name}" for name in configs)


def _exported(given: GivenFile) -> list[Entry]:
    """The entries of the only state that a file has. Raises UsageError where it has several, or no valid one."""
    found = read_values(given.raw, given.name)
    configs = found[0].get("mig-configs") if len(found) == 1 and isinstance(found[0], dict) else None
    states = list(configs.values()) if isinstance(configs, dict) else []
    if len(states) != 1:
        raise UsageError(f"{clean(given.name)} is not the state of one node.", _EXPORT)
    if not isinstance(states[0], list) or not all(isinstance(one, dict) and _is_valid(one) for one in states[0]):
        raise UsageError(f"{clean(given.name)} has an entry that mig-parted does not write.", _EXPORT)
    return states[0]


def _is_valid(entry: Entry) -> bool:
    devices = entry.get("devices")
    indexes = isinstance(devices, list) and all(type(one) is int for one in devices)
    return (
        (devices == "all" or indexes)
        and isinstance(entry.get("mig-enabled"), bool)
        and isinstance(entry.get("mig-devices") or {}, dict)
    )


def _narrowed(state: list[Entry], divided: list[int], given: GivenFile) -> list[Entry]:
    """The entries of a state for some GPUs alone. A filter by the GPU's type stays: mig-parted knows which one fits."""
    found: list[Entry] = []
    for entry in state:
        own = divided if entry["devices"] == "all" else [one for one in divided if one in entry["devices"]]
        if own:
            found.append({**entry, "devices": list(own)})
    shown = {one for entry in found for one in entry["devices"]}
    missing = [one for one in divided if one not in shown]
    if missing:
        raise UsageError(f"{clean(given.name)} does not show GPU {missing[0]}.", _EXPORT)
    return found


def _in_use(before: list[Entry], subject: Subject) -> list[str]:
    """What is lost of GPUs that are divided already. Raises UsageError where nobody chose these GPUs."""
    found = {
        gpu: sorted(map(clean, map(str, entry["mig-devices"])))
        for entry in before
        if entry["mig-enabled"] and entry.get("mig-devices")
        for gpu in entry["devices"]
    }
    if found and not subject.asked.devices:
        raise UsageError(
            f"GPU {min(found)} is divided already, perhaps for others.",
            "Set --device to the GPUs to divide, as in 2,3.",
        )
    return [f"GPU {gpu} loses its instances of now: {', '.join(names)}." for gpu, names in sorted(found.items())]
