"""Slurm's job table joined to what was observed: names, owners, states and exact times for jobs known by number.

A use of a GPU by job 22 belongs to the run of job 22 that the table has at that time on that node. What was observed
(cgroups, the exporter's label) wins over the table: a job that by the table ran elsewhere, at another time or for
another user keeps its number, and a use that goes on far beyond its run is not cut.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import pandas as pd

from ...agent.base.slurm_job import SlurmJob
from ...agent.inventory.identity.ids import series_id, slurm_parts, workload_id
from ...agent.slurm_jobs.choice import is_of_cluster, job_nodes
from ...agent.store.reading import queries
from ...agent.store.writing.slurm_rows import short_name
from ..core.coded_text import CodedText, coded
from ..core.frame import Frame
from ..core.records import records, text

SLURM = "slurm"
# The prolog runs before a job's first sample and the epilog after its last; a scan or a scrape lies between.
EDGE_SECONDS = 120.0
# A run without an end lasts until the next run of its id.
_OPEN = float("inf")
# No job is requeued so often, and no id used again: a table of more is wrong, or made to cost time.
_MAX_RUNS = 1000
_COLUMNS = {"started": "started_at", "ended": "ended_at", "submitted": "submitted_at", "node_list": "nodes"}
_COUNTS = ("gpus", "cpus", "restarts")
_KEPT = ("partition", "qos", "array_job_id", "array_task_id", "state")
_NUMBERS = frozenset({*queries.USES.numbers, *queries.WORKLOADS.numbers})
_OTHER_CLUSTER = (
    "Jobs of cluster {first} in Slurm's job table not used: the nodes name another cluster. Set slurm.cluster to "
    "Slurm's name of this cluster."
)
_NOT_MATCHED = (
    "Slurm jobs with other nodes, times or users in Slurm's job table than observed, or with several runs there at "
    "once: {jobs} ({first}). They keep their numbers."
)
_HELD_OTHERWISE = (
    "Slurm jobs that held more or fewer GPUs, or longer, than in Slurm's job table: {jobs} ({first}). The observed "
    "GPUs and times are used."
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

    def common(self, start: float, end: float) -> float:
        return min(end, self.end) - max(start, self.job.started)


def job_numbers_of(frame: Frame) -> frozenset[str]:
    """The ids of Slurm's jobs in a frame, as a table may have them: ``22``, and ``22_7`` of an array's task."""
    if frame.workloads.empty:
        return frozenset()
    slurm = frame.workloads[frame.workloads["scheduler"] == SLURM]
    return frozenset(name for row in records(slurm) for name in names_in_row(row))


def numbers_in(job: SlurmJob) -> list[str]:
    """The names of a run: its id, and ``22_7`` where it is an array's task."""
    task = f"{job.array_job_id}_{job.array_task_id}" if job.array_job_id and job.array_task_id else job.job_id
    return [job.job_id] if task == job.job_id else [job.job_id, task]


def names_in_row(row: Mapping[str, object]) -> list[str]:
    """The names of a workload or of a table's run: its id, and ``22_7`` where it is an array's task."""
    job, array, task = (text(row.get(name)) for name in ("job_id", "array_job_id", "array_task_id"))
    return [one for one in (job, f"{array}_{task}" if array and task else None) if one]


