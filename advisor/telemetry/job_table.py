"""Slurm's job table joined to what was observed: names, owners, states and exact times for jobs known by number.

A use of a GPU by job 22 belongs to the run of job 22 that the table has at that time on that node. What was observed
(cgroups, the exporter's label) wins over the table: a job that by the table ran elsewhere or at another time keeps its
number, and a use that goes on far beyond its run is not cut.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import pandas as pd

from ...agent.jobs.ids import series_id, slurm_parts, workload_id
from ...agent.model import SlurmJob
from ...agent.slurm_jobs.read_jobs import is_of_cluster, job_nodes
from ...agent.store.slurm_rows import short_name
from ..core.coded_text import coded
from ..core.frame import Frame
from ..core.scalars import Record, records, text
from . import queries

SLURM = "slurm"
# The prolog runs before a job's first sample and the epilog after its last; a scan or a scrape lies between.
EDGE_SECONDS = 120.0
_IDS = ("job_id", "array_job_id", "array_task_id")
_NUMBERS = frozenset({*queries.USES.numbers, *queries.WORKLOADS.numbers})
_OTHER_CLUSTER = (
    "Jobs of cluster {first} in Slurm's job table not used: the nodes name another cluster. Set slurm.cluster to "
    "Slurm's name of this cluster."
)
_NOT_MATCHED = (
    "Slurm jobs with other nodes or times in Slurm's job table than observed, or with several runs there at once: "
    "{jobs} ({first}). They keep their numbers."
)


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of the table. `end`: inf where unknown; `nodes`, `cluster`: None where unknown."""

    job: SlurmJob
    end: float
    nodes: frozenset[str] | None
    cluster: str | None

    def is_on(self, node: str, cluster: str) -> bool:
        is_other = self.cluster is not None and cluster and cluster != self.cluster
        return not is_other and (self.nodes is None or short_name(node) in self.nodes)


def job_names(job: SlurmJob | Mapping[str, object]) -> list[str]:
    """What a run, a workload or a row of the job table may be called by: its id, and ``22_7`` of an array's task."""
    row = job if isinstance(job, Mapping) else {name: getattr(job, name) for name in _IDS}
    job_id, array, task = (text(row.get(name)) for name in _IDS)
    return list(dict.fromkeys(filter(None, (job_id, f"{array}_{task}" if array and task else None))))


def slurm_rows(frame: Frame) -> list[Record]:
    return [row for row in records(frame.workloads) if row["scheduler"] == SLURM]


def with_jobs(frame: Frame, jobs: Collection[SlurmJob] = (), *, cluster: str | None = None) -> Frame:
    """The frame with its own job table and these `jobs` joined to its Slurm workloads, which get ids of the job's id
    and exact start. `cluster`: Slurm's name of it."""
    columns = [field.name for field in fields(SlurmJob)]
    listed = frame.jobs.reindex(columns=columns).dropna(subset=["job_id", "started_at"])
    cells = listed.astype(object).where(listed.notna() & (listed != ""), None)
    chosen, slurm = [SlurmJob(**row) for row in records(cells)], slurm_rows(frame)
    if not (chosen or jobs) or not slurm or frame.uses.empty:
        return frame
    clusters = {str(row["node"]): text(row["cluster"]) or "" for row in records(frame.nodes)}
    names = set(filter(None, clusters.values()))
    chosen += [job for job in jobs if is_of_cluster(job.cluster, names, cluster)]
    others = {repr(job.cluster or "") for job in jobs if not is_of_cluster(job.cluster, names, cluster)}
    runs = _runs(chosen, names)
    seconds = frame.source.get("row_seconds")  # of a server, coarser than the scans in a database
    edge = max(EDGE_SECONDS, seconds) if isinstance(seconds, (int, float)) else EDGE_SECONDS
    at = frame.uses.groupby("workload_id", sort=False).indices
    uses: list[Record] = []
    workloads: list[Record] = []
    new_ids: dict[str, set[str]] = defaultdict(set)
    contradicting: set[str] = set()
    for row in slurm:
        key = str(row["workload_id"])
        candidates = list({run.job.key: run for job_name in job_names(row) for run in runs.get(job_name, ())}.values())
        for use in records(frame.uses.iloc[at[key]]) if candidates and key in at else ():
            its_cluster = clusters.get(str(use["node"]), "")
            pieces = _pieces(use, [run for run in candidates if run.is_on(str(use["node"]), its_cluster)], edge)
            if not pieces:
                contradicting.add(str(row["job_id"]))
            for run, start, end in pieces or [(None, use["ts_start"], use["ts_end"])]:
                made = row if run is None else _made(row, run, its_cluster)
                first, last = min(made["first_seen"], start), max(made["last_seen"], end)
                workloads.append({**made, "first_seen": first, "last_seen": last})
                uses.append({**use, "workload_id": made["workload_id"], "ts_start": start, "ts_end": end})
                new_ids[key].add(made["workload_id"])
    notes = list(frame.notes)
    for code, template, named in (
        ("jobs-of-another-cluster", _OTHER_CLUSTER, others), ("jobs-not-matched", _NOT_MATCHED, contradicting)
    ):  # fmt: skip
        if named:
            first = ", ".join(sorted(named)[:3]) + (" ..." if len(named) > 3 else "")
            notes.append(coded(code, template, jobs=len(named), first=first))
    frame = replace(frame, notes=tuple(notes))
    if not new_ids:
        return frame
    made = pd.DataFrame(workloads, columns=list(dict.fromkeys([*frame.workloads.columns, "state"]))).astype(object)
    # The processes of one job may have been observed as several workloads: the report of any of them counts.
    how = dict.fromkeys(made.columns, "first") | {"first_seen": "min", "last_seen": "max"}
    made = made.groupby("workload_id", sort=False, as_index=False).agg(how)
    # An inference server whose workload became several runs is of none of them.
    new = {old: next(iter(ids)) for old, ids in new_ids.items() if len(ids) == 1}
    serving, tokens = (
        table.assign(workload_id=table["workload_id"].map(lambda old: new.get(str(old), old))) if len(table) else table
        for table in (frame.serving, frame.tokens)
    )
    return replace(
        frame, uses=_replaced(frame.uses, new_ids, pd.DataFrame(uses)), serving=serving, tokens=tokens,
        workloads=_replaced(frame.workloads, new_ids, made),
    )  # fmt: skip


