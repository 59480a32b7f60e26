"""The last hours of a fleet as arrays: made of a frame with rows of a minute, and one with rows of five before them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...rules.base.errors import NothingToDo
from ...rules.catalog.loader import Catalog
from ...rules.catalog.mig import slices_of
from ..classify.features.soundness import examine
from ..classify.types import NodeFacts
from ..core.fleet_identity import fleet_of
from ..core.frame import Frame
from ..core.recent import (
    COARSE_SECONDS,
    FINE_SECONDS,
    HOUR_SECONDS,
    Detail,
    Recent,
    RecentGpu,
    RecentNode,
    Rows,
    Values,
)
from ..core.scalars import records, text
from ..recommend.pricing import PriceBook
from ..rulebook import Rulebook
from ..telemetry.source import PrometheusServer, Source
from .holders import current_holds
from .timeline import joined, timeline_of

Floats = npt.NDArray[np.float64]
# Rows of a minute are read of so long. More of them cost a server with a thousand GPUs seconds.
_MINUTES_SECONDS, _MINUTES_SECONDS_OF_SERVER = 2 * 3600.0, 3600.0
# GPUs that work in all of the newest minutes raise no question that the hours before could answer.
_NEWEST_SECONDS, _NEWEST_ROWS_MIN = 600.0, 5
_BUSY, _WAITS = 0.1, 0.02
# Less traffic than this on a port of a compute fabric is silence, bytes a second.
_SILENT_BYTES = 50e6
_GPU = {
    "util": "gpu_util_mean", "sm": "sm_active_mean", "tensor": "tensor_active_mean", "dram": "dram_active_mean",
    "power_watts": "power_watts_mean", "sm_clock_hertz": "sm_clock_hertz_mean", "throttled": "throttled_fraction",
}  # fmt: skip
_LINKS = [f"{link}_{way}_bytes_per_second_mean" for link in ("pcie", "nvlink") for way in ("tx", "rx")]
# What a workload usually does on its links and at which clock is in the rows of minutes.
_ONLY_OF_MINUTES = ("sm_clock_hertz", "throttled")


def read_recent(
    source: Source,
    book: Rulebook,
    *,
    lookback_seconds: float,
    now: float,
    until: float | None = None,
    past_seconds: float = 0.0,
) -> Recent:
    """The last `lookback_seconds` of a source before its newest whole minute (`until`: before that moment, as of which
    it is then read), with the prices of its nodes. The hours before the rows of a minute are read where some GPU
    rests, waits or shows nothing. `past_seconds`: for how long before that databases are read by the hour where some
    GPU rested throughout; a server would take too long.

    Raises NothingToDo where there is no GPU data, SkuwiseError where the source cannot be read.
    """
    now = now if until is None else until
    minutes = _MINUTES_SECONDS_OF_SERVER if isinstance(source, PrometheusServer) else _MINUTES_SECONDS

    def believed(since: float, until: float | None, resolution: float, gpus: Collection[str] = ()) -> Frame:
        frame = source.read(book.catalog, since=since, until=until, now=now, resolution=resolution, wanted_gpus=gpus)
        return examine(frame).frame

    def read(since: float, until: float | None, resolution: float, gpus: Collection[str] = ()) -> Frame | None:
        try:
            return believed(since, until, resolution, gpus)
        except NothingToDo:
            return None

    fine = read(min(minutes, lookback_seconds), until, FINE_SECONDS)
    if fine is None:
        # The newest data may be older: raises where there is none.
        coarse = believed(lookback_seconds, until, COARSE_SECONDS)
        return _recent(_Part(None, coarse.window.end, FINE_SECONDS), _Part.of(coarse), book, now)
    begin = math.ceil(fine.window.start / COARSE_SECONDS) * COARSE_SECONDS
    newest = _Part(fine, begin, FINE_SECONDS, round((fine.window.end - begin) / FINE_SECONDS))
    since = round((begin - fine.window.end + lookback_seconds) / COARSE_SECONDS) * COARSE_SECONDS
    quiet = _quiet_gpus(fine, book.catalog)
    coarse = read(since, begin, COARSE_SECONDS, quiet) if since > 0 and (quiet or _has_silence(fine)) else None
    recent = _recent(newest, _Part.of(coarse) if coarse else _Part(None, begin, COARSE_SECONDS), book, now)
    line = timeline_of(recent.gpu)
    is_busy = (joined(recent.gpu, "engine", len(recent.gpus), line) > _BUSY).any(axis=1)
    if not past_seconds or isinstance(source, PrometheusServer) or is_busy.all():
        return recent
    start = line.observed_from
    past = read(past_seconds, math.ceil(start / HOUR_SECONDS) * HOUR_SECONDS, HOUR_SECONDS)
    return recent if past is None else replace(recent, past=_hours(past, recent.gpus))


def _hours(past: Frame, gpus: Sequence[RecentGpu]) -> Rows:
    """GPU measures by the hour: the most that any row of an hour shows."""
    spread = [f"{name}_{one}" for name in ("gpu_util", "sm_active") for one in ("max", "p95")]
    names = [*_GPU.values(), *spread, "mem_used_bytes_mean", "mem_total_bytes"]
    keys = ["node", "gpu_uuid", "ts"]
    by_hour = past.gpu.assign(ts=np.ceil(past.gpu["ts"] / HOUR_SECONDS) * HOUR_SECONDS).groupby(keys)
    table = by_hour[names].max().assign(observed_seconds=by_hour["observed_seconds"].sum()).reset_index()
    part = _Part(replace(past, gpu=table), past.window.start, HOUR_SECONDS, round(past.window.seconds / HOUR_SECONDS))
    return part.rows(_gpu_values, _keys(gpus))


def _keys(gpus: Sequence[RecentGpu]) -> pd.MultiIndex:
    return pd.MultiIndex.from_tuples([(gpu.node, gpu.uuid) for gpu in gpus], names=["node", "gpu_uuid"])


@dataclass(frozen=True, slots=True)
class _Part:
    """A frame, and the equal spans from `start` on that its rows are of. `frame` None: there are no part."""

    frame: Frame | None
    start: float
    step: float
    count: int = 0

    @classmethod
    def of(cls, frame: Frame) -> _Part:
        """The hours before, over their whole window."""
        return cls(frame, frame.window.start, COARSE_SECONDS, round(frame.window.seconds / COARSE_SECONDS))

    def rows(self, values: Callable[[_Part, Frame, pd.Index], Mapping[str, Values]], subjects: pd.Index) -> Rows:
        """What `values` gives, without measures that nobody reports."""
        found = values(self, self.frame, subjects) if self.frame is not None else {}
        known = {name: one for name, one in found.items() if np.isfinite(one).any()}
        return Rows(self.start, self.step, self.count, known)


def _quiet_gpus(frame: Frame, catalog: Catalog) -> frozenset[str]:
    """Ids of GPUs that in some of the newest minutes rest, wait or show nothing."""
    newest = frame.gpu[frame.gpu["ts"] > frame.window.end - _NEWEST_SECONDS]
    names = ("gpu_util_mean", "sm_active_mean", "tensor_active_mean", "dram_active_mean")
    util, sm, tensor, dram = (newest[name].to_numpy(float) for name in names)
    with np.errstate(invalid="ignore"):
        works = (np.fmax(util, sm) > _BUSY) & ~((tensor < _WAITS) & (dram < _BUSY))
    by_gpu = newest.assign(works=works).groupby(["node", "gpu_uuid"])["works"].agg(["all", "size"])
    busy = set(by_gpu.index[by_gpu["all"] & (by_gpu["size"] >= _NEWEST_ROWS_MIN)])
    return frozenset(gpu.uuid for gpu in _gpus([frame.gpus], catalog, {}) if (gpu.node, gpu.uuid) not in busy)


def _has_silence(frame: Frame) -> bool:
    """Whether a port of a compute fabric is silent under a workload on several nodes, or a database has no rows."""
    databases = frame.source.get("databases", ())
    if isinstance(databases, (list, tuple)) and len(databases) > frame.gpu["node"].nunique():
        return True
    ports = frame.fabric[
        (frame.fabric["role"] == "compute") & (frame.fabric["ts"] > frame.window.end - _NEWEST_SECONDS)
    ]
    traffic = ports["tx_bytes_per_second_mean"] + ports["rx_bytes_per_second_mean"]
    nodes = frame.uses.groupby("workload_id")["node"].nunique()
    return bool((traffic < _SILENT_BYTES).any() and (nodes > 1).any())


def _recent(fine: _Part, coarse: _Part, book: Rulebook, now: float) -> Recent:
    frames = [part.frame for part in (fine, coarse) if part.frame is not None]
    newest, oldest = frames[0].window, frames[-1].window
    rows = pd.concat([frame.gpu[["node", "gpu_uuid", "ts", "observed_seconds"]] for frame in frames])
    ends = rows[rows["observed_seconds"] > 0].groupby(["node", "gpu_uuid"])["ts"].max().reset_index()
    last = {(str(row["node"]), str(row["gpu_uuid"])): float(row["ts"]) for row in records(ends)}
    gpus = _gpus([frame.gpus for frame in frames], book.catalog, last)
    nodes = _nodes(frames, gpus)
    places = {(gpu.node, gpu.uuid): n for n, gpu in enumerate(gpus)}
    holds = current_holds(
        pd.concat([frame.uses for frame in frames]),
        pd.concat([frame.workloads for frame in frames]).drop_duplicates("workload_id"),
        places, {node.node: node.last_seen for node in nodes}, book.kind_priors, start=oldest.start, end=newest.end,
        engines={str(id_) for frame in frames for id_ in frame.tokens.get("workload_id", ())},
    )  # fmt: skip
    names = pd.Index([node.node for node in nodes], dtype=object)
    ids = pd.Index([hold.workload_id for hold in holds], dtype=object)

    def detail(values: Callable[[_Part, Frame, pd.Index], Mapping[str, Values]], subjects: pd.Index) -> Detail:
        return Detail(fine.rows(values, subjects), coarse.rows(values, subjects))

    recent = Recent(
        now=now, end=newest.end, gpus=gpus, nodes=nodes, holds=holds, gpu=detail(_gpu_values, _keys(gpus)),
        node=detail(_node_values, names), service=detail(_service_values, ids), fleet=fleet_of(frames[0]),
        notes=tuple(dict.fromkeys(note for frame in frames for note in frame.notes)), source=frames[0].source,
    )  # fmt: skip
    return priced(recent, book)


def _gpus(
    tables: Sequence[pd.DataFrame], catalog: Catalog, last: Mapping[tuple[str, str], float]
) -> tuple[RecentGpu, ...]:
    """The GPUs that are there now, by node and id, as the first table that has them says; of one that is cut into MIG
    instances these. `last`: the end of the newest row of each."""
    every = pd.concat(tables, ignore_index=True).drop_duplicates(["node", "gpu_uuid"])
    about = {(str(row["node"]), str(row["gpu_uuid"])): row for row in records(every[every["valid_to"].isna()])}
    found: dict[tuple[str, str], RecentGpu] = {}
    for key, row in about.items():
        name, part = text(row["sku"]) or text(row["name"]), 1.0
        parent = (key[0], str(row["parent_uuid"])) if row["kind"] == "mig" and text(row["parent_uuid"]) else None
        if parent is not None:
            whole = about.get(parent, row)
            name = text(whole["sku"]) or text(whole["name"]) or name
        sku = catalog.gpu(name) if name else None
        limit = _number(row["power_limit_watts"]) or (sku.tdp_watts if sku else None)
        if parent is not None:
            slices = slices_of(text(row["mig_profile"]), sku)
            part, limit = slices.share if slices is not None else 1.0, None
        index = _number(row["gpu_index"])
        found[key] = RecentGpu(
            *key, int(index) if index is not None else None, sku.name if sku else name, part, limit, last.get(key)
        )  # fmt: skip
    cut = {(node, text(row["parent_uuid"])) for (node, _), row in about.items() if row["kind"] == "mig"}
    return tuple(gpu for key, gpu in sorted(found.items()) if key not in cut)


def _nodes(frames: Sequence[Frame], gpus: Sequence[RecentGpu]) -> tuple[RecentNode, ...]:
    """The nodes of all frames by name, as the newest frame that has them says."""
    seen: dict[str, float] = {}
    counted: dict[str, float] = {}
    for gpu in gpus:
        seen[gpu.node] = max(gpu.last_seen or 0.0, seen.get(gpu.node, 0.0))
        counted[gpu.node] = counted.get(gpu.node, 0.0) + gpu.part
    absences = frames[0].absences
    drained = set(absences.loc[(absences["reason"] == "drained") & absences["until"].isna(), "node"])
    table = pd.concat([frame.nodes for frame in frames], ignore_index=True).drop_duplicates("node").sort_values("node")
    return tuple(
        RecentNode(
            node := str(row["node"]), sku=text(row["node_sku"]), sku_source=text(row["node_sku_source"]),
            provider=text(row["provider"]), region=text(row["region"]), cluster=text(row["cluster"]) or "",
            gpus_expected=int(_number(row["gpu_count"]) or round(counted.get(node, 0.0))) or None,
            # A node whose GPUs cannot be read may report otherwise; what counts here are its GPUs.
            last_seen=seen.get(node) or None, drained=node in drained,
        )
        for row in records(table)
    )  # fmt: skip


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and np.isfinite(value) else None


class _Layout:
    """Where the rows of a table go in arrays of (subjects, spans). `subjects`: the place of each row's subject, -1: of
    none."""

    def __init__(self, part: _Part, ts: pd.Series, subjects: npt.NDArray[np.intp], count: int) -> None:
        columns = np.ceil((ts.to_numpy(float) - part.start) / part.step - 1e-6).astype(np.int64) - 1
        self._rows = (subjects >= 0) & (columns >= 0) & (columns < part.count)
        self._at = (subjects[self._rows], columns[self._rows])
        self._shape = (count, part.count)

    def values(self, numbers: pd.Series | Floats) -> Values:
        """One value a place."""
        out = np.full(self._shape, np.nan, dtype=np.float32)
        out[self._at] = np.asarray(numbers, dtype=np.float32)[self._rows]
        return out

    def sums(self, numbers: pd.Series | Floats) -> Values:
        """The sum of the rows of a place; missing where one of them is."""
        out = np.full(self._shape, np.nan)
        out[self._at] = 0.0
        np.add.at(out, self._at, np.asarray(numbers, dtype=float)[self._rows])
        return out.astype(np.float32)


def _gpu_values(part: _Part, frame: Frame, keys: pd.Index) -> dict[str, Values]:
    table = frame.gpu
    subjects = keys.get_indexer(pd.MultiIndex.from_frame(table[["node", "gpu_uuid"]]))
    layout = _Layout(part, table["ts"], subjects, len(keys))
    numbers = {
        **{measure: table[name] for measure, name in _GPU.items()},
        "observed": (table["observed_seconds"] / part.step).clip(0.0, 1.0),
        "engine": np.fmax(table["gpu_util_mean"], table["sm_active_mean"]),
        "engine_max": np.fmax(table["gpu_util_max"], table["sm_active_max"]),
        "engine_p95": np.fmax(table["gpu_util_p95"], table["sm_active_p95"]),
        "mem_used_ratio": table["mem_used_bytes_mean"] / table["mem_total_bytes"],
    }
    if part.step > FINE_SECONDS:
        numbers = {name: column for name, column in numbers.items() if name not in _ONLY_OF_MINUTES}
    else:
        numbers["links_bytes_per_second"] = table[_LINKS].sum(axis=1, min_count=1)
    return {name: layout.values(column) for name, column in numbers.items()}


def _node_values(part: _Part, frame: Frame, names: pd.Index) -> dict[str, Values]:
    host, ports = frame.host, frame.fabric
    hosts = _Layout(part, host["ts"], names.get_indexer(pd.Index(host["node"])), len(names))
    disk = host["disk_read_bytes_per_second_mean"] + host["disk_write_bytes_per_second_mean"]
    nodes, is_compute = names.get_indexer(pd.Index(ports["node"])), (ports["role"] == "compute").to_numpy(bool)
    traffic = ports["tx_bytes_per_second_mean"] + ports["rx_bytes_per_second_mean"]
    fabric = _Layout(part, ports["ts"], np.where(is_compute, nodes, -1), len(names))
    others = _Layout(part, ports["ts"], np.where(is_compute, -1, nodes), len(names))
    return {
        "cpu_util": hosts.values(host["cpu_util_mean"]),
        "disk_bytes_per_second": hosts.values(disk),
        "network_bytes_per_second": others.sums(traffic.fillna(0.0)),
        "fabric_bytes_per_second": fabric.sums(traffic),
        "fabric_line_bytes_per_second": fabric.sums(ports["line_rate_bytes_per_second"]),
        "fabric_up": fabric.sums(ports["active_fraction"]) / fabric.sums(np.ones(len(ports))),
    }


def _service_values(part: _Part, frame: Frame, ids: pd.Index) -> dict[str, Values]:
    """What inference engines had to do: means of the row, which are zero where nothing came."""
    table = frame.tokens
    if table.empty:
        return {}
    layout = _Layout(part, table["ts"], ids.get_indexer(pd.Index(table["workload_id"])), len(ids))
    queue = table["queue_seconds"]
    return {
        "requests_running": layout.sums((table["running_seconds"] / queue).fillna(0.0)),
        "requests_waiting": layout.sums((table["waiting_seconds"] / queue).fillna(0.0)),
        "tokens_per_second": layout.sums((table["generated_tokens"] / table["seconds"]).fillna(0.0)),
    }


def priced(recent: Recent, rules: Rulebook) -> Recent:
    """The reading with the price of a GPU-hour of each node, its id, and where and when the price is from."""
    book = PriceBook(rules.catalog, tuple(rules.own.prices), rules.power, rules.hourly)
    skus: dict[str, Counter[str]] = {}
    for gpu in recent.gpus:
        if gpu.sku is not None:
            skus.setdefault(gpu.node, Counter())[gpu.sku] += 1
    return replace(recent, nodes=tuple(_priced(node, skus.get(node.node, Counter()), book) for node in recent.nodes))


def _priced(node: RecentNode, skus: Counter[str], book: PriceBook) -> RecentNode:
    if not node.gpus_expected:
        return node
    facts = NodeFacts(
        node=node.node, cluster=node.cluster, provider=node.provider, region=node.region, node_sku=node.sku,
        node_sku_source=node.sku_source, gpu_sku=next(iter(skus)) if len(skus) == 1 else None,
        gpu_count=node.gpus_expected, first_seen=0.0, last_seen=node.last_seen or 0.0, hours_observed=0.0, fabric=None,
    )  # fmt: skip
    price, usd = book.of(facts), book.per_gpu_hour(facts)
    if price is None or usd is None:
        return node
    where = "region assumed, " if price.region_assumed else ""
    source = f"{price.source} ({where}{price.basis}, {price.as_of})"
    return replace(node, usd_per_gpu_hour=usd, price_id=price.id, price_source=source)
