"""One run of a Slurm job, as Slurm's accounting shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A run that began. A job that was requeued, and one that was given a recycled id, are several of these.

    `job_id`: the id that cgroups and ``SLURM_JOB_ID`` bear (sacct's JobIDRaw); where only ``22_7`` is given, that.
    Times are Unix seconds; `ended` None: it runs, or its end is unknown. `node_list`: as Slurm writes it
    (``gpu-[001-004]``). `gpus`, `cpus`, `mem_bytes`: what was allocated, else what was requested. None: unknown.
    """

    job_id: str
    started: float
    ended: float | None = None
    submitted: float | None = None
    cluster: str | None = None
    name: str | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    array_job_id: str | None = None
    array_task_id: str | None = None
    state: str | None = None
    restarts: int | None = None
    node_list: str | None = None
    gpus: int | None = None
    cpus: int | None = None
    mem_bytes: float | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What distinguishes a run from every other: cluster, id and start."""
        return self.cluster or "", self.job_id, int(self.started)
