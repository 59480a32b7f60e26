"""The tables of several files as those of one frame: each moment once, and of each node what can be believed.

A file of the agent is one machine's: it speaks for its own node. A file of several nodes (simulated, or gathered) is
not believed about those that have files of their own. Several own files of one node are a live database, its
snapshots, and one that was set aside: each hour of a device is taken from the file that observed most of it. Where they
contradict one another, or where a GPU is reported on two nodes at once, nothing says which is right, and the node is
refused: its GPUs stay in every count as not observed, and no dollar comes of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ....agent.store.reading import queries
from ...core.coded_text import CodedText, coded
from ...core.formatting import counted, listed
from ...core.frame import Frame, Window
from .. import resolution as resolve
from ..resolution import FAMILIES, HOUR, stacked
from .database import LISTED, Parts

# File -> the nodes about which it is believed; None: all of which it tells.
Believed = Mapping[Path, Collection[str] | None]
Tables = dict[str, pd.DataFrame]
# Why a node is refused.
CONTRADICTION, TWO_PLACES = "contradicting-copies", "gpu-in-two-places"
_REMEDY = "Remove the wrong one. 'skuwise agent snapshot' on the node makes a valid copy."
_SENTENCES = {
    CONTRADICTION: "{files} contradict one another about {node}: none of them is used for this node.",
    TWO_PLACES: "{files} report the same GPUs on two nodes at once: not used for {node}.",
}
# An hour of which a file observed so much counts as whole.
_WHOLE_SECONDS = 0.95 * HOUR
# What two ways of summing one hour may differ by: samples, minutes and hours are rounded to steps of their own.
_RELATIVE, _RATIO_STEP = 0.02, 0.005
_STEPS = (
    ("_watts", 3.0), ("_hertz", 2e7), ("mem_used_bytes", 64.0 * 2**20), ("_bytes_per_second", 1e6),
    ("xmit_wait_per_second", 1e3), ("joules", 3.0),
)  # fmt: skip
# A GPU may be reported on two nodes for so long altogether: clocks that differ, an hour in which it moved.
_TWICE_SECONDS = 1800.0
_LOST = {
    "rows": "with an impossible time or coverage are ignored.",
    "values": "contain impossible measurements, which count as missing.",
}


def believed_of(source: Mapping[str, object], paths: Iterable[Path]) -> Believed:
    """What a frame's or an advice's ``source`` says of these files."""
    believed = source.get("believed")
    if not isinstance(believed, Mapping):
        return dict.fromkeys(paths)
    return {path: believed.get(str(path), ()) for path in paths}


def join(read: Mapping[Path, Parts], window: Window, files: Sequence[Path], notes: list[CodedText]) -> Frame:
    """One frame of what was read of each file, whose rows are taken out of it. `files`: all that were named; `notes`:
    what was said so far."""
    paths, parts = list(read), list(read.values())
    # Rows carry ``file``, the position of their file, until they are joined.
    tables: Tables = {
        name: stacked(
            [(n, table) for n, part in enumerate(parts) for table in part.rows.pop(name, [])],
            family.hours, (*family.keys, "ts"),
        )
        for name, family in FAMILIES.items()
    }  # fmt: skip
    for name, query in LISTED.items():
        some = [part.tables[name].assign(file=n) for n, part in enumerate(parts) if not part.tables[name].empty]
        tables[name] = resolve.concat(some, [*query.columns, "file"])
    for part in parts:
        notes.extend(part.notes)
    _say_lost(read, notes)
    believed = _drop_what_others_tell(tables, paths, notes)
    refused = _refused(tables, paths, notes)
    for name, table in tables.items():
        if refused and "node" in table.columns and name not in ("nodes", "gpus"):
            tables[name] = table[~table["node"].isin(set(refused))]
    _newest_last(tables, set(refused))
    _each_hour_once(tables, notes)
    if refused:
        known = [tables["absences"], _refusals(refused, window)]
        tables["absences"] = resolve.concat(known, list(tables["absences"].columns))
    source: dict[str, object] = {"kind": "sqlite", "databases": [str(path) for path in files]}
    if believed or refused:
        nodes = tables["nodes"][~tables["nodes"]["node"].isin(set(refused))]
        of_file = nodes.groupby("file")["node"].agg(lambda names: sorted(map(str, names)))
        source["believed"] = {str(path): of_file.get(n, []) for n, path in enumerate(paths)}
    tables |= _joined(tables, notes, refused)
    rows = {name: tables.pop(name).drop(columns="file").reset_index(drop=True) for name in FAMILIES}
    once = {name: tables.pop(name)[list(LISTED[name].columns)].reset_index(drop=True) for name in LISTED}
    return Frame(window=window, source=source, notes=tuple(notes), **rows, **once)  # pyright: ignore[reportArgumentType]


def _say_lost(read: Mapping[Path, Parts], notes: list[CodedText]) -> None:
    """Name the files and nodes with rows or values that cannot be."""
    for path, part in read.items():
        for what, words in _LOST.items():
            some = part.lost.rows if what == "rows" else part.lost.values
            if some:
                of = f" of {listed(sorted(filter(None, some)))}" if any(some) else ""
                text = f"{path}: {counted(some.total(), 'row')}{of} {words}"
                notes.append(CodedText(f"implausible-{what}", text, {"path": str(path), "rows": some.total()}))


def _drop_what_others_tell(tables: Tables, paths: Sequence[Path], notes: list[CodedText]) -> bool:
    """Rows of files of several nodes about nodes that have files of their own; whether there are any."""
    nodes = tables["nodes"]
    if not nodes["node"].duplicated().any():
        return False
    by_file = nodes.groupby("file")
    # A machine that was renamed tells of itself under several names.
    is_own = (by_file["node"].nunique() == 1) | (
        (by_file["machine_id"].nunique() == 1) & (by_file["machine_id"].count() == by_file.size())
    )
    own_file = nodes["file"].map(is_own).to_numpy(bool)
    owned = set(nodes.loc[own_file, "node"])
    elsewhere = nodes[~own_file & nodes["node"].isin(owned).to_numpy(bool)]
    for file, names in elsewhere.groupby("file")["node"]:
        path = paths[int(file)]  # type: ignore[call-overload] - a position
        said = f"{path} also reports on {listed(sorted(names))}, which have databases of their own: "
        fields = {"path": str(path), "nodes": ", ".join(sorted(names))}
        notes.append(CodedText("speaks-for-others", f"{said}it is not used for these nodes.", fields))
        for name, table in tables.items():
            if "node" in table.columns and not table.empty:
                tables[name] = table[~((table["file"] == file) & table["node"].isin(set(names)))]
    return not elsewhere.empty


def _refused(tables: Tables, paths: Sequence[Path], notes: list[CodedText]) -> dict[str, tuple[str, str]]:
    """Node -> code and sentence, of nodes about which files contradict one another."""
    nodes = tables["nodes"]
    twice = set(nodes.loc[nodes["node"].duplicated(), "node"])
    wrong = dict.fromkeys(_of_two_machines(nodes[nodes["node"].isin(twice)], tables["gpu"]), CONTRADICTION)
    for name, family in FAMILIES.items() if twice else ():
        rows = tables[name]
        wrong |= dict.fromkeys(_contradicting(rows[rows["node"].isin(twice)], family.keys), CONTRADICTION)
    partners = _in_two_places(tables["gpu"])
    wrong |= dict.fromkeys(_fewest(partners), TWO_PLACES)
    refused: dict[str, tuple[str, str]] = {}
    for node, code in sorted(wrong.items()):
        about = {node, *(partners.get(node, ()) if code == TWO_PLACES else ())}
        files = [str(paths[n]) for n in sorted(set(nodes.loc[nodes["node"].isin(about), "file"]))]
        said = _SENTENCES[code].format(files=listed(files), node=node)
        refused[node] = (code, said)
        fields = {"files": ", ".join(files), "node": node}
        notes.append(CodedText(f"databases-{code}", f"{said} {_REMEDY}", fields))
    return refused


def _of_two_machines(nodes: pd.DataFrame, gpu: pd.DataFrame) -> set[str]:
    """Nodes that files saw as machines with other ids in the same hours."""
    ids = nodes.dropna(subset=["machine_id"]).set_index(["file", "node"])["machine_id"]
    rows = gpu[gpu["node"].isin(set(nodes["node"]))]
    machine = pd.Series(ids.reindex(pd.MultiIndex.from_frame(rows[["file", "node"]])).to_numpy(), rows.index)
    at_once = machine.groupby([rows["node"], _hour(rows)]).nunique() > 1
    # At the hour's edge one may follow the other.
    hours = at_once.groupby(level=0).sum()
    return set(hours.index[hours > 1])


def _contradicting(rows: pd.DataFrame, keys: Sequence[str]) -> set[str]:
    """Nodes of which two files tell other means of an hour that both have seen whole."""
    if rows.empty:
        return set()
    measures = [name for name in rows.columns if name.endswith("_mean")]
    seconds = rows["observed_seconds"].to_numpy(float)[:, None]
    values = rows[measures].to_numpy(float)
    at = [rows[name] for name in keys] + [_hour(rows)]
    by_file = [*at, rows["file"]]
    known = pd.DataFrame(np.where(np.isnan(values), 0.0, seconds), rows.index, measures).groupby(by_file).sum()
    total = pd.DataFrame(np.nan_to_num(values) * seconds, rows.index, measures).groupby(by_file).sum()
    means = (total / known).where(known >= _WHOLE_SECONDS)
    of_hour = means.groupby(level=list(range(len(at))))
    low, high = of_hour.min(), of_hour.max()
    steps = np.array([next((step for part, step in _STEPS if part in name), _RATIO_STEP) for name in measures])
    wrong = ((high - low) > steps + _RELATIVE * high.abs()).any(axis=1)
    return set(wrong.index[wrong].get_level_values(0))


def _hour(rows: pd.DataFrame) -> pd.Series:
    return pd.Series(np.ceil(rows["ts"].to_numpy(float) / HOUR), rows.index, name="hour")


def _in_two_places(gpu: pd.DataFrame) -> dict[str, set[str]]:
    """Node -> others on which its GPUs were observed for longer than there is time."""
    places = gpu[["gpu_uuid", "node"]].drop_duplicates()
    doubtful = set(places.loc[places["gpu_uuid"].duplicated(), "gpu_uuid"])
    some = gpu[gpu["gpu_uuid"].isin(doubtful)]
    found: dict[str, set[str]] = {}
    if some.empty:
        return found
    at = [some["gpu_uuid"], some["node"], _hour(some)]
    # Of copies of one node the fullest counts.
    seconds = some["observed_seconds"].groupby([*at, some["file"]]).sum().groupby(level=[0, 1, 2]).max()
    beyond = (seconds.groupby(level=[0, 2]).sum() - HOUR).clip(lower=0.0).groupby(level=0).sum()
    for uuid in beyond.index[beyond > _TWICE_SECONDS]:
        nodes = set(places.loc[places["gpu_uuid"] == uuid, "node"])
        for node in nodes:
            found.setdefault(node, set()).update(nodes - {node})
    return found


def _fewest(partners: Mapping[str, set[str]]) -> set[str]:
    """The nodes to refuse: one that is at odds with several that are at odds with nobody else, both of any other."""
    alone = {
        node for node, others in partners.items() if len(others) > 1 and all(len(partners[one]) == 1 for one in others)
    }
    return alone | {node for node, others in partners.items() if not others <= alone}


def _newest_last(tables: Tables, refused: Collection[str]) -> None:
    """Put the rows of newer files behind those of older ones; of a refused node's GPUs keep those of the newest."""
    nodes = tables["nodes"]
    if nodes.empty:
        return
    rank = nodes.groupby("file")["last_seen"].max().rank(method="first")
    for name in LISTED:
        table = tables[name]
        if not table.empty:
            tables[name] = table.assign(rank=table["file"].map(rank).fillna(0.0)).sort_values("rank", kind="stable")
    gpus = tables["gpus"]
    if refused and not gpus.empty:
        newest = gpus.groupby("node")["rank"].transform("max")
        tables["gpus"] = gpus[~gpus["node"].isin(refused) | (gpus["rank"] == newest)]


