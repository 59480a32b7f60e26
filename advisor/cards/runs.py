"""Runs of jobs as they are listed before one is judged, and which of them somebody names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...rules.base.errors import NothingToDo, SkuwiseError
from ..core.card_types import Card
from ..core.frame import Frame
from ..core.naming import PREFIX_MIN, AmbiguousError, Named, matching, unknown
from ..core.scalars import known, records, text
from ..core.timestamps import minute
from ..telemetry.job_table import job_names
from ..telemetry.sqlite.database import open_database

# A run that was seen within so long of its node's newest data is taken to run on: two minutes of rollups and a tick.
RUNNING_SECONDS = 180.0
_JOB = re.compile(r"[0-9]{1,10}(_[0-9]{1,10})?")
_NOTHING = "Use a Slurm job ID, a workload ID (w-...), a pod name, NAMESPACE/POD or a workload name."
_COLUMNS = (
    "workload_id", "series_id", "name", "scheduler", "job_id", "array_job_id", "array_task_id", "namespace", "pod",
    "first_seen", "last_seen",
)  # fmt: skip
_MATCHED, _NEAR = 5000, 500  # runs read of one file, and names compared with a name that matches nothing


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job. Times are Unix seconds. `jobs`: what its scheduler calls it, the id that its user knows last;
    `seen_until`: the newest data of its nodes; `places`: files that have rows of it (empty: the source is a server)."""

    id: str
    series_id: str
    name: str
    start: float
    end: float
    scheduler: str = "process"
    jobs: tuple[str, ...] = ()
    array_job_id: str | None = None
    cluster: str | None = None
    namespace: str | None = None
    pod: str | None = None
    nodes: tuple[str, ...] = ()
    seen_until: float = 0.0
    places: tuple[str, ...] = ()

    @property
    def shown_job(self) -> str | None:
        """The id that its user knows: ``22_7`` of an array's task."""
        return self.jobs[-1] if self.jobs else None

    def named(self) -> Named:
        """For the resolver: jobs with their cluster and pods with their namespace as well."""
        job = f", job {self.shown_job}" if self.shown_job else ""
        pod = f", pod {self.namespace}/{self.pod}" if self.pod else ""
        aliases = [*self.jobs, *([self.pod, f"{self.namespace}/{self.pod}"] if self.pod else [])]
        if self.cluster:
            aliases += [alias for job in self.jobs for alias in (f"{self.cluster}/{job}", f"{job}@{self.cluster}")]
        when = f"{minute(self.start)} to {minute(self.end)}"
        return Named(self.id, f"{self.name or 'workload'}{job}{pod}", self.name, self.nodes, tuple(aliases), when)


def find_runs(files: Sequence[Path], asked: str | None, say: Callable[[str], None]) -> list[Run]:
    """The runs in node databases that `asked` may name in any of its ways; None: the newest ones.

    Each file is asked by one SELECT, before any table is made: a card is wanted at once. A file that cannot be read is
    said and left out; raises SkuwiseError where none can be.
    """
    word = (asked or "").strip().encode("utf-8", "backslashreplace").decode()
    begin = word if word.startswith("w-") else f"w-{word}"
    parameters = {
        "word": word, "job": word.rpartition("/")[2].partition("@")[0] or word,
        "name": word.rpartition("@")[0] or word, "begin": begin,
        "after": f"{begin}\uffff" if len(word) >= PREFIX_MIN else begin, "most": _NEAR if asked is None else _MATCHED,
    }  # fmt: skip
    where = "" if asked is None else (
        "WHERE :word IN (workload_id, job_id, name, pod, namespace || '/' || pod) OR name = :name"
        " OR :job IN (job_id, array_job_id, array_job_id || '_' || array_task_id)"
        " OR workload_id BETWEEN :begin AND :after"
    )  # fmt: skip
    columns = ", ".join(_COLUMNS)
    sql = (
        f"SELECT DISTINCT w.*, u.node, n.cluster, n.last_seen FROM (SELECT {columns} FROM workloads {where}"  # noqa: S608
        " ORDER BY last_seen DESC LIMIT :most) w LEFT JOIN workload_gpus u ON u.workload_id = w.workload_id"
        " LEFT JOIN nodes n ON n.node = u.node"
    )
    parts: list[tuple[Any, ...]] = []
    problems: list[SkuwiseError] = []
    for path in files:
        try:
            with open_database(path) as reader:
                parts += [(*row, str(path)) for row in reader.fetch(sql, parameters)]
        except SkuwiseError as error:
            problems.append(error)
            say(f"Ignored: {error}")
    if problems and len(problems) == len(files):
        raise problems[0]
    return _runs_of(parts)


