"""The workload, finding or recommendation that an id or a name means."""

import re
from collections.abc import Callable, Set

from ..core.advice_types import Advice, Finding, Recommendation
from ..core.formatting import usd
from ..core.ids import Named, resolve
from ..core.timestamps import day
from ..core.verdict_types import WorkloadVerdict

_JOB = re.compile(r"[0-9]{1,10}(_[0-9]{1,10})?")

Subject = WorkloadVerdict | Finding | Recommendation


def find(advice: Advice, asked: str, command: Callable[[str], str] = "skuwise explain {}".format) -> Subject:
    """What `asked` means: an id or its beginning, a name, a job id, a node, or ``name@node``; of a Slurm job that ran
    several times the newest run. `command` gives the command line for an id, for the list of candidates.

    Raises AmbiguousError for several matches, UsageError for none.
    """
    if runs := runs_of(advice, asked):
        return runs[0]
    subjects = {subject.id: subject for subject in (*advice.workloads, *advice.findings, *advice.recommendations)}
    if (exact := subjects.get(asked.strip())) is not None:  # a whole id, though longer ids begin with it
        return exact
    remedy = "'skuwise advise --format json' lists every ID."
    return subjects[resolve(asked, _names(advice), "in this window", remedy, command).id]


def _names(advice: Advice) -> list[Named]:
    window = f"{day(advice.start)} to {day(advice.end)}"
    workloads = {workload.id: workload for workload in advice.workloads}
    names = [
        Named(
            w.id, f"workload: {w.name}, {w.kind.label}", w.name, w.nodes, _job_ids(w),
            f"{day(w.start)} to {day(w.end)}", usd(w.cost_usd),
        )
        for w in advice.workloads
    ]  # fmt: skip
    for f in advice.findings:
        about, nodes = workloads.get(f.workload or ""), f.nodes or ((f.node,) if f.node else ())
        what = f"finding: {f.rule}{f' of {about.name}' if about else ''}"
        names.append(Named(f.id, what, "", () if about else nodes, (), window, usd(f.cost_usd)))
    for r in advice.recommendations:
        about, saving = workloads.get(r.workload or ""), r.saving_usd_per_month
        what = f"recommendation: {r.action}{f' of {about.name}' if about else ''}"
        names.append(Named(r.id, what, when=window, cost=f"saves {usd(saving.p50)}/month" if saving else ""))
    return names


def _job_ids(workload: WorkloadVerdict) -> tuple[str, ...]:
    job = workload.scheduled
    task = f"{job.array_job_id}_{job.array_task_id}" if job.array_job_id and job.array_task_id else None
    return tuple(job_id for job_id in (job.job_id, task) if job_id)


def runs_of(advice: Advice, asked: str) -> list[WorkloadVerdict]:
    """The runs of a Slurm job by its id (``12345``, or ``22_7`` of an array's task), the newest first."""
    number = asked.strip()
    if not _JOB.fullmatch(number):
        return []
    runs = [w for w in advice.workloads if w.scheduled.name == "slurm" and number in _job_ids(w)]
    return sorted(runs, key=lambda run: run.start, reverse=True)


def workload_of(advice: Advice, workload: str | None) -> WorkloadVerdict | None:
    """The verdict on a workload by its id; None for None, and where the window has none of this id."""
    return next((w for w in advice.workloads if w.id == workload), None)


def replicas_of(advice: Advice, subject: Subject, gpus: Set[str]) -> list[WorkloadVerdict]:
    """The workloads that `subject` is about: its own, and those of the same series on the same type of node at the same
    time. `gpus`: limits them to those that hold one of these; empty: no limit. Empty where it is about no workload."""
    lead = subject if isinstance(subject, WorkloadVerdict) else workload_of(advice, subject.workload)
    if lead is None:
        return []
    return [
        w
        for w in advice.workloads
        if (w.series_id, w.node_sku) == (lead.series_id, lead.node_sku)
        and w.start < lead.end
        and w.end > lead.start
        and (w is lead or not gpus or not gpus.isdisjoint(w.gpus))
    ]
