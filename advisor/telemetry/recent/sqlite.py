"""The last hours from node databases as one reading.

A node of which several files tell is believed by `trust`'s rule for files that speak for others; of what is left the
file that heard of it last counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ....rules.catalog.loader import Catalog
from ....rules.policy.kind_priors import KindPriors
from ...core.coded_text import CodedText, coded
from ...core.recent import Detail, Recent, RecentGpu, RecentNode, Values
from ...core.records import Record, records
from ..sqlite.database_files import database_files
from ..sqlite.reader import CLOCK_TOLERANCE_SECONDS
from ..trust.trust import NodeClaim, speaks_for_others
from .columns import Columns
from .gpus import gpus_of
from .grids import SpanGrid, grids
from .sqlite_files import FileRows, read_files
from .work import JoinJobs, TableRows, holds_of

_DRAINED = "drained"
_GPU = {
    "sm": "sm_active_mean", "tensor": "tensor_active_mean", "dram": "dram_active_mean", "util": "gpu_util_mean",
    "power_watts": "power_watts_mean", "sm_clock_hertz": "sm_clock_hertz_mean",
}  # fmt: skip
_LINKS = tuple(f"{link}_{way}_bytes_per_second_mean" for link in ("pcie", "nvlink") for way in ("tx", "rx"))
_ENGINE = {
    "requests_running": "running_max", "requests_waiting": "waiting_max", "tokens_per_second": "generated_tokens",
}  # fmt: skip


@dataclass(frozen=True)
class _Believed:
    """A file and the nodes of its that count."""

    file: FileRows
    nodes: frozenset[str]


def read_recent(
    paths: Sequence[Path],
    catalog: Catalog,
    priors: KindPriors,
    *,
    lookback_seconds: float,
    now: float,
    until: float | None = None,
    processes: int = 1,
    join_jobs: JoinJobs = lambda frame: frame,
) -> Recent:
    """The last `lookback_seconds` before the newest minute that most files have (`until`: before that moment).
    `join_jobs`: joins a job table beside the databases' own to a frame of workloads.

    Raises SkuwiseError where no file can be read, NothingToDo where none has data.
    """
    files = database_files(paths)
    read = read_files(files, lookback_seconds=lookback_seconds, now=now, until=until, processes=processes)
    believed, said = _believed(read.files, now)
    fine, coarse = grids(read.end, lookback_seconds)
    last = _last_seen(believed, now)
    gpus = gpus_of(_gpu_rows(believed), catalog, last)
    nodes = _nodes(believed, last, gpus)
    gpu_places = {(gpu.node, gpu.uuid): n for n, gpu in enumerate(gpus)}
    node_places = {node.node: n for n, node in enumerate(nodes)}
    rows = [TableRows(one.file.tables, one.nodes) for one in believed]
    holds = holds_of(rows, gpu_places, {node.node: node.last_seen for node in nodes}, priors, read.end, join_jobs)
    work_places = {hold.workload_id: n for n, hold in enumerate(holds)}
    return Recent(
        now=now,
        end=read.end,
        gpus=gpus,
        nodes=nodes,
        holds=holds,
        gpu=Detail(
            fine.rows(_gpu_values(believed, fine, "gpu_fine", gpu_places, throttled=True)),
            coarse.rows(_gpu_values(believed, coarse, "gpu_coarse", gpu_places)),
        ),
        node=Detail(
            fine.rows(_node_values(believed, fine, "fine", node_places)),
            coarse.rows(_node_values(believed, coarse, "coarse", node_places)),
        ),
        service=Detail(
            fine.rows(_service_values(believed, fine, "engines_fine", work_places)),
            coarse.rows(_service_values(believed, coarse, "engines_coarse", work_places)),
        ),
        notes=(*read.notes, *said),
        source={"kind": "sqlite", "databases": [str(path) for path in files]},
    )


def _believed(files: Sequence[FileRows], now: float) -> tuple[tuple[_Believed, ...], tuple[CodedText, ...]]:
    claims, notes = [], []
    heard: dict[str, tuple[float, int]] = {}
    for n, file in enumerate(files):
        table = file.tables["nodes"]
        machines = {
            node: table.text("machine_id", row) for row in range(table.count) if (node := table.text("node", row))
        }
        claims.append(NodeClaim(n, machines, in_turn=False))
    elsewhere = speaks_for_others(claims)
    for n, file in enumerate(files):
        table = file.tables["nodes"]
        for row in range(table.count):
            node, seen = table.text("node", row), table.number("last_seen", row)
            if node is None or (n, node) in elsewhere:
                continue
            # A clock that runs ahead proves nothing.
            seen = min(seen or file.end, now + CLOCK_TOLERANCE_SECONDS)
            if node in heard:
                notes.append(
                    coded("node-told-twice", "Several databases contain {node}; the newest is used.", node=node)
                )
            if node not in heard or seen > heard[node][0]:
                heard[node] = (seen, n)
    owned: dict[int, set[str]] = {}
    for node, (_, n) in heard.items():
        owned.setdefault(n, set()).add(node)
    return tuple(_Believed(files[n], frozenset(nodes)) for n, nodes in sorted(owned.items())), tuple(
        dict.fromkeys(notes)
    )


def _mine(table: Columns, nodes: frozenset[str]) -> Iterable[int]:
    for row in range(table.count):
        if table.text("node", row) in nodes:
            yield row


def _last_seen(believed: Sequence[_Believed], now: float) -> dict[tuple[str, str], float]:
    """When each GPU was last heard of: the end of its newest observed minute."""
    found: dict[tuple[str, str], float] = {}
    for one in believed:
        for name in ("gpu_coarse", "gpu_fine"):
            table = one.file.tables.get(name)
            if table is None or not table.count:
                continue
            keys = table.codes["node"] * (len(table.texts["gpu_uuid"]) + 1) + table.codes["gpu_uuid"]
            moments = table.numbers["ts"]
            told = np.nan_to_num(table.numbers["observed_seconds"]) > 0
            for key in np.unique(keys[told]):
                at = np.flatnonzero((keys == key) & told)
                node, uuid = table.text("node", int(at[0])), table.text("gpu_uuid", int(at[0]))
                if node in one.nodes and node and uuid:
                    newest = min(float(np.nanmax(moments[at])), now + CLOCK_TOLERANCE_SECONDS)
                    found[node, uuid] = max(newest, found.get((node, uuid), 0.0))
    return found


def _gpu_rows(believed: Sequence[_Believed]) -> Iterable[Record]:
    """GPUs that are there now."""
    for one in believed:
        table = one.file.tables["gpus"].table()
        here = table[table["node"].isin(one.nodes) & table["valid_to"].isna() & table["gpu_uuid"].notna()]
        yield from records(here)


def _nodes(
    believed: Sequence[_Believed], last: Mapping[tuple[str, str], float], gpus: Sequence[RecentGpu]
) -> tuple[RecentNode, ...]:
    newest: dict[str, float] = {}
    for (node, _), seen in last.items():
        newest[node] = max(seen, newest.get(node, 0.0))
    counted: dict[str, float] = {}
    for gpu in gpus:
        counted[gpu.node] = counted.get(gpu.node, 0.0) + gpu.part
    out: dict[str, RecentNode] = {}
    for one in believed:
        drained = _drained(one)
        table = one.file.tables["nodes"]
        for row in _mine(table, one.nodes):
            node = table.text("node", row)
            assert node is not None
            expected = table.number("gpu_count", row) or round(counted.get(node, 0.0))
            out[node] = RecentNode(
                node, sku=table.text("node_sku", row), sku_source=table.text("node_sku_source", row),
                region=table.text("region", row), provider=table.text("provider", row),
                cluster=table.text("cluster", row) or "", gpus_expected=int(expected) or None,
                # A node whose GPUs cannot be read is heard of all the same; what counts here are its GPUs.
                last_seen=newest.get(node), drained=node in drained,
            )  # fmt: skip
    return tuple(out[node] for node in sorted(out))


def _drained(one: _Believed) -> set[str]:
    """Nodes that somebody took out of service and did not put back."""
    table = one.file.tables["absences"]
    return {
        node
        for row in range(table.count)
        if table.text("reason", row) == _DRAINED and table.number("until", row) is None
        and (node := table.text("node", row)) is not None
    }  # fmt: skip


class _Lay:
    """Lays the rows of tables into an array of (subjects, spans)."""

    def __init__(self, grid: SpanGrid, table: Columns, subjects: np.ndarray) -> None:
        place = grid.places(table.numbers["ts"])
        self._keep = (place >= 0) & (subjects >= 0)
        self._at = (subjects[self._keep], place[self._keep])

    def put(self, into: Values, values: np.ndarray) -> None:
        into[self._at] = values[self._keep]

    def add(self, into: Values, values: np.ndarray) -> None:
        """Sum up what several rows tell of one place; what one of them lacks is lacking."""
        into[self._at] = np.where(np.isnan(into[self._at]), 0.0, into[self._at])
        np.add.at(into, self._at, values[self._keep])


def _gpu_values(
    believed: Sequence[_Believed],
    grid: SpanGrid,
    name: str,
    places: Mapping[tuple[str, str], int],
    *,
    throttled: bool = False,
) -> dict[str, Values]:
    measures = (*_GPU, "observed", "engine", "engine_max", "mem_used_ratio", "links_bytes_per_second", "throttled")
    found = {measure: grid.empty(len(places)) for measure in measures}
    found["observed"][:] = 0.0
    for one in believed:
        table = one.file.tables.get(name)
        if table is None or not table.count:
            continue
        lay = _Lay(grid, table, _gpu_codes(table, one.nodes, places))
        numbers = table.numbers
        for measure, column in _GPU.items():
            if column in numbers:
                lay.put(found[measure], numbers[column])
        lay.put(found["observed"], np.clip(numbers["observed_seconds"] / grid.step_seconds, 0.0, 1.0))
        lay.put(found["engine"], np.fmax(numbers["gpu_util_mean"], numbers["sm_active_mean"]))
        lay.put(found["engine_max"], np.fmax(numbers["gpu_util_max"], numbers["sm_active_max"]))
        with np.errstate(invalid="ignore", divide="ignore"):
            lay.put(found["mem_used_ratio"], numbers["mem_used_bytes_mean"] / numbers["mem_total_bytes"])
        if _LINKS[0] in numbers:
            links = np.array([numbers[link] for link in _LINKS])
            told = np.isfinite(links).any(axis=0)
            lay.put(found["links_bytes_per_second"], np.where(told, np.nansum(links, axis=0), np.nan))
        own = one.file.tables.get("throttled")
        if throttled and own is not None and own.count:
            _Lay(grid, own, _gpu_codes(own, one.nodes, places)).put(
                found["throttled"], own.numbers["throttled_fraction"]
            )
    return found


def _gpu_codes(table: Columns, nodes: frozenset[str], places: Mapping[tuple[str, str], int]) -> np.ndarray:
    """The place of each row's GPU; -1 where it is none of these."""
    uuids = table.texts["gpu_uuid"]
    wide = len(uuids) + 1
    own = np.full((len(table.texts["node"]) + 1) * wide, -1, dtype=np.int64)
    for n, node in enumerate(table.texts["node"]):
        if node in nodes:
            for m, uuid in enumerate(uuids):
                own[n * wide + m] = places.get((node, uuid), -1)
    node, gpu = table.codes["node"], table.codes["gpu_uuid"]
    return np.where((node >= 0) & (gpu >= 0), own[np.clip(node, 0, None) * wide + np.clip(gpu, 0, None)], -1)


