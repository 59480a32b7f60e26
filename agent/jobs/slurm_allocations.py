"""Which GPUs Slurm gave to which job on this node, and from when to when.

Who was told what: the prolog's file of the job (`slurm_files`); where it left none, ``SLURM_JOB_GPUS`` of the batch
script, where environments may be read (the opt-in helper, or the agent as root); where nobody told, the job's device
cgroup alone. Which GPU that is, `slurm_devices` proves or does not.

A file outlives its job where the epilog did not run. Where extern steps are in use every job has a cgroup as long as it
lives, so a file without one is stale. Elsewhere an allocated job may have no process and no cgroup; there an older file
is stale when another job was given one of its GPUs and nothing of the older runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

from .cgroups import slurm_jobs, step_pids
from .device_cgroup import device_number
from .processes import read_stat, start_seconds
from .scheduler_claims import OF_JOB, OF_RUN, DeviceClaim, Devices, SchedulerState, fill_facts
from .slurm_absences import slurm_absences
from .slurm_conf import SlurmConfReader
from .slurm_devices import DeviceNumber, ProcessEvidence, Resolution, Resolver
from .slurm_job_files import JobFile, read_job_files
from .slurm_job_processes import job_of, stepd_jobs

# Scans (10 s each) without a cgroup after which a job's file is stale: one minute where it had one, which covers the
# epilog; ten where it never had, which covers prologs that check a node's health first.
_GONE_SCANS, _NEVER_SEEN_SCANS = 6, 60
# A job whose processes told nothing is asked again after a minute.
_RETRY_SCANS = 6
_MAX_ENDED = 4096

Variables = Callable[[int], Mapping[str, str]]
OpenMinors = Callable[[int], frozenset[int]]


@dataclass(slots=True)
class _Asked:
    """What a living job's processes told: `told` None: nothing yet. `scans`: since they were asked last."""

    told: JobFile | None = None
    scans: int = _RETRY_SCANS


