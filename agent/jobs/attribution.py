"""From the processes that the driver reports to workloads: whose work it is, and who holds which GPU.

What a scheduler or a container runtime left in the process's cgroup is the workload: a Slurm job, a pod, a container.
All else is a plain process, and processes started by one launcher are one workload, which a process keeps when its
launcher ends before it. Where Slurm gives its jobs no cgroup (proctrack/linuxproc), the slurmstepd above a process
shows its job.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

from ...rules.base.files import read_bounded
from ..base.safe_text import clean_text
from ..model import Absence, Gpu, GpuProcess, Workload, WorkloadUse
from . import processes as process_tree
from .command_line import framework_of, parse_command, plain_name
from .ids import series_id, workload_id
from .kubernetes_files import KubernetesFacts, KubernetesFiles
from .podresources import PodResources
from .pods import controller_of
from .processes import MPS, PLAIN, Origin, Process
from .scheduler_claims import DeviceClaim, Devices, SchedulerState
from .slurm import SlurmAllocations, job_of, slurm_workload, stepd_job

_MARKER_BYTES = 65536


@dataclass(slots=True, eq=False)
class Allocations:
    """Asks Slurm's files and the kubelet at each scan. `cgroups` is ``/sys/fs/cgroup``. `kubernetes`: the files of what
    the API server said; `facts`: what these say now; `gpus`: the devices that are here now."""

    slurm: SlurmAllocations
    kubelet: PodResources
    cgroups: Path
    drained_marker: Path
    kubernetes: KubernetesFiles
    facts: KubernetesFacts = field(default_factory=KubernetesFacts, init=False)
    gpus: Sequence[Gpu] = field(default=(), init=False)
    _pods: dict[DeviceClaim, Origin] = field(default_factory=dict, init=False)  # as they were last matched

    def read(self, seen: Mapping[Origin, frozenset[str]] | None = None) -> SchedulerState:
        """Claims of every scheduler, why there are none, and whether the node is drained. `seen`: origins of running
        processes and their GPUs; None: not checked, and what ended meanwhile is reported at the next call."""
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
        self, claims: Sequence[DeviceClaim], seen: Mapping[Origin, frozenset[str]], job_ids: Mapping[Origin, str | None]
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
        living = process_tree.pod_uids(self.cgroups) if idle else frozenset()
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


_NOT_FOUND = (
    "No scheduler was found on this node, so GPU allocations are unknown; processes show who uses the GPUs.",
    "With Slurm, name /etc/skuwise/slurm/prolog.sh and epilog.sh in slurm.conf (skuwise agent install writes them); "
    "with Kubernetes, mount the kubelet's pod-resources.",
)
_NO_SCHEDULER = Absence("source", "allocation", "*", "allocation-unknown", *_NOT_FOUND)


@dataclass(frozen=True, slots=True)
class _Known:
    """A process and the workload it was first given. `environment`: what its environment says of its Slurm job.
    `is_mps`: it calls itself MPS, and nothing proves that it is the driver's."""

    start_ticks: int
    origin: Origin
    workload: Workload
    environment: DeviceClaim | None
    is_mps: bool