def with_jobs(frame: Frame, jobs: Iterable[SlurmJob] = (), *, cluster: str | None = None) -> Frame:
    """The frame with its own job table and these `jobs` joined to its Slurm workloads. `cluster`: Slurm's name of it.

    Joined workloads get the ids that `ids.slurm_parts` makes of the job's id and exact start, on every source.
    """
    own, more = jobs_of(frame.jobs), list(jobs)
    slurm = frame.workloads[frame.workloads["scheduler"] == SLURM] if not frame.workloads.empty else frame.workloads
    if not (own or more) or slurm.empty or frame.uses.empty:
        return frame
    named = frame.nodes["cluster"] if "cluster" in frame.nodes else [None] * len(frame.nodes)
    clusters = {str(node): text(name) or "" for node, name in zip(frame.nodes["node"], named, strict=True)}
    names = {name for name in clusters.values() if name}
    own += [job for job in more if is_of_cluster(job, names, cluster)]
    runs = _runs(own, names)
    # A server's rows are coarser than the scans in a database.
    seconds = frame.source.get("row_seconds")
    edge = max(EDGE_SECONDS, float(seconds) if isinstance(seconds, (int, float)) else 0.0)
    join = _Join(clusters, edge)
    join.other_clusters = {job.cluster or "" for job in more if not is_of_cluster(job, names, cluster)}
    at = frame.uses.groupby("workload_id", sort=False).indices
    joined: set[str] = set()
    for row in records(slurm):
        key = str(row["workload_id"])
        candidates = list({run.job.key: run for one in names_in_row(row) for run in runs.get(one, ())}.values())
        if len(candidates) > _MAX_RUNS:
            join.contradicting.add(str(row.get("job_id")))
        elif candidates and key in at:
            joined.add(key)
            for use in records(frame.uses.iloc[at[key]]):
                join.add(row, use, candidates)
    return replace(
        frame,
        uses=_replaced(frame.uses, joined, join.uses),
        workloads=_replaced(frame.workloads, joined, join.lasting_workloads()),
        serving=_renamed(frame.serving, join.new_ids),
        tokens=_renamed(frame.tokens, join.new_ids),
        notes=(*frame.notes, *join.notes()),
    )


def jobs_of(table: pd.DataFrame) -> list[SlurmJob]:
    """The runs of a frame's job table."""
    jobs = []
    for row in records(table):
        about: dict[str, Any] = {one.name: row.get(_COLUMNS.get(one.name, one.name)) for one in fields(SlurmJob)}
        about = {name: None if pd.isna(value) or value == "" else value for name, value in about.items()}
        about |= {name: int(about[name]) for name in _COUNTS if about[name] is not None}
        if about["job_id"] is not None and about["started"] is not None:
            jobs.append(SlurmJob(**about))
    return jobs


def _runs(jobs: Iterable[SlurmJob], clusters: Collection[str]) -> dict[str, list[_Run]]:
    """The runs by their names, in order of their starts."""
    by_name: dict[str, list[SlurmJob]] = defaultdict(list)
    for job in jobs:
        for name in numbers_in(job):
            by_name[name].append(job)
    found: dict[str, list[_Run]] = {}
    for name, several in by_name.items():
        own = _once(several)
        after = [*(job.started for job in own[1:]), _OPEN]
        found[name] = [
            _Run(
                job, max(begun if job.ended is None else job.ended, job.started + 1.0), job_nodes(job),
                job.cluster if job.cluster in clusters else None,
            )
            for job, begun in zip(own, after, strict=True)
        ]  # fmt: skip
    return found


