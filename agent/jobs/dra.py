"""Devices that dynamic resource allocation (DRA) gave, by the names of NVIDIA's driver (gpu.nvidia.com).

A claim names a pool and a device. ResourceSlices tell each device's UUID. Without them the name alone is there
(cmd/gpu-kubelet-plugin/deviceinfo.go and mig.go of the driver):

* ``gpu-N``: a GPU; N is its minor number, before pull request 428 of July 2025 its NVML index;
* ``gpu-N-mig-PROFILE-START-SIZE``, newer ``gpu-N-mig-NAME-PROFILE-START``: an instance of it, by numbers of profile and
  placement, which the driver tells root alone.

Which release named it is not told: a name counts where both readings give the same device.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..model import Gpu

_NAME = re.compile(
    r"gpu-(\d{1,4})(?:-mig-(?:(?P<profile>\d{1,2}g\d{1,4}gb(?:-[a-z]+)*)-\d{1,4}-\d{1,3}|\d{1,4}-\d{1,3}-\d{1,3}))?"
)
_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """A device of a ResourceSlice; None: it does not tell. `profile`: of an instance, as in ``1g.10gb``."""

    uuid: str | None = None
    pci_bus_id: str | None = None
    parent_uuid: str | None = None
    profile: str | None = None


class DraDevices:
    """The devices of this node by the names of their claims. `slices`: by ``POOL/NAME``."""

    def __init__(self, gpus: Sequence[Gpu] = (), slices: Mapping[str, SliceDevice] | None = None) -> None:
        self._slices = slices or {}
        self.uuids = tuple(gpu.uuid for gpu in gpus)
        self.whole = tuple(gpu for gpu in gpus if gpu.kind == "gpu")
        self._uuids = frozenset(self.uuids)
        self._minors = {gpu.minor: gpu.uuid for gpu in self.whole if gpu.minor is not None}
        self._indexes = {gpu.index: gpu.uuid for gpu in self.whole}
        self._addresses = {address: gpu.uuid for gpu in self.whole if (address := _address(gpu.pci_bus_id)) is not None}
        self._parts: dict[str, list[Gpu]] = {}
        for gpu in gpus:
            if gpu.kind == "mig" and gpu.parent_uuid:
                self._parts.setdefault(gpu.parent_uuid, []).append(gpu)

    def parts(self, uuid: str) -> tuple[Gpu, ...]:
        """The MIG instances of a GPU."""
        return tuple(self._parts.get(uuid, ()))

    def find(self, name: str) -> tuple[str | None, str]:
        """The device's UUID, or None and why it is not known. `name` is ``POOL/DEVICE``."""
        device = name.rpartition("/")[2]
        match = _NAME.fullmatch(device)
        told = self._slices.get(name)
        if told is not None:
            return self._told(told, device)
        if match is None:
            return None, f"{device} is not a device name that NVIDIA's DRA driver uses"
        number, is_part = int(match.group(1)), "-mig-" in device
        by_minor, by_index = self._minors.get(number), self._indexes.get(number)
        if by_minor is None or by_minor != by_index:
            minor, index = by_minor or "no GPU", by_index or "no GPU"
            return None, f"gpu-{number} is {minor} by its minor number and {index} by its index"
        return self._part(by_minor, match.group("profile"), device) if is_part else (by_minor, "")

    def _told(self, told: SliceDevice, device: str) -> tuple[str | None, str]:
        if told.uuid is not None:
            return (
                (told.uuid, "") if told.uuid in self._uuids else (None, f"{device} is {told.uuid}, which is not here")
            )
        # An instance that is made when it is claimed has a parent and a profile, no UUID.
        parent = told.parent_uuid
        if parent is None and told.pci_bus_id is not None and (address := _address(told.pci_bus_id)) is not None:
            parent = self._addresses.get(address)
        if parent is None or parent not in self._uuids:
            return None, f"the ResourceSlice of {device} names no GPU that is here"
        return self._part(parent, told.profile, device) if told.profile or "-mig-" in device else (parent, "")

    def _part(self, parent: str, profile: str | None, device: str) -> tuple[str | None, str]:
        """The instance of `parent` with this profile, where there is one alone; without a profile, its only one."""
        parts = self._parts.get(parent, [])
        fitting = [one for one in parts if profile is None or _profile(one.mig_profile) == _profile(profile)]
        if len(fitting) == 1:
            return fitting[0].uuid, ""
        return None, f"{device} fits {len(fitting)} instances of {parent}"


def _profile(name: str | None) -> str:
    return re.sub(r"[^a-z0-9]", "", (name or "").lower())


def _address(bus_id: str | None) -> str | None:
    """The PCI address; NVML writes its domain with eight digits, Kubernetes with four."""
    match = _PCI.fullmatch((bus_id or "").lower())
    return f"{int(match.group(1), 16):x}:{match.group(2)}" if match is not None else None
