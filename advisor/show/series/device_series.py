"""What the devices of a node or of a workload did over time: from a frame, or live from the node's database."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd

from ....rules.base.errors import SkuwiseError, StoreError
from ....rules.catalog.types import GpuSku
from ....rules.policy.thresholds import WasteRule
from ...core.frame import Frame
from ...core.scalars import known, text, whole
from ...core.verdict_types import WorkloadVerdict
from ...recommend.rules import RULES
from ...telemetry.sqlite.database import DatabaseReader, believed_of, open_database
from ...telemetry.sqlite.reader import read_frame
from .fleet_map import MEASURES, compute_ports, weighted_means

Scope = Literal["gpu", "port", "host"]
MOMENTS = 120
# The agent writes once a second. A live view ends this much before now, so that it moves evenly.
BEHIND_SECONDS = 3.0
# A node whose newest data are younger than this is live: several writes must have failed before it is not.
LIVE_SECONDS = 60.0
_HELD_SECONDS = 60.0
# Windows up to this length are drawn by the minute: 360 rows a GPU, as many as 15 days by the hour.
SHORT_SECONDS = 6 * 3600.0
_GIB = 1 / 1024**3
# scope -> column -> (name, unit, factor to the unit)
GAUGES: Mapping[Scope, Mapping[str, tuple[str, str, float]]] = {
    "gpu": {
        "sm_active": ("SM active", "%", 100.0),
        "tensor_active": ("tensor active", "%", 100.0),
        "dram_active": ("DRAM active", "%", 100.0),
        "nvlink_tx_bytes_per_second": ("NVLink sent", "GB/s", 1e-9),
        "nvlink_rx_bytes_per_second": ("NVLink received", "GB/s", 1e-9),
        "pcie_tx_bytes_per_second": ("PCIe sent", "GB/s", 1e-9),
        "pcie_rx_bytes_per_second": ("PCIe received", "GB/s", 1e-9),
        "mem_used_bytes": ("memory used", "GiB", _GIB),
        "power_watts": ("power", "W", 1.0),
        "sm_clock_hertz": ("SM clock", "GHz", 1e-9),
    },
    "port": {
        "tx_bytes_per_second": ("sent", "GB/s", 1e-9),
        "rx_bytes_per_second": ("received", "GB/s", 1e-9),
        "xmit_wait_per_second": ("waited", "ticks/s", 1.0),
    },
    "host": {
        "cpu_util": ("CPU", "%", 100.0),
        "io_wait": ("IO wait", "%", 100.0),
        "disk_read_bytes_per_second": ("disks read", "MB/s", 1e-6),
        "disk_write_bytes_per_second": ("disks written", "MB/s", 1e-6),
    },
}
_GPU = (
    "gpu_uuid", "gpu_index", "sku", "mig_profile", "parent_uuid", "mem_total_bytes", "power_limit_watts",
    "nvlink_bytes_per_second",
)  # fmt: skip
_GPUS = f"SELECT {', '.join(_GPU)} FROM gpus WHERE node = :node AND valid_to IS NULL ORDER BY gpu_index, gpu_uuid"  # noqa: S608 - constants
_WORK = (
    "SELECT u.gpu_uuid, u.workload_id, w.name FROM workload_gpus u JOIN workloads w ON w.workload_id = u.workload_id"
    " WHERE u.node = :node AND u.ts_end > :start ORDER BY u.ts_end DESC, u.ts_start DESC"
)
_PORT = ("role", "link_layer", "line_rate_bytes_per_second", "state")


class DeviceGauge(NamedTuple):
    """A measure over time; None: not measured. `top`: the device's maximum, in `unit`; None: unknown."""

    name: str
    unit: str
    values: tuple[float | None, ...]
    top: float | None = None

    @property
    def last(self) -> float | None:
        return self.values[-1] if self.values else None


