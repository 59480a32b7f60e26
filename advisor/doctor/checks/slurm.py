"""Which of Slurm's jobs on the GPUs have names: from what was observed, and from Slurm's job table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ....agent.base.slurm_job import SlurmJob
from ...telemetry.job_table import numbers_in
from ...telemetry.prometheus.client.response import Grid, SeriesAnswer
from ...telemetry.prometheus.promql.promql import AGENT_ANCHOR, selector
from ...telemetry.source import JobTable
from .. import presence
from ..facts import JobSeen, SlurmCoverage, SourceCoverage
from ..sampled_moments import Asker

_AGENT_WORK = "skuwise_workload_gpu_seconds_total"
_LABELS = ("exported_hpc_job", "hpc_job", "job_id")


def with_table(told: SourceCoverage, table: JobTable) -> SourceCoverage:
    """What was told, with the jobs counted that the source's own table and this one name."""
    if not told.jobs_seen:
        return told
    seen: dict[str, list[JobSeen]] = {}
    for one in told.jobs_seen:
        seen.setdefault(one.job_id, []).append(one)
    slack = told.slack_seconds if told.sampled else 0.0
    in_table: set[JobSeen] = set()

    def note(job: SlurmJob) -> bool:
        for number in numbers_in(job):
            in_table.update(one for one in seen.get(number, ()) if _was_then(job, one, slack))
        return False  # nothing needs to be held

    for job in told.job_table:
        note(job)
    table.read(note)
    named = sum(one.named or one in in_table for one in told.jobs_seen)
    return replace(told, slurm=SlurmCoverage(len(told.jobs_seen), named, len(in_table)), job_table=())


def _was_then(job: SlurmJob, one: JobSeen, slack: float) -> bool:
    return job.started <= one.last + slack and (job.ended is None or job.ended >= one.first - slack)


def seen_on_server(asker: Asker, known: set[str], moments: Sequence[float], span: str) -> tuple[JobSeen, ...]:
    """The jobs that series name at these moments, by dcgm-exporter's hpc_job or our agent's job_id."""
    looks = []
    for name in presence.carriers(known)[:1]:
        each = [f"{name}{selector(asker.matches, *labels)}" for labels in presence.WORK[2:]]
        looks.append(" or ".join(f"last_over_time({one}[{span}])" for one in each))
    if AGENT_ANCHOR in known:
        chosen = selector(asker.matches, 'scheduler="slurm"', 'job_id!=""')
        looks.append(f"last_over_time({_AGENT_WORK}{chosen}[{span}])")
    if not looks:
        return ()
    grid = Grid(moments[0], moments[-1], (moments[-1] - moments[0]) / (len(moments) - 1))
    asked = [presence.Look(f"count by ({', '.join(_LABELS)}) ({one})", _LABELS, presence.LABELED) for one in looks]
    return _jobs((answer for _, answer in asker.over(asked, grid)), grid)


def _jobs(answers: Iterable[SeriesAnswer], grid: Grid) -> tuple[JobSeen, ...]:
    found: dict[str, tuple[float, float]] = {}
    for answer in answers:
        for labels, values in zip(answer.labels, answer.values, strict=True):
            job = next((labels[name] for name in _LABELS if labels.get(name)), None)
            at = np.nonzero(values > 0)[0]
            if job is None or job == "0" or not len(at):
                continue
            first, last = grid.start + float(at[0]) * grid.step, grid.start + float(at[-1]) * grid.step
            before = found.get(job, (first, last))
            found[job] = (min(before[0], first), max(before[1], last))
    return tuple(JobSeen(job, first, last) for job, (first, last) in sorted(found.items()))
