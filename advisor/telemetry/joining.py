"""The tables of several files as those of one frame: each moment once, and of each node what can be believed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from ...agent.store import queries
from ...agent.store.queries import Query
from ..frame import Frame, Window
from ..words import counted, listed
from . import copies, resolve
from .copies import Copy, Family
from .database import Parts
from .held import jobs_believed, uses_differ, workloads_believed
from .plausible import observed_most
from .trust import CONTRADICTION, TWO_PLACES, Claim, Conflict, Refusal, Trust, decide, speaks_for_others

FAMILIES: Mapping[str, tuple[Query, Family]] = {
    "gpu": (queries.GPU_HOURS, Family(resolve.GPU.keys, ("mem_total_bytes",))),
    "fabric": (queries.FABRIC_HOURS, Family(resolve.FABRIC.keys, ("role", "link_layer", "line_rate_bytes_per_second"))),
    "host": (queries.HOST_HOURS, Family(resolve.HOST.keys)),
}
# What files of one node say of it at the same time.
_NODE_FACTS = ("cluster", "provider", "region", "instance_type", "node_sku", "gpu_count")
_GPU_FACTS = ("name", "sku", "kind", "parent_uuid", "slices", "mem_total_bytes", "gpu_index")
# Files that saw a node last within this time describe the same state of it; of others the newer one is right.
_SAME_TIME_SECONDS = 3600.0
# A GPU may be told of on two nodes for so long altogether: clocks that differ, an hour in which it moved.
_TWICE_SECONDS = 1800.0
_SENTENCES = {
    CONTRADICTION: "{files} contradict one another about {node}, so neither is believed.",
    TWO_PLACES: "{files} tell of the same GPUs on two nodes at once, so they are not believed about {node}.",
}
_REMEDY = "Remove the one that is wrong: 'skuwise agent snapshot' on the node makes a good copy."


@dataclass(slots=True)
class _Joining:
    """Tables of all files. Rows carry ``file``, the position of their file in `files`, until they are joined."""

    files: Sequence[Path]
    window: Window
    tables: dict[str, pd.DataFrame]
    notes: list[str]
    told: dict[str, object] = field(default_factory=dict)  # codes and fields beside the notes

    def table(self, name: str) -> pd.DataFrame:
        return self.tables[name]


def join(read: Mapping[Path, Parts], window: Window, files: Sequence[Path], notes: list[str]) -> Frame:
    """One frame of what was read of each file. `files`: all that were named; `notes`: what was said so far."""
    own = _Joining(list(read), window, {}, notes)
    for name, query in _LISTED.items():
        own.tables[name] = _stacked([part.tables.get(name, []) for part in read.values()], query.columns)
    for part in read.values():
        notes.extend(part.notes)
    _say_lost(own, read)
    _drop_repeated(own)
    trust = _trust(own)
    _keep_believed(own, trust)
    _join_copies(own)
    believed = _believed(own, trust)
    nodes = _one_node_each(own, trust)
    gpus = own.table("gpus").sort_values(["rank", "valid_from"], kind="stable")
    held, about = own.table("uses"), own.table("workloads")
    jobs = jobs_believed(own.table("jobs"), about, held, notes)
    uses, workloads, serving, renamed = workloads_believed(held, about, own.table("serving"), notes)
    if renamed:
        own.told["renamed"] = [{"workload": old, "node": node, "as": new} for (old, node), new in renamed.items()]
    history = own.table("fabric_history")
    absences = (
        pd.concat([own.table("absences"), _refusals(own, trust)], ignore_index=True)
        if trust.refused
        else own.table("absences")
    )
    source: dict[str, object] = {"kind": "sqlite", "databases": [str(path) for path in files], **own.told}
    if believed is not None:
        source["believed"] = believed
    return Frame(
        window=window,
        nodes=nodes,
        gpus=_plain(gpus.drop_duplicates(["node", "gpu_uuid"], keep="last"), queries.GPUS),
        gpu=_rows(own, "gpu", ["node", "gpu_uuid", "ts"]),
        fabric=_rows(own, "fabric", ["node", "device", "port", "ts"]),
        host=_rows(own, "host", ["node", "ts"]),
        workloads=workloads,
        uses=uses,
        absences=_absences_once(_plain(absences, queries.ABSENCES)),
        source=source,
        notes=tuple(notes),
        fabric_history=_history_once(history),
        serving=serving,
        jobs=jobs,
    )


_LISTED: Mapping[str, Query] = {
    **{name: query for name, (query, _) in FAMILIES.items()},
    "nodes": queries.NODES, "gpus": queries.GPUS, "workloads": queries.WORKLOADS, "uses": queries.USES,
    "absences": queries.ABSENCES, "serving": queries.SERVING, "jobs": queries.SLURM_JOBS,
    "fabric_history": queries.FABRIC_HISTORY,
}  # fmt: skip


def _stacked(parts: Sequence[Sequence[pd.DataFrame]], columns: Sequence[str]) -> pd.DataFrame:
    """Tables under one another, with the number of their file."""
    tables = [
        resolve.with_columns(table, columns).assign(file=n) for n, own in enumerate(parts) for table in own
        if not table.empty
    ]  # fmt: skip
    return resolve.concat(tables, [*columns, "file"])


def _plain(table: pd.DataFrame, query: Query) -> pd.DataFrame:
    return table[list(query.columns)].reset_index(drop=True)


def _rows(own: _Joining, name: str, order: list[str]) -> pd.DataFrame:
    return _plain(own.table(name).sort_values(order, kind="stable"), FAMILIES[name][0])


def _say_lost(own: _Joining, read: Mapping[Path, Parts]) -> None:
    """Name the files and nodes with rows or values that cannot be."""
    coded = []
    for path, part in read.items():
        lost = [row for table in part.tables.get("lost", []) for row in _records(table)]
        coded += [
            {"file": str(path), "node": str(row["node"]), "rows": int(row["rows"]), "values": int(row["values"])}
            for row in lost
        ]
        for what, words in _LOST.items():
            some = {str(row["node"]): int(row[what]) for row in lost if row[what]}
            named = sorted(node for node in some if node)
            if some:
                of = f" of {listed(named)}" if named else ""
                own.notes.append(f"{path}: {counted(sum(some.values()), 'row')}{of} {words}")
    if coded:
        own.told["implausible"] = coded


_LOST = {
    "rows": "told of a time or a coverage that cannot be: left out.",
    "values": "held values that cannot be measurements: these count as missing.",
}


def _drop_repeated(own: _Joining) -> None:
    """Rows of one file that tell one moment of one device several times, and more of it than there is, go."""
    for name, (_, family) in FAMILIES.items():
        rows = own.table(name)
        at = ["file", *family.keys, "ts", "interval_seconds"]
        again = rows.duplicated(at, keep=False) if not rows.empty else None
        if again is None or not again.any():
            continue
        some = rows[again]
        same = some.duplicated([*at, *(c for c in some.columns if c.endswith(("_mean", "_max", "_seconds")))])
        some = some[~same]
        sums = some.groupby(at)["observed_seconds"].transform("sum").to_numpy(float)
        good = some[sums <= observed_most(some["interval_seconds"].to_numpy(float))]
        lost = len(some) - len(good)
        if lost:
            files = sorted({str(own.files[n]) for n in set(some["file"])})
            own.notes.append(
                f"{listed(files)}: {counted(lost, 'row')} told the same moment of a device in different ways and were "
                "left out."
            )
        own.tables[name] = resolve.concat([rows[~again], good], list(rows.columns))


def _trust(own: _Joining) -> Trust:
    nodes = own.table("nodes")
    if nodes.empty:
        return Trust()
    spans = _spans(own)
    claims = _claims(own, spans)
    elsewhere = speaks_for_others(claims)
    for file, names in _by_file(elsewhere).items():
        own.notes.append(
            f"{own.files[file]} tells of {listed(names)} too, of which other databases are the own ones: it is not "
            "believed about them."
        )
    if elsewhere:
        own.told["not_believed"] = [{"file": str(own.files[f]), "node": node} for f, node in sorted(elsewhere)]
    kept = [copy for key, copy in spans.items() if key not in elsewhere]
    twice = {node for node, count in pd.Series([copy.node for copy in kept]).value_counts().items() if count > 1}
    conflicts: set[Conflict] = set()
    if twice:
        several = [copy for copy in kept if copy.node in twice]
        conflicts |= _contradictions(own, several, elsewhere)
    conflicts |= _in_two_places(own, elsewhere)
    refused = decide(conflicts)
    for refusal in refused.values():
        own.notes.append(f"{_sentence(own, refusal)} {_REMEDY}")
    if refused:
        own.told["refused"] = [
            {"node": r.node, "code": r.code, "files": [str(own.files[n]) for n in r.files]} for r in refused.values()
        ]
    return Trust(elsewhere, refused)


def _sentence(own: _Joining, refusal: Refusal) -> str:
    files = [str(own.files[n]) for n in refusal.files]
    if len(files) == 1:
        return f"{files[0]} tells of the same GPUs on two nodes at once, so it is not believed about {refusal.node}."
    return _SENTENCES[refusal.code].format(files=listed(files), node=refusal.node)


def _by_file(pairs: Iterable[tuple[int, str]]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for file, node in sorted(pairs):
        found.setdefault(file, []).append(node)
    return found


def _spans(own: _Joining) -> dict[tuple[int, str], Copy]:
    """What each file has of each node: from when it says to have seen it, or its rows do, to when."""
    nodes = own.table("nodes")
    first = nodes.groupby(["file", "node"])["first_seen"].min()
    last = nodes.groupby(["file", "node"])["last_seen"].max()
    begin, end = first.to_dict(), last.to_dict()
    for name in FAMILIES:
        rows = own.table(name)
        if rows.empty:
            continue
        seconds = np.minimum(rows["observed_seconds"].to_numpy(float), rows["interval_seconds"].to_numpy(float))
        ts = rows["ts"].to_numpy(float)
        edges = pd.DataFrame(
            {"file": rows["file"], "node": rows["node"], "begin": ts - seconds,
             "end": ts - rows["interval_seconds"].to_numpy(float) + seconds}
        )  # fmt: skip
        told = edges.groupby(["file", "node"]).agg(begin=("begin", "min"), end=("end", "max"))
        for key, first_ts, last_ts in zip(told.index, told["begin"], told["end"], strict=True):
            begin[key] = min(begin.get(key, first_ts), first_ts)
            end[key] = max(end.get(key, last_ts), last_ts)
    found = [Copy(int(key[0]), str(key[1]), float(begin[key]), float(end[key])) for key in map(_pair, begin)]
    return {(copy.file, copy.node): copy for copy in found}


def _pair(key: object) -> tuple[int, str]:
    return cast("tuple[int, str]", key)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", table.to_dict("records"))


def _claims(own: _Joining, spans: Mapping[tuple[int, str], Copy]) -> list[Claim]:
    claims = []
    for file, rows in own.table("nodes").groupby("file"):
        machines = {
            str(node): machine if isinstance(machine, str) else None
            for node, machine in zip(rows["node"], rows["machine_id"], strict=True)
        }
        number = int(file)  # type: ignore[call-overload] - a position
        turns = sorted((spans[number, node].begin, spans[number, node].end) for node in machines)
        apart = all(after[0] >= before[1] - _SAME_TIME_SECONDS for before, after in pairwise(turns))
        ids = set(machines.values())
        claims.append(Claim(number, machines, apart and len(ids) == 1 and None not in ids))
    return claims


def _contradictions(own: _Joining, several: Sequence[Copy], elsewhere: frozenset[tuple[int, str]]) -> set[Conflict]:
    """Files that tell differently of the nodes that they share. `several`: copies of these nodes."""
    number = copies.eras(several)
    found: set[tuple[str, int, int]] = set()
    names = {copy.node for copy in several}
    for name, (_, family) in FAMILIES.items():
        rows = own.table(name)
        if rows.empty:
            continue
        rows = rows[rows["node"].isin(names)]
        keys = list(zip(rows["file"], rows["node"], strict=True))
        rows = rows.assign(era=[number.get(key, 0) for key in keys])
        believed = np.array([key not in elsewhere for key in keys], dtype=np.bool_)
        found |= copies.differing(rows[believed], family)
    nodes = {(int(row["file"]), str(row["node"])): row for row in _records(own.table("nodes"))}
    gpus = own.table("gpus")
    for name in names:
        here = sorted((copy for copy in several if copy.node == name), key=lambda copy: copy.end)
        for one, other in _neighbors(here, number):
            at_once = abs(one.end - other.end) <= _SAME_TIME_SECONDS
            if (
                (at_once and copies.unlike_facts(nodes[one.file, name], nodes[other.file, name], _NODE_FACTS))
                or (at_once and _gpus_differ(gpus[gpus["node"] == name], one.file, other.file))
                or uses_differ(own.table("uses"), one, other)
            ):
                found.add((name, one.file, other.file))
    return {Conflict(a, node, b, node, CONTRADICTION) for node, a, b in found}


def _neighbors(own: Sequence[Copy], number: Mapping[tuple[int, str], int]) -> Iterable[tuple[Copy, Copy]]:
    """Copies of one era, each with the next: where these agree, all do."""
    by_era: dict[int, list[Copy]] = {}
    for copy in own:
        by_era.setdefault(number[copy.file, copy.node], []).append(copy)
    for same in by_era.values():
        yield from zip(same, same[1:], strict=False)


def _gpus_differ(gpus: pd.DataFrame, one: int, other: int) -> bool:
    """Whether two files that end together describe other GPUs of a node. MIG instances come and go within the hour."""
    told = []
    for file in (one, other):
        newest = gpus[gpus["file"] == file].sort_values("valid_from").drop_duplicates("gpu_uuid", keep="last")
        told.append({str(row["gpu_uuid"]): row for row in _records(newest)})
    first, second = told
    if any(row["kind"] == "gpu" for key in first.keys() ^ second.keys() for row in (first.get(key) or second[key],)):
        return True
    return any(copies.unlike_facts(first[key], second[key], _GPU_FACTS) for key in first.keys() & second.keys())


def _in_two_places(own: _Joining, elsewhere: frozenset[tuple[int, str]]) -> set[Conflict]:
    """GPUs that were observed on two nodes for longer than there is time."""
    rows = own.table("gpu")
    if rows.empty:
        return set()
    pairs = rows[["file", "node", "gpu_uuid"]].drop_duplicates()
    places = pairs.drop_duplicates(["node", "gpu_uuid"])
    doubtful = set(places.loc[places["gpu_uuid"].duplicated(), "gpu_uuid"])
    if not doubtful:
        return set()
    some = rows[rows["gpu_uuid"].isin(doubtful)]
    some = some[[key not in elsewhere for key in zip(some["file"], some["node"], strict=True)]]
    seconds = np.minimum(some["observed_seconds"].to_numpy(float), some["interval_seconds"].to_numpy(float))
    table = some[["gpu_uuid", "node", "file"]].assign(
        hour=np.ceil(some["ts"].to_numpy(float) / resolve.HOUR), seconds=seconds
    )
    # Of copies of one node the fullest counts.
    by_file = table.groupby(["gpu_uuid", "hour", "node", "file"])["seconds"].sum().reset_index()
    fullest = by_file.sort_values("seconds").drop_duplicates(["gpu_uuid", "hour", "node"], keep="last")
    files = {(str(n), str(u)): set() for n, u in zip(fullest["node"], fullest["gpu_uuid"], strict=True)}
    for node, uuid, file in by_file[["node", "gpu_uuid", "file"]].drop_duplicates().itertuples(index=False):
        files[str(node), str(uuid)].add(int(file))
    found: set[Conflict] = set()
    for uuid, of_gpu in fullest.groupby("gpu_uuid"):
        wide = of_gpu.pivot_table(index="hour", columns="node", values="seconds", fill_value=0.0)
        for one, other in combinations(sorted(map(str, wide.columns)), 2):
            beyond = (wide[one] + wide[other] - resolve.HOUR).where((wide[one] > 0) & (wide[other] > 0), 0.0)
            if float(beyond.clip(lower=0.0).sum()) > _TWICE_SECONDS:
                found.update(
                    Conflict(a, one, b, other, TWO_PLACES)
                    for a in files[one, str(uuid)] for b in files[other, str(uuid)]
                )  # fmt: skip
    return found


def _keep_believed(own: _Joining, trust: Trust) -> None:
    """Only what files say of nodes about which they are believed; of a refused node what it is, and no more."""
    for name, table in own.tables.items():
        if table.empty or "node" not in table.columns:
            continue
        keep = (
            ~table["node"].isin(set(trust.refused)).to_numpy()
            if name not in ("nodes", "gpus")
            else np.ones(len(table), dtype=np.bool_)
        )
        if trust.elsewhere:
            keys = zip(table["file"], table["node"], strict=True)
            keep &= np.array([(int(f), str(n)) not in trust.elsewhere for f, n in keys], dtype=np.bool_)
        if name == "gpus" and trust.refused:
            keep &= _told_by_all(table, trust)
        if not keep.all():
            own.tables[name] = table[keep]


def _told_by_all(gpus: pd.DataFrame, trust: Trust) -> np.ndarray:
    """Which rows tell of GPUs of believed nodes, or of GPUs that every file names that has a refused node."""
    out = np.ones(len(gpus), dtype=np.bool_)
    for name in trust.refused:
        here = (gpus["node"] == name).to_numpy()
        files = gpus.loc[here, "file"].nunique()
        count = gpus[here].groupby("gpu_uuid")["file"].nunique()
        out &= ~here | gpus["gpu_uuid"].isin(count.index[count == files]).to_numpy()
    return out


def _join_copies(own: _Joining) -> None:
    """Each moment of a device once, of the nodes that stand in several files."""
    nodes = own.table("nodes")
    order = nodes.groupby("file")["last_seen"].max().sort_values(kind="stable") if not nodes.empty else pd.Series()
    rank = {int(file): place for place, file in enumerate(order.index)}  # type: ignore[call-overload] - positions
    for name in ("gpus", "fabric_history", "workloads", "uses"):
        table = own.table(name)
        own.tables[name] = table.assign(rank=[rank.get(int(n), 0) for n in table["file"]])
    twice = set(nodes.loc[nodes["node"].duplicated(), "node"])
    if not twice:
        return
    number = copies.eras(copy for copy in _spans(own).values() if copy.node in twice)
    for name, (_, family) in FAMILIES.items():
        rows = own.table(name)
        doubtful = rows["node"].isin(twice) if not rows.empty else None
        if doubtful is None or not doubtful.any():
            continue
        some = rows[doubtful]
        keys = zip(some["file"], some["node"], strict=True)
        some = some.assign(era=[number.get((int(f), str(n)), 0) for f, n in keys])
        kept = some[copies.fullest(some, family, rank)]
        if len(kept) < len(some):
            what = {"gpu": "GPU"}.get(name, name)
            own.notes.append(
                f"{len(some) - len(kept)} {what} rows stood in more than one database and were counted once."
            )
        own.tables[name] = resolve.concat([rows[~doubtful], kept.drop(columns="era")], list(rows.columns))


def _believed(own: _Joining, trust: Trust) -> dict[str, list[str]] | None:
    """File -> the nodes about which it is believed; None where every file is believed about all of its nodes."""
    if not (trust.elsewhere or trust.refused):
        return None
    told: dict[str, list[str]] = {str(path): [] for path in own.files}
    nodes = own.table("nodes")
    for file, node in zip(nodes["file"], nodes["node"], strict=True):
        if node not in trust.refused:
            told[str(own.files[int(file)])].append(str(node))
    return {path: sorted(names) for path, names in told.items()}


def _one_node_each(own: _Joining, trust: Trust) -> pd.DataFrame:
    """Files may tell of the same node: its newest row, with the earliest first sight. Of a refused node what all say."""
    nodes = own.table("nodes")
    if nodes.empty:
        return _plain(nodes, queries.NODES)
    machines = nodes.dropna(subset=["machine_id"]).groupby("node")["machine_id"].nunique()
    for name, count in machines[machines > 1].items():
        if name not in trust.refused:
            own.notes.append(
                f"{count} machines are called {name}: their figures are mixed; give each node a name of its own."
            )
    first = nodes.groupby("node")["first_seen"].min()
    latest = nodes.sort_values("last_seen").drop_duplicates("node", keep="last").sort_values("node", ignore_index=True)
    latest = latest.assign(first_seen=latest["node"].map(first))
    for name in trust.refused:
        rows = nodes[nodes["node"] == name]
        for fact in ("cluster", "machine_id", *_NODE_FACTS, "node_sku_source"):
            if len(set(rows[fact].dropna())) > 1:
                latest.loc[latest["node"] == name, fact] = rows[fact].min() if fact == "gpu_count" else None
    return _plain(latest, queries.NODES)


def _refusals(own: _Joining, trust: Trust) -> pd.DataFrame:
    """Why nothing of the refused nodes is observed, as absences."""
    rows = [
        {"node": r.node, "gpu_uuid": None, "device": "nvml", "scope": "source", "metric": "*", "reason": r.code,
         "detail": _sentence(own, r), "remedy": _REMEDY, "since": own.window.start, "until": np.nan, "file": -1}
        for r in trust.refused.values()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=[*queries.ABSENCES.columns, "file"])


def _absences_once(absences: pd.DataFrame) -> pd.DataFrame:
    """A copy made while something was missing does not know when that ended: the file that does is right."""
    if absences.empty:
        return absences
    what = [name for name in absences.columns if name not in ("until", "detail", "remedy")]
    known = absences.sort_values("until", kind="stable", na_position="first").drop_duplicates(what, keep="last")
    return known.sort_index(ignore_index=True)


def _history_once(history: pd.DataFrame) -> pd.DataFrame:
    """Of each port the longest record, and the last activity that any tells."""
    if history.empty:
        return _plain(history, queries.FABRIC_HISTORY)
    at = ["node", "device", "port"]
    active = history.groupby(at)["last_active_ts"].max()
    longest = history.sort_values(["hours", "rank"], kind="stable").drop_duplicates(at, keep="last")
    last = active.reindex(pd.MultiIndex.from_frame(longest[at])).to_numpy()
    return _plain(longest.assign(last_active_ts=last), queries.FABRIC_HISTORY)
