"""Slurm's job table joined to what was observed: names, owners, states and exact times for jobs known by number.

One road's work becomes runs: a use of a GPU by job 22 belongs to the run of job 22 that the table says was then and
there. What was observed (cgroups, the exporter's label) wins over the table: a job that by the table ran elsewhere or
at another time keeps its number, and a use that goes on far beyond its run is not cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

import pandas as pd

from ...agent.base.slurm_job import SlurmJob
from ...agent.inventory.identity.ids import series_id, slurm_parts, workload_id
from ...agent.slurm_jobs.choice import is_of_cluster, job_nodes
from ...agent.store.writing.slurm_rows import short_name
from ..core.coded_text import CodedText, coded
from ..core.frame import Frame
from ..core.records import records, text
from ..core.scalars import known

SLURM = "slurm"
# The prolog runs before a job's first sample and the epilog after its last; a scan or a scrape lies between.
EDGE_SECONDS = 120.0
_NUMBERS = frozenset({"ts_start", "ts_end", "shared", "mem_used_bytes", "first_seen", "last_seen", "restarts"})
# A run whose end is not told goes on until the next run of its id.
_OPEN = float("inf")
# No job is requeued so often, and no id used again; a table that says so is wrong, or made to cost time.
_MOST_RUNS = 1000


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of the table. `end`: inf where it is not told. `nodes`: None where not told. `cluster`: None where it is
    not told, or no node is of a cluster of this name."""

    job: SlurmJob
    end: float
    nodes: frozenset[str] | None
    cluster: str | None

    def is_on(self, node: str, cluster: str) -> bool:
        if self.cluster is not None and cluster and cluster != self.cluster:
            return False
        return self.nodes is None or short_name(node) in self.nodes

    def common(self, start: float, end: float) -> float:
        return min(end, self.end) - max(start, self.job.started)


@dataclass
class _Joined:
    """What the join makes of the uses, and what of the table contradicted them."""

    uses: list[dict[str, Any]] = field(default_factory=list)
    workloads: dict[str, dict[str, Any]] = field(default_factory=dict)
    renamed: dict[str, set[str]] = field(default_factory=dict)
    runs: dict[str, _Run] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)  # jobs of the table that ran on other nodes or at other times
    longer: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)  # jobs that were observed to be another user's
    other_cluster: set[str] = field(default_factory=set)


def job_numbers_of(frame: Frame) -> frozenset[str]:
    """The ids of Slurm's jobs in a frame, as a table may have them: ``22``, and ``22_7`` of an array's task."""
    if frame.workloads.empty:
        return frozenset()
    found: set[str] = set()
    for row in records(frame.workloads[frame.workloads["scheduler"] == SLURM]):
        found.update(names_in_row(row))
    return frozenset(found)


def numbers_in(job: SlurmJob) -> list[str]:
    """What a run may be called by what observed it: its id, and ``22_7`` where it is an array's task."""
    task = f"{job.array_job_id}_{job.array_task_id}" if job.array_job_id and job.array_task_id else job.job_id
    return [job.job_id] if task == job.job_id else [job.job_id, task]


def names_in_row(row: Mapping[str, object]) -> list[str]:
    """What a workload or a run of a table may be called: its id, and ``22_7`` where it is an array's task."""
    job, array, task = (text(row.get(name)) for name in ("job_id", "array_job_id", "array_task_id"))
    return [one for one in (job, f"{array}_{task}" if array and task else None) if one]


def with_jobs(frame: Frame, jobs: Iterable[SlurmJob] = (), *, cluster: str | None = None) -> Frame:
    """The frame with its own job table and these `jobs` joined to its Slurm workloads. `cluster`: Slurm's name of it.

    Workloads that are joined get the ids that `ids.slurm_parts` makes of the job's id and exact start, on every road.
    """
    own, more = jobs_of(frame.jobs), list(jobs)
    slurm = frame.workloads[frame.workloads["scheduler"] == SLURM] if not frame.workloads.empty else frame.workloads
    if not (own or more) or slurm.empty or frame.uses.empty:
        return frame
    clusters = {str(node): text(name) or "" for node, name in zip(frame.nodes["node"], _clusters(frame), strict=True)}
    joined = _Joined()
    names = {name for name in clusters.values() if name}
    for job in more:
        if is_of_cluster(job, names, cluster):
            own.append(job)
        else:
            joined.other_cluster.add(job.cluster or "")
    runs = _runs(own, names)
    at = frame.uses.groupby("workload_id", sort=False).indices
    touched: set[str] = set()
    edge = max(EDGE_SECONDS, _row_seconds(frame))
    for row in records(slurm):
        key = str(row["workload_id"])
        candidates = list({run.job.key: run for one in names_in_row(row) for run in runs.get(one, ())}.values())
        if not candidates or key not in at:
            continue
        if len(candidates) > _MOST_RUNS:
            joined.doubtful.add(str(row.get("job_id")))
            continue
        touched.add(key)
        _join(row, records(frame.uses.iloc[at[key]]), candidates, clusters, edge, joined)
    if not touched:
        return replace(frame, notes=(*frame.notes, *_notes(joined)))
    _widen(joined)
    return replace(
        frame,
        uses=_again(frame.uses, "workload_id", touched, joined.uses),
        workloads=_again(frame.workloads, "workload_id", touched, list(joined.workloads.values())),
        serving=_renamed(frame.serving, joined),
        tokens=_renamed(frame.tokens, joined),
        source={**frame.source, "slurm_runs": len(joined.runs)} if joined.runs else frame.source,
        notes=(*frame.notes, *_notes(joined)),
    )


