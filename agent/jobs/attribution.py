"""From the processes that the driver reports to workloads: whose work it is, and who holds which GPU.

Where a scheduler or a container runtime left its mark in the process's cgroup, that is the workload: a Slurm job, a
pod, a container. All else is a plain process, and processes started by one launcher are one workload (`processes`). A
process keeps the workload it was first given, also when its launcher ends before it. Where Slurm gives its jobs no
cgroup (proctrack/linuxproc), a process is its job's by the slurmstepd that it descends from.

Allocation is a basis of its own (`allocation`): a scheduler's claim gives its workload the GPUs it was given, also
where nothing of it runs, and names pods and jobs better than their processes do.

Identities (`ids.workload_id`): a Slurm job by its id and its start by the scheduler's clock, so that every node gives
the same and a recycled id another (`ids.slurm_parts` says what stands in where the start is not known); a pod by its
UID; a container by its id; a plain process by boot id, PID and start time of its leader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

from ..base.safe_text import clean_text
from ..model import Absence, Gpu, GpuProcess, Workload, WorkloadUse
from .allocation import Allocations, Granted
from .cgroups import PLAIN, Origin, origin_of
from .command_line import framework_of, parse_command
from .ids import series_id, workload_id
from .kubernetes_files import KubernetesFacts
from .pod_names import controller_of
from .processes import MAX_CLIMB, Context, Process, is_mps, name_of_work, read_start_ticks, read_variables
from .scheduler_claims import DeviceClaim
from .slurm_job_files import JobFile
from .slurm_job_processes import job_of, stepd_job
from .slurm_run import SlurmRun


@dataclass(frozen=True, slots=True)
class _Known:
    """A process and the workload it was first given; None: it is the driver's own helper, and nobody's work. `told`:
    what its environment says of its Slurm job. `mps`: a user's own MPS server, which is part of his work."""

    start_ticks: int
    origin: Origin
    workload: Workload | None
    told: JobFile | None = None
    mps: bool = False


