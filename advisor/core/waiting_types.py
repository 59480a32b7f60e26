"""Jobs that wait for GPUs, as of one moment. Names and order are those of the JSON; `Moment` is Unix seconds."""

from dataclasses import dataclass, field
from typing import Literal

from ...rules.base.typed import Amount, Moment
from .coded_text import CodedText
from .verdict_types import Owner

# The metric of a finding's evidence: GPUs that waiting jobs want and that those of the finding would be.
WAITING_METRIC = "waiting_gpus_that_fit"


@dataclass(frozen=True, slots=True)
class WaitingJobs:
    """Jobs in one queue that are alike: the same owner, size and reason.

    `name`: of the job that waits longest. `ids`: of those that wait longest, at most five: Slurm's job ids, or
    ``NAMESPACE/POD``. `gpus_each`: in whole GPUs, of MIG instances their part. `nodes_each`: nodes that each asks for;
    None: any number. `gpu_type`: as it was asked for (``h100``, ``1g.10gb``); None: any. `since`: when the first began
    to wait. `blocked_by`: what each waits for instead of GPUs; None: it waits for GPUs.
    """

    id: str
    scheduler: Literal["slurm", "kubernetes"]
    cluster: str | None
    name: str
    owner: Owner
    partition: str | None
    jobs: int
    gpus_each: Amount
    nodes_each: int | None
    gpu_type: str | None
    ids: tuple[str, ...]
    since: Moment | None
    reason: str | None  # the scheduler's word
    blocked_by: CodedText | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The queue at `as_of`. `jobs` wait for `gpus` GPUs since `since` (the first of them); `other_jobs` want GPUs too
    and wait for something else. `idle_gpus`: at rest in the newest hour of the data, held or not, of nodes in service;
    MIG instances count by their part; None: not known."""

    as_of: Moment
    jobs: int
    gpus: Amount
    since: Moment | None
    other_jobs: int
    idle_gpus: float | None = field(default=None)
