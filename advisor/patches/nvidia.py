"""Patches of nodes with NVIDIA GPUs: power limits and clocks as systemd drop-ins; MIG in `mig_parted`."""

from __future__ import annotations

import csv
import io
import re

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from .clocks import cap_watts, clock_megahertz
from .mig_parted import mig_patch
from .model import PatchFile, PatchPart, PatchSet
from .names import file_slug
from .subject import Subject
from .text_diff import text_of

_SMI = "/usr/bin/nvidia-smi"
# The driver's own service: it keeps the GPUs initialized, so that a limit stays, and starts at boot.
SERVICE = "nvidia-persistenced.service"
_QUERY = "nvidia-smi --query-gpu=index,power.limit --format=csv"
_INDEX = re.compile(r"[0-9]{1,3}")
_WATTS = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,2})?")


def nvidia_patch(subject: Subject) -> PatchSet:
    """Raises UsageError where something is missing that only the user knows."""
    if len(subject.asked.manifests) > 1:  # the indexes of GPUs are those of one node
        raise UsageError("A manifest shows the GPUs of one node, and here are several.", "Make a patch for each node.")
    if subject.action == "mig-slice":
        return mig_patch(subject)
    return _capped(subject) if subject.action == "power-cap" else _clocked(subject)


def _capped(subject: Subject) -> PatchSet:
    watts, gpu = cap_watts(subject), subject.gpu
    if gpu is not None and not (gpu.min_limit_watts or 0) <= watts <= gpu.tdp_watts:
        raise UsageError(
            f"A power limit of {watts:.0f} W is outside of what {gpu.name} takes.",
            f"Set --watts to {gpu.min_limit_watts or 0:.0f} to {gpu.tdp_watts:.0f}.",
        )
    before = _limits(subject)
    devices = subject.asked.devices or tuple(before)
    missing = [one for one in subject.asked.devices if before and one not in before]
    if missing:
        raise UsageError(f"The manifest has no GPU {missing[0]}.", f"Use the output of '{_QUERY}'.")
    if before and all(f"{before[one]:g}" == f"{watts:.0f}" for one in devices):
        raise UsageError(
            f"The manifest shows the limit of {watts:.0f} W already, so no undo can be made of it.",
            "Use the output of nvidia-smi from before that limit was set, or leave --manifest out.",
        )
    there = [f"{_SMI}{_chosen(devices)} -pl {watts:.0f}"]
    if before:
        back = [f"{_SMI} -i {one} -pl {before[one]:g}" for one in devices]
        note = "The undo sets the power limit of each GPU that the manifest shows."
    elif gpu is not None:
        back = [f"{_SMI}{_chosen(devices)} -pl {gpu.tdp_watts:.0f}"]
        note = (
            f"The undo sets the default limit of {gpu.name} in the catalog. For the limits in use now, set --manifest "
            f"to the output of '{_QUERY}'."
        )
    else:
        raise UsageError("Current power limit unknown.", f"Set --manifest to the output of '{_QUERY}'.")
    return _drop_in(subject, there, back, note)


def _clocked(subject: Subject) -> PatchSet:
    most = clock_megahertz(subject)
    if subject.asked.manifests:
        raise UsageError("A clock needs no --manifest: its undo removes the lock.", "Leave --manifest out.")
    chosen = _chosen(subject.asked.devices)
    # From 0: the driver takes the lowest clock that it supports, so that idle GPUs still rest.
    note = (
        "The driver takes the nearest clock that it supports. A lock that was set before is not restored by the undo."
    )
    return _drop_in(subject, [f"{_SMI}{chosen} -lgc 0,{most}"], [f"{_SMI}{chosen} -rgc"], note)


def _chosen(devices: tuple[int, ...]) -> str:
    return f" -i {','.join(map(str, devices))}" if devices else ""


def _limits(subject: Subject) -> dict[int, float]:
    """GPU index -> its power limit, of the output of nvidia-smi on one node; empty: none was given."""
    if not subject.asked.manifests:
        return {}
    (given,) = subject.asked.manifests
    try:
        rows = [row for row in csv.reader(io.StringIO(text_of(given)), skipinitialspace=True) if "".join(row).strip()]
    except csv.Error:
        rows = []
    heads = [one.strip() for one in rows[0]] if rows else []
    if heads[:1] != ["index"] or "power.limit [W]" not in heads or not rows[1:]:
        raise UsageError(f"{clean(given.name)} does not show power limits.", f"Use the output of '{_QUERY}'.")
    at = heads.index("power.limit [W]")
    found: dict[int, float] = {}
    for row in rows[1:]:
        watts = row[at].removesuffix("W").strip() if len(row) > at else ""
        if not _INDEX.fullmatch(row[0]) or not _WATTS.fullmatch(watts):
            raise UsageError(f"{clean(given.name)} has a GPU without a power limit.", f"Use the output of '{_QUERY}'.")
        if int(row[0]) in found:
            raise UsageError(f"{clean(given.name)} has GPU {int(row[0])} twice.", "Make a patch for each node.")
        found[int(row[0])] = float(watts)
    nodes = set(subject.asked.nodes or subject.ground.nodes)
    if len(nodes) > 1:
        raise UsageError(
            f"{clean(given.name)} shows the GPUs of one node, and the patch is for {len(nodes)}.",
            "Set --node to that node, and make a patch for each.",
        )
    return found


def _drop_in(subject: Subject, there: list[str], back: list[str], note: str) -> PatchSet:
    name = f"skuwise-{file_slug(subject.id)}.conf"
    folder = f"/etc/systemd/system/{SERVICE}.d"
    # '+': with full privileges, since the service runs as a user of its own.
    lines = ["[Service]", *(f"ExecStartPost=+{one}" for one in there)]
    script = [f"rm -f {folder}/{name}", "systemctl daemon-reload", *back]
    patch, undo = PatchFile(name, "\n".join(lines) + "\n"), PatchFile("undo.sh", "\n".join(script) + "\n")
    apply_ = (
        f"sudo install -D -m 644 {name} {folder}/{name}",
        f"sudo systemctl daemon-reload && sudo systemctl restart {SERVICE}",
    )
    notes = [_where(subject), note, f"The drop-in sets it again at every start of {SERVICE}, so after a reboot too."]
    if not subject.asked.devices:
        notes.append("It applies to all GPUs of the node, whoever uses them. Limit it with --device.")
    return PatchSet((PatchPart(f"drop-in of {SERVICE}", patch, undo, apply_, ("sudo sh undo.sh",)),), tuple(notes))


def _where(subject: Subject) -> str:
    nodes = subject.asked.nodes or subject.ground.nodes
    return f"Apply it on: {', '.join(map(clean, nodes))}." if nodes else "Apply it on the nodes of the workload."
