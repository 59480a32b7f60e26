"""Runs of jobs as they are listed before one is judged, and which of them somebody names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...rules.base.errors import NothingToDo
from ..core.naming import AmbiguousError, Named, matching, unknown
from ..core.scalars import text
from ..core.timestamps import minute
from ..core.verdict_types import Owner

# A run that was seen within so long of its node's newest data is taken to run on: two minutes of rollups and a tick.
RUNNING_SECONDS = 180.0
_JOB = re.compile(r"[0-9]{1,10}(_[0-9]{1,10})?")
_NOTHING = "Use a Slurm job ID, a workload ID (w-...), a pod name, NAMESPACE/POD or a workload name."


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job. Times are Unix seconds. `seen_until`: the newest data of its nodes; `places`: files that have
    rows of it (empty where the source is a server)."""

    id: str
    series_id: str
    name: str
    start: float
    end: float
    scheduler: str = "process"
    job_id: str | None = None
    task: str | None = None
    array_job_id: str | None = None
    cluster: str | None = None
    namespace: str | None = None
    pod: str | None = None
    owner: Owner = field(default_factory=Owner)
    nodes: tuple[str, ...] = ()
    seen_until: float = 0.0
    places: tuple[str, ...] = ()

    @property
    def jobs(self) -> tuple[str, ...]:
        """What its scheduler calls it: its id, ``22_7`` of an array's task, each with its cluster as well."""
        own = tuple(dict.fromkeys(one for one in (self.job_id, self.task) if one))
        if not self.cluster:
            return own
        return (*own, *(f"{self.cluster}/{one}" for one in own), *(f"{one}@{self.cluster}" for one in own))

    @property
    def shown_job(self) -> str | None:
        """The id that its user knows."""
        return self.task or self.job_id

    def named(self, name: str | None = None) -> Named:
        """For the resolver, under `name`."""
        job = f", job {self.shown_job}" if self.shown_job else ""
        pod = f", pod {self.namespace}/{self.pod}" if self.pod else ""
        what = f"{self.name or 'workload'}{job}{pod}"
        when = f"{minute(self.start)} to {minute(self.end)}"
        return Named(self.id, what, self.name if name is None else name, self.nodes, self.jobs, when)


def run_of(
    row: Mapping[str, Any], cluster: str | None, nodes: Sequence[str], seen_until: float, places: tuple[str, ...] = ()
) -> Run | None:
    """The run of a row of the view ``workloads``; None: without its times."""
    start, end = row["first_seen"], row["last_seen"]
    if not all(isinstance(one, int | float) and math.isfinite(one) for one in (start, end)):
        return None
    array, task = text(row["array_job_id"]), text(row["array_task_id"])
    owner = Owner(text(row["team"]), text(row["user"]), text(row["account"]), text(row["namespace"]))
    return Run(
        str(row["workload_id"]), str(row["series_id"]), text(row["name"]) or "", float(start),
        max(float(start), float(end)), text(row["scheduler"]) or "", text(row["job_id"]),
        f"{array}_{task}" if array and task else None, array, cluster, owner.namespace, text(row["pod"]), owner,
        tuple(sorted(nodes)), seen_until, places,
    )  # fmt: skip


def joined(parts: Iterable[Run]) -> list[Run]:
    """Parts of the same runs, each from one node's file, as whole runs."""
    found: dict[str, Run] = {}
    for part in parts:
        run = found.get(part.id)
        found[part.id] = part if run is None else replace(
            run,
            start=min(run.start, part.start), end=max(run.end, part.end),
            seen_until=max(run.seen_until, part.seen_until),
            nodes=tuple(sorted({*run.nodes, *part.nodes})),
            places=tuple(dict.fromkeys((*run.places, *part.places))),
        )  # fmt: skip
    return list(found.values())


def named_run(
    asked: str, runs: Sequence[Run], command: Callable[[str], str], near: Callable[[], Sequence[Run]] = tuple
) -> tuple[Run, tuple[Run, ...]]:
    """The run that `asked` names: an id, a job, a task, a name, a pod, NAMESPACE/POD, the beginning of an id.

    Of a job that was requeued it is the newest run, and the others, newest first. `near`: more runs, for
    suggestions. Raises AmbiguousError for several jobs, NothingToDo for none.
    """
    word = asked.strip()
    by_id = {run.id: run for run in runs}
    ways = (
        [run.named() for run in runs if _JOB.fullmatch(word) is None or word in run.jobs],
        [run.named() for run in runs if run.array_job_id is not None and run.array_job_id == word],
        [run.named(run.pod or "") for run in runs],
        [run.named(f"{run.namespace}/{run.pod}") for run in runs if run.namespace and run.pod],
    )
    for number, every in enumerate(ways):
        found = every if number == 1 else [one for one in matching(word, every) if word not in one.nodes]
        if not found:
            continue
        chosen = [by_id[one.id] for one in found]
        if len(chosen) == 1:
            return chosen[0], ()
        keys = {(run.cluster, run.scheduler, run.shown_job) for run in chosen}
        if len(keys) == 1 and chosen[0].shown_job and number != 1:
            ordered = sorted(chosen, key=lambda run: run.start, reverse=True)
            return ordered[0], tuple(ordered[1:])
        raise AmbiguousError(asked, sorted(found, key=lambda one: one.when, reverse=True), command)
    told = unknown(word, [run.named() for run in (*runs, *near())], "among the jobs of this source", _NOTHING)
    raise NothingToDo(told.message, told.remedy)