def _node_values(
    believed: Sequence[_Believed], grid: SpanGrid, which: str, places: Mapping[str, int]
) -> dict[str, Values]:
    count = len(places)
    found = {name: grid.empty(count) for name in ("cpu_util", "disk_bytes_per_second", "network_bytes_per_second",
             "fabric_bytes_per_second", "fabric_line_bytes_per_second")}  # fmt: skip
    up, ports = grid.empty(count), grid.empty(count)
    for one in believed:
        own = {node: place for node, place in places.items() if node in one.nodes}
        hosts = one.file.tables.get(f"hosts_{which}")
        if hosts is not None and hosts.count:
            lay = _Lay(grid, hosts, hosts.coded("node", own))
            lay.put(found["cpu_util"], hosts.numbers["cpu_util_mean"])
            lay.put(
                found["disk_bytes_per_second"],
                hosts.numbers["disk_read_bytes_per_second_mean"] + hosts.numbers["disk_write_bytes_per_second_mean"],
            )
        table = one.file.tables.get(f"ports_{which}")
        if table is not None and table.count:
            _ports(table, grid, own, found, up, ports)
        hours = one.file.tables.get("fabric_hours")
        if which == "coarse" and hours is not None and hours.count:
            # Each hour as the five-minute spans that end within it.
            for earlier in range(0, 3600, int(grid.step_seconds)):
                shifted = replace(hours, numbers={**hours.numbers, "ts": hours.numbers["ts"] - earlier})
                _ports(shifted, grid, own, found, up, ports)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {**found, "fabric_up": up / ports}