@dataclass(slots=True, eq=False)
class NodeAttribution:
    """Names the workloads on this node. Not thread-safe; keeps what it knows of the processes of the last call.

    `user_name` gives a uid's name, or None (`pwd.getpwuid` is the real one). `boot_id` None leaves the identities of
    plain processes unique within the node's uptime only as far as PIDs and start times are. `allocations` tells who was
    given what; None: nobody asks. `variables` gives the allow-listed variables of a process. A slurmstepd is believed
    where it is a process of `trusted_uids`.
    """

    procfs: Path
    boot_id: str | None
    cluster: str
    user_name: Callable[[int], str | None]
    node: str = ""
    _: KW_ONLY
    allocations: Allocations | None = None
    variables: Callable[[int], Mapping[str, str]] | None = None
    trusted_uids: frozenset[int] = frozenset({0})
    absences: frozenset[Absence] = field(default=frozenset(), init=False)
    _known: dict[int, _Known] = field(default_factory=dict, init=False)
    _missing: set[int] = field(default_factory=set, init=False)  # PIDs that were not there at the last call
    _current: dict[str, Workload] = field(default_factory=dict, init=False)
    _named: dict[str, Workload] = field(default_factory=dict, init=False)  # by the id they were first called by
    _kubernetes: KubernetesFacts = field(default_factory=KubernetesFacts, init=False)

    def set_gpus(self, gpus: Sequence[Gpu]) -> None:
        """The devices that are here now: schedulers name them in ways of their own."""
        if self.allocations is not None:
            self.allocations.set_gpus(gpus)

    def look_at_node(self) -> None:
        """Only bring `absences` up to date, where the driver lists no processes: a node may be drained all the same."""
        if self.allocations is not None:
            self.absences = self.allocations.read().absences

    def close(self) -> None:
        """End what asks the schedulers."""
        if self.allocations is not None:
            self.allocations.close()

    def attribute(self, processes: Sequence[GpuProcess]) -> tuple[tuple[Workload, ...], tuple[WorkloadUse, ...]]:
        """The workloads here and what each holds on which GPU, both in a fixed order.

        Uses with the basis ``process`` come from `processes`, those with ``allocation`` from what schedulers claim: a
        GPU that was given to a workload and runs none of its processes has the latter alone. A process that is gone
        belongs to no workload. One that is missing in two calls running is hidden from this user: `absences` says so,
        and whoever is known on its GPU shares it. Memory is None where the driver did not tell it for every process of
        the workload on that GPU.
        """
        hidden = self._look({process.pid for process in processes})
        runs: dict[str, _Known] = {}
        for held in self._known.values():
            # Of several processes one that tells of its job speaks for all.
            key = held.workload.workload_id if held.workload is not None else ""
            if key and (key not in runs or (runs[key].told is None and held.told is not None)):
                runs[key] = held
        first_of = _work_on_gpus(processes, self._known)
        runs = {key: runs[key] for key in dict.fromkeys(first_of.values())}
        seen: dict[Origin, set[str]] = defaultdict(set)
        for (gpu, _), key in first_of.items():
            if runs[key].origin.key:
                seen[runs[key].origin].add(gpu)
        on_gpus = {origin: frozenset(gpus) for origin, gpus in seen.items()}
        granted = self.allocations.read(on_gpus) if self.allocations is not None else Granted()
        self._kubernetes = granted.kubernetes
        self.absences = granted.absences | {_HIDDEN} if hidden else granted.absences
        named, allocated = self._name(granted.claims, on_gpus, runs)
        found = _uses(
            processes,
            {place: named[key].workload_id for place, key in first_of.items()},
            {process.gpu_uuid for process in processes if process.pid in hidden},
            [
                WorkloadUse(workload.workload_id, uuid, "allocation", since=claim.since, until=claim.until)
                for workload, claim in allocated
                for uuid in claim.gpu_uuids
            ],
        )
        # A job that was given no GPU and runs on none is none of ours.
        holding = (workload for workload, claim in allocated if claim.gpu_uuids or claim.unresolved)
        self._current = {workload.workload_id: workload for workload in (*holding, *named.values())}
        self._named = named
        return tuple(self._current[key] for key in sorted(self._current)), found

    def holder_of(self, pids: Iterable[int]) -> str | None:
        """The workload on this node's GPUs that `pids` belong to (a server's front end holds no GPU itself).

        None where they belong to none that `attribute` found last, or to more than one.
        """
        context = Context(self.procfs)
        found: set[str] = set()
        for pid in sorted(pids)[:MAX_CLIMB]:
            held = self._known.get(pid)
            process = context.process(pid) if held is None else None
            held = self._describe(process, context, {}) if process is not None else held
            if held is not None and held.workload is not None and held.workload.workload_id in self._named:
                found.add(self._named[held.workload.workload_id].workload_id)
        return found.pop() if len(found) == 1 else None

    def _look(self, pids: set[int]) -> set[int]:
        """Bring `_known` up to date; the PIDs that are hidden from this user."""
        context = Context(self.procfs)
        # The first description of what runs stays: its leader may end before it does.
        first = {held.workload.workload_id: held.workload for held in self._known.values() if held.workload is not None}
        known: dict[int, _Known] = {}
        for pid in sorted(pids):
            held = self._known.get(pid)
            if held is not None and read_start_ticks(self.procfs, pid) == held.start_ticks:
                known[pid] = held
            elif (process := context.process(pid)) is not None:
                known[pid] = self._describe(process, context, first)
        missing = pids - known.keys()
        hidden = missing & self._missing
        self._known, self._missing = known, missing
        return hidden

    def _describe(self, process: Process, context: Context, first: dict[str, Workload]) -> _Known:
        origin = origin_of(process.cgroup)
        if context.is_drivers_own(process):
            return _Known(process.stat.start_ticks, origin, None)
        leader = context.leader(process, origin)
        if origin == PLAIN:
            # The outermost slurmstepd is Slurm's own: what looks like one below it was started by the job.
            jobs = [stepd_job(ancestor, self.trusted_uids) for ancestor in context.ancestors(process)]
            job = next((job for job in reversed(jobs) if job is not None), None)
            origin = origin if job is None else Origin("slurm", job, job if job.isdecimal() else None)
        user = self._user(leader, origin)
        name = name_of_work(leader, process)
        told = None
        key: tuple[str, ...] = (origin.key,)
        if origin.scheduler == "slurm":
            # Only a process that Slurm itself put into its cgroup is believed about its job.
            pid = process.stat.pid
            variables = self.variables(pid) if self.variables is not None else read_variables(self.procfs, pid)
            told = job_of(origin.key, variables, with_devices=False)
        elif origin.scheduler == "process":
            key = (self.boot_id or self.node, str(leader.stat.pid), str(leader.stat.start_ticks))
        workload = Workload(
            workload_id=workload_id(self.cluster, origin.scheduler, *key),
            series_id=series_id(self.cluster, None, user, name),
            name=name,
            scheduler=origin.scheduler,
            job_id=origin.key if origin.scheduler == "slurm" else None,
            user=user,
            framework=framework_of(leader.argv, process.argv, (process.stat.comm,)),
            command=parse_command(leader.argv).text,
        )
        workload = first.setdefault(workload.workload_id, workload)
        return _Known(process.stat.start_ticks, origin, workload, told, origin == PLAIN and is_mps(process))

    def _user(self, leader: Process, origin: Origin) -> str | None:
        """None inside pods, and for root inside containers: there a uid says nothing about who it is."""
        if origin.scheduler == "kubernetes" or (origin.scheduler == "docker" and leader.uid == 0):
            return None
        return self._name_of(leader.uid)

    def _name_of(self, uid: int | None) -> str | None:
        return None if uid is None else clean_text(self.user_name(uid) or str(uid))

    def _name(
        self, claims: Sequence[DeviceClaim], seen: Mapping[Origin, frozenset[str]], runs: Mapping[str, _Known]
    ) -> tuple[dict[str, Workload], list[tuple[Workload, DeviceClaim]]]:
        """First workload id -> what it is called with what the schedulers know; and each claim with its workload."""
        matched: dict[DeviceClaim, Origin] = {}
        if claims and self.allocations is not None:
            ids = {held.origin: held.origin.job_id or (held.told and held.told.job_id) for held in runs.values()}
            matched = self.allocations.match(claims, seen, {origin: job for origin, job in ids.items() if job})
        claim_of = {origin: claim for claim, origin in matched.items()}
        named = {key: self._running(held, claim_of.get(held.origin)) for key, held in runs.items()}
        running = {held.origin: named[key] for key, held in runs.items() if held.origin.key}
        allocated: list[tuple[Workload, DeviceClaim]] = []
        for claim in claims:
            origin = matched.get(claim)
            workload = running.get(origin) if origin is not None else None
            allocated.append((workload or self._claimed(claim, origin), claim))
        return named, allocated

    def _running(self, held: _Known, claim: DeviceClaim | None) -> Workload:
        """What runs on a GPU, with what its scheduler tells of it."""
        workload, origin = held.workload, held.origin
        assert workload is not None
        if origin.scheduler == "slurm":
            return self._job(workload, claim, origin, held.told)
        if origin.scheduler != "kubernetes":
            return workload
        fact = self._kubernetes.by_uid.get(origin.key)
        if fact is not None:
            return fact.describe(workload)
        return self._by_pod_name(workload, claim) if claim is not None else workload

    def _claimed(self, claim: DeviceClaim, origin: Origin | None) -> Workload:
        """What was given devices, but runs nothing on them now."""
        if claim.scheduler == "slurm":
            return self._job(None, claim, origin, None)
        uid = origin.key if origin is not None else ""
        parts = (uid,) if uid else ("pod", claim.namespace or "", claim.pod or "")
        fact = self._kubernetes.by_uid.get(uid) if uid else None
        key = workload_id(self.cluster, claim.scheduler, *parts) if fact is None else fact.work.workload_id
        earlier = self._current.get(key)  # what ran before it went quiet told more about it
        made = earlier or self._by_pod_name(Workload(key, "", "unnamed", claim.scheduler), claim)
        return fact.describe(made) if fact is not None else made

    def _by_pod_name(self, workload: Workload, claim: DeviceClaim) -> Workload:
        """A pod's workload, as far as its name shows what it is of."""
        name = controller_of(claim.pod or "") or workload.name
        series = series_id(self.cluster, claim.namespace, None, name)
        return replace(workload, series_id=series, name=name, namespace=claim.namespace, pod=claim.pod)

    def _job(
        self, workload: Workload | None, claim: DeviceClaim | None, origin: Origin | None, told: JobFile | None
    ) -> Workload:
        run = SlurmRun(self.cluster, claim, origin, told, self._name_of)
        # What ran before it went quiet told more about it.
        return run.workload(workload, self._current.get(run.workload_id))


