"""The workload, finding or recommendation that somebody names."""

from __future__ import annotations

import re
from collections.abc import Callable

from ...rules.catalog.loader import Catalog
from ...rules.catalog.types import GpuSku
from ..core.advice_types import Advice, Finding, Recommendation
from ..core.formatting import usd
from ..core.naming import AmbiguousError, Named, matching, unknown
from ..core.timestamps import day
from ..core.verdict_types import WorkloadVerdict

_JOB = re.compile(r"[0-9]{1,10}(_[0-9]{1,10})?")
_CASH = ("cash-now", "cash-at")

Subject = WorkloadVerdict | Finding | Recommendation


def find(advice: Advice, asked: str, command: Callable[[str], str] = "skuwise explain {}".format) -> Subject:
    """What `asked` names: an id or its beginning, a name, a job id, a node, or ``name@node``.

    Of a Slurm job that ran several times it is the newest run. `command` gives the command line for an id, for the
    list of candidates. Raises AmbiguousError for several things, UsageError for none.
    """
    runs = runs_of(advice, asked)
    if runs:
        return runs[0]
    every = {workload.id: workload for workload in (*advice.workloads, *advice.findings, *advice.recommendations)}
    exact = every.get(asked.strip())
    if exact is not None:  # what the others are called matters only where something is searched for
        return exact
    names = named_of(advice)
    found = matching(asked, names)
    if not found:
        raise unknown(asked, names, "in this window", "'skuwise advise --format json' lists every ID.")
    if len(found) > 1:
        raise AmbiguousError(asked, found, command)
    return every[found[0].id]


def named_of(advice: Advice) -> list[Named]:
    """Everything of an advice that has an id. A workload is found by its name and its nodes; what is about a node
    alone by the node."""
    workloads = {workload.id: workload for workload in advice.workloads}
    window = f"{day(advice.start)} to {day(advice.end)}"
    named = [_workload(one) for one in advice.workloads]
    for finding in advice.findings:
        about = workloads.get(finding.workload or "")
        nodes = finding.nodes or ((finding.node,) if finding.node else ())
        what = f"finding: {finding.rule}" + (f" of {about.name}" if about else "")
        named.append(Named(finding.id, what, "", () if about else nodes, (), window, usd(finding.cost_usd)))
    for recommendation in advice.recommendations:
        about = workloads.get(recommendation.workload or "")
        what = f"recommendation: {recommendation.action}" + (f" of {about.name}" if about else "")
        saving = recommendation.saving_usd_per_month if recommendation.realisation in _CASH else None
        cost = f"saves {usd(saving.p50)}/month" if saving is not None else ""
        named.append(Named(recommendation.id, what, when=window, cost=cost))
    return named


def _workload(one: WorkloadVerdict) -> Named:
    about = one.scheduled
    task = f"{about.array_job_id}_{about.array_task_id}" if about.array_job_id and about.array_task_id else None
    jobs = tuple(job for job in (about.job_id, task) if job)
    when = f"{day(one.start)} to {day(one.end)}"
    return Named(one.id, f"workload: {one.name}, {one.kind.label}", one.name, one.nodes, jobs, when, usd(one.cost_usd))


def runs_of(advice: Advice, asked: str) -> list[WorkloadVerdict]:
    """The runs of a Slurm job by its id (``12345``, or ``22_7`` of an array's task), the newest first."""
    number = asked.strip()
    if not _JOB.fullmatch(number):
        return []

    found = [
        workload
        for workload in advice.workloads
        if workload.scheduled.name == "slurm" and number in _workload(workload).jobs
    ]
    return sorted(found, key=lambda one: one.start, reverse=True)


def workload_of(advice: Advice, workload: str | None) -> WorkloadVerdict | None:
    """The verdict on a workload by its id; None for None, and where the window has none of this id."""
    return next((w for w in advice.workloads if w.id == workload), None)


def recommended(advice: Advice, workload: WorkloadVerdict, catalog: Catalog) -> list[GpuSku]:
    """The other GPUs that the workload is recommended to move to, blocked or not, the best first."""
    names = dict.fromkeys(r.target.gpu_sku for r in advice.recommendations if r.workload == workload.id)
    found = [catalog.gpu(name) for name in names if name is not None and name != workload.gpu_sku]
    return [sku for sku in found if sku is not None]
