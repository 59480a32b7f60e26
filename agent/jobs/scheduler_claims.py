"""What a scheduler says it gave to whom: claims on devices, before they are workloads.

An allocation is a basis of its own: it says who may use a GPU, not who does. Device names come in several forms and are
turned into UUIDs by what the driver says; a name that fits no device here is kept apart, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from ..model import Absence, Workload
from .cgroups import Origin
from .dra import DraDevices

_REPLICA = re.compile(r"(.+)::\d{1,4}")  # the NVIDIA device plugin's time-slicing and MPS replicas
_MINOR = re.compile(r"(?:nvidia)?(\d{1,4})")
# GKE's plugin: nvidia0/gi1 is a MIG instance, nvidia0/vgpu3 a share of a time-sliced GPU.
_MINOR_PART = re.compile(r"(nvidia\d{1,4})/(gi|vgpu)(\d{1,4})")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What is told of one run of a Slurm job, whoever told it; None: not told.

    `job_id` and `sluid` name it. `start_seconds` is its start by the scheduler, `since` and `until` are when it was
    given its devices on this node and when they were taken back (Unix seconds; `until` None: it holds them).
    """

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


Facts = TypeVar("Facts", bound=JobFacts)
# What every run of a job has in common, and what a run may be told of by another witness.
OF_JOB = ("user", "account", "name", "partition", "qos", "array_job_id", "array_task_id")
OF_RUN = ("sluid", "start_seconds", "restarts", *OF_JOB)


def fill_facts(facts: Facts, more: JobFacts | Workload | None, names: Iterable[str] = OF_RUN) -> Facts:
    """`facts` with what it lacks of `names` taken from `more`: who told first is believed. `OF_JOB` where `more` is of
    another run of the same job."""
    missing = () if more is None else [name for name in names if getattr(facts, name) is None]
    return replace(facts, **{name: getattr(more, name) for name in missing}) if missing else facts


@dataclass(frozen=True, slots=True)
class DeviceClaim(JobFacts):
    """One piece of work and the devices it was given on this node.

    `namespace` and `pod` name a pod. `gpu_uuids` are devices known here; `unresolved` are names that fit none.
    """

    scheduler: Literal["slurm", "kubernetes"]
    gpu_uuids: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    namespace: str | None = None
    pod: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this claim from every other one of its scheduler."""
        return (
            (self.job_id or self.sluid or "", str(self.since))
            if self.scheduler == "slurm"
            else (self.namespace or "", self.pod or "")
        )


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """What one scheduler says. `present`: it gives work to this node; `absences`: what cannot be told of its claims."""

    present: bool
    claims: tuple[DeviceClaim, ...] = ()
    absences: frozenset[Absence] = frozenset()


class Devices(DraDevices):
    """The devices of this node, by every name that a scheduler may give them."""

    def resolve(self, names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """UUIDs of known devices, and the names that fit none; both in order, each once."""
        found: dict[str, None] = {}
        unknown: dict[str, None] = {}
        for name in names:
            uuid = self._uuid(name)
            if uuid is None:
                unknown[name] = None
            else:
                found[uuid] = None
        return tuple(found), tuple(unknown)

    def doubt(self, name: str) -> str:
        """Why a name that DRA gave fits no device; empty for any other."""
        return self.find(name.removeprefix("dra:"))[1] if name.startswith("dra:") else ""

    def _uuid(self, name: str) -> str | None:
        if name.startswith("dra:"):
            return self.find(name.removeprefix("dra:"))[0]
        if (replica := _REPLICA.fullmatch(name)) is not None:
            name = replica.group(1)
        if name in self._uuids:
            return name
        if (minor := _MINOR.fullmatch(name)) is not None:
            return self._minors.get(int(minor.group(1)))
        if (part := _MINOR_PART.fullmatch(name)) is not None:
            parent = self._uuid(part.group(1))
            if part.group(2) == "vgpu" or parent is None:
                return parent
            number, instances = int(part.group(3)), self.parts(parent)
            if any(one.gpu_instance is not None for one in instances):
                instances = tuple(one for one in instances if one.gpu_instance == number)
            # Of several compute instances in it, or several whose number nobody told, none is beyond doubt.
            return instances[0].uuid if len(instances) == 1 else None
        return None


def join_claims(claims: Sequence[DeviceClaim], seen: Mapping[Origin, frozenset[str]]) -> dict[DeviceClaim, Origin]:
    """Which claim is whose cgroup, for claims that carry no name that a cgroup does (a pod's name is not its UID).

    `seen`: the origins of running processes and the GPUs they are on. A claim is joined only where nothing else fits:
    no other claim holds any of its devices, exactly one origin of its scheduler runs on them, that origin runs on no
    device outside the claim.
    """
    holders: dict[str, int] = {}
    for claim in claims:
        for uuid in claim.gpu_uuids:
            holders[uuid] = holders.get(uuid, 0) + 1
    joined: dict[DeviceClaim, Origin] = {}
    for claim in claims:
        if not claim.gpu_uuids or claim.unresolved or any(holders[uuid] > 1 for uuid in claim.gpu_uuids):
            continue
        devices = set(claim.gpu_uuids)
        origins = [o for o, gpus in seen.items() if o.scheduler == claim.scheduler and gpus & devices]
        if len(origins) == 1 and seen[origins[0]] <= devices:
            joined[claim] = origins[0]
    return joined