def jobs_of(table: pd.DataFrame) -> list[SlurmJob]:
    """The runs of a frame's job table."""
    jobs = []
    for row in records(table):
        job_id, started = text(row.get("job_id")), _number(row.get("started_at"))
        if not job_id or started is None:
            continue
        texts = {name: text(row.get(name)) for name in _TEXTS}
        counts = {name: None if (n := _number(row.get(name))) is None else int(n) for name in _COUNTS}
        times = {name: _number(row.get(f"{name}_at")) for name in ("ended", "submitted")}
        about: dict[str, Any] = {**texts, **counts, **times}
        size, nodes = _number(row.get("mem_bytes")), text(row.get("nodes"))
        jobs.append(SlurmJob(job_id, started, node_list=nodes, mem_bytes=size, **about))
    return jobs


_TEXTS = ("cluster", "name", "user", "account", "partition", "qos", "array_job_id", "array_task_id", "state")
_COUNTS = ("gpus", "cpus", "restarts")


def _number(value: object) -> float | None:
    return known(float(value)) if isinstance(value, (int, float)) else None


def _clusters(frame: Frame) -> Sequence[object]:
    return list(frame.nodes["cluster"]) if "cluster" in frame.nodes else [None] * len(frame.nodes)


def _row_seconds(frame: Frame) -> float:
    """How coarse the uses' edges are: a server's rows; a database keeps each scan."""
    seconds = frame.source.get("row_seconds")
    return float(seconds) if isinstance(seconds, (int, float)) else 0.0


def _runs(jobs: Iterable[SlurmJob], clusters: set[str]) -> dict[str, tuple[_Run, ...]]:
    """The runs by what they may be called, in order of their starts. The jobs are of these nodes' clusters: those of a
    database were chosen when they were imported."""
    by_id: dict[str, list[SlurmJob]] = {}
    for job in jobs:
        for number in numbers_in(job):
            by_id.setdefault(number, []).append(job)
    found: dict[str, tuple[_Run, ...]] = {}
    for number, several in by_id.items():
        own = _once(several)
        # A run whose end is not told was over when the next one of its id began.
        after = [*(job.started for job in own[1:]), _OPEN]
        ends = [job.ended if job.ended is not None else begun for job, begun in zip(own, after, strict=True)]
        found[number] = tuple(
            _Run(job, max(end, job.started + 1.0), job_nodes(job), job.cluster if job.cluster in clusters else None)
            for job, end in zip(own, ends, strict=True)
        )
    return found


def _once(jobs: list[SlurmJob]) -> list[SlurmJob]:
    """Each run once, in order of their starts: two tables may tell the same, one of them less."""
    found: list[SlurmJob] = []
    for job in sorted(jobs, key=lambda job: job.started):
        last = found[-1] if found else None
        if last is not None and int(last.started) == int(job.started) and _agree(last, job):
            told = {f.name: getattr(job, f.name) for f in fields(job) if getattr(last, f.name) is None}
            if job.ended is not None and job.ended != last.ended:
                told |= {"ended": job.ended, "state": job.state or last.state}
            found[-1] = replace(last, **told)
        else:
            found.append(job)
    return found


def _agree(one: SlurmJob, other: SlurmJob) -> bool:
    if one.cluster and other.cluster and one.cluster != other.cluster:
        return False
    nodes = job_nodes(one), job_nodes(other)
    return nodes[0] is None or nodes[1] is None or not nodes[0].isdisjoint(nodes[1])


