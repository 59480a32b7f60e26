"""Who holds which GPUs now, from the tables of node databases, with what Slurm's job table tells of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ....agent.store.reading import queries
from ....rules.policy.kind_priors import KindPriors
from ...core.frame import Frame, Window
from ...core.recent import Hold
from ...core.records import Record, records, text
from ...core.verdict_types import Owner
from ..job_table import with_jobs
from .columns import Columns
from .holders import HolderFacts, holder_of

JoinJobs = Callable[[Frame], Frame]
# Holders are listed every 10 s, and written within 10 s more.
_HELD_SECONDS = 180.0
# Uses of one workload this close together are one: a scan or a scrape lies between.
_APART_SECONDS = 300.0


@dataclass(frozen=True)
class TableRows:
    """The tables of a file, and the nodes that it speaks for."""

    tables: Mapping[str, Columns]
    nodes: frozenset[str]


def holds_of(  # noqa: PLR0917 - tables, places, times and rules
    files: Sequence[TableRows],
    gpus: Mapping[tuple[str, str], int],
    last_seen: Mapping[str, float | None],
    priors: KindPriors,
    end: float,
    join_jobs: JoinJobs,
) -> tuple[Hold, ...]:
    """The workloads that held GPUs when their nodes were last heard of, by id. `gpus`: places of GPUs by node and id;
    `last_seen`: of each node."""
    engines = {
        name for one in files for table in (one.tables.get("engines_fine"),) if table is not None
        for name in table.texts["workload_id"]
    }  # fmt: skip
    frame = join_jobs(with_jobs(_frame(files, end)))
    return holds_of_frame(frame, gpus, last_seen, priors, end=end, engines=engines)


def holds_of_frame(
    frame: Frame,
    gpus: Mapping[tuple[str, str], int],
    last_seen: Mapping[str, float | None],
    priors: KindPriors,
    *,
    end: float,
    engines: Collection[str],
    held_seconds: float = _HELD_SECONDS,
    cut_at: float = -math.inf,
) -> tuple[Hold, ...]:
    """The same of a frame's tables `uses` and `workloads`. `engines`: workloads of which an inference engine's metrics
    are read; `held_seconds`: how long before its node was last heard of a hold may end and count as one of now;
    `cut_at`: where the uses are cut (what begins there began at an unknown time before)."""
    uses, workloads = frame.uses, frame.workloads
    if uses.empty or workloads.empty:
        return ()
    current = [
        row for row in records(uses)
        if float(row["ts_end"]) >= (last_seen.get(str(row["node"])) or end) - held_seconds
    ]  # fmt: skip
    about = {str(row["workload_id"]): row for row in records(workloads)}
    held: dict[str, list[Record]] = {}
    for row in current:
        if str(row["workload_id"]) in about:
            held.setdefault(str(row["workload_id"]), []).append(row)
    every: dict[str, list[tuple[float, float]]] = {}
    for row in records(uses):
        every.setdefault(str(row["workload_id"]), []).append((float(row["ts_start"]), float(row["ts_end"])))
    sharers: dict[tuple[str, str], set[str]] = {}
    for key, rows in held.items():
        for row in rows:
            sharers.setdefault((str(row["node"]), str(row["gpu_uuid"])), set()).add(key)
    found = []
    for key, rows in sorted(held.items()):
        keys = {(str(row["node"]), str(row["gpu_uuid"])) for row in rows}
        places = tuple(sorted(gpus[one] for one in keys if one in gpus))
        if places:
            shared = any(len(sharers[one]) > 1 for one in keys)
            since = _since(about[key], every[key], cut_at)
            found.append(_hold(about[key], rows, places, priors, since=since, shared=shared, engine=key in engines))
    return tuple(found)


def _hold(
    row: Record, rows: Sequence[Record], places: tuple[int, ...], priors: KindPriors, *, since: float, shared: bool,
    engine: bool,
) -> Hold:  # fmt: skip
    bases = {str(one["basis"]) for one in rows}
    basis = "allocation" if "allocation" in bases else "process" if "process" in bases else "activity"
    facts = HolderFacts(
        scheduler=text(row["scheduler"]) or "process", name=text(row["name"]) or "", command=text(row["command"]),
        framework=text(row["framework"]), image=text(row.get("image")), owner_kind=text(row.get("controller_kind")),
        partition=text(row.get("partition")), namespace=text(row["namespace"]), pod=text(row["pod"]), engine=engine,
    )  # fmt: skip
    return Hold(
        workload_id=str(row["workload_id"]), series_id=text(row["series_id"]) or str(row["workload_id"]),
        name=text(row["name"]) or str(row["workload_id"]), holder=holder_of(facts, priors),
        owner=Owner(
            team=text(row.get("team")), user=text(row["user"]), account=text(row["account"]),
            namespace=text(row["namespace"]),
        ),
        gpus=places, since=since, basis=basis, shared=shared, engine=engine,
        scheduler=facts.scheduler, job_id=text(row["job_id"]), namespace=text(row["namespace"]), pod=text(row["pod"]),
    )  # fmt: skip


def _since(row: Record, spans: Sequence[tuple[float, float]], cut_at: float) -> float:
    """Since when a workload holds what it holds now: a job that was requeued began again."""
    begin = math.inf
    for start, end in sorted(spans, key=lambda span: -span[1]):
        if begin < math.inf and end < begin - _APART_SECONDS:
            break
        begin = min(begin, start)
    first = float(row["first_seen"]) if pd.notna(row["first_seen"]) else begin
    return min(first, begin) if begin <= cut_at + _APART_SECONDS else begin


def _frame(files: Sequence[TableRows], end: float) -> Frame:
    """What the job table is joined to: the tables of all files, of the nodes that each speaks for."""
    tables: dict[str, list[pd.DataFrame]] = {}
    for one in files:
        for name in ("nodes", "uses", "workloads", "jobs"):
            if name in one.tables and one.tables[name].count:
                table = one.tables[name].table()
                if name in ("nodes", "uses"):
                    table = table[table["node"].isin(one.nodes)]
                tables.setdefault(name, []).append(table)

    def stacked(name: str, columns: Sequence[str]) -> pd.DataFrame:
        parts = [part for part in tables.get(name, []) if not part.empty]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(columns))

    uses = stacked("uses", queries.USES.columns)
    # One workload as several nodes tell of it: the one that knows most of it speaks.
    workloads = stacked("workloads", queries.WORKLOADS.columns)
    if not workloads.empty:
        known = workloads[["name", "user", "job_id", "controller_kind", "image"]].notna().sum(axis=1)
        first = workloads.groupby("workload_id")["first_seen"].transform("min")
        workloads = (
            workloads.assign(first_seen=first, known=known).sort_values("known", kind="stable", ascending=False)
            .drop_duplicates("workload_id").drop(columns="known").reset_index(drop=True)
        )  # fmt: skip
    begin = float(np.nanmin(uses["ts_start"])) if len(uses) else end - 1.0
    empty = pd.DataFrame()
    return Frame(
        window=Window(min(begin, end - 1.0), end), nodes=stacked("nodes", queries.NODES.columns), gpus=empty, gpu=empty,
        fabric=empty, host=empty, workloads=workloads, uses=uses, absences=empty, source={},
        jobs=stacked("jobs", queries.SLURM_JOBS.columns),
    )  # fmt: skip
