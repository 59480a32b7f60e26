"""What a scheduler says it gave to whom: claims on devices, before they are workloads. A device's name that fits none
here is kept apart, never guessed."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..model import Absence, Gpu, Workload

# The device plugins' names of NVIDIA's GPUs and MIG instances. Its NICs have the same prefix (nvidia.com/hostdev).
GPU_RESOURCE = re.compile(r"nvidia\.com/(gpu|mig-.+)(\.shared)?")
_REPLICA = re.compile(r"::\d{1,4}$")  # of time-slicing and MPS
# By minor number. GKE's plugin: nvidia0/gi1 is a MIG instance, nvidia0/vgpu3 a share of a time-sliced GPU.
_PLUGIN_NAME = re.compile(r"(?:nvidia)?(\d{1,4})(?:/(gi|vgpu)(\d{1,4}))?")
DRA_DRIVER = "gpu.nvidia.com"


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """One piece of work and its devices on this node; None: unknown. `gpu_uuids` are known here; `unresolved`: names
    that fit none. Of a run of a Slurm job `start_seconds` is its start by the scheduler, `since` and `until` when it
    was given its devices here and when they were taken back (Unix seconds; until None: it holds them); `devices`: gres
    indices or UUIDs, empty: no GPU; `conf` and `node`: what slurmd calls slurm.conf and this node."""

    scheduler: Literal["slurm", "kubernetes"] = "slurm"
    gpu_uuids: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    namespace: str | None = None
    pod: str | None = None
    job_id: str | None = None
    sluid: str | None = None
    start_seconds: int | None = None
    restarts: int | None = None
    user: str | None = None
    uid: int | None = None
    account: str | None = None
    name: str | None = None
    partition: str | None = None
    qos: str | None = None
    array_job_id: str | None = None
    array_task_id: str | None = None
    since: float | None = None
    until: float | None = None
    devices: tuple[str, ...] | None = None
    node: str | None = None
    conf: str | None = None
    without_prolog: bool = False

    @property
    def run(self) -> tuple[str | None, float | None]:
        """What distinguishes a run of a Slurm job from every other one."""
        return (self.job_id, self.until if self.without_prolog else self.since)


# What every run of a job has in common, and what another source may report of a run.
OF_JOB = ("user", "account", "name", "partition", "qos", "array_job_id", "array_task_id")
OF_RUN = ("sluid", "start_seconds", "restarts", *OF_JOB)


def fill_facts(facts: DeviceClaim, more: DeviceClaim | Workload | None, names: Iterable[str] = OF_RUN) -> DeviceClaim:
    """`facts` with what it lacks of `names` from `more`; `OF_JOB` where `more` is of another run of the same job."""
    missing = () if more is None else [name for name in names if getattr(facts, name) is None]
    return replace(facts, **{name: getattr(more, name) for name in missing}) if missing else facts


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """What one scheduler says. `present`: it gives work to this node; `absences`: what is unknown of its claims."""

    present: bool
    claims: tuple[DeviceClaim, ...] = ()
    absences: frozenset[Absence] = frozenset()


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """A device of a ResourceSlice (DRA); None: unknown. `profile`: of a MIG instance, as in ``1g.10gb``."""

    uuid: str | None = None
    pci_bus_id: str | None = None
    parent_uuid: str | None = None
    profile: str | None = None


def not_known(subject: str, reason: str, detail: str, remedy: str, names: Sequence[str]) -> frozenset[Absence]:
    """What is not known of allocations, with three of `names` in its `detail`; nothing where there are no names."""
    some = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    absence = Absence("source", "allocation", subject, f"allocation-{reason}", detail.format(some), remedy)
    return frozenset({absence} if names else ())


class Devices:
    """The devices of this node, by every name that a scheduler may give them. `slices`: DRA's, by ``POOL/NAME``."""

    def __init__(self, gpus: Sequence[Gpu] = (), slices: Mapping[str, SliceDevice] | None = None) -> None:
        self._gpus, self._slices = tuple(gpus), slices or {}
        self.uuids = tuple(gpu.uuid for gpu in gpus)
        self.whole = tuple(gpu for gpu in gpus if gpu.kind == "gpu")

    def parts(self, uuid: str) -> tuple[Gpu, ...]:
        return tuple(gpu for gpu in self._gpus if gpu.kind == "mig" and gpu.parent_uuid == uuid)

    def gpus_among(self, given: Iterable[tuple[str, str]]) -> list[str]:
        """Of resources and names, as the kubelet has them, those that stand for GPUs: by a plugin's resource, by DRA's
        driver, or as NVML calls one. NICs have NVIDIA's prefix too."""
        return [
            name
            for resource, name in given
            if resource == DRA_DRIVER or GPU_RESOURCE.fullmatch(resource) or _REPLICA.sub("", name) in self.uuids
        ]

    def resolve(self, names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """UUIDs of known devices, and the names that fit none; both in order, each once."""
        uuids = {name: self._find(name) for name in names}
        distinct = dict.fromkeys(uuid for uuid in uuids.values() if uuid is not None)
        return tuple(distinct), tuple(name for name, uuid in uuids.items() if uuid is None)

    def _find(self, name: str) -> str | None:
        if name.startswith("dra:"):
            return self._of_claim(name.removeprefix("dra:"))
        name = _REPLICA.sub("", name)
        match = _PLUGIN_NAME.fullmatch(name)
        if match is None:
            return name if name in self.uuids else None
        parent = next((gpu.uuid for gpu in self.whole if gpu.minor == int(match[1])), None)
        if parent is None or match[2] != "gi":
            return parent
        instances = self.parts(parent)
        if any(instance.gpu_instance is not None for instance in instances):
            instances = tuple(gpu for gpu in instances if gpu.gpu_instance == int(match[3]))
        # Of several compute instances in it, or several of unknown number, none is beyond doubt.
        return instances[0].uuid if len(instances) == 1 else None

    def _of_claim(self, name: str) -> str | None:
        """The device of a DRA claim, by its ResourceSlice. An instance that is made when it is claimed has a parent and
        a profile, no UUID."""
        device = self._slices.get(name, SliceDevice())
        if device.uuid is not None:
            return device.uuid if device.uuid in self.uuids else None
        at, profile = _address(device.pci_bus_id), device.profile
        parents = [g for g in self.whole if g.uuid == device.parent_uuid or (at and at == _address(g.pci_bus_id))]
        if len(parents) != 1 or not (profile or "-mig-" in name):
            return parents[0].uuid if len(parents) == 1 else None
        parts = self.parts(parents[0].uuid)
        fitting = [part.uuid for part in parts if not profile or _plain(part.mig_profile) == _plain(profile)]
        return fitting[0] if len(fitting) == 1 else None


def _plain(profile: str | None) -> str:
    return re.sub(r"[^a-z0-9]", "", (profile or "").lower())


def _address(bus_id: str | None) -> str:
    return (bus_id or "").lower().lstrip("0")  # NVML writes the domain with eight digits, Kubernetes with four
