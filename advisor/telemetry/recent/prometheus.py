"""The last hours from a server of Prometheus' API: the questions of a frame, in rows of a minute and of five."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pandas as pd

from ....rules.base.errors import NothingToDo
from ....rules.catalog.loader import Catalog
from ....rules.policy.kind_priors import KindPriors
from ...core.frame import Frame, Window
from ...core.recent import (
    COARSE_SECONDS,
    FINE_SECONDS,
    NODE_MEASURES,
    Detail,
    Hold,
    Recent,
    RecentNode,
    Rows,
    Values,
)
from ...core.records import records, text
from ..prometheus.client.cache import Cache
from ..prometheus.client.range_planner import Log, Runner
from ..prometheus.client.response import Grid
from ..prometheus.discovery import Discovery, discover
from ..prometheus.owners.engines import engine_rows
from ..prometheus.promql import promql as queries
from ..prometheus.questions import Questions
from ..prometheus.reader import ServerReading, read_tables
from ..prometheus.rows import nodes
from ..prometheus.rows.fabric import PortKey, PortRows
from ..prometheus.rows.gpus import GpuRows
from ..prometheus.rows.series_to_rows import Cells
from ..prometheus.rows.workloads import workloads_of
from .gpus import gpus_of
from .grids import fine_start
from .prometheus_asks import coarse_asks, fine_asks
from .work import JoinJobs, holds_of_frame

# The newest minute counts once so many of the series have a sample in it; the others may be scraped a moment later.
_FULL_SHARE = 0.9
_LOOK_SECONDS = 900.0
# Rows of a minute are asked for an hour: more of them cost a server with a thousand GPUs seconds.
_FINE_SPAN_SECONDS = 3600.0
_QUIET_ROWS = 10
_BUSY, _WAITS = 0.1, 0.02
_SILENT_BYTES = 50e6
_GPU = {
    "util": "gpu_util_mean", "sm": "sm_active_mean", "tensor": "tensor_active_mean", "dram": "dram_active_mean",
    "power_watts": "power_watts_mean", "sm_clock_hertz": "sm_clock_hertz_mean",
}  # fmt: skip
_LINKS = tuple(f"{link}_{way}_bytes_per_second_mean" for link in ("pcie", "nvlink") for way in ("tx", "rx"))
# A pod's hold ends with its last sample, whose row may be a coarse one.
_HELD_SECONDS = 300.0
_KUBE_NODE = ("node", "exported_node")


@dataclass(frozen=True)
class _Part:
    """What one resolution tells."""

    asked: Questions
    grid: Grid
    gpus: GpuRows
    ports: PortRows
    hosts: Cells[str]
    uses: pd.DataFrame
    node_table: pd.DataFrame
    engines: Sequence[Mapping[str, object]]


def read_recent(
    reading: ServerReading,
    catalog: Catalog,
    priors: KindPriors,
    *,
    lookback_seconds: float,
    until: float | None = None,
    join_jobs: JoinJobs = lambda frame: frame,
) -> Recent:
    """The last `lookback_seconds` before the newest whole minute that most of the server's GPUs have (`until`: before
    that moment). Raises NothingToDo where it has no GPU data, SourceError where it cannot be asked."""
    found = discover(
        reading.client, reading.matches, since_seconds=lookback_seconds, until=until, now=reading.now,
        max_series=reading.max_series, step=COARSE_SECONDS,
    )  # fmt: skip
    reading.progress(f"reading the last {lookback_seconds / 3600:g} h from {reading.client.url} ({found.server}) ...")
    end = _end(reading, found) if until is None else math.floor(until / FINE_SECONDS) * FINE_SECONDS
    begin = fine_start(end, _FINE_SPAN_SECONDS)
    log = Log([])
    runner = Runner(reading.client, Cache(None, ""), log, reading.concurrency, reading.now)
    fine = _part(
        reading, catalog, log,
        Questions(
            runner, replace(found, window=Window(begin, end), step=FINE_SECONDS, ruled=frozenset()), reading.matches,
            reading.steps, shaped=fine_asks(FINE_SECONDS, found.scrape_seconds),
        ),
    )  # fmt: skip
    start = math.floor((end - lookback_seconds) / COARSE_SECONDS) * COARSE_SECONDS
    coarse = None
    quiet, silent = _quiet_gpus(fine), _has_silent_fabric(fine)
    if start < begin and (quiet or silent):
        coarse = _part(
            reading, catalog, log,
            Questions(
                runner, replace(found, window=Window(start, begin)), reading.matches, reading.steps,
                shaped=coarse_asks(quiet, fabric=silent),
            ),
        )  # fmt: skip
    parts = [part for part in (fine, coarse) if part is not None]
    last = _last_seen(parts)
    if not last:
        raise NothingToDo(
            f"No GPU data on {reading.client.url} in the last {lookback_seconds / 3600:g} h.",
            "Check that dcgm-exporter or the agent is scraped, and --match.",
        )
    tables = [nodes.gpu_table(part.gpus, catalog) for part in parts]
    gpus = gpus_of(records(_newest_first(tables, ["node", "gpu_uuid"])), catalog, last)
    node_rows = _newest_first([part.node_table for part in parts], ["node"])
    about = _nodes(node_rows, last, _out_of_service(fine.asked, {str(node) for node in node_rows["node"]}))
    gpu_places = {(gpu.node, gpu.uuid): n for n, gpu in enumerate(gpus)}
    node_places = {node.node: n for n, node in enumerate(about)}
    holds = _holds(parts, gpu_places, about, priors, end=end, join_jobs=join_jobs)
    work_places = {hold.workload_id: n for n, hold in enumerate(holds)}
    return Recent(
        now=reading.now,
        end=end,
        gpus=gpus,
        nodes=about,
        holds=holds,
        gpu=_detail([_rows_of(part, _gpu_values(part, gpu_places)) for part in parts]),
        node=_detail([_rows_of(part, _node_values(part, node_places)) for part in parts]),
        service=_detail([_rows_of(part, _service_values(part, work_places)) for part in parts]),
        notes=tuple(log.notes),
        source={"kind": "prometheus", "url": reading.client.url, "server": str(found.server)},
    )


def _end(reading: ServerReading, found: Discovery) -> float:
    """The newest whole minute in which most GPUs have a sample."""
    anchors = [name for name in (queries.AGENT_ANCHOR, *queries.anchors_of(found.names)) if name in found.names]
    newest = math.floor(min(reading.now, found.window.end + COARSE_SECONDS) / FINE_SECONDS) * FINE_SECONDS
    grid = Grid(newest - _LOOK_SECONDS, newest, FINE_SECONDS)
    seconds = max(FINE_SECONDS, 1.5 * (found.scrape_seconds or 0.0))
    best = grid.start
    for name in anchors[:2]:
        query = f"count(count_over_time({name}{queries.selector(reading.matches)}[{seconds:.0f}s]))"
        values = reading.client.range(query, grid, ()).answer.values
        if not len(values):
            continue
        counts = np.nan_to_num(values[0])
        full = np.flatnonzero(counts >= _FULL_SHARE * counts.max()) if counts.max() > 0 else np.empty(0, dtype=int)
        if len(full):
            best = max(best, grid.start + float(full[-1]) * FINE_SECONDS)
    return best if best > grid.start else found.window.end


def _part(reading: ServerReading, catalog: Catalog, log: Log, asked: Questions) -> _Part:
    """One resolution: as a frame is read, without what the watch has no use for."""
    found, grid = asked.found, asked.grid
    tables = read_tables(asked, reading, catalog, log)
    uses = tables.uses
    engines = engine_rows(
        asked.ask, asked.instants, found.names, asked.matches, grid, uses=uses, series=found.series, with_latency=False
    )
    return _Part(asked, grid, tables.gpus, tables.ports, tables.hosts, uses, tables.nodes, engines)


def _quiet_gpus(part: _Part) -> frozenset[str]:
    """Ids of GPUs that in some of the newest minutes rest, wait or show nothing: then what came before matters."""
    cells, newest = part.gpus.cells, slice(-_QUIET_ROWS, None)
    engine = np.fmax(cells.column("gpu_util_mean"), cells.column("sm_active_mean"))[:, newest]
    tensor, dram = cells.column("tensor_active_mean")[:, newest], cells.column("dram_active_mean")[:, newest]
    with np.errstate(invalid="ignore"):
        works = (engine > _BUSY) & ~((tensor < _WAITS) & (dram < _BUSY))
    quiet = np.logical_not(works.all(axis=1))
    named = ((part.gpus.about.get(key), key) for key, row in cells.rows.items() if quiet[row])
    return frozenset(one.uuid or key for one, key in named if one is not None)


def _has_silent_fabric(part: _Part) -> bool:
    """Whether a port of a compute fabric carried next to nothing in the newest minutes, and may have before."""
    cells = part.ports.cells
    both = (cells.column("tx_bytes_per_second_mean") + cells.column("rx_bytes_per_second_mean"))[:, -_QUIET_ROWS:]
    compute = [row for key, row in cells.rows.items() if part.ports.roles.get(key) == "compute"]
    spread = part.uses.groupby("workload_id")["node"].nunique().max() if not part.uses.empty else 0
    with np.errstate(invalid="ignore"):
        return bool(spread > 1 and compute and (both[compute] < _SILENT_BYTES).any())


def _newest_first(tables: Sequence[pd.DataFrame], keys: list[str]) -> pd.DataFrame:
    """Rows of all parts, each subject once, as the newest part that knows it tells."""
    filled = [table for table in tables if not table.empty]
    if not filled:
        return tables[0]
    return pd.concat(filled, ignore_index=True).drop_duplicates(keys, keep="first").reset_index(drop=True)


def _last_seen(parts: Sequence[_Part]) -> dict[tuple[str, str], float]:
    """When each GPU was last observed: the end of that row."""
    found: dict[tuple[str, str], float] = {}
    for part in parts:
        observed = part.gpus.cells.column("observed_seconds") > 0
        for key, row in part.gpus.cells.rows.items():
            one = part.gpus.about.get(key)
            at = np.flatnonzero(observed[row])
            if one is not None and len(at):
                own = (one.node, one.uuid or key)
                found[own] = max(found.get(own, 0.0), part.grid.start + float(at[-1]) * part.grid.step)
    return found


def _out_of_service(asked: Questions, known: set[str]) -> set[str]:
    """Nodes that Kubernetes schedules nothing on, or does not know any more."""
    names, chosen = asked.found.names, queries.selector(asked.matches)
    found: set[str] = set()
    if "kube_node_spec_unschedulable" in names:
        told = asked.instant(f"kube_node_spec_unschedulable{chosen} == 1", _KUBE_NODE)
        found |= {labels.get("exported_node") or labels.get("node", "") for labels in told.labels}
    if "kube_node_info" in names:
        told = asked.instant(f"kube_node_info{chosen}", _KUBE_NODE)
        there = {labels.get("exported_node") or labels.get("node", "") for labels in told.labels}
        short = {name.split(".")[0] for name in there}
        found |= {node for node in known if there and node not in there and node.split(".")[0] not in short}
    return {node for node in known if node in found or node.split(".")[0] in {one.split(".")[0] for one in found}}


def _nodes(rows: pd.DataFrame, last: Mapping[tuple[str, str], float], gone: set[str]) -> tuple[RecentNode, ...]:
    newest: dict[str, float] = {}
    for (node, _), seen in last.items():
        newest[node] = max(seen, newest.get(node, 0.0))
    found = []
    for row in records(rows.sort_values("node")):
        node, count = str(row["node"]), row["gpu_count"]
        found.append(
            RecentNode(
                node, sku=text(row["node_sku"]), sku_source=text(row["node_sku_source"]),
                provider=text(row["provider"]), region=text(row["region"]), cluster=text(row["cluster"]) or "",
                gpus_expected=int(count) if isinstance(count, (int, float)) and count > 0 else None,
                last_seen=newest.get(node), drained=node in gone,
            )
        )  # fmt: skip
    return tuple(found)


def _holds(
    parts: Sequence[_Part],
    gpus: Mapping[tuple[str, str], int],
    about: Sequence[RecentNode],
    priors: KindPriors,
    *,
    end: float,
    join_jobs: JoinJobs,
) -> tuple[Hold, ...]:
    """Who holds what at the end, by the fine rows; since when, by all of them."""
    uses = pd.concat([part.uses for part in parts if not part.uses.empty], ignore_index=True) if any(
        not part.uses.empty for part in parts
    ) else pd.DataFrame()  # fmt: skip
    begin = min(part.grid.start - part.grid.step for part in parts)
    window = Window(begin, end)
    own, workloads = workloads_of(uses, window)
    empty = pd.DataFrame()
    tables = pd.concat([part.node_table for part in parts], ignore_index=True).drop_duplicates("node")
    frame = join_jobs(
        Frame(
            window=window, nodes=tables, gpus=empty, gpu=empty, fabric=empty, host=empty, workloads=workloads,
            uses=own, absences=empty, source={"row_seconds": COARSE_SECONDS}, jobs=empty,
        )
    )  # fmt: skip
    engines = {str(row["workload_id"]) for part in parts for row in part.engines}
    last = {node.node: node.last_seen for node in about}
    return holds_of_frame(
        frame, gpus, last, priors, end=end, engines=engines, held_seconds=_HELD_SECONDS, cut_at=begin + COARSE_SECONDS
    )


def _rows_of(part: _Part, values: Mapping[str, Values]) -> Rows:
    known = {name: one for name, one in values.items() if np.isfinite(one).any()}
    return Rows(part.grid.start - part.grid.step, part.grid.step, part.grid.count, known)


def _detail(told: Sequence[Rows]) -> Detail:
    fine = told[0]
    nothing = Rows(fine.start, COARSE_SECONDS, 0)
    return Detail(fine, told[1] if len(told) > 1 else nothing)


def _spread(values: np.ndarray, at: Sequence[int], places: Sequence[int], count: int) -> Values:
    """Some rows of a matrix as the rows of another."""
    out = np.full((count, values.shape[1]), np.nan, dtype=np.float32)
    out[list(places)] = values[list(at)]
    return out


def _gpu_values(part: _Part, places: Mapping[tuple[str, str], int]) -> dict[str, Values]:
    cells = part.gpus.cells
    pairs = [
        (row, places[own])
        for key, row in cells.rows.items()
        if (one := part.gpus.about.get(key)) is not None and (own := (one.node, one.uuid or key)) in places
    ]
    at, to = [row for row, _ in pairs], [place for _, place in pairs]

    def spread(values: np.ndarray) -> Values:
        return _spread(values, at, to, len(places))

    def column(name: str) -> np.ndarray:
        return cells.column(name)

    util, sm = column("gpu_util_mean"), column("sm_active_mean")
    links = np.array([column(name) for name in _LINKS])
    told = np.isfinite(links).any(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            **{measure: spread(column(name)) for measure, name in _GPU.items() if name in cells.columns},
            "observed": spread(np.clip(np.nan_to_num(column("observed_seconds")) / part.grid.step, 0.0, 1.0)),
            "engine": spread(np.fmax(util, sm)),
            "engine_max": spread(np.fmax(column("gpu_util_max"), column("sm_active_max"))),
            "mem_used_ratio": spread(column("mem_used_bytes_mean") / column("mem_total_bytes")),
            "links_bytes_per_second": spread(np.where(told, np.nansum(links, axis=0), np.nan)),
        }


def _node_values(part: _Part, places: Mapping[str, int]) -> dict[str, Values]:
    count, spans = len(places), part.grid.count
    found = {name: np.full((count, spans), np.nan) for name in NODE_MEASURES}
    pairs = [(row, places[key]) for key, row in part.hosts.rows.items() if key in places]
    at, to = [row for row, _ in pairs], [place for _, place in pairs]
    found["cpu_util"][to] = part.hosts.column("cpu_util_mean")[at]
    disk = part.hosts.column("disk_read_bytes_per_second_mean") + part.hosts.column("disk_write_bytes_per_second_mean")
    found["disk_bytes_per_second"][to] = disk[at]
    cells = part.ports.cells
    both = cells.column("tx_bytes_per_second_mean") + cells.column("rx_bytes_per_second_mean")
    line, active = cells.column("line_rate_bytes_per_second"), cells.column("active_fraction")
    ports = np.zeros((count, spans))
    for key, row in cells.rows.items():
        place = places.get(cast("PortKey", key)[0])
        if place is None:
            continue
        if part.ports.roles.get(key) != "compute":
            _add(found["network_bytes_per_second"], place, np.nan_to_num(both[row]))
            continue
        _add(found["fabric_bytes_per_second"], place, both[row])
        _add(found["fabric_line_bytes_per_second"], place, line[row])
        _add(found["fabric_up"], place, active[row])
        ports[place] += 1
    with np.errstate(invalid="ignore", divide="ignore"):
        found["fabric_up"] = found["fabric_up"] / np.where(ports > 0, ports, np.nan)
    return {name: values.astype(np.float32) for name, values in found.items()}


def _add(into: np.ndarray, place: int, values: np.ndarray) -> None:
    """What several ports carry together; what one of them lacks is lacking."""
    begun = np.isfinite(into[place]).any()
    into[place] = into[place] + values if begun else values


def _service_values(part: _Part, places: Mapping[str, int]) -> dict[str, Values]:
    names = {
        "requests_running": "running_max", "requests_waiting": "waiting_max", "tokens_per_second": "generated_tokens",
    }  # fmt: skip
    found = {measure: np.full((len(places), part.grid.count), np.nan, dtype=np.float32) for measure in names}
    for row in part.engines:
        place = places.get(str(row["workload_id"]))
        n = round((cast("float", row["ts"]) - part.grid.start) / part.grid.step)
        if place is None or not 0 <= n < part.grid.count:
            continue
        for measure, name in names.items():
            value = row.get(name)
            if isinstance(value, float) and np.isfinite(value):
                found[measure][place, n] = value + np.nan_to_num(found[measure][place, n])
    return found