def _work_on_gpus(processes: Sequence[GpuProcess], known: Mapping[int, _Known]) -> dict[tuple[str, int], str]:
    """GPU and PID -> the workload's first id. A user's own MPS server is part of the one other work that he has on that
    GPU: nothing proves that it is the driver's, so that a name hides no work."""
    found: dict[tuple[str, int], str] = {}
    tenants: dict[tuple[str, str | None], set[str]] = defaultdict(set)
    for process in processes:
        held = known.get(process.pid)
        if held is not None and held.workload is not None:
            found[process.gpu_uuid, process.pid] = held.workload.workload_id
            if not held.mps:
                tenants[process.gpu_uuid, held.workload.user].add(held.workload.workload_id)
    for gpu, pid in found:
        workload = known[pid].workload if known[pid].mps else None
        served = tenants.get((gpu, workload.user), set()) if workload is not None else set()
        if len(served) == 1:
            found[gpu, pid] = next(iter(served))
    return found


def _uses(
    processes: Sequence[GpuProcess],
    workload_of: Mapping[tuple[str, int], str],
    strangers: Iterable[str],
    allocations: Sequence[WorkloadUse],
) -> tuple[WorkloadUse, ...]:
    """All uses, in a fixed order. `workload_of`: by GPU and PID. `strangers`: GPUs of somebody unknown. `allocations`:
    also such as ended since the last call."""
    # The driver lists a process once per kind of context (compute, graphics), each time with all its memory.
    memory: dict[tuple[str, str], dict[int, int | None]] = defaultdict(dict)
    for process in processes:
        workload = workload_of.get((process.gpu_uuid, process.pid))
        if workload is not None:
            of_pid = memory[process.gpu_uuid, workload]
            told = [one for one in (of_pid.get(process.pid), process.mem_used_bytes) if one is not None]
            of_pid[process.pid] = max(told, default=None)
    current = {(one.gpu_uuid, one.workload_id): one for one in allocations if one.until is None}
    holders: dict[str, set[str]] = defaultdict(set)
    for gpu, workload in (*((gpu, "") for gpu in strangers), *memory, *current):
        holders[gpu].add(workload)
    found = [replace(one, shared=len(holders[gpu]) > 1) for (gpu, _), one in current.items()]
    for one in allocations:
        if one.until is not None:
            others = (two for two in allocations if two.workload_id != one.workload_id)
            found.append(replace(one, shared=any(_overlap(one, two) for two in others)))
    for (gpu, workload), of_pid in memory.items():
        parts = [part for part in of_pid.values() if part is not None]
        total = sum(parts) if len(parts) == len(of_pid) else None
        found.append(WorkloadUse(workload, gpu, "process", len(holders[gpu]) > 1, total))
    return tuple(sorted(found, key=lambda use: (use.gpu_uuid, use.workload_id, use.basis, use.until or 0.0)))


def _overlap(one: WorkloadUse, other: WorkloadUse) -> bool:
    """Whether both held the GPU at one time. Without a start nothing is known to be over before it."""
    begins_late = other.until is not None and one.since is not None and other.until <= one.since
    ends_early = one.until is not None and other.since is not None and one.until <= other.since
    return one.gpu_uuid == other.gpu_uuid and not (begins_late or ends_early)


_HIDDEN = Absence(
    "source",
    "processes",
    "*",
    "process-not-visible",
    "The driver reports processes on a GPU that this agent cannot see in procfs, so their work has no name.",
    "In a container, share the host's PID namespace (hostPID); under hidepid, add the agent's user to its group.",
)
