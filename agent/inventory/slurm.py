"""Which GPUs Slurm gave to which job on this node.

Two roads, the first that answers: the prolog's file of the job (`slurm_files`), and ``SLURM_JOB_GPUS`` in the
environment of the job's extern step, where environments may be read (the opt-in helper, or the agent as root). A user's
own process may stand in the extern step too (``pam_slurm_adopt`` puts logins there), so only its oldest process, which
slurmstepd started before any login was possible, is believed.

A file outlives its job where the epilog did not run. Where extern steps are in use every job has a cgroup as long as it
lives, so a file without one is stale. Elsewhere an allocated job may have no process and no cgroup, and nothing tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..model import Absence
from .cgroup_tree import extern_pids, slurm_jobs
from .claims import Claim, Devices
from .procfs import read_stat
from .slurm_files import JobFile, JobFiles, parse_devices, read_job_files

# Scans (10 s each) without a cgroup after which a job's file is stale: one minute where it had one, which covers the
# epilog; ten where it never had, which covers prologs that check a node's health first.
_GONE_SCANS, _NEVER_SEEN_SCANS = 6, 60
# An extern step whose environment told nothing is asked again after a minute.
_RETRY_SCANS = 6

Variables = Callable[[int], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Slurm:
    """`present`: Slurm runs jobs on this node, or its prolog left its folder. `absences`: what cannot be told."""

    present: bool
    claims: tuple[Claim, ...] = ()
    absences: frozenset[Absence] = frozenset()


class SlurmAllocations:
    """Reads both roads at each scan. `cgroups` is ``/sys/fs/cgroup``; `variables` gives allow-listed variables."""

    def __init__(
        self, folder: Path, procfs: Path, cgroups: Path, variables: Variables, trusted_uids: frozenset[int]
    ) -> None:
        self._folder = folder
        self._procfs = procfs
        self._cgroups = cgroups
        self._variables = variables
        self._trusted = trusted_uids
        self._without_cgroup: dict[str, int] = {}
        self._had_cgroup: set[str] = set()
        self._extern: dict[str, JobFile] = {}
        self._silent: dict[str, int] = {}
        self._extern_in_use = False

    def read(self, devices: Devices) -> Slurm:
        """What holds now."""
        live = slurm_jobs(self._cgroups)
        files = read_job_files(self._folder, self._trusted)
        if live is None and files.missing is not None:
            return Slurm(present=False)
        if live and not self._extern_in_use:
            self._extern_in_use = any((path / "step_extern").is_dir() for path in live.values())
        stale = frozenset(job.job_id for job in files.jobs if self._is_stale(job, live))
        self._forget({job.job_id for job in files.jobs}, live or {})
        jobs = [job for job in files.jobs if job.job_id not in stale]
        told = {name for job in jobs for name in (job.job_id, job.sluid) if name}
        untold: list[str] = []
        for name, path in (live or {}).items():
            if name in told:
                continue
            found = self._from_extern(name, path)
            if found is None:
                untold.append(name)
            elif found.job_id not in told:
                jobs.append(found)
        claims = tuple(_claim(job, devices) for job in sorted(jobs, key=lambda job: job.job_id))
        return Slurm(True, claims, _absences(files, claims, sorted(stale), untold))

    def _is_stale(self, job: JobFile, live: Mapping[str, Path] | None) -> bool:
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

    def _forget(self, files: set[str], live: Mapping[str, Path]) -> None:
        self._without_cgroup = {job: n for job, n in self._without_cgroup.items() if job in files}
        self._had_cgroup &= files
        self._extern = {name: job for name, job in self._extern.items() if name in live}
        self._silent = {name: n for name, n in self._silent.items() if name in live}

    def _from_extern(self, name: str, path: Path) -> JobFile | None:
        known = self._extern.get(name)
        if known is not None:
            return known
        waited = self._silent.get(name, _RETRY_SCANS)
        if waited < _RETRY_SCANS:
            self._silent[name] = waited + 1
            return None
        self._silent[name] = 0
        pids = [(stat.start_ticks, pid) for pid in extern_pids(path) if (stat := read_stat(self._procfs, pid))]
        if not pids:
            return None
        found = _from_variables(name, self._variables(min(pids)[1]))
        if found is not None:
            self._extern[name] = found
        return found


def start_of(variables: Mapping[str, str]) -> int | None:
    """``SLURM_JOB_START_TIME`` as Unix seconds; None: not set, or no such number."""
    text = variables.get("SLURM_JOB_START_TIME", "")
    return int(text) if text.isascii() and text.isdecimal() and 9 <= len(text) <= 11 else None


def _from_variables(name: str, variables: Mapping[str, str]) -> JobFile | None:
    job_id = name if name.isdecimal() else variables.get("SLURM_JOB_ID", "")
    if "SLURM_JOB_ID" not in variables or not (job_id.isascii() and job_id.isdecimal()) or len(job_id) > 12:
        return None
    if variables["SLURM_JOB_ID"] != job_id:
        return None
    devices = parse_devices(variables.get("SLURM_JOB_GPUS", ""))
    if devices is None:
        return None
    return JobFile(
        job_id,
        devices,
        None if name.isdecimal() else name,
        start_of(variables),
        variables.get("SLURM_JOB_USER") or None,
        variables.get("SLURM_JOB_ACCOUNT") or None,
        variables.get("SLURM_JOB_NAME") or None,
    )


def _claim(job: JobFile, devices: Devices) -> Claim:
    found, unknown = devices.resolve(job.devices)
    return Claim(
        scheduler="slurm",
        gpu_uuids=found,
        unresolved=unknown,
        job_id=job.job_id,
        sluid=job.sluid,
        start_seconds=job.start_seconds,
        name=job.name,
        user=job.user,
        account=job.account,
    )


def _absences(
    files: JobFiles, claims: Sequence[Claim], stale: Sequence[str], untold: Sequence[str]
) -> frozenset[Absence]:
    found: list[Absence] = []
    base = Absence("source", "allocation", "slurm", "allocation-unknown")
    if untold or (files.missing is not None and not claims):
        which = f"For {_some(untold)} nothing tells" if untold else "Nothing tells"
        why = f"; {files.missing}" if files.missing else ": they began before the prolog was installed, or it failed"
        found.append(
            replace(
                base,
                detail=f"{which} which GPUs Slurm gave to a job{why}.",
                remedy="Name /etc/skuwise/slurm/prolog.sh and epilog.sh in slurm.conf (skuwise agent install writes "
                "them), or enable the environment helper (skuwise agent install --with-environ).",
            )
        )
    if stale:
        found.append(
            replace(
                base,
                reason="allocation-stale",
                detail=f"The prolog's files of {_some(stale)} have no living job; they are left out.",
                remedy="Check that epilog.sh runs on this node; it removes them.",
            )
        )
    if files.refused:
        named = [f"{name}: {why}" for name, why in files.refused]
        found.append(
            replace(
                base,
                reason="allocation-refused",
                detail=f"Files of the prolog's folder are refused ({_some(named)}).",
                remedy="Remove them; only prolog.sh, as root, may write there.",
            )
        )
    unresolved = [f"{claim.job_id}: {name}" for claim in claims for name in claim.unresolved]
    if unresolved:
        found.append(
            replace(
                base,
                reason="allocation-unresolved",
                detail=f"Slurm gave devices that the driver does not name ({_some(unresolved)}).",
                remedy="Let gres.conf name the device files (/dev/nvidiaN), so that Slurm's ids are minor numbers.",
            )
        )
    return frozenset(found)


def _some(names: Sequence[str], shown: int = 3) -> str:
    text = ", ".join(names[:shown])
    return f"{text} and {len(names) - shown} more" if len(names) > shown else text
