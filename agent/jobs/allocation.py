"""Who was given which GPU, from every path there is, and which cgroup is whose.

Where no path answers, allocation is absent with its reason: processes that run are another basis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...rules.base.files import read_bounded
from ..base.safe_text import clean_text
from ..model import Absence, Gpu
from .cgroups import Origin, pod_uids
from .kubernetes_files import KubernetesFacts, KubernetesFiles
from .podresources import PodResources
from .scheduler_claims import DeviceClaim, Devices, SchedulerState
from .slurm import SlurmAllocations

_MARKER_BYTES = 65536


@dataclass(slots=True, eq=False)
class Allocations:
    """Asks Slurm's files and the kubelet at each scan. `cgroups` is ``/sys/fs/cgroup``. `kubernetes`: the files of what
    the API server said; `facts`: what these say now; `gpus`: the devices that are here now."""

    slurm: SlurmAllocations
    kubelet: PodResources
    cgroups: Path
    drained_marker: Path
    kubernetes: KubernetesFiles | None = None
    facts: KubernetesFacts = field(default_factory=KubernetesFacts, init=False)
    gpus: Sequence[Gpu] = field(default=(), init=False)
    _pods: dict[DeviceClaim, Origin] = field(default_factory=dict, init=False)  # as they were last matched

    def read(self, seen: Mapping[Origin, frozenset[str]] | None = None) -> SchedulerState:
        """Claims of every scheduler, why there are none, and whether the node is drained. `seen`: origins of running
        processes and their GPUs; None: not checked, and what ended meanwhile is reported at the next call."""
        if self.kubernetes is not None:
            self.facts = self.kubernetes.read()
        devices = Devices(self.gpus, self.facts.slices)
        by_job = {origin.key: gpus for origin, gpus in (seen or {}).items() if origin.scheduler == "slurm"}
        slurm, kubelet = self.slurm.read(devices, None if seen is None else by_job), self.kubelet.read(devices)
        absences = set(slurm.absences | kubelet.absences | self.facts.absences)
        # A marker file that an operator or a health check leaves (systemd/slurm/drained.sh), with the reason in its
        # first line: Slurm's controller and Kubernetes' API server know it, and the agent asks neither.
        with suppress(OSError):
            raw = read_bounded(self.drained_marker, _MARKER_BYTES, 0.0)
            reason = clean_text(raw.partition(b"\n")[0]) or "no reason was given"
            detail, remedy = f"The node is out of service: {reason}.", f"Remove {self.drained_marker} once it is back."
            absences.add(Absence("source", "node", "*", "drained", detail, remedy))
        is_present = slurm.present or kubelet.present
        absences |= set() if is_present else {_NO_SCHEDULER}
        return SchedulerState(is_present, (*slurm.claims, *kubelet.claims), frozenset(absences))

    def match(
        self, claims: Sequence[DeviceClaim], seen: Mapping[Origin, frozenset[str]], job_ids: Mapping[Origin, str]
    ) -> dict[DeviceClaim, Origin]:
        """Which cgroup each claim's processes run in, where that is beyond doubt. `seen`: origins of running processes
        and their GPUs; `job_ids`: of origins, where known. Slurm's claims name their cgroup. A pod's name is tied to a
        UID by the API server, else by what runs where (`join_claims`), also while it idles, as long as its cgroup is
        there and no other holds its GPUs."""
        matched: dict[DeviceClaim, Origin] = {}
        slurm = {name: o for o in seen if o.scheduler == "slurm" for name in (job_ids.get(o, o.key), o.key)}
        # A run that holds its devices goes before one that ended: a requeued job has both.
        for claim in sorted(claims, key=lambda claim: (claim.until is not None, -(claim.since or 0.0))):
            origin = slurm.get(claim.job_id or "") or slurm.get(claim.sluid or "")
            if claim.scheduler == "slurm" and origin is not None and origin not in matched.values():
                matched[claim] = origin
        pods = [claim for claim in claims if claim.scheduler == "kubernetes"]
        matched |= join_claims(pods, seen)
        idle = {c: o for c, o in self._pods.items() if c in pods and c not in matched and o not in seen}
        living = pod_uids(self.cgroups) if idle else frozenset()
        for claim, origin in idle.items():
            contested = {uuid for other in pods if other != claim for uuid in other.gpu_uuids}
            if origin.key in living and origin not in matched.values() and contested.isdisjoint(claim.gpu_uuids):
                matched[claim] = origin
        self._pods = {claim: matched[claim] for claim in pods if claim in matched}
        # The API server knows a pod's UID. Where another pod of the name runs by now, what runs counts.
        uids = {(pod.namespace, pod.pod): uid for uid, pod in self.facts.by_uid.items()}
        for claim in pods:
            origin = Origin("kubernetes", uids.get((claim.namespace, claim.pod), ""))
            if origin in seen or (origin.key and claim not in matched):
                matched[claim] = origin
        return matched

    def close(self) -> None:
        """End the child processes that ask the kubelet and read files."""
        self.kubelet.close()
        if self.kubernetes is not None:
            self.kubernetes.close()


def join_claims(claims: Sequence[DeviceClaim], seen: Mapping[Origin, frozenset[str]]) -> dict[DeviceClaim, Origin]:
    """Which claim is whose cgroup, where only its devices identify it (a pod's name is not its UID) and nothing else
    fits: no other claim holds any of them, exactly one origin of its scheduler runs on them, and on no other device."""
    joined: dict[DeviceClaim, Origin] = {}
    held = [uuid for claim in claims for uuid in claim.gpu_uuids]
    for claim in claims:
        if claim.unresolved or any(held.count(uuid) > 1 for uuid in claim.gpu_uuids):
            continue
        devices = set(claim.gpu_uuids)
        origins = [o for o, gpus in seen.items() if o.scheduler == claim.scheduler and gpus & devices]
        if len(origins) == 1 and seen[origins[0]] <= devices:
            joined[claim] = origins[0]
    return joined


_NO_SCHEDULER = Absence(
    "source",
    "allocation",
    "*",
    "allocation-unknown",
    "No scheduler was found on this node, so GPU allocations are unknown; processes show who uses the GPUs.",
    "With Slurm, name /etc/skuwise/slurm/prolog.sh and epilog.sh in slurm.conf (skuwise agent install writes them); "
    "with Kubernetes, mount the kubelet's pod-resources.",
)
