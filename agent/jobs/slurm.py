"""Slurm's jobs on this node: who was given which GPU, from when to when, and each run as a workload.

`systemd/slurm/prolog.sh` writes ``JOB-RESTARTS.job`` into a folder that only root can write, `epilog.sh` an empty
``JOB-RESTARTS.end`` beside it; their times are the run's start and end. Where slurmd ran no prolog, as for most runs of
a requeued job, the epilog writes both, and the start is unknown. Users chose the names in them: what is not exactly the
prolog's is refused; a file without its last line is not whole yet.
"""

import re
import stat
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...rules.base.files import read_bounded
from ..base.safe_text import clean_text
from ..model import Workload
from .command_line import plain_name
from .ids import series_id, slurm_parts, unnamed_series_id, workload_id
from .processes import Origin, Process, job_pids, read_start_ticks, slurm_jobs, start_seconds
from .scheduler_claims import OF_JOB, OF_RUN, DeviceClaim, Devices, SchedulerState, fill_facts, not_known
from .slurm_conf import Resolution, SlurmConfReader, resolve, without_contradiction

_FILE = re.compile(r"([0-9]{1,12})-([0-9]{1,5})\.(job|end)")
_SIZE_LIMIT, _FILES_LIMIT, _MAX_DEVICES = 8192, 4096, 256
_ITEM = r"(?:[0-9]{1,4}(?:-[0-9]{1,4})?|(?:GPU|MIG)-[0-9A-Za-z/-]{8,80})"
_TEXTS = ("user", "account", "name", "partition", "qos")
_FORMS = dict.fromkeys(("restarts", "uid", "array_job_id", "array_task_id"), "[0-9]{0,10}") | {
    "start": "([0-9]{9,11})?", "sluid": "(s[0-9A-Z]{11,19})?", "job_id": "[0-9]{1,12}", "version": "2",
    "gpus": f"({_ITEM}(,{_ITEM})*)?", "complete": "1", "without_prolog": "1",
    **dict.fromkeys((*_TEXTS, "cluster", "node", "conf"), ".*"),
}  # fmt: skip
_TITLE = re.compile(r"slurmstepd: \[(\d{1,12}|s[0-9A-Z]{11,19})\.[0-9a-z_+]{1,20}\]\s*")
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
        "Restart slurmd after changes to gres.conf, set slurm_conf to its folder, and have ConstrainDevices=yes.",
    ),
    "unresolved": (
        "Slurm's GPU indices match no GPU: {}.",
        "Make the GPUs readable, let gres.conf name their files (File=/dev/nvidia[0-7]), set slurm_conf to its folder.",
    ),
}