class Device(NamedTuple):
    """`key`: a GPU's uuid, a port as ``device/port``, empty for the host. `about`: SKU, role or state in words. `work`:
    id and name of the workloads that hold it, newest first."""

    scope: Scope
    key: str
    name: str
    about: str
    gauges: tuple[DeviceGauge, ...] = ()
    work: tuple[tuple[str, str], ...] = ()

    @property
    def workload(self) -> str | None:
        """Id of the newest workload that holds it."""
        return self.work[0][0] if self.work else None

    def gauge(self, name: str) -> DeviceGauge | None:
        return next((gauge for gauge in self.gauges if gauge.name == name), None)


class NodeSeries(NamedTuple):
    """`ends`: the ends of the intervals, Unix seconds, rising; `interval_seconds`: length of the newest one."""

    ends: tuple[float, ...]
    interval_seconds: float
    devices: tuple[Device, ...]

    def of(self, scope: Scope) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.scope == scope)


def in_frame(frame: Frame, node: str) -> NodeSeries:
    """The newest rows that a frame has of a node: means over their intervals. A node without rows has no moments."""
    gpu, ports, host = (rows[rows["node"] == node] for rows in (frame.gpu, frame.fabric, frame.host))
    keys = [f"{device}/{port:.0f}" for device, port in zip(ports["device"], ports["port"], strict=True)]
    gpu, ports, host = gpu.assign(key=gpu["gpu_uuid"]), ports.assign(key=keys, state="ACTIVE"), host.assign(key="")
    gpu, ports, host = (rows.rename(columns=lambda name: name.removesuffix("_mean")) for rows in (gpu, ports, host))
    tables: dict[Scope, pd.DataFrame] = {"gpu": gpu, "port": ports, "host": host}
    last = max((table["ts"].max() for table in tables.values() if len(table)), default=0.0)
    uses = frame.uses[(frame.uses["node"] == node) & (frame.uses["ts_end"] >= last)]
    names = dict(zip(frame.workloads["workload_id"], frame.workloads["name"], strict=True))
    work = [(u, w, names.get(w, w)) for u, w in zip(uses["gpu_uuid"], uses["workload_id"], strict=True)]
    gpus = frame.gpus[frame.gpus["node"] == node].sort_values("gpu_index")
    return _series(tables, list(gpus[list(_GPU)].itertuples(index=False, name=None)), work)


def by_minute(frame: Frame, nodes: Collection[str]) -> Frame:
    """The frame with rows of a minute instead of an hour for these nodes, and no rows of others. It is returned
    unchanged where its window is long, its source is no database, or the databases hold no minutes of the nodes."""
    files = frame.source.get("databases", ())
    if frame.window.seconds > SHORT_SECONDS or not isinstance(files, (list, tuple)):
        return frame
    believed = believed_of(frame.source, [Path(str(path)) for path in files])
    paths = [path for path, names in believed.items() if names is None or not set(names).isdisjoint(nodes)]
    try:
        fine = read_frame(paths, frame.window, resolution=60.0)
    except SkuwiseError:
        return frame
    tables = {name: getattr(fine, name) for name in ("gpu", "fabric", "host")}
    kept = {name: table[table["node"].isin(nodes)].reset_index(drop=True) for name, table in tables.items()}
    return frame if kept["gpu"].empty else replace(frame, **kept)


def newest_database(frame: Frame, node: str) -> Path | None:
    """The frame's database with the newest data of a node; None: none has any. Unreadable ones are skipped."""
    files = [Path(str(path)) for path in frame.source.get("databases", ())]  # type: ignore[attr-defined] - a list
    ages: list[tuple[float, Path]] = []
    for path, names in believed_of(frame.source, files).items():
        if names is None or node in names:
            with suppress(SkuwiseError), open_database(path) as reader:
                if (last := _last_seen(reader, node)) is not None:
                    ages.append((last, path))
    return max(ages)[1] if ages else None