def _join(  # noqa: PLR0917
    row: Mapping[str, Any], uses: Iterable[Mapping[str, Any]], runs: Sequence[_Run], clusters: Mapping[str, str],
    edge: float, joined: _Joined,
) -> None:  # fmt: skip
    """The uses of one workload, cut to the runs that they belong to."""
    old = str(row["workload_id"])
    for use in uses:
        node, start, end = str(use["node"]), float(use["ts_start"]), float(use["ts_end"])
        there = [run for run in runs if run.is_on(node, clusters.get(node, ""))]
        here = [run for run in there if not _is_others(text(row.get("user")), run.job.user)]
        fits = [run for run in here if run.common(start, end) > 0] or _nearest(here, start, end, edge)
        if len(fits) > 1 and any(a.end > b.job.started + 1.0 for a, b in pairwise(fits)):
            joined.doubtful.add(str(row.get("job_id")))
            fits = []
        elif not fits:
            (joined.others if len(here) < len(there) else joined.elsewhere).add(str(row.get("job_id")))
        pieces = list(_pieces(start, end, fits, edge))
        # A table takes the edges of a use away, and pauses between runs, never most of what was observed.
        if fits and end - start > 2 * edge and sum(stop - begin for _, begin, stop in pieces) < (end - start) / 2:
            joined.doubtful.add(str(row.get("job_id")))
            fits = []
        if not fits:
            joined.uses.append(dict(use))
            joined.workloads.setdefault(old, dict(row))
            continue
        for run, begin, stop in pieces:
            if begin < run.job.started or stop > run.end:
                joined.longer.add(run.job.job_id)
            own = _named(row, run, clusters.get(node, ""), joined)
            joined.uses.append({**use, "workload_id": own, "ts_start": begin, "ts_end": stop})
            joined.renamed.setdefault(old, set()).add(own)


def _pieces(start: float, end: float, fits: Sequence[_Run], edge: float) -> Iterator[tuple[_Run, float, float]]:
    """What of a use is of which run: begin and end."""
    for n, run in enumerate(fits):
        first, last = n == 0, n == len(fits) - 1
        begin = _edge(start, run.job.started, edge if first else _OPEN)
        stop = _edge(end, run.end, edge)
        if not last:
            # A use that went on after its run, while the next was not there yet, is still the earlier's.
            stop = run.end if fits[n + 1].job.started - run.end <= edge else fits[n + 1].job.started
        if stop > begin:
            yield run, begin, stop


def _is_others(observed: str | None, told: str | None) -> bool:
    """Whether two names are certainly of two users. A number, or root of a container, says nothing; realms differ."""
    if not observed or not told or observed.isdecimal() or told.isdecimal() or observed == "root":
        return False
    one, other = (name.rpartition("\\")[2].partition("@")[0].casefold() for name in (observed, told))
    return one != other


def _nearest(runs: Sequence[_Run], start: float, end: float, edge: float) -> list[_Run]:
    """The run that a use stands beside, no farther than edges are known: a short use is placed anywhere in its row."""
    near = max(runs, key=lambda run: run.common(start, end), default=None)
    is_near = near is not None and near.common(start, end) > -edge and end - start <= edge
    return [near] if near is not None and is_near else []


def _edge(seen: float, told: float, slack: float) -> float:
    """An edge of a use where the table tells one too: the table's, where the two are `slack` apart at most."""
    return told if told != _OPEN and abs(told - seen) <= slack else seen


def _named(row: Mapping[str, Any], run: _Run, cluster: str, joined: _Joined) -> str:
    """The workload of a run, made of what was known and of what the table tells; gives its id."""
    job = run.job
    raw = job.job_id if job.job_id.isdigit() else text(row.get("job_id")) or job.job_id
    own = workload_id(cluster, SLURM, *slurm_parts(raw, int(job.started), None))
    joined.runs.setdefault(own, run)
    before = joined.workloads.get(own)
    if before is not None:
        for name in ("framework", "command", "image", "team"):
            if text(before.get(name)) is None:
                before[name] = row.get(name)
        before["last_seen"] = _last(run, max(before["last_seen"], float(row["last_seen"])))
        return own
    told: dict[str, Any] = {
        "name": job.name or text(row.get("name")) or f"job {raw}", "user": job.user or text(row.get("user")),
        "account": job.account or text(row.get("account")),
    }  # fmt: skip
    kept = ("partition", "qos", "array_job_id", "array_task_id", "state")
    told |= {name: value for name in kept if (value := getattr(job, name)) is not None}
    if job.restarts is not None:
        told["restarts"] = float(job.restarts)
    if job.name or job.user or job.account:
        told["series_id"] = series_id(cluster, told["account"], told["user"], told["name"])
    joined.workloads[own] = {
        **row, **told, "workload_id": own, "job_id": raw, "first_seen": job.started,
        "last_seen": _last(run, float(row["last_seen"])),
    }  # fmt: skip
    return own