@dataclass(slots=True, eq=False)
class NodeAttribution:
    """Names the workloads on this node. Not thread-safe; keeps the processes of the last call. `user_name`: of a uid,
    or None. `boot`: this boot's id, or the node's name. `variables`: those of a process that are allowed."""

    procfs: Path
    boot: str
    cluster: str
    user_name: Callable[[int], str | None]
    _: KW_ONLY
    allocations: Allocations
    variables: Callable[[int], Mapping[str, str]]
    absences: frozenset[Absence] = field(default=frozenset(), init=False)
    _known: dict[int, _Known] = field(default_factory=dict, init=False)
    _missing: set[int] = field(default_factory=set, init=False)  # PIDs that were not there at the last call
    _current: dict[str, Workload] = field(default_factory=dict, init=False)
    _named: dict[str, Workload] = field(default_factory=dict, init=False)  # by the id they were first called by

    def look_at_node(self) -> None:
        """Only bring `absences` up to date, where the driver lists no processes: a node may be drained all the same."""
        self.absences = self.allocations.read().absences

    def attribute(self, processes: Sequence[GpuProcess]) -> tuple[tuple[Workload, ...], tuple[WorkloadUse, ...]]:
        """The workloads here and what each holds on which GPU (by its processes, and by what a scheduler claims), in a
        fixed order. A process that is missing in two calls running is hidden from this user: `absences` says so, and
        known workloads on its GPU share it. Memory is None where the driver did not show it for each of its
        processes."""
        hidden = self._look({process.pid for process in processes})
        # Of several processes the first that describes its job speaks for all.
        runs: dict[str, _Known] = {}
        for held in sorted(self._known.values(), key=lambda held: held.environment is None):
            runs.setdefault(held.workload.workload_id, held)
        memory = self._memory(processes)
        seen: dict[Origin, frozenset[str]] = {}
        for gpu, key in memory:
            if (origin := runs[key].origin) != PLAIN:
                seen[origin] = seen.get(origin, frozenset()) | {gpu}
        granted = self.allocations.read(seen)
        self.absences = granted.absences | {_HIDDEN} if hidden else granted.absences
        runs = {key: runs[key] for _, key in memory}
        job_ids = {held.origin: held.environment.job_id for held in runs.values() if held.environment is not None}
        matched = self.allocations.match(granted.claims, seen, job_ids) if granted.claims else {}
        claim_of = {origin: claim for claim, origin in matched.items()}
        named = {key: self._name(held, claim_of.get(held.origin), held.origin) for key, held in runs.items()}
        running: dict[Origin | None, Workload] = {held.origin: named[key] for key, held in runs.items()}
        given = [(c, running.get(matched.get(c)) or self._name(None, c, matched.get(c))) for c in granted.claims]
        strangers = {process.gpu_uuid for process in processes if process.pid in hidden}
        workload_uses = _uses(memory, {key: workload.workload_id for key, workload in named.items()}, strangers, given)
        # A job that was given no GPU and runs on none is none of ours.
        holding = [workload for claim, workload in given if claim.gpu_uuids or claim.unresolved]
        self._current = {workload.workload_id: workload for workload in (*holding, *named.values())}
        self._named = named
        return tuple(self._current[key] for key in sorted(self._current)), workload_uses

    def _memory(self, processes: Sequence[GpuProcess]) -> dict[tuple[str, str], dict[int, int | None]]:
        """By GPU and first workload id: PID -> bytes in use; None: unknown. A user's own MPS server is part of the one
        other work that he has on its GPU, so that a name hides no work."""
        memory: dict[tuple[str, str], dict[int, int | None]] = {}
        running = [(self._known[process.pid], process) for process in processes if process.pid in self._known]
        users = {held.workload.workload_id: held.workload.user for held, _ in running if not held.is_mps}
        for held, process in sorted(running, key=lambda pair: pair[0].is_mps):
            key = (process.gpu_uuid, held.workload.workload_id)
            if held.is_mps:
                user = held.workload.user
                his = [(gpu, work) for gpu, work in memory if gpu == key[0] and users.get(work, "") == user]
                key = his[0] if len(his) == 1 else key
            # The driver lists a process once per kind of context (compute, graphics), each time with all its memory.
            amounts = (memory.setdefault(key, {}).get(process.pid), process.mem_used_bytes)
            memory[key][process.pid] = max((amount for amount in amounts if amount is not None), default=None)
        return memory

    def holder_of(self, pids: Iterable[int]) -> str | None:
        """The workload on this node's GPUs that `pids` belong to (a server's front end holds no GPU itself); None where
        that is none that `attribute` found last, or more than one."""
        names: set[str] = set()
        for pid in pids:
            held = self._known.get(pid)
            if held is None and (lineage := process_tree.read_lineage(self.procfs, pid)):
                held = self._describe(lineage, {})
            if held is not None and held.workload.workload_id in self._named:
                names.add(self._named[held.workload.workload_id].workload_id)
        return names.pop() if len(names) == 1 else None

    def _look(self, pids: set[int]) -> set[int]:
        # The first description of what runs stays: its leader may end before it does.
        first = {held.workload.workload_id: held.workload for held in self._known.values()}
        kept: dict[int, _Known] = {}
        missing: set[int] = set()
        for pid in sorted(pids):
            held = self._known.get(pid)
            if held is None or process_tree.read_start_ticks(self.procfs, pid) != held.start_ticks:
                lineage = process_tree.read_lineage(self.procfs, pid)
                missing |= set() if lineage else {pid}
                held = self._describe(lineage, first) if lineage and not process_tree.is_drivers_own(lineage) else None
            if held is not None:
                kept[pid] = held
        hidden = missing & self._missing
        self._known, self._missing = kept, missing
        return hidden

    def _describe(self, lineage: Sequence[Process], first: dict[str, Workload]) -> _Known:
        """`first`: the workloads that are described already."""
        process, leader, origin = lineage[0], process_tree.leader_of(lineage), process_tree.origin_of(lineage[0].cgroup)
        words = (*(parse_command(process.argv).program for process in (leader, process)), leader.comm, process.comm)
        name = next(filter(None, (plain_name(word) for word in words if word)), "unnamed")
        if origin == PLAIN:
            # The outermost slurmstepd is Slurm's own: what looks like one below it was started by the job.
            jobs = (stepd_job(ancestor, self.allocations.slurm.trusted_uids) for ancestor in reversed(lineage[1:]))
            job = next(filter(None, jobs), None)
            origin = origin if job is None else Origin("slurm", job)
        # Inside pods, and for root inside containers, a uid says nothing about who it is.
        is_somebody = origin.scheduler != "kubernetes" and (origin.scheduler != "docker" or leader.uid != 0)
        user = self._name_of(leader.uid) if is_somebody else None
        # Only a process that Slurm itself put into its cgroup is believed about its job.
        job_file = job_of(origin.key, self.variables(process.pid)) if origin.scheduler == "slurm" else None
        key: tuple[str, ...] = (origin.key,)
        if origin == PLAIN:
            key = (self.boot, str(leader.pid), str(leader.start_ticks))
        workload = Workload(
            workload_id=workload_id(self.cluster, origin.scheduler, *key),
            series_id=series_id(self.cluster, None, user, name),
            name=name,
            scheduler=origin.scheduler,
            job_id=origin.key if origin.scheduler == "slurm" else None,
            user=user,
            framework=framework_of(leader.argv, process.argv, (process.comm,)),
            command=parse_command(leader.argv).text,
        )
        workload = first.setdefault(workload.workload_id, workload)
        return _Known(process.start_ticks, origin, workload, job_file, process.comm == MPS and origin == PLAIN)

    def _name_of(self, uid: int | None) -> str | None:
        return None if uid is None else clean_text(self.user_name(uid) or str(uid))

    def _name(self, held: _Known | None, claim: DeviceClaim | None, origin: Origin | None) -> Workload:
        workload, job_file = (held.workload, held.environment) if held is not None else (None, None)
        scheduler = (claim or origin or PLAIN).scheduler
        # What ran before it went quiet reported more about it: `_current`.
        if scheduler == "slurm":
            user = self._name_of(claim.uid) if claim is not None and claim.user is None else None
            return slurm_workload(self.cluster, claim, origin, job_file, workload, user=user, before=self._current)
        uid = origin.key if origin is not None else ""
        fact = self.allocations.facts.by_uid.get(uid) if scheduler == "kubernetes" else None
        if workload is None and claim is not None:
            parts = (uid,) if uid else ("pod", claim.namespace or "", claim.pod or "")
            key = fact.workload_id if fact is not None else workload_id(self.cluster, scheduler, *parts)
            workload = self._current.get(key) or Workload(key, "", "unnamed", scheduler)
        assert workload is not None
        if fact is not None:
            return replace(fact, framework=workload.framework, command=workload.command)
        if claim is None:
            return workload
        # As far as a pod's name shows what it is of.
        name = controller_of(claim.pod or "") or workload.name
        series = series_id(self.cluster, claim.namespace, None, name)
        return replace(workload, series_id=series, name=name, namespace=claim.namespace, pod=claim.pod)