def read_live(path: Path, node: str, now: float) -> NodeSeries:
    """The newest `MOMENTS` seconds of a node; of a live one, up to `BEHIND_SECONDS` before `now`.

    The file is opened again each time, so that a replaced one is read and the writer is never blocked. Raises
    SkuwiseError where it cannot be read or has no such node.
    """
    with open_database(path) as reader:
        seen = _last_seen(reader, node)
        if seen is None:
            raise StoreError(f"No node {node} in {path}.", "Press r to read the source again.")
        end = min(seen, now - BEHIND_SECONDS) if now - seen < LIVE_SECONDS else seen
        span = {"node": node, "start": end - MOMENTS, "end": end}

        def newest(view: str, key: str, columns: Iterable[str]) -> pd.DataFrame:
            rows = reader.fetch(
                f"SELECT {', '.join((key, 'ts', *columns))} FROM {view}"  # noqa: S608 - constants
                " WHERE ts > :start AND ts <= :end AND node = :node ORDER BY ts",
                span,
            )
            return pd.DataFrame(rows, columns=pd.Index(["key", "ts", *columns]))

        tables: dict[Scope, pd.DataFrame] = {
            "gpu": newest("gpu_samples", "gpu_uuid", GAUGES["gpu"]),
            "port": newest("fabric_samples", "device || '/' || port", (*GAUGES["port"], *_PORT)),
            "host": newest("host_samples", "''", GAUGES["host"]),
        }
        gpus = reader.fetch(_GPUS, {"node": node})
        work = reader.fetch(_WORK, {"node": node, "start": end - _HELD_SECONDS})
    return _series(tables, gpus, work)


def _last_seen(reader: DatabaseReader, node: str) -> float | None:
    rows = reader.fetch("SELECT last_seen FROM nodes WHERE node = :node", {"node": node})
    return rows[0][0] if rows and isinstance(rows[0][0], float) else None


def _series(tables: Mapping[Scope, pd.DataFrame], gpus: Sequence[Sequence], work: Iterable[Sequence]) -> NodeSeries:
    """`tables`: by key, ts and the measures of the scope; those of ports with `_PORT`. `gpus`: rows of `_GPU`; split
    GPUs are left out, their instances are not. `work`: rows of uuid, workload and its name."""
    ends = sorted({float(ts) for table in tables.values() for ts in table["ts"]})[-MOMENTS:]
    measured = {
        (scope, str(key)): rows.drop_duplicates("ts").set_index("ts").reindex(ends)
        for scope, table in tables.items()
        for key, rows in table.groupby("key")
    }
    held: dict[str, dict[tuple[str, str], None]] = {}
    for uuid, workload, name in work:
        held.setdefault(str(uuid), {})[str(workload), str(name)] = None

    def device(scope: Scope, key: str, name: str, about: str, tops: Mapping[str, Any]) -> Device:
        rows, gauges = measured.get((scope, key)), []
        for column, (label, unit, factor) in GAUGES[scope].items():
            values = [] if rows is None else (pd.to_numeric(rows[column], errors="coerce") * factor).tolist()
            top = 100.0 / factor if unit == "%" else known(tops.get(column))
            shown = tuple(None if math.isnan(value) else value for value in values or [math.nan] * len(ends))
            gauges.append(DeviceGauge(label, unit, shown, top * factor if top else None))
        return Device(scope, key, name, about, tuple(gauges), tuple(held.get(key, ())))

    devices, parents = [], {row[4] for row in gpus}
    for uuid, index, sku, profile, _, memory, power, nvlink in gpus:
        if uuid not in parents:
            number, about = whole(index), " ".join(filter(None, (text(sku), text(profile))))
            tops = {"nvlink_tx_bytes_per_second": nvlink, "nvlink_rx_bytes_per_second": nvlink}
            tops |= {"mem_used_bytes": memory, "power_watts": power}
            devices.append(device("gpu", uuid, f"GPU {'?' if number is None else number}", about, tops))
    ports = tables["port"].drop_duplicates("key", keep="last")[["key", *_PORT]]
    for key, role, layer, rate, state in ports.itertuples(index=False, name=None):
        about = f"{role} {layer}" + (f", {state}" if state != "ACTIVE" else "")
        tops = {"tx_bytes_per_second": rate, "rx_bytes_per_second": rate}
        devices.append(device("port", str(key), str(key), about, tops))
    devices.append(device("host", "", "host", "", {}))
    return NodeSeries(tuple(ends), ends[-1] - ends[-2] if len(ends) > 1 else 0.0, tuple(devices))