@dataclass(slots=True, eq=False)
class SlurmAllocations:
    """Reads all roads at each scan. `cgroups` is ``/sys/fs/cgroup``; `variables` gives allow-listed variables,
    `open_minors` the minors of the GPUs that a process holds open."""

    folder: Path
    procfs: Path
    cgroups: Path
    variables: Variables
    trusted_uids: frozenset[int]
    _: KW_ONLY
    settings: SlurmConfReader = field(default_factory=SlurmConfReader)
    open_minors: OpenMinors = lambda _: frozenset()
    number_of: DeviceNumber = device_number
    wall: Callable[[], float] = time.time
    _without_cgroup: dict[str, int] = field(default_factory=dict, init=False)
    _had_cgroup: set[str] = field(default_factory=set, init=False)
    _asked: dict[tuple[str, float | None], _Asked] = field(default_factory=dict, init=False)
    _opened: dict[str, frozenset[int]] = field(default_factory=dict, init=False)
    _resolved: dict[tuple[str, float | None], Resolution] = field(default_factory=dict, init=False)
    _ended: dict[tuple[str, float | None], None] = field(default_factory=dict, init=False)
    _superseded: set[tuple[str, float | None]] = field(default_factory=set, init=False)
    _extern_in_use: bool = field(default=False, init=False)
    # By job id: runs of which nobody wrote, while they live and after.
    _unwritten: dict[str, JobFile] = field(default_factory=dict, init=False)
    _live_before: frozenset[str] = field(default=frozenset(), init=False)

    def owners(self) -> Mapping[str, int]:
        """Job id -> the user's number, of every job that runs here and whose prolog told it."""
        files = read_job_files(self.folder, self.trusted_uids)
        return {job.job_id: job.uid for job in files.jobs if job.uid is not None and job.until is None}

    def read(self, devices: Devices, seen: Mapping[str, frozenset[str]] | None = None) -> SchedulerState:
        """What holds now, and what ended since the last call. Slurm is present where it runs jobs on this node, or has
        settings or files here.

        `seen`: job id or SLUID -> the GPUs that its processes work on. None: nobody looked; then what ended is kept for
        the next call.
        """
        live = slurm_jobs(self.cgroups)
        files = read_job_files(self.folder, self.trusted_uids)
        present = live is not None or bool(files.jobs or files.refused) or self.settings.is_present
        if not present:
            return SchedulerState(present=False)
        if live and not self._extern_in_use:
            self._extern_in_use = any((path / "step_extern").is_dir() for path in live.values())
        if live is None and self._extern_in_use:
            live = {}  # the tree goes with its last job
        running = _running(files.jobs)
        stale = [job for job in running if self._is_stale(job, live)]
        resolver = Resolver(devices, self.procfs, self.cgroups, self.number_of)
        jobs: dict[str, JobFile] = {}
        for job in running:
            if job not in stale:
                name = self._cgroup_name(job, live)
                jobs[name] = fill_facts(job, self._from_steps(name, (live or {}).get(name), job.since))
        told = {name for job in jobs.values() for name in (job.job_id, job.sluid) if name}
        untold: dict[str, JobFile] = {}
        for name, path in (live or {}).items():
            if name not in told:
                job = self._begun(name, path, files.jobs)
                if job is not None:
                    untold[name] = job
        self._forget(running, live or {})
        found = {name: self._resolve(name, job, resolver, seen or {}, live) for name, job in (jobs | untold).items()}
        late = self._without_a_sign(jobs, found, live, seen or {})
        for name in late:
            stale.append(jobs.pop(name))
        given = {uuid for name in jobs for uuid in found[name].gpu_uuids}
        without = [name for name, job in untold.items() if not _is_told_devices(job, found[name], given)]
        claims = [_claim(job, found[name]) for name, job in (jobs | untold).items() if name not in without]
        # What it was given is not told, but which run it is: its processes are nobody else's.
        claims += [_claim(untold[name], Resolution()) for name in without if untold[name].since is not None]
        claims += self._over(files.jobs, resolver, told=seen is not None)
        problems = {(jobs | untold)[name].job_id or name: one for name, one in found.items() if name not in late}
        said = slurm_absences(files, bool(claims), [job.job_id for job in stale], without, problems)
        return SchedulerState(
            True, tuple(sorted(claims, key=lambda claim: (claim.job_id or "", claim.since or 0.0))), said
        )

    # Which jobs there are.

    def _cgroup_name(self, job: JobFile, live: Mapping[str, Path] | None) -> str:
        return job.sluid if job.sluid and live and job.sluid in live else job.job_id

    def _is_stale(self, job: JobFile, live: Mapping[str, Path] | None) -> bool:
        if job.run in self._superseded:
            return True
        if live is None or not self._extern_in_use:
            return False
        if job.job_id in live or (job.sluid or "") in live:
            self._had_cgroup.add(job.job_id)
            self._without_cgroup.pop(job.job_id, None)
            return False
        if job.sluid is None and any(not name.isdecimal() for name in live):
            return False  # cgroups carry SLUIDs here, and this file does not say its own
        count = self._without_cgroup[job.job_id] = self._without_cgroup.get(job.job_id, 0) + 1
        return count >= (_GONE_SCANS if job.job_id in self._had_cgroup else _NEVER_SEEN_SCANS)

    def _without_a_sign(
        self,
        jobs: Mapping[str, JobFile],
        found: Mapping[str, Resolution],
        live: Mapping[str, Path] | None,
        seen: Mapping[str, frozenset[str]],
    ) -> list[str]:
        """Jobs of which nothing runs, and whose GPU a later job was given."""
        latest: dict[str, float] = {}
        for name, job in jobs.items():
            for uuid in found[name].gpu_uuids:
                latest[uuid] = max(latest.get(uuid, 0.0), job.since or 0.0)
        contested = [
            name
            for name, job in jobs.items()
            if any(latest[uuid] > (job.since or 0.0) for uuid in found[name].gpu_uuids)
        ]
        if not contested:
            return []
        alive = set(live or ()) | set(seen)
        if any(name not in alive for name in contested):
            alive |= stepd_jobs(self.procfs, self.trusted_uids)
        late = [name for name in contested if name not in alive and jobs[name].job_id not in alive]
        self._superseded |= {jobs[name].run for name in late}
        return late

    def _forget(self, running: Sequence[JobFile], live: Mapping[str, Path]) -> None:
        ids = {job.job_id for job in running}
        self._without_cgroup = {job: n for job, n in self._without_cgroup.items() if job in ids}
        self._had_cgroup &= ids
        self._superseded &= {job.run for job in running}
        self._live_before = frozenset(live)
        self._unwritten = dict(list(self._unwritten.items())[-_MAX_ENDED:])
        self._asked = {key: asked for key, asked in self._asked.items() if key[0] in live}
        self._opened = {name: minors for name, minors in self._opened.items() if name in live}

    # What they were given.

    def _from_steps(self, name: str, path: Path | None, mark: float | None) -> JobFile | None:
        """What the environment of the job's own processes tells: the batch script, else a task of srun's. `mark` tells
        one run of a requeued job from the next."""
        if path is None:
            return None
        asked = self._asked.setdefault((name, mark), _Asked())
        if asked.told is not None or asked.scans < _RETRY_SCANS:
            asked.scans += 1
            return asked.told
        asked.scans = 0
        steps = step_pids(path)
        for step in sorted(steps, key=lambda step: step != "batch"):
            pid = self._oldest(steps[step]) if step != "extern" else None
            asked.told = job_of(name, self.variables(pid), with_devices=step == "batch") if pid is not None else None
            if asked.told is not None:
                break
        return asked.told

    def _begun(self, name: str, path: Path, jobs: Sequence[JobFile]) -> JobFile | None:
        """A living job without a file of its own, with its start by its first process; None: it is a run that ended,
        whose last processes are still there.

        The next run of a requeued job begins after the epilog of the one before, whose count it follows: slurmd runs an
        epilog for each run, and mostly no prolog for the second.
        """
        runs = (one for one in jobs if name in (one.job_id, one.sluid) and one.until is not None)
        before = max(runs, key=_ended_at, default=None)
        told = self._from_steps(name, path, before.until if before is not None else None)
        job = told or _unknown_job(name, path)
        known = self._unwritten.get(job.job_id)
        if (
            known is not None
            and name in self._live_before
            and (before is None or _ended_at(before) <= (known.since or 0.0))
        ):
            since: float | None = known.since
        else:
            ticks = [stat.start_ticks for pids in step_pids(path).values() for pid in pids
                     if (stat := read_stat(self.procfs, pid)) is not None]  # fmt: skip
            since = start_seconds(self.procfs, min(ticks), self.wall()) if ticks else None
        if before is not None:
            if since is None or since <= _ended_at(before):
                return None
            count = None if before.restarts is None else before.restarts + 1
            job = fill_facts(replace(job, restarts=job.restarts if job.restarts is not None else count), before, OF_JOB)
        job = replace(job, since=since)
        if job.job_id and since is not None:
            self._unwritten.pop(job.job_id, None)  # to the end: the last ones are kept
            self._unwritten[job.job_id] = job
        return job

    def _oldest(self, pids: Iterable[int]) -> int | None:
        """The first process of a step, which Slurm itself started."""
        stats = (stat for pid in pids if (stat := read_stat(self.procfs, pid)) and stat.comm != "slurmstepd")
        return min(((stat.start_ticks, stat.pid) for stat in stats), default=(0, None))[1]

    def _resolve(
        self,
        name: str,
        job: JobFile,
        resolver: Resolver,
        seen: Mapping[str, frozenset[str]],
        live: Mapping[str, Path] | None,
    ) -> Resolution:
        gres = self.settings.gres(job.conf, job.node)
        works_on = seen.get(name, frozenset()) | seen.get(job.job_id, frozenset())
        found = resolver.resolve(name, job.devices, gres, ProcessEvidence(works_on))
        path = (live or {}).get(name)
        if found.unknown and gres.is_constrained and path is not None:
            opened = self._minors_of(name, path)
            found = resolver.resolve(name, job.devices, gres, ProcessEvidence(works_on, opened))
        before = self._resolved.get(job.run)
        if before is not None and before.contradiction and not before.gpu_uuids and not found.contradiction:
            found = before  # what was wrong once in a run is not right because a process ended
        if job.since is not None:
            self._resolved[job.run] = found
        return found

    def _minors_of(self, name: str, path: Path) -> frozenset[int]:
        found = self._opened.get(name, frozenset())
        for pids in step_pids(path).values():
            for pid in pids:
                found |= self.open_minors(pid)
        self._opened[name] = found
        return found

    def _over(self, jobs: Sequence[JobFile], resolver: Resolver, *, told: bool) -> list[DeviceClaim]:
        """What ended: its devices are named once, and then it only tells whose its last processes are."""
        ended = [self._with_start(job) for job in jobs if job.until is not None]
        claims: list[DeviceClaim] = []
        for job in ended:
            if job.run in self._ended:
                claims.append(_claim(job, Resolution()))
                continue
            found = self._resolved.get(job.run)
            if found is None:
                gres = self.settings.gres(job.conf, job.node)
                found = resolver.resolve(job.job_id, job.devices, gres, ProcessEvidence())
            # Without a start nothing is claimed: it was never seen to run.
            claims.append(_claim(job, found if job.since is not None else Resolution()))
            if told:
                self._ended[job.run] = None
        if told:
            here = {job.run for job in jobs}
            self._resolved = {run: one for run, one in self._resolved.items() if run in here}
            self._ended = {run: None for run in list(self._ended)[-_MAX_ENDED:] if run in here}
        return claims

    def _with_start(self, job: JobFile) -> JobFile:
        """A run of which the epilog alone wrote, with the start that its processes showed."""
        seen = self._unwritten.get(job.job_id)
        if not job.without_prolog or seen is None or seen.since is None or seen.since > _ended_at(job):
            return job
        restarts = seen.restarts if seen.restarts is not None else job.restarts
        return fill_facts(replace(job, since=seen.since, restarts=restarts), seen)


