"""The tables of several files as those of one frame: each moment once, and of each node what can be believed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from ....agent.store.reading import queries
from ....agent.store.reading.queries import Query
from ...core.coded_text import CodedText, coded
from ...core.formatting import counted, listed
from ...core.frame import Frame, Window
from .. import resolution as resolve
from ..plausible import observed_most
from ..stacking import stacked
from ..trust import copies
from ..trust.copies import Copy
from ..trust.holders import jobs_believed, workloads_believed
from ..trust.trust import CONTRADICTION, TWO_PLACES, Conflict, DisbelievedNode, Trust, decide, speaks_for_others
from ..trust.witnesses import FAMILIES, NODE_FACTS, claims, find_conflicts, in_two_places, node_copies, row_dicts
from .database import Parts

_REMEDY = "Remove the wrong one. 'skuwise agent snapshot' on the node makes a valid copy."
_SENTENCES = {
    CONTRADICTION: "{files} contradict one another about {node}: none of them is used for this node.",
    TWO_PLACES: "{files} report the same GPUs on two nodes at once: none of them is used for {node}.",
}


@dataclass(slots=True)
class _Joining:
    """Tables of all files. Rows carry ``file``, the position of their file in `files`, until they are joined."""

    files: Sequence[Path]
    window: Window
    tables: dict[str, pd.DataFrame]
    notes: list[CodedText]
    told: dict[str, object] = field(default_factory=dict)  # codes and fields beside the notes
    seen: dict[tuple[int, str], Copy] = field(default_factory=dict)
    ordered: set[str] = field(default_factory=set)  # tables whose rows are in the frame's order

    def table(self, name: str) -> pd.DataFrame:
        return self.tables[name]


def join(read: Mapping[Path, Parts], window: Window, files: Sequence[Path], notes: list[CodedText]) -> Frame:
    """One frame of what was read of each file, whose rows are taken out of it. `files`: all that were named; `notes`:
    what was said so far."""
    own = _Joining(list(read), window, {}, notes)
    for name, query in _LISTED.items():
        if name in _ORDER:
            rows = [(n, table) for n, part in enumerate(read.values()) for table in part.tables.pop(name, [])]
            own.tables[name] = stacked(rows, query, _ORDER[name])
            own.ordered.add(name)
        else:
            own.tables[name] = _listed([part.tables.get(name, []) for part in read.values()], query.columns)
    for part in read.values():
        notes.extend(part.notes)
    _say_lost(own, read)
    _drop_repeated(own)
    trust = _trust(own)
    _keep_believed(own, trust)
    _join_copies(own, trust.elsewhere)
    believed = _believed(own, trust)
    nodes = _one_node_each(own, trust)
    gpus = own.table("gpus").sort_values(["rank", "valid_from"], kind="stable")
    held, about = own.table("uses"), own.table("workloads")
    jobs = jobs_believed(own.table("jobs"), about, held, notes)
    uses, workloads, serving, renamed = workloads_believed(held, about, own.table("serving"), own.seen, notes)
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
        gpu=_rows(own, "gpu"),
        fabric=_rows(own, "fabric"),
        host=_rows(own, "host"),
        workloads=workloads,
        uses=uses,
        absences=_absences_once(_plain(absences, queries.ABSENCES)),
        source=source,
        notes=tuple(notes),
        fabric_history=_history_once(history),
        serving=serving,
        tokens=_renamed_tokens(own.table("tokens"), renamed),
        jobs=jobs,
    )


# The order of the frame's rows.
_ORDER = {name: (*family.keys, "ts") for name, (_, family) in FAMILIES.items()}
_LISTED: Mapping[str, Query] = {
    **{name: query for name, (query, _) in FAMILIES.items()},
    "nodes": queries.NODES, "gpus": queries.GPUS, "workloads": queries.WORKLOADS, "uses": queries.USES,
    "absences": queries.ABSENCES, "serving": queries.SERVING, "tokens": queries.TOKENS,
    "jobs": queries.SLURM_JOBS,
    "fabric_history": queries.FABRIC_HISTORY,
}  # fmt: skip


def _renamed_tokens(tokens: pd.DataFrame, renamed: Mapping[tuple[str, str], str]) -> pd.DataFrame:
    """Tokens, each hour once, under the ids of workloads that files told different things of."""
    once = tokens.sort_values("seconds", kind="stable")
    once = once.drop_duplicates(["node", "workload_id", "engine", "ts"], keep="last").sort_index()
    keys = zip(once["workload_id"], once["node"], strict=True)
    ids = pd.Series([renamed.get(key, key[0]) for key in keys], once.index, dtype=object)
    return _plain(once.assign(workload_id=ids), queries.TOKENS)


def _listed(parts: Sequence[Sequence[pd.DataFrame]], columns: Sequence[str]) -> pd.DataFrame:
    """Tables under one another, with the number of their file."""
    tables = [
        resolve.with_columns(table, columns).assign(file=n) for n, own in enumerate(parts) for table in own
        if not table.empty
    ]  # fmt: skip
    return resolve.concat(tables, [*columns, "file"])


def _plain(table: pd.DataFrame, query: Query) -> pd.DataFrame:
    return table[list(query.columns)].reset_index(drop=True)


def _rows(own: _Joining, name: str) -> pd.DataFrame:
    """The rows of a family in the frame's order, taken out of what is joined."""
    rows = own.tables.pop(name)
    if name not in own.ordered:
        rows = rows.sort_values(list(_ORDER[name]), kind="stable")
    del rows["file"]
    rows.index = pd.RangeIndex(len(rows))
    return rows