def _once(jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
    """Each run once, in order of their starts: several tables have the same run, one of them with less."""
    found: list[SlurmJob] = []
    for job in sorted(jobs, key=lambda job: job.started):
        last = found[-1] if found else None
        if last is None or int(last.started) != int(job.started) or not _is_same(last, job):
            found.append(job)
            continue
        newer, older = (job, last) if job.ended is not None else (last, job)
        missing = {f.name: getattr(older, f.name) for f in fields(job) if getattr(newer, f.name) is None}
        found[-1] = replace(newer, **missing)
    return found


def _is_same(job: SlurmJob, other: SlurmJob) -> bool:
    """Whether runs of one id and start are one: of one cluster, and of common nodes, where those are known."""
    nodes, others = job_nodes(job), job_nodes(other)
    is_same_cluster = not job.cluster or not other.cluster or job.cluster == other.cluster
    return is_same_cluster and (nodes is None or others is None or not nodes.isdisjoint(others))


@dataclass
class _Join:
    """Uses and workloads as the join makes them, and the jobs of the table that contradicted them.

    `clusters`: by node; `edge`: seconds by which an observed start or end may be off. `new_ids`: workload -> the runs
    that it became; `contradicting`, `differing`: ids of jobs.
    """

    clusters: Mapping[str, str]
    edge: float
    uses: list[dict[str, Any]] = field(default_factory=list)
    workloads: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, _Run] = field(default_factory=dict)
    new_ids: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    other_clusters: set[str] = field(default_factory=set)
    contradicting: set[str] = field(default_factory=set)
    differing: set[str] = field(default_factory=set)

    def add(self, row: Mapping[str, Any], use: Mapping[str, Any], candidates: Sequence[_Run]) -> None:
        """A use of a workload, cut to the runs that it belongs to."""
        node, start, end = str(use["node"]), float(use["ts_start"]), float(use["ts_end"])
        cluster, user = self.clusters.get(node, ""), text(row.get("user"))
        here = [run for run in candidates if run.is_on(node, cluster) and not _is_another(user, run.job.user)]
        fitting = [run for run in here if run.common(start, end) > 0] or _nearest(here, start, end, self.edge)
        overlap = any(a.end > b.job.started + 1.0 for a, b in pairwise(fitting))
        pieces = [] if overlap else list(_pieces(start, end, fitting, self.edge))
        # A table takes the edges of a use away, and pauses between runs, never most of what was observed.
        is_cut = end - start > 2 * self.edge and sum(b - a for _, a, b in pieces) < (end - start) / 2
        if is_cut or not pieces:
            self.contradicting.add(str(row.get("job_id")))
            self.uses.append(dict(use))
            self.workloads.setdefault(str(row["workload_id"]), dict(row))
            return
        for run, begin, stop in pieces:
            if begin < run.job.started or stop > run.end:
                self.differing.add(run.job.job_id)
            own = self._workload_of(row, run, cluster)
            self.uses.append({**use, "workload_id": own, "ts_start": begin, "ts_end": stop})
            self.new_ids[str(row["workload_id"])].add(own)

    def _workload_of(self, row: Mapping[str, Any], run: _Run, cluster: str) -> str:
        """The id of a run's workload, which is made of the observed one and of the table's job."""
        job = run.job
        number = job.job_id if job.job_id.isdigit() else text(row.get("job_id")) or job.job_id
        own = workload_id(cluster, SLURM, *slurm_parts(number, int(job.started), None))
        self.runs.setdefault(own, run)
        last = max(float(row["last_seen"]), job.started) if run.end == _OPEN else run.end
        if own in self.workloads:
            # The processes of one job may have been observed as several workloads.
            earlier = self.workloads[own]
            for name in ("framework", "command", "image", "team"):
                earlier[name] = text(earlier.get(name)) or row.get(name)
            earlier["last_seen"] = max(earlier["last_seen"], last)
            return own
        name, user, account = job.name or text(row.get("name")) or f"job {number}", job.user, job.account
        about: dict[str, Any] = {
            "name": name, "user": user or text(row.get("user")), "account": account or text(row.get("account")),
            **{one: value for one in _KEPT if (value := getattr(job, one)) is not None},
        }  # fmt: skip
        if job.restarts is not None:
            about["restarts"] = float(job.restarts)
        if job.name or user or account:
            about["series_id"] = series_id(cluster, about["account"], about["user"], name)
        self.workloads[own] = {
            **row, **about, "workload_id": own, "job_id": number, "first_seen": job.started, "last_seen": last
        }  # fmt: skip
        return own

    def lasting_workloads(self) -> list[dict[str, Any]]:
        """The workloads, each at least as long as its uses."""
        for use in self.uses:
            own = self.workloads[str(use["workload_id"])]
            own["first_seen"] = min(float(own["first_seen"]), float(use["ts_start"]))
            own["last_seen"] = max(float(own["last_seen"]), float(use["ts_end"]))
        return list(self.workloads.values())

    def notes(self) -> Iterator[CodedText]:
        for code, jobs, template in (
            ("jobs-of-another-cluster", {repr(name) for name in self.other_clusters}, _OTHER_CLUSTER),
            ("jobs-not-matched", self.contradicting, _NOT_MATCHED),
            ("jobs-held-otherwise", self.differing | self._of_other_gpus(), _HELD_OTHERWISE),
        ):
            if jobs:
                first = sorted(jobs, key=lambda job: (len(job), job))[:3]
                listed = ", ".join(first) + (" ..." if len(jobs) > len(first) else "")
                yield coded(code, template, jobs=len(jobs), first=listed)

    def _of_other_gpus(self) -> set[str]:
        """Jobs that held more GPUs than the table has, or fewer while all their nodes were observed. A cluster that
        does not track GPUs has 0 of every job."""
        held: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for use in self.uses:
            held[str(use["workload_id"])].add((str(use["node"]), str(use["gpu_uuid"])))
        found = set()
        for key, run in self.runs.items():
            gpus, nodes = run.job.gpus, {short_name(node) for node, _ in held[key]}
            all_observed = run.nodes is not None and run.nodes <= nodes
            if gpus and (len(held[key]) > gpus or (len(held[key]) < gpus and all_observed)):
                found.add(run.job.job_id)
        return found