def _last(run: _Run, seen: float) -> float:
    return run.end if run.end != _OPEN else max(seen, run.job.started)


def _widen(joined: _Joined) -> None:
    """A workload lasts as long as its uses, where they go beyond what the table tells."""
    for use in joined.uses:
        own = joined.workloads[str(use["workload_id"])]
        own["first_seen"] = min(float(own["first_seen"]), float(use["ts_start"]))
        own["last_seen"] = max(float(own["last_seen"]), float(use["ts_end"]))


def _again(table: pd.DataFrame, key: str, touched: set[str], rows: list[dict[str, Any]]) -> pd.DataFrame:
    """A table with the rows of `touched` replaced; workloads gain the column `state`."""
    columns = list(dict.fromkeys([*table.columns, *(["state"] if "job_id" in table else [])]))
    kept = table[~table[key].isin(touched)].reindex(columns=columns)
    made = pd.DataFrame(rows).reindex(columns=columns)
    both = pd.concat([_typed(part) for part in (kept, made) if not part.empty], ignore_index=True)
    return both if len(both) else table


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    """Numbers as floats, all else as objects with None for what is missing."""
    return pd.DataFrame(
        {
            name: column.astype(float) if name in _NUMBERS else column.astype(object).where(column.notna(), None)
            for name, column in table.items()
        }
    )


def _renamed(serving: pd.DataFrame, joined: _Joined) -> pd.DataFrame:
    """What inference servers told, under the new ids; of a workload that became several runs it is nobody's."""
    if serving.empty:
        return serving
    new = {old: next(iter(own)) if len(own) == 1 else old for old, own in joined.renamed.items()}
    return serving.assign(workload_id=serving["workload_id"].map(lambda old: new.get(str(old), old)))


def _notes(joined: _Joined) -> tuple[CodedText, ...]:
    said: list[CodedText] = []
    if joined.other_cluster:
        names = ", ".join(repr(name) for name in sorted(joined.other_cluster)[:3])
        said.append(
            coded(
                "jobs-of-another-cluster",
                "Jobs of cluster {clusters} in Slurm's job table not used: the nodes name another "
                "cluster. Set slurm.cluster to Slurm's name of this cluster.",
                clusters=names,
            )
        )
    fewer, more = _counts(joined)
    by_table, kept = "in Slurm's job table", "; they keep their numbers"
    held = "GPUs than in Slurm's job table; the observed GPUs are used"
    for code, jobs, what in (
        ("jobs-ran-elsewhere", joined.elsewhere, f"ran on other nodes or at other times {by_table}{kept}"),
        ("jobs-with-several-runs", joined.doubtful, f"have several runs at the same time in Slurm's job table{kept}"),
        ("jobs-of-another-user", joined.others, f"have another user {by_table} than the one observed{kept}"),
        (
            "jobs-held-longer", joined.longer,
            "held GPUs outside their times in Slurm's job table; the observed times are used",
        ),
        ("jobs-held-more-gpus", more, f"held more {held}"),
        ("jobs-held-fewer-gpus", fewer, f"held fewer {held}"),
    ):  # fmt: skip
        if jobs:
            listed = sorted(jobs, key=lambda job: (len(job), job))
            some = ", ".join(listed[:3]) + (" ..." if len(listed) > 3 else "")
            count = "1 Slurm job" if len(jobs) == 1 else f"{len(jobs)} Slurm jobs"
            said.append(CodedText(code, f"{count} {what} ({some}).", {"jobs": len(jobs)}))
    return tuple(said)


def _counts(joined: _Joined) -> tuple[set[str], set[str]]:
    """Jobs that held fewer, and more, GPUs than the table says. Fewer only counts where every node is observed."""
    held: dict[str, set[tuple[str, str]]] = {}
    nodes: dict[str, set[str]] = {}
    for use in joined.uses:
        key = str(use["workload_id"])
        if key in joined.runs:
            held.setdefault(key, set()).add((str(use["node"]), str(use["gpu_uuid"])))
            nodes.setdefault(key, set()).add(short_name(str(use["node"])))
    fewer, more = set(), set()
    for key, gpus in held.items():
        run = joined.runs[key]
        if run.job.gpus is None:
            continue
        if len(gpus) > run.job.gpus:
            more.add(run.job.job_id)
        elif len(gpus) < run.job.gpus and run.nodes is not None and run.nodes <= nodes[key]:
            fewer.add(run.job.job_id)
    return fewer, more