def _ended_at(job: JobFile) -> float:
    return job.until or 0.0


def _running(jobs: Sequence[JobFile]) -> list[JobFile]:
    """The last run of each job that has not ended; one before it is over, whoever did not say so."""
    latest: dict[str, JobFile] = {}
    for job in jobs:
        known = latest.get(job.job_id)
        if known is None or (job.since or 0.0) >= (known.since or 0.0):
            latest[job.job_id] = job
    return [job for job in latest.values() if job.until is None]


def _is_told_devices(job: JobFile, found: Resolution, given: Collection[str]) -> bool:
    """Whether the devices of a job without a file are known. Its own environment is not believed where it names a GPU
    that the prolog gave to another (`given`)."""
    return bool(found.gpu_uuids) if job.devices is None else not any(uuid in given for uuid in found.gpu_uuids)


def _unknown_job(name: str, path: Path) -> JobFile:
    """A job of which only its cgroup is known: id or SLUID, and with v1 its user (``uid_1000/job_42``)."""
    uid = path.parent.name.removeprefix("uid_")
    number = int(uid) if path.parent.name != uid and uid.isdecimal() else None
    return JobFile(name, None, uid=number) if name.isdecimal() else JobFile("", None, name, uid=number)


def _claim(job: JobFile, found: Resolution) -> DeviceClaim:
    claim = DeviceClaim(
        "slurm", found.gpu_uuids, found.unknown, job_id=job.job_id or None, since=job.since, until=job.until
    )
    return fill_facts(claim, job, ("uid", *OF_RUN))