def _say_lost(own: _Joining, read: Mapping[Path, Parts]) -> None:
    """Name the files and nodes with rows or values that cannot be."""
    coded = []
    for path, part in read.items():
        lost = [row for table in part.tables.get("lost", []) for row in row_dicts(table)]
        coded += [
            {"file": str(path), "node": str(row["node"]), "rows": int(row["rows"]), "values": int(row["values"])}
            for row in lost
        ]
        for what, words in _LOST.items():
            some = {str(row["node"]): int(row[what]) for row in lost if row[what]}
            named = sorted(node for node in some if node)
            if some:
                of = f" of {listed(named)}" if named else ""
                number = sum(some.values())
                text = f"{path}: {counted(number, 'row')}{of} {words}"
                own.notes.append(CodedText(f"implausible-{what}", text, {"path": str(path), "rows": number}))
    if coded:
        own.told["implausible"] = coded


_LOST = {
    "rows": "with an impossible time or coverage are ignored.",
    "values": "contain impossible measurements, which count as missing.",
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
            text = (
                f"{listed(files)}: {counted(lost, 'row')} with conflicting values for the same time and "
                "device are ignored."
            )
            own.notes.append(CodedText("moments-told-twice", text, {"files": ", ".join(files), "rows": lost}))
        own.tables[name] = resolve.concat([rows[~again], good], list(rows.columns))
        own.ordered.discard(name)


def _trust(own: _Joining) -> Trust:
    nodes = own.table("nodes")
    if nodes.empty:
        return Trust()
    seen = own.seen = node_copies(own.tables)
    told = claims(own.tables, seen)
    elsewhere = speaks_for_others(told)
    for file, names in _by_file(elsewhere).items():
        own.notes.append(
            CodedText(
                "speaks-for-others",
                f"{own.files[file]} also reports on {listed(names)}, which have databases of their own: "
                "it is not used for these nodes.",
                {"path": str(own.files[file]), "nodes": ", ".join(names)},
            )
        )
    if elsewhere:
        own.told["not_believed"] = [{"file": str(own.files[f]), "node": node} for f, node in sorted(elsewhere)]
    kept = [copy for key, copy in seen.items() if key not in elsewhere]
    twice = {node for node, count in pd.Series([copy.node for copy in kept]).value_counts().items() if count > 1}
    conflicts: set[Conflict] = set()
    if twice:
        several = [copy for copy in kept if copy.node in twice]
        conflicts |= find_conflicts(own.tables, several, elsewhere)
    conflicts |= in_two_places(own.tables, elsewhere)
    refused = decide(conflicts)
    for refusal in refused.values():
        own.notes.append(_note(own, refusal))
    if refused:
        own.told["refused"] = [
            {"node": r.node, "code": r.code, "files": [str(own.files[n]) for n in r.files]} for r in refused.values()
        ]
    return Trust(elsewhere, refused)


def _note(own: _Joining, refusal: DisbelievedNode) -> CodedText:
    files = ", ".join(str(own.files[n]) for n in refusal.files)
    return CodedText(
        f"databases-{refusal.code}", f"{_told_of(own, refusal)} {_REMEDY}", {"files": files, "node": refusal.node}
    )


def _told_of(own: _Joining, refusal: DisbelievedNode) -> str:
    files = [str(own.files[n]) for n in refusal.files]
    if len(files) == 1:
        return f"{files[0]} reports the same GPUs on two nodes at once: it is not used for {refusal.node}."
    return _SENTENCES[refusal.code].format(files=listed(files), node=refusal.node)


def _by_file(pairs: Iterable[tuple[int, str]]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for file, node in sorted(pairs):
        found.setdefault(file, []).append(node)
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


def _join_copies(own: _Joining, elsewhere: frozenset[tuple[int, str]]) -> None:
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
    number = copies.eras(copy for key, copy in own.seen.items() if copy.node in twice and key not in elsewhere)
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
                coded(
                    "rows-in-several-databases",
                    "{rows} {what} rows appear in more than one database and count once.",
                    rows=len(some) - len(kept), what=what,
                )
            )  # fmt: skip
        own.tables[name] = resolve.concat([rows[~doubtful], kept.drop(columns="era")], list(rows.columns))
        own.ordered.discard(name)


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
    """Each node once: its newest row, with the earliest first sight. Of a refused node what all of its files say."""
    nodes = own.table("nodes")
    if nodes.empty:
        return _plain(nodes, queries.NODES)
    machines = nodes.dropna(subset=["machine_id"]).groupby("node")["machine_id"].nunique()
    for name, count in machines[machines > 1].items():
        if name not in trust.refused:
            own.notes.append(
                coded(
                    "machines-with-one-name",
                    "{machines} machines have the name {node}, and their data is mixed. Give each node a unique name.",
                    machines=int(count),
                    node=str(name),
                )
            )
    first = nodes.groupby("node")["first_seen"].min()
    latest = nodes.sort_values("last_seen").drop_duplicates("node", keep="last").sort_values("node", ignore_index=True)
    latest = latest.assign(first_seen=latest["node"].map(first))
    for name in trust.refused:
        rows = nodes[nodes["node"] == name]
        for fact in ("cluster", "machine_id", *NODE_FACTS, "node_sku_source"):
            if len(set(rows[fact].dropna())) > 1:
                latest.loc[latest["node"] == name, fact] = rows[fact].min() if fact == "gpu_count" else None
    return _plain(latest, queries.NODES)


def _refusals(own: _Joining, trust: Trust) -> pd.DataFrame:
    """Why nothing of the refused nodes is observed, as absences."""
    rows = [
        {"node": r.node, "gpu_uuid": None, "device": "nvml", "scope": "source", "metric": "*", "reason": r.code,
         "detail": _told_of(own, r), "remedy": _REMEDY, "since": own.window.start, "until": np.nan, "file": -1}
        for r in trust.refused.values()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=[*queries.ABSENCES.columns, "file"]).astype(
        dict.fromkeys(queries.ABSENCES.text, object)
    )


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