def _each_hour_once(tables: Tables, notes: list[CodedText]) -> None:
    """Of each device and hour the rows of one file: of the one that observed most, where they observed the same of the
    newest. Hours and minutes that tell the same hour are never mixed."""
    nodes = tables["nodes"]
    twice = set(nodes.loc[nodes["node"].duplicated(), "node"])
    newest = {int(file): place for place, file in enumerate(dict.fromkeys(nodes["file"]))}
    for name, family in FAMILIES.items() if twice else ():
        rows = tables[name]
        doubtful = rows["node"].isin(twice).to_numpy(bool)
        some = rows[doubtful]
        if some.empty:
            continue
        at = [some[key] for key in family.keys] + [_hour(some)]
        # The hundredths of a second that a copy may have more are no reason to prefer it.
        seconds = some["observed_seconds"].groupby([*at, some["file"]]).transform("sum")
        preference = np.floor(seconds / 2.0 + 0.5) * len(newest) + some["file"].map(newest)
        kept = preference == preference.groupby(at).transform("max")
        if not kept.all():
            what = {"gpu": "GPU"}.get(name, name)
            text = "{rows} {what} rows appear in more than one database and count once."
            notes.append(coded("rows-in-several-databases", text, rows=int((~kept).sum()), what=what))
            gone = doubtful.copy()
            gone[doubtful] = ~kept
            tables[name] = rows[~gone]