@dataclass(frozen=True, slots=True)
class JobFiles:
    """All files of the folder. `refused`: name and reason. `missing`: why the folder itself has none."""

    jobs: tuple[DeviceClaim, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    missing: str | None = None


def parse_devices(text: str) -> tuple[str, ...] | None:
    """``0,2-3`` or UUIDs as single names; empty for an empty text; None: it is not such a list."""
    names: list[str] = []
    for item in text.split(",") if text else ():
        first, _, last = item.partition("-")
        more = range(int(first), int(last or first) + 1) if first.isdecimal() else (item,)
        if not 0 < len(more) <= _MAX_DEVICES - len(names):
            return None
        names += map(str, more)
    return tuple(dict.fromkeys(names))


def parse_job_file(raw: bytes, job_id: str) -> DeviceClaim | str | None:
    """The file's content, or the reason why it is refused; None: it has no end yet."""
    if not raw.endswith(b"\ncomplete=1\n"):
        return None
    values: dict[str, str] = {}
    for line in raw[:-1].split(b"\n"):
        key, _, value = line.decode("utf-8", "replace").partition("=")
        if key in values or key not in _FORMS or not re.fullmatch(_FORMS[key], value):
            return f"a line that the prolog does not write: {clean_text(key, 20)}"
        values[key] = value
    devices = parse_devices(values.get("gpus", "1-0"))
    if devices is None or values.get("job_id") != job_id or "version" not in values:
        return "no list of GPUs, no version, or another job's id than in its name"
    return replace(_job(values), devices=devices)


def _job(values: Mapping[str, str]) -> DeviceClaim:
    fields: dict[str, Any] = {key: clean_text(values.get(key, "")) or None for key in _FORMS}
    start, restarts, uid = (int(fields[key]) if fields[key] else None for key in ("start", "restarts", "uid"))
    names = ("job_id", "sluid", "array_job_id", "array_task_id", "node", "conf", *_TEXTS)
    fields = {key: fields[key] for key in names} | {"name": plain_name(fields["name"] or "") or None}
    return DeviceClaim(
        start_seconds=start, restarts=restarts, uid=uid, without_prolog="without_prolog" in values, **fields
    )


def read_job_files(folder: Path, trusted_uids: frozenset[int]) -> JobFiles:
    """Every run in `folder`, in the order of their ids and starts; none, where others than `trusted_uids` can write."""
    try:
        about = folder.lstat()
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        why = "the prolog is not installed, or no job ran since boot"
        return JobFiles(missing=f"{folder} cannot be read ({error.strerror}): {why}")
    if not stat.S_ISDIR(about.st_mode) or about.st_uid not in trusted_uids or about.st_mode & 0o022:
        return JobFiles(missing=f"{folder} is not a folder that only root can write")
    jobs: list[DeviceClaim] = []
    refused: list[tuple[str, str]] = []
    ends: dict[str, float] = {}  # a run's ``.end`` comes before its ``.job``
    for match in filter(None, map(_FILE.fullmatch, names[:_FILES_LIMIT])):
        name, run = match[0], match[0][:-4]
        try:
            raw, written = read_bounded(folder / name, _SIZE_LIMIT, 0.0), (folder / name).stat().st_mtime
        except OSError as error:
            if not isinstance(error, FileNotFoundError):  # the epilog tidies up
                refused.append((name, error.strerror or "it cannot be read"))
            continue
        job = parse_job_file(raw, match[1]) if match[3] == "job" else None
        if match[3] == "end":
            ends[run] = written
        elif isinstance(job, str):
            refused.append((name, job))
        elif job is not None:
            # An end before the start is of an earlier run under the same name.
            until = ends[run] if ends.get(run, 0.0) >= written else None
            if until is not None or not job.without_prolog:
                jobs.append(replace(job, since=None if job.without_prolog else written, until=until))
    jobs.sort(key=lambda job: (job.job_id or "", job.since or job.until or 0.0))
    return JobFiles(tuple(jobs), tuple(refused))


def job_of(name: str, variables: Mapping[str, str]) -> DeviceClaim | None:
    """The job whose cgroup is `name` (its id or its SLUID), as the environment of one of its processes shows it; None:
    the variables are not of that job. A process's owner may write what he likes into it, so it names his own job."""
    said = {key: variables.get(f"SLURM_JOB_{key.upper()}", "") for key in _TEXTS}
    said |= {key: variables.get(f"SLURM_{key.upper()}", "") for key in ("job_id", "array_job_id", "array_task_id")}
    said["start"] = variables.get("SLURM_JOB_START_TIME", "")
    said["restarts"] = variables.get("SLURM_RESTART_COUNT") or variables.get("SLURM_JOB_RESTART_COUNT", "")
    said["sluid"] = "" if name.isdecimal() else name
    values = {key: value for key, value in said.items() if re.fullmatch(_FORMS[key], value)}
    is_its_own = "job_id" in values and (not name.isdecimal() or values["job_id"] == name)
    return _job(values) if is_its_own else None


def stepd_job(process: Process, trusted_uids: frozenset[int]) -> str | None:
    """The job (or SLUID) whose step this process runs, if it is a slurmstepd: ``slurmstepd: [22.batch]``. Anybody can
    give a title, so it must be root's, and without a terminal: a user may leave a sudo waiting under any name."""
    if process.comm != "slurmstepd" or process.uid not in trusted_uids or process.tty:
        return None
    match = _TITLE.fullmatch(" ".join(process.argv))
    return match[1] if match else None


def slurm_workload(
    cluster: str,
    claim: DeviceClaim | None,
    origin: Origin | None,
    environment: DeviceClaim | None,
    running: Workload | None,
    *,
    user: str | None,
    before: Mapping[str, Workload],
) -> Workload:
    """A run as a workload. `claim`: what Slurm gave it; `origin`: the cgroup of its processes; `environment`,
    `running`: what their environment says, and their workload; `user`: of the claim's uid. Each may be None. `before`:
    workloads by id at the previous call, for what is missing. The prolog's values come before those of the processes,
    because root wrote them. A job without a name is called ``job 42`` and is a separate series."""
    name = origin.key if origin is not None else ""
    facts = DeviceClaim(job_id=name if name.isdecimal() else None)
    for source in (claim, environment, DeviceClaim(sluid=None if name.isdecimal() else name or None)):
        facts = fill_facts(facts, source, ("job_id", *OF_RUN))
    names = facts.job_id, facts.start_seconds, facts.sluid
    since = claim.since if claim is not None else None
    key = workload_id(cluster, "slurm", *slurm_parts(*names, restarts=facts.restarts, stamp_seconds=since))
    earlier = before.get(key)
    base = running or earlier or Workload("", "", "", "slurm")
    user = facts.user or user or base.user
    job_id = facts.job_id or facts.sluid or ""
    facts = fill_facts(facts, earlier, ("restarts", *OF_JOB))
    facts = replace(facts, user=user, name=facts.name or f"job {job_id}")
    group = cluster, facts.account, user
    series = series_id(*group, facts.name or "")
    if facts.name == f"job {job_id}":
        series = unnamed_series_id(*group, facts.array_job_id or job_id)
    how = {"framework": base.framework, "command": base.command}
    shown = {name: getattr(facts, name) for name in ("restarts", *OF_JOB)}
    return Workload(key, series, scheduler="slurm", job_id=job_id or None, **how, **shown)


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
    _named: frozenset[object] = field(default=frozenset(), init=False)  # runs that ended, whose devices were given
    # By job id: runs without a file, while they live and after.
    _begun: dict[str, DeviceClaim] = field(default_factory=dict, init=False)
    _live_before: frozenset[str] = field(default=frozenset(), init=False)
    _extern_in_use: bool = field(default=False, init=False)

    def read(self, devices: Devices, seen: Mapping[str, frozenset[str]] | None = None) -> SchedulerState:
        """What holds now, and what ended since the last call. `seen`: job id or SLUID -> the GPUs that its processes
        work on. None: not checked; then what ended is kept for the next call."""
        tree, files = slurm_jobs(self.cgroups), read_job_files(self.folder, self.trusted_uids)
        if tree is None and not files.jobs and not files.refused and not self.settings.is_present:
            return SchedulerState(present=False)
        live = tree or {}
        self._extern_in_use = self._extern_in_use or any((path / "step_extern").is_dir() for path in live.values())
        # The last run of each job counts; one before it is over, even without its epilog.
        running = [job for job in {job.job_id: job for job in files.jobs}.values() if job.until is None]
        stale = [job for job in running if self._is_stale(job, running, live, seen or {})]
        job_files = [job for job in running if job not in stale]
        identifiers = {name for job in job_files for name in (job.job_id, job.sluid)}
        untold = list(filter(None, (self._begin(n, p, files.jobs) for n, p in live.items() if n not in identifiers)))
        ended = [job for job in files.jobs if job.until is not None]
        claims = [_claim(job, self._resolve(job, devices, seen or {})) for job in job_files]
        # What these were given is unknown, but which run it is: its processes belong to no other.
        claims += [job for job in untold if job.since is not None]
        claims += [self._over(job, devices) for job in ended]
        runs = {job.run for job in files.jobs}
        self._left = {run: left for run, left in self._left.items() if run in runs}
        self._resolved = {run: resolution for run, resolution in self._resolved.items() if run in runs}
        self._named = frozenset(job.run for job in ended) if seen is not None else self._named
        self._live_before = frozenset(live)
        claims.sort(key=lambda claim: (claim.job_id or "", claim.since or 0.0))
        given = {job.job_id: self._resolved[job.run] for job in job_files}
        began = [f"{job.job_id or job.sluid} began before the prolog was installed, or it failed" for job in untold]
        said = {
            "unknown": [files.missing] if files.missing is not None else began,
            "stale": [job.job_id or "" for job in stale],
            "refused": [": ".join(entry) for entry in files.refused],
            "contradicted": [f"job {job} was given {resolution.contradiction}" for job, resolution in given.items()
                             if resolution.contradiction],
            "unresolved": [f"{job}: {', '.join(resolution.unknown)} ({resolution.why})"
                           for job, resolution in given.items() if resolution.unknown],
        }  # fmt: skip
        absences = (not_known("slurm", reason, *_ABSENCES[reason], names) for reason, names in said.items())
        return SchedulerState(True, tuple(claims), frozenset().union(*absences))

    def _is_stale(
        self, job: DeviceClaim, running: Sequence[DeviceClaim], live: Collection[str], seen: Collection[str]
    ) -> bool:
        """A file outlives its job where the epilog did not run. Where extern steps are in use every job has a cgroup as
        long as it lives. Elsewhere a job's file is stale when a later job was given one of its GPUs."""
        left = self._left.get(job.run, _NEVER_SEEN_SCANS)
        later = (r for r in running if r.node == job.node and (r.since or 0.0) > (job.since or 0.0))
        if {job.job_id, job.sluid} & {*live, *seen}:
            left = _GONE_SCANS
        elif any(set(run.devices or ()) & set(job.devices or ()) for run in later):
            left = 0
        elif self._extern_in_use and (job.sluid is not None or all(map(str.isdecimal, live))):
            left -= 1  # where cgroups carry SLUIDs and the file does not say its own, nothing is known
        self._left[job.run] = left
        return left <= 0

    def _begin(self, name: str, path: Path, jobs: Sequence[DeviceClaim]) -> DeviceClaim | None:
        """A living job without its own file, with its start by its first process; None: it is a run that ended,
        whose last processes are still there. The next run of a requeued job, for which slurmd mostly runs no prolog,
        begins after the epilog of the one before, whose count it follows."""
        ended = [job for job in jobs if name in (job.job_id, job.sluid) and job.until is not None]
        before = ended[-1] if ended else DeviceClaim()
        border = before.until or 0.0
        job_file = self._begun.get(name)
        since = job_file.since if job_file is not None and name in self._live_before else None
        if since is None or since <= border:
            starts = [read_start_ticks(self.procfs, pid) for pid in job_pids(path)]
            ticks = min((start for start in starts if start is not None), default=None)
            since = start_seconds(self.procfs, ticks, self.wall()) if ticks is not None else None
        if ended and (since is None or since <= border):
            return None
        job_id, sluid = (name, None) if name.isdecimal() else (None, name)
        restarts = None if before.restarts is None else before.restarts + 1
        job = fill_facts(DeviceClaim(job_id=job_id, sluid=sluid, since=since, restarts=restarts), before, OF_JOB)
        self._begun = dict([*self._begun.items(), (name, job)][-_MAX_BEGUN:])
        return job

    def _resolve(self, job: DeviceClaim, devices: Devices, seen: Mapping[str, frozenset[str]]) -> Resolution:
        """As it was resolved first: slurmd read gres.conf before the job began."""
        resolution = self._resolved.get(job.run)
        if resolution is None or resolution.unknown:
            gres = self.settings.gres(job.conf, job.node)
            resolution = resolve(job.devices or (), gres, devices, self.procfs)
        works_on = seen.get(job.job_id or "", frozenset()) | seen.get(job.sluid or "", frozenset())
        self._resolved[job.run] = resolution = without_contradiction(resolution, devices, works_on)
        return resolution

    def _over(self, job: DeviceClaim, devices: Devices) -> DeviceClaim:
        """A run that ended: its devices are named once, and then it only identifies its last processes."""
        seen, run = self._begun.get(job.job_id or "") or self._begun.get(job.sluid or ""), job
        if job.without_prolog and seen is not None and (seen.since or 0.0) <= (job.until or 0.0):
            # The epilog alone wrote of it; its processes showed its start.
            run = fill_facts(replace(seen, job_id=job.job_id, until=job.until), job)
        # Without a start nothing is claimed: it was never seen to run.
        is_new = run.since is not None and job.run not in self._named
        return _claim(run, self._resolve(job, devices, {}) if is_new else Resolution())


def _claim(job: DeviceClaim, resolution: Resolution) -> DeviceClaim:
    return replace(job, gpu_uuids=resolution.gpu_uuids, unresolved=resolution.unknown)