# The lines of a workload: column of the frame -> (name, unit, factor to the unit)
_LINES = {
    **{f"{column}_mean": GAUGES["gpu"][column] for column in MEASURES},
    "tx_bytes_per_second_mean": ("fabric sent", "GB/s a port", 1e-9),
}


class Level(NamedTuple):
    """A reference value for the line named `of`, in its unit."""

    of: str
    name: str
    value: float


class WorkloadTimeline(NamedTuple):
    """`ends`: the ends of the intervals, Unix seconds, rising. A metric that was never read has no line."""

    ends: tuple[float, ...]
    lines: tuple[DeviceGauge, ...]
    levels: tuple[Level, ...]


def timeline_of(
    frame: Frame, workload: WorkloadVerdict, sku: GpuSku | None, rules: Mapping[str, WasteRule]
) -> WorkloadTimeline:
    """The timeline of a workload: means over its GPUs, and over the compute ports of its nodes, while it held them,
    weighted by observed seconds. `sku`: the catalog's entry of its GPUs; None: no levels of the GPU."""
    levels = _levels(frame, workload, sku, rules)
    frame = by_minute(frame, workload.nodes)
    uses = frame.uses[frame.uses["workload_id"] == workload.id]
    gpu = _while_held(frame.gpu, uses, ["node", "gpu_uuid"])
    ports = _while_held(compute_ports(frame.fabric), uses, ["node"])
    means = [weighted_means(rows, [name for name in _LINES if name in rows], ["ts"]) for rows in (gpu, ports)]
    means = means[0].join(means[1], how="outer").dropna(axis=1, how="all").sort_index()
    lines = tuple(
        DeviceGauge(name, unit, tuple(None if math.isnan(v) else float(v) * factor for v in means[column]))
        for column, (name, unit, factor) in _LINES.items()
        if column in means
    )
    return WorkloadTimeline(tuple(float(ts) for ts in means.index) if lines else (), lines, levels)


def _while_held(rows: pd.DataFrame, uses: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    if rows.empty or uses.empty:
        return rows.iloc[:0]
    spans = uses.groupby(keys, as_index=False).agg(held_from=("ts_start", "min"), held_to=("ts_end", "max"))
    near = rows[rows["node"].isin(spans["node"])].merge(spans, on=keys)
    return near[(near["ts"] > near["held_from"]) & (near["ts"] - near["interval_seconds"] < near["held_to"])]


def _levels(
    frame: Frame, workload: WorkloadVerdict, sku: GpuSku | None, rules: Mapping[str, WasteRule]
) -> tuple[Level, ...]:
    ports = compute_ports(frame.fabric)
    rates = ports[ports["node"].isin(workload.nodes)]["line_rate_bytes_per_second"].dropna().unique()
    levels, capacity = list[Level](), {"fabric sent": rates[0] * 1e-9 if len(rates) == 1 else None}
    if sku is not None:
        memory, nvlink = sku.mem_bytes / 1024**3, sku.nvlink_bytes_per_second
        shares = (("tensor active", sku.achieved.bf16_gemm), ("DRAM active", sku.achieved.mem))
        levels = [Level(of, f"{of.split()[0]} sustained", 100 * share) for of, share in shares if share]
        levels += [Level("memory used", "all of its memory", memory), Level("power", "rated power", sku.tdp_watts)]
        capacity |= {"NVLink sent": nvlink and nvlink * 1e-9, "memory used": memory}
    for rule in RULES:
        of, threshold, name = rule.line or ("", "", "")
        if most := capacity.get(of):
            share = rules[rule.id].of(workload.owner).value(threshold)
            levels.append(Level(of, f"{name} {share * 100:g} %", share * most))
    power, over = workload.features.get("power_watts"), workload.features.get("power_over_idle")
    return (*levels, *((Level("power", "idle power", power / over),) if power and over else ()))
