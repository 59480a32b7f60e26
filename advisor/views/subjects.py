"""The thing that somebody names: a workload, a finding or a recommendation, by its id, its name or its job."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...rules.base.errors import UsageError
from ...rules.base.suggestions import suggest
from ...rules.catalog.loader import Catalog
from ...rules.catalog.types import GpuSku
from ..core.advice_types import Advice, Finding, Recommendation
from ..core.verdict_types import WorkloadVerdict

# So many characters of an id are enough where they name one thing only.
PREFIX_MIN = 4


_LISTED = 5


_JOB = re.compile(r"[0-9]{1,10}(_[0-9]{1,10})?")


Subject = WorkloadVerdict | Finding | Recommendation


def find(advice: Advice, asked: str) -> Subject:
    """What an id, the beginning of one, or a workload's name means. Raises UsageError where that is not one thing."""
    every: Sequence[Subject] = (*advice.workloads, *advice.findings, *advice.recommendations)
    runs = runs_of(advice, asked)
    ways = (
        lambda one: one.id == asked,
        lambda one: one is next(iter(runs), None),
        lambda one: isinstance(one, WorkloadVerdict) and one.name == asked,
        lambda one: len(asked) >= PREFIX_MIN and one.id.startswith(asked),
    )
    for fits in ways:
        found = [one for one in every if fits(one)]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(one.id for one in found[:_LISTED])
            more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
            raise UsageError(f"{asked!r} means {len(found)} things: {ids}{more}.", "Give one of these ids.")
    known = [*(one.id for one in every), *(w.name for w in advice.workloads)]
    near = suggest(asked, known) or "'skuwise advise --format json' lists every id."
    raise UsageError(f"Nothing in this window is called {asked!r}.", near)


def runs_of(advice: Advice, asked: str) -> list[WorkloadVerdict]:
    """The runs of a Slurm job by its id (``12345``, or ``22_7`` of an array's task), the newest first."""
    number = asked.strip()
    if not _JOB.fullmatch(number):
        return []

    def is_asked(one: WorkloadVerdict) -> bool:
        about = one.scheduled
        task = f"{about.array_job_id}_{about.array_task_id}" if about.array_job_id and about.array_task_id else None
        return about.name == "slurm" and number in (about.job_id, task)

    return sorted(filter(is_asked, advice.workloads), key=lambda one: one.start, reverse=True)


def workload_of(advice: Advice, workload: str | None) -> WorkloadVerdict | None:
    """The verdict on a workload by its id; None for None, and where the window has none of this id."""
    return next((w for w in advice.workloads if w.id == workload), None)


def recommended(advice: Advice, workload: WorkloadVerdict, catalog: Catalog) -> list[GpuSku]:
    """The other GPUs that the workload is recommended to move to, blocked or not, the best first."""
    names = dict.fromkeys(r.target.gpu_sku for r in advice.recommendations if r.workload == workload.id)
    found = [catalog.gpu(name) for name in names if name is not None and name != workload.gpu_sku]
    return [sku for sku in found if sku is not None]
