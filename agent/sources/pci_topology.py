"""Which NIC serves which GPU, from where they hang in the PCI tree: who shares a switch or a root port with one, or
where no NIC is nearer, a root complex. Where they share nothing (Azure gives each passed-through device a root of its
own), kind, name and number. ``storage`` is never guessed: nothing in sysfs shows it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from ..model import LinkLayer, Role

_FROM_ROOT_COMPLEX = re.compile(r"(?<=/)pci[0-9a-f]{4,8}:[0-9a-f]{2}(?:/.*)?$")
_BUS_ID = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
_NAMED_COMPUTE = re.compile(r"_ib\d+$")
_NAMED_MANAGEMENT = re.compile(r"_an\d+$")

PciPath = tuple[str, ...]


class Nic(NamedTuple):
    """One RDMA device. `pci_path` runs from the root complex down to the device; empty: not a PCI device."""

    device: str
    pci_path: PciPath
    link_layer: LinkLayer


def sysfs_bus_id(bus_id: str) -> str | None:
    """NVML's ``00000000:1B:00.0`` as sysfs writes it, ``0000:1b:00.0``; None if it is no bus id."""
    match = _BUS_ID.fullmatch(bus_id.strip())
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}".lower()


def pci_path(device: Path) -> PciPath:
    """The components of a device's real path from its PCI root complex on; empty if it has none."""
    match = _FROM_ROOT_COMPLEX.search(os.path.realpath(device))
    return tuple(match[0].split("/")) if match else ()


def place_nics(nics: Sequence[Nic], gpus: Collection[PciPath], gpu_count: int) -> dict[str, tuple[Role, str]]:
    """The role of every NIC by its device, and what shows it. `gpus`: where they hang, as far as sysfs shows it;
    `gpu_count`: how many are known."""
    # How many components are shared with the nearest GPU (1: the root complex alone).
    nearest = {nic.device: max((_shared(nic.pci_path, path) for path in gpus), default=0) for nic in nics}
    switch_level = any(depth >= 2 for depth in nearest.values())
    roots = {path[0] for path in gpus} | {nic.pci_path[0] for nic in nics if nic.pci_path}
    bridge_tells = not switch_level and len(roots) > 1
    placed = switch_level or (bridge_tells and 1 in nearest.values())
    infiniband = sum(nic.link_layer == "InfiniBand" for nic in nics)
    one_each = not placed and infiniband == gpu_count >= 2

    def place(nic: Nic) -> tuple[Role, str]:
        if nearest[nic.device] >= 2:
            return "compute", "shares a PCIe switch or root port with a GPU"
        if nearest[nic.device] == 1 and bridge_tells:
            return "compute", "shares a PCIe root complex with a GPU, and no NIC is nearer to one"
        if nic.link_layer == "EFA":
            return "compute", "EFA exists for the compute fabric"
        if not placed and _NAMED_COMPUTE.search(nic.device):
            return "compute", "named as an InfiniBand compute port; the PCI tree is inconclusive"
        if not placed and _NAMED_MANAGEMENT.search(nic.device):
            return "management", "named as accelerated networking; the PCI tree is inconclusive"
        if one_each and nic.link_layer == "InfiniBand":
            return "compute", "as many InfiniBand NICs as GPUs; the PCI tree is inconclusive"
        return "unknown", "not attached to a GPU"

    return {nic.device: place(nic) for nic in nics}


def configured_role(name: str, configured: Mapping[str, Role]) -> Role | None:
    """The role configured for `name` (a device, or ``device/port``): exact before pattern; None: not configured."""
    if name in configured:
        return configured[name]
    return next((role for pattern, role in configured.items() if fnmatchcase(name, pattern)), None)


def _shared(path: PciPath, other: PciPath) -> int:
    """How many components two paths begin with alike."""
    return next((n for n, (a, b) in enumerate(zip(path, other, strict=False)) if a != b), min(len(path), len(other)))
