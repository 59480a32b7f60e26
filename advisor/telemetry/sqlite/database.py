"""Databases: the tables of one for a window, and those of several files as those of one frame: each moment once, and of
each node what can be believed.

A file of one machine speaks for its own node. A file of several nodes (simulated, or gathered) is not believed about
those that have files of their own. Several own files of one node are a live database, its snapshots, and one that was
set aside: each hour of a device is taken from the file that observed most of it. Where they contradict one another, or
where a GPU is reported on two nodes at once, nothing says which is right, and the node is refused: its GPUs stay in
every count as not observed, and no dollar comes of them.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from ....agent.store.reader import Reader, Rows, decoded, open_reader
from ....rules.base.errors import UsageError
from ...core.coded_text import CodedText, coded
from ...core.formatting import counted, listed
from ...core.frame import Frame, Window
from .. import queries
from .. import resolution as resolve
from ..queries import Query
from ..resolution import FAMILIES, HOUR, Only, RowFamily, concat, stacked
from ..tables import LAST_DAY, to_table

DatabaseReader = Reader
open_database = open_reader


def database_files(paths: Sequence[Path]) -> list[Path]:
    """The databases that `paths` name: files as they are, folders as the ``*.db`` in them. Raises UsageError."""
    files: list[Path] = []
    for path in paths:
        # A pipe or a link to nothing is left out with a note, like any other file that cannot be read.
        inside = sorted(p for p in path.glob("*.db") if not p.is_dir()) if path.is_dir() else [path]
        if not inside:
            raise UsageError(f"No *.db file in folder {path}.", "Use a folder of node databases.")
        files += inside
    if not files:
        raise UsageError("No database given.", "Use --db PATH.")
    return list(dict.fromkeys(files))


def read_rows(
    reader: DatabaseReader, query: Query, parameters: Mapping[str, float], only: Only | None = None
) -> Iterator[Rows]:
    """All rows of a query of ours, some thousand at a time. `only`: rows with these values of a column. Raises
    StoreError."""
    sql, given = query.sql, dict[str, object](parameters)
    if only is not None:
        column, values = only
        given |= {f"only{n}": value for n, value in enumerate(sorted(values))}
        sql = f"{sql} AND {column} IN ({', '.join(f':only{n}' for n in range(len(values)))})"
    reader.text_factory = bytes  # a table decodes each distinct text once
    try:
        yield from reader.parts(f"{sql}{query.grouped}", given)
    finally:
        reader.text_factory = decoded


# A port that exceeds this share of its line rate in some second of an hour was in use in it.
FABRIC_ACTIVE_LEVEL = 0.01
# What is listed of a window, beside the rows of devices.
LISTED: dict[str, Query] = {
    "nodes": queries.NODES, "gpus": queries.GPUS, "workloads": queries.WORKLOADS, "uses": queries.USES,
    "absences": queries.ABSENCES, "serving": queries.SERVING, "tokens": queries.TOKENS, "jobs": queries.SLURM_JOBS,
    "fabric_history": queries.FABRIC_HISTORY,
}  # fmt: skip
# Counts over a whole window, which short rows are not read with; and all that is read with hours of certain GPUs.
_OF_WHOLE_WINDOWS, _OF_PAST = ("serving", "fabric_history"), ("nodes", "gpus", "absences")


@dataclass(slots=True)
class Parts:
    """What was read of one file: the rows of each family, in any number of tables; the rows of what is listed; and how
    many rows of each node had impossible values. `last_seen`: of each node, Unix seconds."""

    rows: dict[str, list[pd.DataFrame]] = field(default_factory=dict)
    listed: dict[str, Rows] = field(default_factory=dict)
    last_seen: dict[str, float] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)


def span_of(reader: DatabaseReader) -> tuple[float, float] | None:
    """Start and end of all the data in a database, Unix seconds; None where it has none."""
    *cells, seen = reader.fetch(queries.DATA_SPAN)[0]
    moments = [float(cell) for cell in cells if isinstance(cell, (int, float)) and 0 < cell < LAST_DAY]
    if not moments:
        return None
    first, last = min(moments), max(moments)
    return first, min(last, float(seen)) if isinstance(seen, (int, float)) and seen > first else last


def read_database(
    reader: DatabaseReader, window: Window, refined: int, resolution: float = resolve.HOUR,
    wanted: Collection[str] | None = None,
) -> Parts:  # fmt: skip
    """The tables of one database. `refined`: hours that may be read by the minute; `resolution`: seconds of the
    coarsest rows; `wanted`: as of `read_frame`. Raises StoreError."""
    parts = Parts()
    bounds = {"start": window.start, "end": window.end, "level": FABRIC_ACTIVE_LEVEL, "step": resolution}

    def fetch(query: Query, start: float, end: float, only: Only | None = None) -> list[pd.DataFrame]:
        given = {**bounds, "start": start, "end": end}
        if only is not None and not only[1]:
            return []
        return [to_table(rows, query, parts.lost) for rows in read_rows(reader, query, given, only)]

    is_past = wanted is not None and resolution >= resolve.HOUR
    for name, query in LISTED.items():
        if name in _OF_PAST if is_past else resolution >= resolve.HOUR or name not in _OF_WHOLE_WINDOWS:
            parts.listed[name] = [row for rows in read_rows(reader, query, bounds) for row in rows]
    nodes = to_table(parts.listed["nodes"], queries.NODES)
    parts.last_seen = dict(zip(nodes["node"], nodes["last_seen"].fillna(window.end), strict=True))
    at = queries.GPUS.columns.index("gpu_uuid")
    listed = {decoded(raw) for row in parts.listed["gpus"] if isinstance(raw := row[at], bytes)}
    only = ("gpu_uuid", listed.intersection(wanted)) if wanted else None
    for name, family in resolve.families(resolution, wanted).items():
        chosen = only if name == "gpu" else None
        parts.rows[name] = resolve.read_family(fetch, family, window, parts.last_seen, resolution, only=chosen)
    if wanted is not None or resolution < resolve.HOUR:
        return parts
    ((minutes_from,),) = reader.fetch(queries.MINUTES_BEGIN)
    if isinstance(minutes_from, (int, float)):
        most, gpu = min(refined, resolve.MAX_REFINED_HOURS * len(nodes)), parts.rows["gpu"]
        uses = to_table(parts.listed["uses"], queries.USES)
        parts.rows["gpu"] = resolve.with_minutes_at_edges(fetch, gpu, uses, float(minutes_from), most)
    return parts


Tables = dict[str, pd.DataFrame]
# Why a node is refused.
CONTRADICTION, TWO_PLACES = "contradicting-copies", "gpu-in-two-places"
_REMEDY = "Remove the wrong one. 'skuwise agent snapshot' on the node makes a valid copy."
_SENTENCES = {
    CONTRADICTION: "{files} contradict one another about {node}: none of them is used for this node.",
    TWO_PLACES: "{files} report the same GPUs on two nodes at once: not used for {node}.",
}
# A row of which a file observed this share counts as whole.
_WHOLE_SHARE = 0.95
# What two ways of summing one row may differ by: samples, minutes and hours are rounded to steps of their own.
_RELATIVE, _RATIO_STEP = 0.02, 0.005
_STEPS = (
    ("_watts", 3.0), ("_hertz", 2e7), ("mem_used_bytes", 64.0 * 2**20), ("_bytes_per_second", 1e6),
    ("xmit_wait_per_second", 1e3), ("joules", 3.0),
)  # fmt: skip
# A GPU may be reported on two nodes for so long altogether: clocks that differ, an hour in which it moved.
_TWICE_SECONDS = 1800.0
_PORT = ["node", "device", "port"]
# By what each list is ordered, so that the last of several counts, and what names a thing. An absence that was copied
# before it ended has no end: the file that has one is right.
_ONCE = {
    "nodes": ("last_seen", ["node"]),
    "gpus": ("valid_from", ["node", "gpu_uuid"]),
    "uses": ("ts_end", ["workload_id", "node", "gpu_uuid", "ts_start"]),
    "tokens": ("seconds", ["node", "workload_id", "engine", "ts"]),
    "jobs": ("started_at", ["cluster", "job_id", "started_at"]),
    "fabric_history": ("hours", _PORT),
    "absences": ("until", [name for name in queries.ABSENCES.columns if name not in {"until", "detail", "remedy"}]),
}


def believed_of(source: Mapping[str, object], paths: Iterable[Path]) -> Mapping[Path, Collection[str] | None]:
    """File -> nodes about which it is believed (None: all), by the ``source`` of a frame or an advice."""
    believed = source.get("believed")
    if not isinstance(believed, Mapping):
        return dict.fromkeys(paths)
    return {path: believed.get(str(path), ()) for path in paths}


def join(
    read: Mapping[Path, Parts], window: Window, files: Sequence[Path], notes: list[CodedText],
    families: dict[str, RowFamily] = FAMILIES,
) -> Frame:  # fmt: skip
    """One frame of what was read of each file, whose rows are taken out of it. `files`: all that were named; `notes`:
    of the frame, to which others are added; `families`: of which the rows are."""
    # Until they are joined, rows carry ``file``, the position of their file; newer ones come after older ones.
    paths = sorted(read, key=lambda path: max(read[path].last_seen.values(), default=0.0))
    parts = [read[path] for path in paths]
    tables: Tables = {}
    for name, family in (FAMILIES | families).items():
        rows = [(n, table) for n, part in enumerate(parts) for table in part.rows.pop(name, ())]
        tables[name] = stacked(rows, family.hours, (*family.keys, "ts"))
    lost = Counter[tuple[float, str]]()
    for name, query in LISTED.items():
        listed_rows = [(*row, n) for n, part in enumerate(parts) for row in part.listed.get(name, ())]
        table = to_table(listed_rows, replace(query, numbers=(*query.numbers, "file")), lost)
        tables[name] = table.astype({"file": int})
    for (n, node), count in lost.items():
        parts[int(n)].lost[node] += count
    # The agent always writes both; where one was removed by hand, only the window is known.
    tables["nodes"] = tables["nodes"].fillna({"first_seen": window.start, "last_seen": window.end})
    for path, part in read.items():
        if count := part.lost.total():
            of = f"{counted(count, 'row')} of {listed(sorted(filter(None, part.lost))) or 'no node'}"
            text = f"{path}: {of} contain impossible times or measurements, which are ignored."
            notes.append(CodedText("implausible-rows", text, {"path": str(path), "rows": count}))
    is_believed_in_part = _drop_what_others_tell(tables, paths, notes)
    refused = _refused(tables, paths, notes)
    for name, table in tables.items():
        if refused and "node" in table.columns and name not in {"nodes", "gpus"}:
            tables[name] = table[~table["node"].isin(refused)]
    _each_hour_once(tables, notes)
    source: dict[str, object] = {"kind": "sqlite", "databases": [str(path) for path in files]}
    if is_believed_in_part or refused:
        nodes = tables["nodes"][~tables["nodes"]["node"].isin(refused)]
        of_file = nodes.groupby("file")["node"].agg(lambda names: sorted(map(str, names)))
        source["believed"] = {str(path): of_file.get(n, []) for n, path in enumerate(paths)}
    _each_thing_once(tables, refused)
    if refused:
        # Why nothing of the refused nodes is observed.
        rows = pd.DataFrame.from_dict(refused, orient="index", columns=["reason", "detail"])
        rows = rows.rename_axis("node").reset_index()
        rows = rows.assign(device="nvml", scope="source", metric="*", remedy=_REMEDY, since=window.start, until=np.nan)
        rows = rows.assign(gpu_uuid=None).astype(dict.fromkeys(queries.ABSENCES.text, object))
        tables["absences"] = concat([tables["absences"], rows], list(tables["absences"].columns))
    rows = {name: tables.pop(name).drop(columns="file").reset_index(drop=True) for name in FAMILIES}
    once = {name: tables[name][list(query.columns)].reset_index(drop=True) for name, query in LISTED.items()}
    return Frame(window=window, source=source, notes=tuple(notes), **rows, **once)  # pyright: ignore[reportArgumentType]


def _drop_what_others_tell(tables: Tables, paths: Sequence[Path], notes: list[CodedText]) -> bool:
    """Rows of files of several nodes about nodes that have files of their own; whether there are any."""
    nodes = tables["nodes"]
    # A machine that was renamed has several nodes.
    is_own = nodes["machine_id"].fillna(nodes["node"]).groupby(nodes["file"]).transform("nunique") == 1
    elsewhere = nodes[~is_own & nodes["node"].isin(nodes.loc[is_own, "node"])]
    for file, names in elsewhere.groupby("file")["node"]:
        path, others = paths[int(file)], listed(sorted(names))  # type: ignore[call-overload] - a position
        text = "{path} also reports on {nodes}, which have databases of their own: it is not used for these nodes."
        notes.append(coded("speaks-for-others", text, path=str(path), nodes=others))
        for name, table in tables.items():
            if "node" in table.columns and not table.empty:
                tables[name] = table[~((table["file"] == file) & table["node"].isin(set(names)))]
    return not elsewhere.empty


def _refused(tables: Tables, paths: Sequence[Path], notes: list[CodedText]) -> dict[str, tuple[str, str]]:
    nodes, gpu = tables["nodes"], tables["gpu"]
    twice = nodes.loc[nodes["node"].duplicated(), "node"]
    wrong = _of_two_machines(nodes, gpu[gpu["node"].isin(twice)])
    for name, family in FAMILIES.items():
        wrong |= _contradicting(tables[name][tables[name]["node"].isin(twice)], family.keys)
    codes = dict.fromkeys(wrong, CONTRADICTION)
    places = _in_two_places(gpu)
    times = Counter(node for place in places for node in place)
    for place in places:
        # One node that has the GPUs of several others is refused alone.
        codes |= dict.fromkeys((node for node in place if times[node] == max(times[n] for n in place)), TWO_PLACES)
    refused: dict[str, tuple[str, str]] = {}
    for node, code in sorted(codes.items()):
        about = {node}.union(*(place for place in places if node in place and code == TWO_PLACES))
        files = sorted({str(paths[n]) for n in nodes.loc[nodes["node"].isin(about), "file"]})
        refused[node] = (code, _SENTENCES[code].format(files=listed(files), node=node))
        fields = {"files": ", ".join(files), "node": node}
        notes.append(CodedText(f"databases-{code}", f"{refused[node][1]} {_REMEDY}", fields))
    return refused


def _of_two_machines(nodes: pd.DataFrame, gpu: pd.DataFrame) -> set[str]:
    rows = gpu[["file", "node", "ts"]].merge(nodes[["file", "node", "machine_id"]], on=["file", "node"])
    at_once = rows["machine_id"].groupby([rows["node"], np.ceil(rows["ts"] / HOUR)]).nunique() > 1
    hours = at_once.groupby(level=0).sum()
    return set(hours.index[hours > 1])  # at the hour's edge one may follow the other


def _contradicting(rows: pd.DataFrame, keys: Sequence[str]) -> set[str]:
    whole = rows[rows["observed_seconds"] >= _WHOLE_SHARE * rows["interval_seconds"]]
    if whole.empty:
        return set()
    measures = [name for name in rows.columns if name.endswith("_mean")]
    same = whole.groupby([*keys, "ts", "interval_seconds"])[measures]
    low, high = same.min(), same.max()
    steps = np.array([next((step for part, step in _STEPS if part in name), _RATIO_STEP) for name in measures])
    wrong = (high - low > steps + _RELATIVE * high.abs()).any(axis=1)
    return set(wrong.index[wrong].get_level_values(0))


def _in_two_places(gpu: pd.DataFrame) -> set[frozenset[str]]:
    places = gpu[["gpu_uuid", "node"]].drop_duplicates()
    doubtful = places[places["gpu_uuid"].duplicated(keep=False)].groupby("gpu_uuid")["node"].agg(frozenset)
    some = gpu[gpu["gpu_uuid"].isin(doubtful.index)] if len(doubtful) else gpu[:0]
    if some.empty:
        return set()
    at = [some["gpu_uuid"], np.ceil(some["ts"] / HOUR), some["node"], some["file"]]
    # Of copies of one node the fullest counts.
    seconds = some["observed_seconds"].groupby(at).sum().groupby(level=[0, 1, 2]).max()
    beyond = (seconds.groupby(level=[0, 1]).sum() - HOUR).clip(lower=0.0).groupby(level=0).sum()
    return set(doubtful[beyond.index[beyond > _TWICE_SECONDS]])


def _each_hour_once(tables: Tables, notes: list[CodedText]) -> None:
    """Of each device and hour the rows of one file: of the one that observed most, where they observed the same of the
    newest. Hours and minutes of the same hour are never mixed."""
    nodes = tables["nodes"]
    twice = nodes.loc[nodes["node"].duplicated(), "node"]
    for name, family in FAMILIES.items():
        rows = tables[name]
        some = rows[rows["node"].isin(twice)]
        at = [*(some[key] for key in family.keys), np.ceil(some["ts"] / HOUR)]
        # The hundredths of a second that a copy may have more are no reason to prefer it.
        seconds = some["observed_seconds"].groupby([*at, some["file"]]).transform("sum")
        preference = np.floor(seconds / 2.0 + 0.5) * (nodes["file"].max() + 1) + some["file"]
        gone = some.index[preference < preference.groupby(at).transform("max")]
        if len(gone):
            text = "{rows} {what} rows appear in more than one database and count once."
            what = name.replace("gpu", "GPU")
            notes.append(coded("rows-in-several-databases", text, rows=len(gone), what=what))
            tables[name] = rows.drop(index=gone)


def _each_thing_once(tables: Tables, refused: Collection[str]) -> None:
    nodes, gpus, history, serving = (tables[name] for name in ("nodes", "gpus", "fabric_history", "serving"))
    # Of a refused node the GPUs of its newest file are kept.
    newest = gpus.groupby("node")["file"].transform("max")
    tables["gpus"] = gpus[~gpus["node"].isin(refused) | (gpus["file"] == newest)]
    tables["nodes"] = nodes.assign(first_seen=nodes.groupby("node")["first_seen"].transform("min"))
    active = history.groupby(_PORT)["last_active_ts"].transform("max")
    tables["fabric_history"] = history.assign(last_active_ts=active)
    for name, (column, keys) in _ONCE.items():
        ordered = tables[name].sort_values(column, kind="stable", na_position="first")
        tables[name] = ordered.drop_duplicates(keys, keep="last")
    tables["nodes"] = tables["nodes"].sort_values("node")
    tables |= {name: tables[name].sort_index() for name in ("tokens", "absences")}
    # Counts over the window do not show what two files both counted: of each server, those of the file with most.
    server = ["node", "workload_id", "engine"]
    total = serving.groupby([*server, "file"], dropna=False, as_index=False).agg({"seconds": "sum"})
    fullest = total.sort_values(["seconds", "file"]).drop_duplicates(server, keep="last")
    tables["serving"] = serving.merge(fullest[[*server, "file"]])
    # Of a workload the newest row, with what only older ones know.
    rows = tables["workloads"].sort_values("last_seen", kind="stable")
    once = rows.groupby("workload_id", sort=False, as_index=False).last()
    once["first_seen"] = once["workload_id"].map(rows.groupby("workload_id")["first_seen"].min())
    tables["workloads"] = once.astype(rows.dtypes).sort_values("last_seen", kind="stable")