def _ports(  # noqa: PLR0917 - the arrays that ports add to
    table: Columns, grid: SpanGrid, own: Mapping[str, int], found: Mapping[str, Values], up: Values, ports: Values
) -> None:
    """Sum up the ports of each node: those of the compute fabric, and all others."""
    node = table.coded("node", own)
    is_compute = table.coded("role", {"compute": 1}) == 1
    both = table.numbers["tx_bytes_per_second_mean"] + table.numbers["rx_bytes_per_second_mean"]
    fabric = _Lay(grid, table, np.where(is_compute, node, -1))
    fabric.add(found["fabric_bytes_per_second"], both)
    fabric.add(found["fabric_line_bytes_per_second"], table.numbers["line_rate_bytes_per_second"])
    fabric.add(up, table.numbers["active_fraction"])
    fabric.add(ports, np.ones(table.count))
    _Lay(grid, table, np.where(is_compute, -1, node)).add(found["network_bytes_per_second"], np.nan_to_num(both))


def _service_values(
    believed: Sequence[_Believed], grid: SpanGrid, name: str, places: Mapping[str, int]
) -> dict[str, Values]:
    found = {measure: grid.empty(len(places)) for measure in _ENGINE}
    for one in believed:
        table = one.file.tables.get(name)
        if table is None or not table.count:
            continue
        lay = _Lay(grid, table, table.coded("workload_id", places))
        for measure, column in _ENGINE.items():
            lay.add(found[measure], table.numbers[column])
    return found
