"""Which GPUs Slurm gave to which job on this node, and from when to when, by the prolog's files (`slurm_job`) and the
settings (`slurm_conf`). scontrol is not asked: it needs the controller, and the agent's unit reaches no other machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

from .cgroups import job_pids, slurm_jobs
from .processes import read_start_ticks, start_seconds
from .scheduler_claims import OF_JOB, OF_RUN, DeviceClaim, Devices, SchedulerState, fill_facts, unknown_allocation
from .slurm_conf import Resolution, SlurmConfReader, resolve, without_contradiction
from .slurm_job import JobFile, read_job_files

# Scans (10 s each) without a cgroup after which a job's file is stale: one minute where it had one, which covers the
# epilog; ten where it never had, which covers prologs that check a node's health first.
_GONE_SCANS, _NEVER_SEEN_SCANS = 6, 60
_MAX_BEGUN = 4096
INSTALL_PROLOG = "Name /etc/skuwise/slurm/prolog.sh and epilog.sh in slurm.conf (skuwise agent install writes them)."
# What is not known, and what to do about it, by the reason of the absence.
_ABSENCES = {
    "unknown": ("There is no record of which GPUs Slurm gave to a job: {}.", INSTALL_PROLOG),
    "stale": ("The prolog's files of {} have no living job; they are left out.", "Check that epilog.sh runs here."),
    "refused": ("Files of the prolog's folder are refused: {}.", "Remove them; only Slurm's scripts may write there."),
    "contradicted": (
        "Slurm's settings do not agree with what its jobs do: {}. Nothing is claimed for them.",
        "Restart slurmd after changes to gres.conf, set slurm_conf to the folder that it reads, and let cgroup.conf "
        "have ConstrainDevices=yes with TaskPlugin=task/cgroup.",
    ),
    "unresolved": (
        "Slurm's GPU indices match no GPU: {}.",
        "Make the GPUs readable, let gres.conf on this node name the device file of each (File=/dev/nvidia[0-7]), and "
        "where it lies elsewhere, set slurm_conf to its folder.",
    ),
}


@dataclass(slots=True, eq=False)
class SlurmAllocations:
    """Reads everything at each scan. `folder`: of the prolog's files; `cgroups` is ``/sys/fs/cgroup``."""

    folder: Path
    procfs: Path
    cgroups: Path
    trusted_uids: frozenset[int]
    _: KW_ONLY
    settings: SlurmConfReader = field(default_factory=SlurmConfReader)
    wall: Callable[[], float] = time.time
    # By run: the scans until its file is stale; what it was given, or why it is not known.
    _left: dict[object, int] = field(default_factory=dict, init=False)
    _resolved: dict[object, Resolution] = field(default_factory=dict, init=False)
    _named: frozenset[object] = field(default=frozenset(), init=False)  # runs that ended, whose devices were told
    # By job id: runs of which nobody wrote, while they live and after.
    _begun: dict[str, JobFile] = field(default_factory=dict, init=False)
    _live_before: frozenset[str] = field(default=frozenset(), init=False)
    _extern_in_use: bool = field(default=False, init=False)

    def read(self, devices: Devices, seen: Mapping[str, frozenset[str]] | None = None) -> SchedulerState:
        """What holds now, and what ended since the last call. `seen`: job id or SLUID -> the GPUs that its processes
        work on. None: nobody looked; then what ended is kept for the next call."""
        tree, files = slurm_jobs(self.cgroups), read_job_files(self.folder, self.trusted_uids)
        if tree is None and not files.jobs and not files.refused and not self.settings.is_present:
            return SchedulerState(present=False)
        live = tree or {}
        self._extern_in_use = self._extern_in_use or any((path / "step_extern").is_dir() for path in live.values())
        # The last run of each job counts; one before it is over, whoever did not say so.
        running = [job for job in {job.job_id: job for job in files.jobs}.values() if job.until is None]
        stale = [job for job in running if self._is_stale(job, running, live, seen or {})]
        told = [job for job in running if job not in stale]
        known = {name for job in told for name in (job.job_id, job.sluid)}
        untold = list(filter(None, (self._begin(n, p, files.jobs) for n, p in live.items() if n not in known)))
        ended = [job for job in files.jobs if job.until is not None]
        claims = [_claim(job, self._resolve(job, devices, seen or {})) for job in told]
        # What these were given is not told, but which run it is: its processes are nobody else's.
        claims += [_claim(job, Resolution()) for job in untold if job.since is not None]
        claims += [self._over(job, devices) for job in ended]
        runs = {job.run for job in files.jobs}
        self._left = {run: left for run, left in self._left.items() if run in runs}
        self._resolved = {run: one for run, one in self._resolved.items() if run in runs}
        self._named = frozenset(job.run for job in ended) if seen is not None else self._named
        self._live_before = frozenset(live)
        claims.sort(key=lambda claim: (claim.job_id or "", claim.since or 0.0))
        given = {job.job_id: self._resolved[job.run] for job in told}
        began = [f"{job.job_id or job.sluid} began before the prolog was installed, or it failed" for job in untold]
        said = {
            "unknown": [files.missing] if files.missing is not None else began,
            "stale": [job.job_id for job in stale],
            "refused": [": ".join(one) for one in files.refused],
            "contradicted": [f"job {job} was given {one.contradiction}" for job, one in given.items()
                             if one.contradiction],
            "unresolved": [f"{job}: {', '.join(one.unknown)} ({one.why})" for job, one in given.items() if one.unknown],
        }  # fmt: skip
        absences = (unknown_allocation("slurm", reason, *_ABSENCES[reason], names) for reason, names in said.items())
        return SchedulerState(True, tuple(claims), frozenset().union(*absences))

    def _is_stale(self, job: JobFile, running: Sequence[JobFile], live: Collection[str], seen: Collection[str]) -> bool:
        """A file outlives its job where the epilog did not run. Where extern steps are in use every job has a cgroup as
        long as it lives. Elsewhere an allocated job may have no process and no cgroup; there its file is stale when a
        later job was given one of its GPUs."""
        left = self._left.get(job.run, _NEVER_SEEN_SCANS)
        later = (one for one in running if one.node == job.node and (one.since or 0.0) > (job.since or 0.0))
        if {job.job_id, job.sluid} & {*live, *seen}:
            left = _GONE_SCANS
        elif any(set(one.devices or ()) & set(job.devices or ()) for one in later):
            left = 0
        elif self._extern_in_use and (job.sluid is not None or all(map(str.isdecimal, live))):
            left -= 1  # where cgroups carry SLUIDs and the file does not say its own, nothing is known
        self._left[job.run] = left
        return left <= 0

    def _begin(self, name: str, path: Path, jobs: Sequence[JobFile]) -> JobFile | None:
        """A living job without a file of its own, with its start by its first process; None: it is a run that ended,
        whose last processes are still there. The next run of a requeued job, for which slurmd mostly runs no prolog,
        begins after the epilog of the one before, whose count it follows."""
        ended = [job for job in jobs if name in (job.job_id, job.sluid) and job.until is not None]
        before = ended[-1] if ended else JobFile()
        border = before.until or 0.0
        known = self._begun.get(name)
        since = known.since if known is not None and name in self._live_before else None
        if since is None or since <= border:
            found = [read_start_ticks(self.procfs, pid) for pid in job_pids(path)]
            ticks = min((one for one in found if one is not None), default=None)
            since = start_seconds(self.procfs, ticks, self.wall()) if ticks is not None else None
        if ended and (since is None or since <= border):
            return None
        job_id, sluid = (name, None) if name.isdecimal() else ("", name)
        restarts = None if before.restarts is None else before.restarts + 1
        job = fill_facts(JobFile(job_id, sluid=sluid, since=since, restarts=restarts), before, OF_JOB)
        self._begun = dict([*self._begun.items(), (name, job)][-_MAX_BEGUN:])
        return job

    def _resolve(self, job: JobFile, devices: Devices, seen: Mapping[str, frozenset[str]]) -> Resolution:
        """As it was resolved first: slurmd read gres.conf before the job began."""
        found = self._resolved.get(job.run)
        if found is None or found.unknown:
            gres = self.settings.gres(job.conf, job.node)
            found = resolve(job.devices or (), gres, devices, self.procfs)
        works_on = seen.get(job.job_id, frozenset()) | seen.get(job.sluid or "", frozenset())
        self._resolved[job.run] = found = without_contradiction(found, devices, works_on)
        return found

    def _over(self, job: JobFile, devices: Devices) -> DeviceClaim:
        """A run that ended: its devices are named once, and then it only tells whose its last processes are."""
        seen, run = self._begun.get(job.job_id) or self._begun.get(job.sluid or ""), job
        if job.without_prolog and seen is not None and (seen.since or 0.0) <= (job.until or 0.0):
            # The epilog alone wrote of it; its processes showed its start.
            run = fill_facts(replace(seen, job_id=job.job_id, until=job.until), job)
        # Without a start nothing is claimed: it was never seen to run.
        is_new = run.since is not None and job.run not in self._named
        return _claim(run, self._resolve(job, devices, {}) if is_new else Resolution())


def _claim(job: JobFile, found: Resolution) -> DeviceClaim:
    claim = DeviceClaim("slurm", found.gpu_uuids, found.unknown, job_id=job.job_id or None)
    return fill_facts(claim, job, ("uid", "since", "until", *OF_RUN))
