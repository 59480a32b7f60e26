"""Who was given which GPU, from every road there is, and which cgroup is whose.

Where no road answers, allocation is absent (`allocation-unknown`) with its reason, and nothing is made up from the
processes that run: those are another basis.

Whether this node is out of service: a marker file that an operator or a health check leaves.

Nothing on a node tells that its scheduler drained it (a Slurm node's state lives with the controller, a Kubernetes
node's ``unschedulable`` with the API server, and the agent asks neither). So the node is drained where
``/run/skuwise/drained`` exists: `systemd/slurm/drained.sh` writes and removes it, by hand or from a health check. The
file's first line is the reason.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..base.safe_text import clean_text
from ..model import Absence, Gpu
from .cgroups import Origin, pod_uids
from .kubernetes_files import KubernetesFacts, KubernetesFiles
from .podresources import PodResources
from .scheduler_claims import DeviceClaim, Devices, join_claims
from .slurm import SlurmAllocations

REASON = "drained"
_LIMIT = 4096


def drained(marker: Path) -> Absence | None:
    """The node is out of service, and why; None: no marker. A marker that anybody could have written is none."""
    try:
        fd = os.open(marker, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_mode & 0o002:
            return None
        raw = os.read(fd, _LIMIT)
    except OSError:
        return None
    finally:
        os.close(fd)
    reason = clean_text(raw.partition(b"\n")[0]) or "no reason was given"
    return Absence(
        "source", "node", "*", REASON, f"The node is out of service: {reason}.", f"Remove {marker} once it is back."
    )


@dataclass(frozen=True, slots=True)
class Granted:
    """What holds at one scan."""

    claims: tuple[DeviceClaim, ...] = ()
    absences: frozenset[Absence] = frozenset()
    kubernetes: KubernetesFacts = field(default_factory=KubernetesFacts)


@dataclass(slots=True, eq=False)
class Allocations:
    """Asks Slurm's files and the kubelet at each scan. `cgroups` is ``/sys/fs/cgroup``. `kubernetes`: what the API
    server said of pods and devices; None: nobody wrote it down."""

    slurm: SlurmAllocations
    kubelet: PodResources
    cgroups: Path
    drained_marker: Path
    kubernetes: KubernetesFiles | None = None
    _facts: KubernetesFacts = field(default_factory=KubernetesFacts, init=False)
    _gpus: Sequence[Gpu] = field(default=(), init=False)
    _devices: Devices = field(default_factory=Devices, init=False)
    _pods: dict[tuple[str, ...], tuple[DeviceClaim, Origin]] = field(default_factory=dict, init=False)

    def set_gpus(self, gpus: Sequence[Gpu]) -> None:
        """The devices that are here now, so that minor numbers and MIG names can be turned into UUIDs."""
        self._gpus = gpus
        self._devices = Devices(gpus, self._facts.slices)

    def read(self, seen: Mapping[Origin, frozenset[str]] | None = None) -> Granted:
        """Claims of every scheduler here, why there are none, and whether the node is drained.

        `seen`: origins of running processes and the GPUs they are on, which must agree with what was given. None:
        nobody looked; what ended meanwhile is told at the next call.
        """
        facts = self.kubernetes.read() if self.kubernetes is not None else self._facts
        if facts.slices is not self._facts.slices:
            self._devices = Devices(self._gpus, facts.slices)
        self._facts = facts
        by_job = None
        if seen is not None:
            by_job = {origin.key: gpus for origin, gpus in seen.items() if origin.scheduler == "slurm"}
        slurm, kubelet = self.slurm.read(self._devices, by_job), self.kubelet.read(self._devices)
        absences = slurm.absences | kubelet.absences | facts.absences
        if not (slurm.present or kubelet.present):
            absences |= {_NO_SCHEDULER}
        marker = drained(self.drained_marker)
        if marker is not None:
            absences |= {marker}
        return Granted((*slurm.claims, *kubelet.claims), absences, facts)

    def match(
        self, claims: Sequence[DeviceClaim], seen: Mapping[Origin, frozenset[str]], job_ids: Mapping[Origin, str]
    ) -> dict[DeviceClaim, Origin]:
        """Which cgroup each claim's processes run in, where that is beyond doubt.

        `seen`: origins of running processes and the GPUs they are on; `job_ids`: the job id that a process of an
        origin told, where one did. Slurm's claims name their cgroup. A pod's name is tied to a UID by what runs where
        (`join_claims`), and stays tied while the pod idles, as long as its claim and its cgroup are there.
        """
        matched: dict[DeviceClaim, Origin] = {}
        slurm = {o.job_id or job_ids.get(o) or o.key: o for o in seen if o.scheduler == "slurm"}
        slurm |= {o.key: o for o in seen if o.scheduler == "slurm"}
        # A run that holds its devices goes before one that ended: a requeued job has both.
        for claim in sorted(claims, key=lambda claim: (claim.until is not None, -(claim.since or 0.0))):
            if claim.scheduler != "slurm":
                continue
            origin = slurm.get(claim.job_id or "") or slurm.get(claim.sluid or "")
            if origin is not None and origin not in matched.values():
                matched[claim] = origin
        taken = set(matched.values())
        for claim, origin in join_claims([c for c in claims if c not in matched and c.until is None], seen).items():
            named = origin.scheduler == "slurm" and (claim.sluid or origin.job_id or origin in job_ids)
            if origin not in taken and not named:  # what has a name of its own is not somebody else's
                matched[claim] = origin
        self._remember(claims, matched, frozenset(seen))
        for claim in claims:
            fact = self._facts.by_name.get((claim.namespace or "", claim.pod or ""))
            if claim.scheduler == "kubernetes" and fact is not None and fact.pod.uid:
                # The API server knows a pod's UID. Where another pod of the name runs by now, what runs counts.
                origin = Origin("kubernetes", fact.pod.uid)
                if origin in seen or claim not in matched:
                    matched[claim] = origin
        return matched

    def close(self) -> None:
        """End the child processes that ask the kubelet and read files."""
        self.kubelet.close()
        if self.kubernetes is not None:
            self.kubernetes.close()

    def _remember(
        self, claims: Sequence[DeviceClaim], matched: dict[DeviceClaim, Origin], seen: frozenset[Origin]
    ) -> None:
        pods = {claim.key: claim for claim in claims if claim.scheduler == "kubernetes"}
        kept = {key: held for key, held in self._pods.items() if pods.get(key) == held[0]}
        living: frozenset[str] | None = None
        for claim, origin in kept.values():
            if claim in matched or origin in matched.values() or origin in seen:
                continue
            living = pod_uids(self.cgroups) or frozenset() if living is None else living
            if origin.key in living and not _contested(claim, pods.values()):
                matched[claim] = origin
        self._pods = {c.key: (c, o) for c, o in matched.items() if c.scheduler == "kubernetes"}


def _contested(claim: DeviceClaim, claims: Iterable[DeviceClaim]) -> bool:
    others = (other for other in claims if other != claim)
    return any(set(other.gpu_uuids) & set(claim.gpu_uuids) for other in others)


_NO_SCHEDULER = Absence(
    "source",
    "allocation",
    "*",
    "allocation-unknown",
    "No scheduler was found on this node, so GPU allocations are unknown; processes show who uses the GPUs.",
    "With Slurm, name /etc/skuwise/slurm/prolog.sh and epilog.sh in slurm.conf (skuwise agent install writes them); "
    "with Kubernetes, mount the kubelet's pod-resources.",
)