def _uses(
    memory: Mapping[tuple[str, str], Mapping[int, int | None]],
    named: Mapping[str, str],
    strangers: Iterable[str],
    given: Iterable[tuple[DeviceClaim, Workload]],
) -> tuple[WorkloadUse, ...]:
    """All uses, in a fixed order. `memory`: by GPU and first workload id; `named`: what that is called by now.
    `strangers`: GPUs of somebody unknown. `given`: also what ended since the last call."""
    running: dict[tuple[str, str], dict[int, int | None]] = {}
    for (gpu, first), of_pid in memory.items():
        running.setdefault((gpu, named[first]), {}).update(of_pid)
    allocations = [
        WorkloadUse(workload.workload_id, uuid, "allocation", since=claim.since, until=claim.until)
        for claim, workload in given
        for uuid in claim.gpu_uuids
    ]
    current = {(use.gpu_uuid, use.workload_id): use for use in allocations if use.until is None}
    holders: dict[str, set[str]] = {}
    for gpu, workload in (*((gpu, "") for gpu in strangers), *running, *current):
        holders.setdefault(gpu, set()).add(workload)
    workload_uses = [replace(use, shared=len(holders[gpu]) > 1) for (gpu, _), use in current.items()]
    for use in allocations:
        if use.until is not None:
            # Without a start nothing is known to be over before it.
            others = [a for a in allocations if a.gpu_uuid == use.gpu_uuid and a.workload_id != use.workload_id]
            begin, end = use.since or 0.0, use.until
            met = any((other.until or math.inf) > begin and end > (other.since or 0.0) for other in others)
            workload_uses.append(replace(use, shared=met))
    for (gpu, workload), of_pid in running.items():
        parts = [part for part in of_pid.values() if part is not None]
        total = sum(parts) if len(parts) == len(of_pid) else None
        workload_uses.append(WorkloadUse(workload, gpu, "process", len(holders[gpu]) > 1, total))
    return tuple(sorted(workload_uses, key=lambda use: (use.gpu_uuid, use.workload_id, use.basis, use.until or 0.0)))


_NOT_SEEN = (
    "The driver reports processes on a GPU that this agent cannot see in procfs, so their work has no name.",
    "In a container, share the host's PID namespace (hostPID); under hidepid, add the agent's user to its group.",
)
_HIDDEN = Absence("source", "processes", "*", "process-not-visible", *_NOT_SEEN)