def _runs(jobs: Iterable[SlurmJob], clusters: Collection[str]) -> dict[str, list[_Run]]:
    """The runs by their names, in order of their starts; one without an end lasts until the next of its name."""
    by_name: dict[str, list[SlurmJob]] = defaultdict(list)
    for job in sorted(jobs, key=lambda job: (int(job.started_at), job.ended_at is None)):
        for name in job_names(job):
            same = by_name[name]
            is_other_cluster = same and same[-1].cluster and job.cluster and same[-1].cluster != job.cluster
            # Tables may have the same run.
            if is_other_cluster or not same or int(same[-1].started_at) != int(job.started_at):
                same.append(job)
    runs: dict[str, list[_Run]] = defaultdict(list)
    for name, same in by_name.items():
        for job, following in zip(same, [*(job.started_at for job in same[1:]), float("inf")], strict=True):
            end = max(following if job.ended_at is None else job.ended_at, job.started_at + 1.0)
            runs[name].append(_Run(job, end, job_nodes(job), job.cluster if job.cluster in clusters else None))
    return runs


def _made(row: Mapping[str, Any], run: _Run, cluster: str) -> dict[str, Any]:
    """The workload of a run: the observed one with what the table has of the job."""
    job = run.job
    number = job.job_id if job.job_id.isdigit() else text(row.get("job_id")) or job.job_id
    names = {*row, "state"} & {field.name for field in fields(job)}
    made = {**row, **{name: value for name in names if (value := getattr(job, name)) is not None}}
    made["name"] = text(made.get("name")) or f"job {number}"
    if job.name or job.user or job.account:
        made["series_id"] = series_id(cluster, text(made.get("account")), text(made.get("user")), made["name"])
    return made | {
        "workload_id": workload_id(cluster, SLURM, *slurm_parts(number, int(job.started_at), None)),
        "job_id": number, "first_seen": job.started_at,
        "last_seen": max(float(row["last_seen"]), job.started_at) if run.end == float("inf") else run.end,
    }  # fmt: skip


def _pieces(use: Record, here: Sequence[_Run], edge: float) -> list[tuple[_Run | None, float, float]]:
    """The parts of a use and which of the runs on its node they belong to; empty where the table contradicts it."""
    start, end = float(use["ts_start"]), float(use["ts_end"])
    common = [min(end, run.end) - max(start, run.job.started_at) for run in here]
    fitting = [run for run, seconds in zip(here, common, strict=True) if seconds > 0]
    if not fitting and end - start <= edge and max(common, default=-edge) > -edge:
        fitting = [here[common.index(max(common))]]  # a short use may stand anywhere in its row
    if any(a.end > b.job.started_at + 1.0 for a, b in pairwise(fitting)):
        return []
    pieces: list[tuple[_Run | None, float, float]] = []
    for n, run in enumerate(fitting):
        # The table's edges are exact where the use's are near them.
        begin = run.job.started_at if n or abs(run.job.started_at - start) <= edge else start
        stop = run.end if abs(run.end - end) <= edge else end
        if n + 1 < len(fitting):
            following = fitting[n + 1].job.started_at
            stop = run.end if following - run.end <= edge else following
        if stop > begin:
            pieces.append((run, begin, stop))
    # A table takes the edges of a use away, and pauses between runs, never most of what was observed.
    is_cut = end - start > 2 * edge and sum(b - a for _, a, b in pieces) < (end - start) / 2
    return [] if is_cut else pieces


def _replaced(table: pd.DataFrame, joined: Collection[str], rows: pd.DataFrame) -> pd.DataFrame:
    kept = table[~table["workload_id"].isin(set(joined))].reindex(columns=rows.columns)
    both = pd.concat([kept.astype(object), rows.astype(object)], ignore_index=True)
    return both.where(both.notna(), None).astype({name: float for name in rows.columns if name in _NUMBERS})
