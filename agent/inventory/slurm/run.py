"""A run of a Slurm job as a workload: what it is called, whose it is, and which series it belongs to.

What the prolog wrote goes before what the job's processes tell: root wrote it. A job whose name nobody told is called
``job 42`` and is a series of its own (`ids.unnamed_series_id`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ...model import Workload
from ..identity.ids import series_id, slurm_parts, unnamed_series_id, workload_id
from ..processes.cgroups import Origin
from ..scheduler_claims import Claim
from .job_files import JobFile

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SlurmRun:
    """`claim`: what Slurm gave it; `origin`: the cgroup that its processes run in; `told`: what these tell. Each may be
    None. `name_of` gives the name of a user's number."""

    cluster: str
    claim: Claim | None
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
    def sluid(self) -> str | None:
        """None: not told."""
        if self.claim is not None and self.claim.sluid:
            return self.claim.sluid
        return self.origin.key if self.origin is not None and not self.origin.job_id else None

    @property
    def workload_id(self) -> str:
        """`ids.slurm_parts` says of what."""
        parts = slurm_parts(
            self.job_id,
            _first(*(one.start_seconds for one in self._sources)),
            self.sluid,
            restarts=_first(*(one.restarts for one in self._sources)),
            stamp_seconds=self.claim.since if self.claim is not None else None,
        )
        return workload_id(self.cluster, "slurm", *parts)

    def workload(self, running: Workload | None, earlier: Workload | None) -> Workload:
        """`running`: what its processes are; `earlier`: how this run was described before, from which is taken what is
        not told now."""
        base = running or earlier
        user = _first(*(one.user for one in self._sources))
        user = user or (self.name_of(self.claim.uid) if self.claim is not None else None)
        user = user or (base.user if base is not None else None)
        known = [*self._sources, *([earlier] if earlier is not None else [])]
        account = _first(*(one.account for one in known))
        array_job_id = _first(*(one.array_job_id for one in known))
        called = f"job {self.job_id or self.sluid}"
        name = _first(*(one.name for one in known)) or called
        alone = array_job_id or self.job_id or self.sluid or ""
        series = (
            unnamed_series_id(self.cluster, account, user, alone)
            if name == called
            else series_id(self.cluster, account, user, name)
        )
        return Workload(
            workload_id=self.workload_id,
            series_id=series,
            name=name,
            scheduler="slurm",
            job_id=self.job_id or self.sluid,
            user=user,
            account=account,
            framework=base.framework if base is not None else None,
            command=base.command if base is not None else None,
            partition=_first(*(one.partition for one in known)),
            qos=_first(*(one.qos for one in known)),
            array_job_id=array_job_id,
            array_task_id=_first(*(one.array_task_id for one in known)),
            restarts=_first(*(one.restarts for one in known)),
        )

    @property
    def _sources(self) -> list[Claim | JobFile]:
        return [one for one in (self.claim, self.told) if one is not None]


def _first(*values: T | None) -> T | None:
    return next((value for value in values if value is not None), None)