def _pieces(start: float, end: float, runs: Sequence[_Run], edge: float) -> Iterator[tuple[_Run, float, float]]:
    """The parts of a use by run: begin and end. The table's edges are exact where the use's are near them."""
    for n, run in enumerate(runs):
        begin = run.job.started if n or abs(run.job.started - start) <= edge else start
        if n + 1 < len(runs):
            # A use that went on after its run, while the next was not there yet, is the earlier's.
            following = runs[n + 1].job.started
            stop = run.end if following - run.end <= edge else following
        else:
            stop = run.end if abs(run.end - end) <= edge else end
        if stop > begin:
            yield run, begin, stop


def _nearest(runs: Sequence[_Run], start: float, end: float, edge: float) -> list[_Run]:
    """The run beside which a short use stands, no farther than edges are known: it is placed anywhere in its row."""
    near = max(runs, key=lambda run: run.common(start, end), default=None)
    return [near] if near is not None and near.common(start, end) > -edge and end - start <= edge else []


def _is_another(observed: str | None, user: str | None) -> bool:
    """Whether two names are certainly of two users: not a number, nor root of a container; realms differ."""
    if not observed or not user or observed.isdecimal() or user.isdecimal() or observed == "root":
        return False
    name, other = (one.rpartition("\\")[2].partition("@")[0].casefold() for one in (observed, user))
    return name != other


def _replaced(table: pd.DataFrame, joined: Collection[str], rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """A table with the rows of the `joined` workloads replaced; workloads gain the column `state`."""
    if not joined:
        return table
    columns = list(dict.fromkeys([*table.columns, *(["state"] if "job_id" in table else [])]))
    parts = (table[~table["workload_id"].isin(joined)].reindex(columns=columns), pd.DataFrame(rows, columns=columns))
    both = pd.concat([part.astype(object) for part in parts], ignore_index=True)
    both = both.where(both.notna(), None)
    return both.astype({name: float for name in columns if name in _NUMBERS})


def _renamed(serving: pd.DataFrame, new_ids: Mapping[str, Collection[str]]) -> pd.DataFrame:
    """A table of inference servers with the new ids; of a workload that became several runs it is of none."""
    if serving.empty:
        return serving
    new = {old: next(iter(ids)) for old, ids in new_ids.items() if len(ids) == 1}
    return serving.assign(workload_id=serving["workload_id"].map(lambda old: new.get(str(old), old)))