def _joined(tables: Tables, notes: list[CodedText], refused: Collection[str]) -> Tables:
    """What is listed, each thing once; rows of newer files come behind those of older ones."""
    nodes, gpus, history, absences = (tables[name] for name in ("nodes", "gpus", "fabric_history", "absences"))
    for name, count in nodes.groupby("node")["machine_id"].nunique().items():
        if count > 1 and name not in refused:
            text = "{machines} machines have the name {node}, and their data is mixed. Give each node a unique name."
            notes.append(coded("machines-with-one-name", text, machines=int(count), node=str(name)))
    first = nodes.groupby("node")["first_seen"].min()
    newest = nodes.sort_values("last_seen", kind="stable").drop_duplicates("node", keep="last").sort_values("node")
    uses = tables["uses"].sort_values("ts_end", kind="stable")
    uses = uses.drop_duplicates(["workload_id", "node", "gpu_uuid", "ts_start"], keep="last")
    tokens = tables["tokens"].sort_values("seconds", kind="stable")
    port = ["node", "device", "port"]
    longest = history.sort_values("hours", kind="stable").drop_duplicates(port, keep="last")
    if len(longest) < len(history):
        active = history.groupby(port)["last_active_ts"].max()
        longest = longest.assign(last_active_ts=active.reindex(pd.MultiIndex.from_frame(longest[port])).to_numpy())
    # A copy made while something was missing does not know when that ended: the file that does is right.
    what = [name for name in queries.ABSENCES.columns if name not in ("until", "detail", "remedy")]
    ended = absences.sort_values("until", kind="stable", na_position="first").drop_duplicates(what, keep="last")
    return {
        "nodes": newest.assign(first_seen=newest["node"].map(first)),
        "gpus": gpus.sort_values("valid_from", kind="stable").drop_duplicates(["node", "gpu_uuid"], keep="last"),
        "uses": uses,
        "workloads": _workloads(tables["workloads"], uses),
        "tokens": tokens.drop_duplicates(["node", "workload_id", "engine", "ts"], keep="last").sort_index(),
        "jobs": tables["jobs"].drop_duplicates(["cluster", "job_id", "started_at"], keep="last"),
        "fabric_history": longest,
        "absences": ended.sort_index(),
    }


