"""A run of a Slurm job as a workload: what it is called, whose it is, and which series it belongs to.

What the prolog wrote goes before what the job's processes tell: root wrote it. A job whose name nobody told is called
``job 42`` and is a series of its own (`ids.unnamed_series_id`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..model import Workload
from .cgroups import Origin
from .ids import series_id, slurm_parts, unnamed_series_id, workload_id
from .scheduler_claims import OF_JOB, DeviceClaim, JobFacts, fill_facts
from .slurm_job_files import JobFile


@dataclass(frozen=True, slots=True)
class SlurmRun:
    """`claim`: what Slurm gave it; `origin`: the cgroup that its processes run in; `told`: what these tell. Each may be
    None. `name_of` gives the name of a user's number."""

    cluster: str
    claim: DeviceClaim | None
    origin: Origin | None
    told: JobFile | None
    name_of: Callable[[int | None], str | None]

    @property
    def job_id(self) -> str | None:
        """None: only a SLUID is known."""
        by_path = self.origin.job_id if self.origin is not None else None
        claimed = self.claim.job_id if self.claim is not None else None
        return by_path or claimed or (self.told.job_id if self.told is not None else None) or None

    @property
    def facts(self) -> JobFacts:
        """What Slurm told of the job, then what its own processes tell."""
        facts = fill_facts(fill_facts(JobFacts(), self.claim), self.told)
        by_path = self.origin.key if self.origin is not None and not self.origin.job_id else None
        return replace(facts, sluid=(self.claim.sluid if self.claim is not None else None) or by_path)

    @property
    def workload_id(self) -> str:
        """`ids.slurm_parts` says of what."""
        facts, since = self.facts, self.claim.since if self.claim is not None else None
        parts = slurm_parts(self.job_id, facts.start_seconds, facts.sluid, restarts=facts.restarts, stamp_seconds=since)
        return workload_id(self.cluster, "slurm", *parts)

    def workload(self, running: Workload | None, earlier: Workload | None) -> Workload:
        """`running`: what its processes are; `earlier`: how this run was described before, from which is taken what is
        not told now."""
        base = running or earlier
        facts = self.facts
        user = facts.user or (self.name_of(self.claim.uid) if self.claim is not None else None)
        user = user or (base.user if base is not None else None)
        job_id = self.job_id or facts.sluid
        facts = fill_facts(facts, earlier, ("restarts", *OF_JOB))
        unnamed = f"job {job_id}"
        name = facts.name or unnamed
        series = (
            unnamed_series_id(self.cluster, facts.account, user, facts.array_job_id or job_id or "")
            if name == unnamed
            else series_id(self.cluster, facts.account, user, name)
        )
        return Workload(
            workload_id=self.workload_id,
            series_id=series,
            name=name,
            scheduler="slurm",
            job_id=job_id,
            user=user,
            account=facts.account,
            framework=base.framework if base is not None else None,
            command=base.command if base is not None else None,
            partition=facts.partition,
            qos=facts.qos,
            array_job_id=facts.array_job_id,
            array_task_id=facts.array_task_id,
            restarts=facts.restarts,
        )