def runs_in(frame: Frame) -> list[Run]:
    """The runs of a frame, as they are listed before one is chosen."""
    newest, held = newest_data(frame), frame.uses.groupby("workload_id", sort=False)["node"].unique()
    clusters = {row["node"]: row["cluster"] for row in records(frame.nodes)}
    return _runs_of(
        (*(row[name] for name in _COLUMNS), node, clusters.get(node), newest.get(node, frame.window.end), None)
        for row in records(frame.workloads)
        for node in (*held.get(row["workload_id"], ()),) or ("",)
    )


def newest_data(frame: Frame) -> dict[str, float]:
    """The end of the newest data of each node of a frame."""
    ends = {row["node"]: known(row["last_seen"]) for row in records(frame.nodes)}
    return {node: min(end, frame.window.end) for node, end in ends.items() if end is not None}


def _runs_of(parts: Iterable[tuple[Any, ...]]) -> list[Run]:
    """Whole runs of their parts on single nodes: `_COLUMNS`, node, its cluster, its newest data, the file."""
    runs: dict[str, Run] = {}
    for *cells, node, cluster, newest, place in parts:
        row: dict[str, Any] = dict(zip(_COLUMNS, cells, strict=True))
        start, end = row["first_seen"], row["last_seen"]
        if not all(isinstance(ts, int | float) and math.isfinite(ts) for ts in (start, end)):
            continue
        part = Run(
            row["workload_id"], row["series_id"], text(row["name"]) or "", start, end, text(row["scheduler"]) or "",
            tuple(job_names(row)), text(row["array_job_id"]), text(cluster), text(row["namespace"]), text(row["pod"]),
        )  # fmt: skip
        run = runs.get(part.id, part)
        runs[part.id] = replace(
            run,
            start=min(run.start, start), end=max(run.end, start, end), cluster=run.cluster or part.cluster,
            seen_until=max(run.seen_until, newest or 0.0), nodes=tuple(sorted({*run.nodes, *filter(None, [node])})),
            places=tuple(dict.fromkeys((*run.places, *filter(None, [place])))),
        )  # fmt: skip
    return list(runs.values())


def named_run(
    asked: str, runs: Sequence[Run], command: Callable[[str], str], near: Callable[[], Sequence[Run]] = tuple
) -> tuple[Run, tuple[Run, ...]]:
    """The run that `asked` names: an id, a job, a task, a name, a pod, NAMESPACE/POD, the beginning of an id.

    Of a job that was requeued it is the newest run, and the others, newest first. `near`: more runs, for
    suggestions. Raises AmbiguousError for several jobs, NothingToDo for none.
    """
    word = asked.strip()
    by_id = {run.id: run for run in runs}
    # A number is a job's, and the beginning of no id.
    every = [run.named() for run in runs if _JOB.fullmatch(word) is None or word in run.jobs]
    matches = [name for name in matching(word, every) if word not in name.nodes]
    matches = matches or [run.named() for run in runs if run.array_job_id == word]
    if not matches:
        error = unknown(word, [run.named() for run in (*runs, *near())], "among the jobs of this source", _NOTHING)
        raise NothingToDo(error.message, error.remedy)
    chosen = sorted((by_id[name.id] for name in matches), key=lambda run: run.start, reverse=True)
    if len({(run.cluster, run.scheduler, run.shown_job or run.id) for run in chosen}) > 1:
        raise AmbiguousError(asked, sorted(matches, key=lambda name: name.when, reverse=True), command)
    return chosen[0], tuple(chosen[1:])


def named_card(asked: str, cards: Iterable[Card], command: Callable[[str], str]) -> Card:
    """The kept card that `asked` names. Raises as `named_run`."""
    by_id = {card.id: card for card in cards}
    runs = [
        Run(
            card.id, card.series_id, card.name, card.start, card.end, card.scheduler,
            (card.job_id,) if card.job_id else (), (card.job_id or "").partition("_")[0] or None, card.cluster,
            card.namespace, card.pod, card.nodes,
        )
        for card in by_id.values()
    ]  # fmt: skip
    return by_id[named_run(asked, runs, command)[0].id]