def _workloads(workloads: pd.DataFrame, uses: pd.DataFrame) -> pd.DataFrame:
    """One row a workload: the newest, with what only older ones know. What a file says of work that it saw on none of
    its nodes, and others did, is hearsay."""
    if not workloads["workload_id"].duplicated().any():
        return workloads.sort_values("last_seen", kind="stable")
    users = pd.MultiIndex.from_frame(uses[["file", "workload_id"]])
    saw = pd.MultiIndex.from_frame(workloads[["file", "workload_id"]]).isin(users)
    rows = workloads[saw | ~workloads["workload_id"].isin(set(uses["workload_id"]))]
    rows = rows.sort_values("last_seen", kind="stable")
    once = rows.groupby("workload_id", sort=False, as_index=False).last()
    once["first_seen"] = once["workload_id"].map(rows.groupby("workload_id")["first_seen"].min())
    return once.astype({name: rows[name].dtype for name in once.columns}).sort_values("last_seen", kind="stable")


def _refusals(refused: Mapping[str, tuple[str, str]], window: Window) -> pd.DataFrame:
    """Why nothing of the refused nodes is observed, as absences."""
    rows = [
        {"node": node, "gpu_uuid": None, "device": "nvml", "scope": "source", "metric": "*", "reason": code,
         "detail": said, "remedy": _REMEDY, "since": window.start, "until": np.nan}
        for node, (code, said) in refused.items()
    ]  # fmt: skip
    return pd.DataFrame(rows).astype(dict.fromkeys(queries.ABSENCES.text, object))
