"""What files say that contradicts one another: the evidence by which it is decided whom to believe (`trust`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any, cast

import numpy as np
import pandas as pd

from ....agent.store.reading import queries
from ....agent.store.reading.queries import Query
from .. import resolution as resolve
from . import copies
from .copies import Copy, CopyFamily
from .holders import uses_differ
from .trust import CONTRADICTION, TWO_PLACES, Conflict, NodeClaim

FAMILIES: Mapping[str, tuple[Query, CopyFamily]] = {
    "gpu": (queries.GPU_HOURS, CopyFamily(resolve.GPU.keys, ("mem_total_bytes",))),
    "fabric": (
        queries.FABRIC_HOURS,
        CopyFamily(resolve.FABRIC.keys, ("role", "link_layer", "line_rate_bytes_per_second")),
    ),
    "host": (queries.HOST_HOURS, CopyFamily(resolve.HOST.keys)),
}
# By name; rows carry ``file``, the position of their file.
Tables = Mapping[str, pd.DataFrame]
# What files of one node say of it at the same time.
NODE_FACTS = ("cluster", "provider", "region", "instance_type", "node_sku", "gpu_count")
_GPU_FACTS = ("name", "sku", "kind", "parent_uuid", "slices", "mem_total_bytes", "gpu_index")
# Files that saw a node last within this time describe the same state of it; of others the newer one is right.
_SAME_TIME_SECONDS = 3600.0
# A GPU may be told of on two nodes for so long altogether: clocks that differ, an hour in which it moved.
_TWICE_SECONDS = 1800.0


def node_copies(tables: Tables) -> dict[tuple[int, str], Copy]:
    """What each file has of each node: from when it says to have seen it, or its rows do, to when."""
    nodes = tables["nodes"]
    first = nodes.groupby(["file", "node"])["first_seen"].min()
    last = nodes.groupby(["file", "node"])["last_seen"].max()
    begin, end = first.to_dict(), last.to_dict()
    for name in FAMILIES:
        rows = tables[name]
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


def row_dicts(table: pd.DataFrame) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", table.to_dict("records"))


def claims(tables: Tables, seen: Mapping[tuple[int, str], Copy]) -> list[NodeClaim]:
    claims = []
    for file, rows in tables["nodes"].groupby("file"):
        machines = {
            str(node): machine if isinstance(machine, str) else None
            for node, machine in zip(rows["node"], rows["machine_id"], strict=True)
        }
        number = int(file)  # type: ignore[call-overload] - a position
        turns = sorted((seen[number, node].begin, seen[number, node].end) for node in machines)
        apart = all(after[0] >= before[1] - _SAME_TIME_SECONDS for before, after in pairwise(turns))
        ids = set(machines.values())
        claims.append(NodeClaim(number, machines, apart and len(ids) == 1 and None not in ids))
    return claims


def find_conflicts(tables: Tables, several: Sequence[Copy], elsewhere: frozenset[tuple[int, str]]) -> set[Conflict]:
    """Files that tell differently of the nodes that they share. `several`: copies of these nodes."""
    number = copies.eras(several)
    found: set[tuple[str, int, int]] = set()
    names = {copy.node for copy in several}
    for name, (_, family) in FAMILIES.items():
        rows = tables[name]
        if rows.empty:
            continue
        rows = rows[rows["node"].isin(names)]
        keys = list(zip(rows["file"], rows["node"], strict=True))
        rows = rows.assign(era=[number.get(key, 0) for key in keys])
        believed = np.array([key not in elsewhere for key in keys], dtype=np.bool_)
        found |= copies.differing(rows[believed], family)
    nodes = {(int(row["file"]), str(row["node"])): row for row in row_dicts(tables["nodes"])}
    gpus = tables["gpus"]
    for name in names:
        here = sorted((copy for copy in several if copy.node == name), key=lambda copy: copy.end)
        for one, other in _neighbors(here, number):
            at_once = abs(one.end - other.end) <= _SAME_TIME_SECONDS
            if (
                (at_once and copies.unlike_facts(nodes[one.file, name], nodes[other.file, name], NODE_FACTS))
                or (at_once and _gpus_differ(gpus[gpus["node"] == name], one.file, other.file))
                or uses_differ(tables["uses"], one, other)
            ):
                found.add((name, one.file, other.file))
    return {Conflict(a, node, b, node, CONTRADICTION) for node, a, b in found}


def _neighbors(own: Sequence[Copy], number: Mapping[tuple[int, str], int]) -> Iterable[tuple[Copy, Copy]]:
    """Copies of one era, each with the next: where these agree, all do."""
    by_era: dict[int, list[Copy]] = {}
    for copy in own:
        by_era.setdefault(number[copy.file, copy.node], []).append(copy)
    for same in by_era.values():
        yield from pairwise(same)


def _gpus_differ(gpus: pd.DataFrame, one: int, other: int) -> bool:
    """Whether two files that end together describe other GPUs of a node. MIG instances come and go within the hour."""
    told = []
    for file in (one, other):
        newest = gpus[gpus["file"] == file].sort_values("valid_from").drop_duplicates("gpu_uuid", keep="last")
        told.append({str(row["gpu_uuid"]): row for row in row_dicts(newest)})
    first, second = told
    if any(row["kind"] == "gpu" for key in first.keys() ^ second.keys() for row in (first.get(key) or second[key],)):
        return True
    return any(copies.unlike_facts(first[key], second[key], _GPU_FACTS) for key in first.keys() & second.keys())


def in_two_places(tables: Tables, elsewhere: frozenset[tuple[int, str]]) -> set[Conflict]:
    """GPUs that were observed on two nodes for longer than there is time."""
    rows = tables["gpu"]
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
