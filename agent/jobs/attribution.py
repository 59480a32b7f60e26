"""From the processes that the driver reports to workloads: whose work it is, and which processes are one piece of it.

Where a scheduler or a container runtime left its mark in the process's cgroup, that is the workload: a Slurm job, a
pod, a container. All else is a plain process, and processes started by one launcher are one workload: the *leader* is
found by climbing from parent to parent until the next one is not part of the work, that is

* init, a session or service manager, a login, a terminal multiplexer, a container shim, a batch daemon, a notebook
  server (each kernel is work of its own), or an interactive shell. A shell that runs a script or a command is part;
* another user's process, or one in another container;
* younger than its child: the PID was used again.

A process keeps the workload it was first given, also when its launcher ends before it.

Allocation is a basis of its own (`allocation`): a scheduler's claim gives its workload the GPUs it was given, also
where nothing of it runs, and names pods and jobs better than their processes do.

Where Slurm gives its jobs no cgroup (proctrack/linuxproc), a process is its job's by the slurmstepd that it descends
from, or by ``SLURM_JOB_ID`` in its environment where that may be read and the job is its own user's.

Identities (`ids.workload_id`): a Slurm job by its id and its start by the scheduler's clock, so that every node gives
the same and a recycled id another (`ids.slurm_parts` says what stands in where the start is not known); a pod by its
UID; a container by its id; a plain process by boot id, PID and start time of its leader.

A Slurm job whose name nobody told is called ``job 42`` and is a series of its own: what its processes are called
(``slurm_script``, ``python``) would make one series of all jobs of a user.
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
from .command_line import parse_command
from .frameworks import framework_of
from .gpu_uses import Holdings, uses
from .ids import series_id, workload_id
from .kubernetes_files import KubernetesFacts
from .leaders import MAX_CLIMB, Context, name_of_work
from .pod_names import controller_of
from .procfs import Process, read_start_ticks, read_variables
from .scheduler_claims import OF_JOB, DeviceClaim, fill_facts
from .slurm_job import JobFile, SlurmRun, job_of, stepd_job

# PIDs that are looked at again at one scan: all of them on an ordinary node. A node with more processes on its GPUs is
# gone through in turn, so that a scan never takes more than some milliseconds.
_CHECKED_PER_SCAN = 128
_MOST_SERVERS = 256


@dataclass(frozen=True, slots=True)
class _Known:
    """A process and the workload it was first given. `told`: what its environment says of its Slurm job."""

    start_ticks: int
    origin: Origin
    workload: Workload
    told: JobFile | None = None

    @property
    def job_id(self) -> str | None:
        """Its Slurm job, by path or environment."""
        return self.origin.job_id or (self.told.job_id if self.told is not None else None)


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
    # Processes that hold no GPU and were asked for.
    _servers: dict[int, _Known] = field(default_factory=dict, init=False)
    # The first description of what runs; its leader may end before it does.
    _first: dict[str, Workload] = field(default_factory=dict, init=False)
    _current: dict[str, Workload] = field(default_factory=dict, init=False)
    _named: dict[str, Workload] = field(default_factory=dict, init=False)  # by the id they were first called by
    _failed: dict[int, int] = field(default_factory=dict, init=False)  # PIDs that were not there, how often running
    _listed: list[tuple[int, str]] = field(default_factory=list, init=False)  # the driver's last: PID and GPU
    _pids: list[int] = field(default_factory=list, init=False)
    _hidden: frozenset[int] = field(default=frozenset(), init=False)
    _holdings: Holdings = field(default_factory=lambda: Holdings((), {}, frozenset()), init=False)
    _runs: dict[str, _Known] = field(default_factory=dict, init=False)  # one process of each workload
    # PID and start -> the run it was seen in.
    _run_of: dict[tuple[int, int], tuple[str, ...]] = field(default_factory=dict, init=False)
    _cursor: int = field(default=0, init=False)
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
        hidden = self._look(processes)
        seen = self._seen()
        granted = self.allocations.read(seen) if self.allocations is not None else Granted()
        self._kubernetes = granted.kubernetes
        named, allocated = self._name(granted.claims, seen)
        self.absences = granted.absences | {_HIDDEN} if hidden else granted.absences
        found = uses(
            self._holdings.memory(processes),
            {first: workload.workload_id for first, workload in named.items()},
            self._holdings.strangers,
            (
                WorkloadUse(workload.workload_id, uuid, "allocation", since=claim.since, until=claim.until)
                for workload, claim in allocated
                for uuid in claim.gpu_uuids
            ),
        )
        # A job that was given no GPU and runs on none is none of ours.
        holding = (workload for workload, claim in allocated if claim.gpu_uuids or claim.unresolved)
        current = {workload.workload_id: workload for workload in (*holding, *named.values())}
        self._current = current
        self._named = named
        return tuple(current[key] for key in sorted(current)), found

    def holder_of(self, pids: Iterable[int]) -> str | None:
        """The workload on this node's GPUs that `pids` belong to (a server's front end holds no GPU itself).

        None where they belong to none that `attribute` found last, or to more than one.
        """
        context = Context(self.procfs)
        found: set[str] = set()
        for pid in sorted(pids)[:MAX_CLIMB]:
            held = self._known.get(pid) or self._server(pid, context)
            workload = self._named.get(held.workload.workload_id) if held is not None else None
            if workload is not None:
                found.add(workload.workload_id)
        return found.pop() if len(found) == 1 else None

    def _server(self, pid: int, context: Context) -> _Known | None:
        held = self._servers.get(pid)
        if held is not None and read_start_ticks(str(self.procfs), pid) == held.start_ticks:
            return held
        process = context.process(pid)
        if process is None:
            self._servers.pop(pid, None)
            return None
        if len(self._servers) >= _MOST_SERVERS:
            self._servers.clear()  # those that are still there are looked at again
        held = self._servers[pid] = self._describe(process, context)
        return held

    def _look(self, processes: Sequence[GpuProcess]) -> frozenset[int]:
        """Bring `_known` up to date; the PIDs that are hidden from this user."""
        known, failed = self._known, self._failed
        listed = [(process.pid, process.gpu_uuid) for process in processes]
        is_new = listed != self._listed
        if is_new:
            self._listed = listed
            pids = {pid for pid, _ in listed}
            self._pids = sorted(pids)
            for gone in known.keys() - pids:
                del known[gone]
            for gone in failed.keys() - pids:
                del failed[gone]
        due = self._due()
        procfs = str(self.procfs)
        for pid in due:
            held = known.get(pid)
            if held is not None and read_start_ticks(procfs, pid) != held.start_ticks:
                del known[pid]
                is_new = True
        if is_new or failed:
            is_new |= self._meet(frozenset(due))
        hidden = frozenset(pid for pid, times in failed.items() if times > 1)
        if is_new or hidden != self._hidden:
            self._hidden = hidden
            ids = {pid: held.workload.workload_id for pid, held in known.items()}
            self._holdings = Holdings(processes, ids, hidden)
            self._runs = {}
            for held in known.values():
                # Of several processes one that tells of its job speaks for all.
                other = self._runs.get(held.workload.workload_id)
                if other is None or (other.told is None and held.told is not None):
                    self._runs[held.workload.workload_id] = held
            self._first = {key: held.workload for key, held in self._runs.items()}
        return hidden

    def _meet(self, due: frozenset[int]) -> bool:
        """Describe the processes that are not known; whether there were any."""
        context = Context(self.procfs)
        met = False
        for pid in self._pids:
            if pid in self._known or (pid in self._failed and pid not in due):
                continue
            process = context.process(pid)
            if process is None:
                self._failed[pid] = self._failed.get(pid, 0) + 1
            else:
                self._failed.pop(pid, None)
                self._known[pid] = self._describe(process, context)
                met = True
        return met

    def _due(self) -> Sequence[int]:
        if len(self._pids) <= _CHECKED_PER_SCAN:
            return self._pids
        self._cursor %= len(self._pids)
        part = self._pids[self._cursor : self._cursor + _CHECKED_PER_SCAN]
        self._cursor += _CHECKED_PER_SCAN
        return part

    def _seen(self) -> dict[Origin, frozenset[str]]:
        """The jobs, pods and containers whose processes are on GPUs, and on which."""
        seen: dict[Origin, set[str]] = defaultdict(set)
        for gpu, key in self._holdings.keys:
            if self._runs[key].origin.key:
                seen[self._runs[key].origin].add(gpu)
        return {origin: frozenset(gpus) for origin, gpus in seen.items()}

    def _name(
        self, claims: Sequence[DeviceClaim], seen: Mapping[Origin, frozenset[str]]
    ) -> tuple[dict[str, Workload], list[tuple[Workload, DeviceClaim]]]:
        """First workload id -> what it is called with what the schedulers know; and each claim with its workload."""
        first = self._runs
        if not claims or self.allocations is None:
            return {key: self._with_claim(held, None) for key, held in first.items()}, []
        job_ids = {held.origin: held.job_id for held in first.values() if held.job_id}
        matched = self.allocations.match(claims, seen, job_ids)
        over = self._without_processes(matched)
        claim_of = {origin: claim for claim, origin in matched.items()}
        named = {
            key: self._with_claim(held, claim_of.get(held.origin), over.get(held.origin)) for key, held in first.items()
        }
        running = {held.origin: named[key] for key, held in first.items()}
        allocated = []
        for claim in claims:
            origin = matched.get(claim)
            workload = running.get(origin) if origin is not None else None
            allocated.append((workload or self._claimed(claim, origin), claim))
        return named, allocated

    def _without_processes(self, matched: dict[DeviceClaim, Origin]) -> dict[Origin, DeviceClaim]:
        """Take runs that ended out of `matched` unless a process was theirs before: Slurm's epilog comes after a run's
        last process, so one that is met later is of the next run, whose prolog told nothing. Returns what was taken."""
        processes: dict[Origin, list[tuple[int, int]]] = defaultdict(list)
        for pid, held in self._known.items():
            processes[held.origin].append((pid, held.start_ticks))
        over: dict[Origin, DeviceClaim] = {}
        run_of: dict[tuple[int, int], tuple[str, ...]] = {}
        for claim, origin in list(matched.items()):
            if claim.scheduler != "slurm":
                continue
            mine = [one for one in processes[origin] if claim.until is None or self._run_of.get(one) == claim.key]
            if claim.until is not None and not mine:
                over[origin] = claim
                del matched[claim]
            run_of |= dict.fromkeys(mine, claim.key)
        self._run_of = run_of
        return over

    def _with_claim(self, held: _Known, claim: DeviceClaim | None, before: DeviceClaim | None = None) -> Workload:
        """`before`: an earlier run of the same job, which tells whose it is, but not which run this is."""
        workload, origin = held.workload, held.origin
        if origin.scheduler == "slurm":
            told = held.told
            if claim is None and before is not None:
                told = fill_facts(told or JobFile(before.job_id or "", None), before, OF_JOB)
            return self._job(workload, claim, origin, told)
        fact = self._kubernetes.by_uid.get(origin.key) if origin.scheduler == "kubernetes" else None
        if fact is not None:
            return fact.describe(workload)
        return (
            self._by_pod_name(workload, claim) if origin.scheduler == "kubernetes" and claim is not None else workload
        )

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

    def _describe(self, process: Process, context: Context) -> _Known:
        origin = origin_of(process.cgroup)
        leader = context.leader(process, origin)
        if origin == PLAIN:
            origin = self._job_without_cgroup(process, context) or origin
        user = self._user(leader, origin)
        name = name_of_work(leader, process)
        told = None
        key: tuple[str, ...] = (origin.key,)
        if origin.scheduler == "slurm":
            # Only a process that Slurm itself put into its cgroup is believed about its job.
            told = job_of(origin.key, self._variables_of(process.stat.pid))
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
        workload = self._first.setdefault(workload.workload_id, workload)
        return _Known(process.stat.start_ticks, origin, workload, told)

    def _job_without_cgroup(self, process: Process, context: Context) -> Origin | None:
        """The Slurm job of a process whose cgroup names none: by its slurmstepd."""
        jobs = (stepd_job(ancestor, self.trusted_uids) for ancestor in context.ancestors(process))
        # The outermost is Slurm's own: what looks like one below it was started by the job.
        for job in reversed([job for job in jobs if job is not None]):
            return Origin("slurm", job, job if job.isdecimal() else None)
        return None

    def _variables_of(self, pid: int) -> Mapping[str, str]:
        return self.variables(pid) if self.variables is not None else read_variables(self.procfs, pid)

    def _name_of(self, uid: int | None) -> str | None:
        return None if uid is None else clean_text(self.user_name(uid) or str(uid))

    def _user(self, leader: Process, origin: Origin) -> str | None:
        """None inside pods, and for root inside containers: there a uid says nothing about who it is."""
        if leader.uid is None or origin.scheduler == "kubernetes":
            return None
        if origin.scheduler == "docker" and leader.uid == 0:
            return None
        return self._name_of(leader.uid)


_HIDDEN = Absence(
    "source",
    "processes",
    "*",
    "process-not-visible",
    "The driver reports processes on a GPU that this agent cannot see in procfs, so their work has no name.",
    "In a container, share the host's PID namespace (hostPID); under hidepid, add the agent's user to its group.",
)
