"""Who held GPUs, as several files tell it: whether copies agree, and who is believed about a workload.

A job on many nodes is told of by the file of each. What they say of it must fit: a file that gives it another name or
owner than the others speaks of something else, which becomes a workload of its own on the nodes of that file. So nobody
can rename or take over the work of other nodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from ....agent.store.reading import queries
from ...core.coded_text import CodedText
from ...core.formatting import counted, listed
from ..job_table import names_in_row
from .copies import Copy

# Edges of a use blur by some scans; of what a copy tells of its last moments nothing is certain.
_EDGE_SECONDS = 120.0
_USE_RELATIVE = 0.02
# What files of one workload must say alike, where they say it.
_IDENTITY = ("scheduler", "job_id", "namespace", "user", "account", "team")
# These are one thing under several names: a job whose name one node does not know is called by its number there.
_NAMES = ("name", "series_id")
# A process and a container run on one machine.
_ON_ONE_NODE = frozenset({"process", "docker"})
_JOB = ("name", "user", "account", "partition", "qos", "nodes")

Row = Mapping[str, Any]


def uses_differ(uses: pd.DataFrame, one: Copy, other: Copy) -> bool:
    """Whether two files of a node tell of different holders in the time that both cover."""
    start, end = max(one.begin, other.begin) + _EDGE_SECONDS, min(one.end, other.end) - _EDGE_SECONDS
    if uses.empty or end <= start:
        return False
    held: list[dict[tuple[str, str], float]] = []
    for copy in (one, other):
        own = uses[(uses["file"] == copy.file) & (uses["node"] == copy.node)]
        own = own.assign(s=own["ts_start"].clip(start, end), e=own["ts_end"].clip(start, end))
        held.append(_seconds(own))
    return any(
        abs(a - b) > 2 * _EDGE_SECONDS + _USE_RELATIVE * max(a, b)
        for a, b in ((held[0].get(key, 0.0), held[1].get(key, 0.0)) for key in {*held[0], *held[1]})
    )


def _seconds(uses: pd.DataFrame) -> dict[tuple[str, str], float]:
    """(workload, GPU) -> seconds, of uses that are cut to a span as ``s`` and ``e``."""
    found: dict[tuple[str, str], float] = {}
    reach: dict[tuple[str, str], float] = {}
    for row in uses.sort_values("s")[["workload_id", "gpu_uuid", "s", "e"]].itertuples(index=False):
        key = (str(row[0]), str(row[1]))
        begin = max(float(row[2]), reach.get(key, float(row[2])))
        found[key] = found.get(key, 0.0) + max(float(row[3]) - begin, 0.0)
        reach[key] = max(reach.get(key, begin), float(row[3]))
    return found


def workloads_believed(
    uses: pd.DataFrame,
    workloads: pd.DataFrame,
    serving: pd.DataFrame,
    seen: Mapping[tuple[int, str], Copy],
    notes: list[CodedText],
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, Mapping[tuple[str, str], str]]:
    """Uses, workloads and serving, each once, and (old id, node) -> new id of what became a workload of its own. The
    tables carry ``file`` and ``rank`` (higher is newer). `seen`: what each file tells of each node."""
    renamed: dict[tuple[str, str], str] = {}
    uses = uses.sort_values(["ts_end", "rank"], kind="stable")
    uses = uses.drop_duplicates(["workload_id", "node", "gpu_uuid", "ts_start"], keep="last")
    users = set(zip(uses["file"], uses["workload_id"], strict=True))
    used = {workload for _, workload in users}
    # What a file says of work that it saw on none of its nodes is hearsay.
    told = zip(workloads["file"], workloads["workload_id"], strict=True)
    own = np.array([one[1] not in used or one in users for one in told], dtype=np.bool_)
    workloads = workloads[own].sort_values(["last_seen", "rank"], kind="stable")
    once = workloads.drop_duplicates("workload_id", keep="last")
    if len(once) < len(workloads):
        uses, workloads, renamed = _by_what_they_say(uses, workloads, seen)
        if renamed:
            parted, nodes = {old for old, _ in renamed}, sorted({node for _, node in renamed})
            text = (
                f"Databases disagree about {counted(len(parted), 'workload')}: each database is used for "
                f"its own nodes only ({listed(nodes)})."
            )
            notes.append(CodedText("workloads-told-apart", text, {"workloads": len(parted), "nodes": ", ".join(nodes)}))
            keys = zip(serving["workload_id"], serving["node"], strict=True)
            ids = [renamed.get(key, key[0]) for key in keys]
            serving = serving.assign(workload_id=pd.Series(ids, serving.index, dtype=object))
    return (
        _as(uses, queries.USES.columns), _as(workloads, queries.WORKLOADS.columns),
        _as(serving, queries.SERVING.columns), renamed,
    )  # fmt: skip


def _as(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    return table[list(columns)].reset_index(drop=True)


def _by_what_they_say(
    uses: pd.DataFrame, workloads: pd.DataFrame, seen: Mapping[tuple[int, str], Copy]
) -> tuple[pd.DataFrame, pd.DataFrame, dict[tuple[str, str], str]]:
    """One row a workload, in the order of their rows; workloads of which files say different things become several.
    Also (old id, node) -> new id."""
    several = set(workloads.loc[workloads["workload_id"].duplicated(), "workload_id"])
    some = uses[uses["workload_id"].isin(several)]
    # Held by a GPU for as long as its node was observed: neither more GPUs nor later dates make a claim stronger.
    spans = [seen[int(file), str(node)] for file, node in zip(some["file"], some["node"], strict=True)]
    end = np.minimum(some["ts_end"].to_numpy(float), [copy.end for copy in spans])
    begin = np.maximum(some["ts_start"].to_numpy(float), [copy.begin for copy in spans])
    held = some.assign(held=np.maximum(end - begin, 0.0))
    held = held.groupby(["workload_id", "file", "node", "gpu_uuid"])["held"].sum()
    held = held.groupby(["workload_id", "file", "node"]).max().reset_index()
    of: dict[str, dict[int, dict[str, float]]] = {}
    for workload, file, node, seconds in held.itertuples(index=False):
        of.setdefault(str(workload), {}).setdefault(int(file), {})[str(node)] = float(seconds)
    doubtful = workloads[workloads["workload_id"].isin(several)]
    rows = [cast("Row", row) for row in doubtful.assign(place=doubtful.index).to_dict("records")]
    told: dict[str, list[Row]] = {}
    for row in rows:
        told.setdefault(str(row["workload_id"]), []).append(row)
    out: list[Row] = []
    renamed: dict[tuple[str, str], str] = {}
    for workload, tellings in told.items():
        where = of.get(workload, {})
        for place, group in enumerate(_groups(tellings, where)):
            best = group[0]
            if place:
                nodes = sorted({node for row in group for node in where.get(int(row["file"]), {})})
                new = f"{workload}-{hashlib.sha256(' '.join(nodes).encode()).hexdigest()[:8]}"
                best = {**best, "workload_id": new}
                renamed.update(((workload, node), new) for node in nodes)
            out.append(best)
    rest = workloads[~workloads["workload_id"].isin(several)]
    together = pd.DataFrame(out, index=[row["place"] for row in out], columns=list(workloads.columns))
    together = together.astype(workloads.dtypes.to_dict())
    both = (pd.concat([rest, together]) if len(rest) else together).sort_index(kind="stable")
    if renamed:
        keys = zip(uses["workload_id"], uses["node"], strict=True)
        ids = [renamed.get(key, key[0]) for key in keys]
        uses = uses.assign(workload_id=pd.Series(ids, uses.index, dtype=object))
    return uses, both.sort_values("last_seen", kind="stable"), renamed


def _groups(tellings: Sequence[Row], where: Mapping[int, Mapping[str, float]]) -> list[list[Row]]:
    """Files that say the same of a workload, or whose nodes are the same; those on the most nodes first. In each the
    file that saw it longest comes first."""

    def weight(row: Row) -> tuple[float, tuple[str, ...], float]:
        nodes = where.get(int(row["file"]), {})
        return -max(nodes.values(), default=0.0), tuple(sorted(nodes)), -float(row["rank"])

    groups: list[list[Row]] = []
    for row in sorted(tellings, key=weight):
        nodes = set(where.get(int(row["file"]), {}))
        home = next(
            (
                group for group in groups
                if nodes & _nodes(group, where) or not nodes or all(_fits(row, one) for one in group)
            ),
            None,
        )  # fmt: skip
        if home is None:
            groups.append([row])
        else:
            home.append(row)
    return sorted(groups, key=lambda group: (-len(_nodes(group, where)), weight(group[0])))


def _nodes(group: Iterable[Row], where: Mapping[int, Mapping[str, float]]) -> set[str]:
    return {node for row in group for node in where.get(int(row["file"]), {})}


def _fits(one: Row, other: Row) -> bool:
    """Whether two rows may tell of one workload on several nodes."""
    if one["scheduler"] in _ON_ONE_NODE:
        return False
    if any(_differ(one[name], other[name]) for name in _IDENTITY):
        return False
    return _unnamed(one) or _unnamed(other) or not any(_differ(one[name], other[name]) for name in _NAMES)


def _unnamed(row: Row) -> bool:
    return row["scheduler"] == "slurm" and row["name"] in (None, "", f"job {row['job_id']}")


def _differ(one: object, other: object) -> bool:
    return isinstance(one, str) and isinstance(other, str) and bool(one) and bool(other) and one != other


def jobs_believed(
    jobs: pd.DataFrame, workloads: pd.DataFrame, uses: pd.DataFrame, notes: list[CodedText]
) -> pd.DataFrame:
    """Runs of Slurm's job table. What a file says of a job that it did not see, and another did, is hearsay; where
    files say different things of a run, neither is believed. `workloads`, `uses`: with their files."""
    if jobs.empty:
        return _as(jobs, queries.SLURM_JOBS.columns)
    seen = set(zip(uses["file"], uses["workload_id"], strict=True))
    numbers: dict[str, set[int]] = {}
    for row in workloads[workloads["scheduler"] == "slurm"].to_dict("records"):
        if (row["file"], row["workload_id"]) in seen:
            for number in names_in_row(cast("Row", row)):
                numbers.setdefault(number, set()).add(int(row["file"]))
    rows = [cast("Row", row) for row in jobs.to_dict("records")]
    saw = [set().union(*(numbers.get(one, ()) for one in names_in_row(row))) for row in rows]
    own = [not files or int(row["file"]) in files for row, files in zip(rows, saw, strict=True)]
    by_run: dict[tuple[str, str, int], list[Row]] = {}
    for row, keep in zip(rows, own, strict=True):
        if keep:
            by_run.setdefault(_run(row), []).append(row)
    doubtful = {
        run for run, told in by_run.items()
        if any(_differ(one[name], told[0][name]) for one in told[1:] for name in _JOB)
    }  # fmt: skip
    if doubtful:
        text = (
            f"Databases disagree about {counted(len(doubtful), 'run')} of Slurm's job table. The job "
            "table is not used for these runs."
        )
        notes.append(CodedText("job-runs-in-doubt", text, {"runs": len(doubtful)}))
    keep = [mine and _run(row) not in doubtful for row, mine in zip(rows, own, strict=True)]
    return _as(jobs[np.array(keep, dtype=np.bool_)], queries.SLURM_JOBS.columns)


def _run(row: Row) -> tuple[str, str, int]:
    return str(row["cluster"] or ""), str(row["job_id"]), int(row["started_at"])
