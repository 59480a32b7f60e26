"""What the devices of one node did moment by moment: from samples or from a frame's rows, as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pandas as pd

    from ...core.frame import Frame

Scope = Literal["gpu", "port", "host"]
MOMENTS = 120
_PERCENT, _GB, _GIB, _MB = 100.0, 1e-9, 1 / 1024**3, 1e-6
# column -> (name, unit, factor to the unit)
GPU_GAUGES = {
    "sm_active": ("SM active", "%", _PERCENT),
    "tensor_active": ("tensor active", "%", _PERCENT),
    "dram_active": ("DRAM active", "%", _PERCENT),
    "nvlink_tx_bytes_per_second": ("NVLink sent", "GB/s", _GB),
    "nvlink_rx_bytes_per_second": ("NVLink received", "GB/s", _GB),
    "pcie_tx_bytes_per_second": ("PCIe sent", "GB/s", _GB),
    "pcie_rx_bytes_per_second": ("PCIe received", "GB/s", _GB),
    "mem_used_bytes": ("memory used", "GiB", _GIB),
    "power_watts": ("power", "W", 1.0),
    "sm_clock_hertz": ("SM clock", "GHz", _GB),
}
PORT_GAUGES = {
    "tx_bytes_per_second": ("sent", "GB/s", _GB),
    "rx_bytes_per_second": ("received", "GB/s", _GB),
    "xmit_wait_per_second": ("waited", "ticks/s", 1.0),
}
HOST_GAUGES = {
    "cpu_util": ("CPU", "%", _PERCENT),
    "io_wait": ("IO wait", "%", _PERCENT),
    "disk_read_bytes_per_second": ("disks read", "MB/s", _MB),
    "disk_write_bytes_per_second": ("disks written", "MB/s", _MB),
}


@dataclass(frozen=True, slots=True)
class DeviceGauge:
    """One measure of a device. `values` stand beside `NodeSeries.ends`; None: not measured. `top`: what the device can
    do at most, in `unit`; None: not known."""

    name: str
    unit: str
    values: tuple[float | None, ...]
    top: float | None

    @property
    def last(self) -> float | None:
        return self.values[-1] if self.values else None


@dataclass(frozen=True, slots=True)
class Device:
    """`key`: a GPU's uuid, a port as ``device/port``, empty for the host. `about`: SKU, role or state in words. `work`:
    id and name of the workloads that hold it, newest first."""

    scope: Scope
    key: str
    name: str
    about: str
    gauges: tuple[DeviceGauge, ...]
    work: tuple[tuple[str, str], ...] = ()

    def gauge(self, name: str) -> DeviceGauge | None:
        return next((gauge for gauge in self.gauges if gauge.name == name), None)


@dataclass(frozen=True, slots=True)
class NodeSeries:
    """`ends`: the ends of the intervals, Unix seconds, rising; `interval_seconds`: how long the newest is."""

    node: str
    ends: tuple[float, ...]
    interval_seconds: float
    devices: tuple[Device, ...]

    def of(self, scope: Scope) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.scope == scope)


@dataclass(frozen=True, slots=True)
class DeviceAbout:
    """What is known of a device beside its values. `tops`: column -> what it can do at most, in base units."""

    name: str
    about: str
    tops: Mapping[str, float]
    work: tuple[tuple[str, str], ...] = ()


def devices_of(
    scope: Scope,
    rows: Iterable[Sequence[object]],
    known: Mapping[str, DeviceAbout],
    columns: Sequence[str],
    ends: Sequence[float],
) -> tuple[Device, ...]:
    """Devices of rows of (key, ts, value of each column ...), in the order of `known`; those that it does not name come
    last. A device that is known and has no row has no value."""
    at = {end: n for n, end in enumerate(ends)}
    values: dict[str, list[list[float | None]]] = {key: _empty(columns, ends) for key in known}
    for row in rows:
        key, place = str(row[0]), at.get(row[1])  # type: ignore[call-overload] - what is no moment is at none
        if place is None:
            continue
        own = values.setdefault(key, _empty(columns, ends))
        for column, value in zip(own, row[2:], strict=True):
            column[place] = float(value) if isinstance(value, (int, float)) and value == value else None  # noqa: PLR0124
    gauges = {"gpu": GPU_GAUGES, "port": PORT_GAUGES, "host": HOST_GAUGES}[scope]
    told = []
    for key, own in values.items():
        about = known.get(key, DeviceAbout(key, "", {}))
        lines = []
        for column, series in zip(columns, own, strict=True):
            name, unit, factor = gauges[column]
            top = _PERCENT if unit == "%" else about.tops.get(column, 0.0) * factor or None
            lines.append(DeviceGauge(name, unit, tuple(None if v is None else v * factor for v in series), top))
        told.append(Device(scope, key, about.name, about.about, tuple(lines), about.work))
    return tuple(told)


def _empty(columns: Sequence[str], ends: Sequence[float]) -> list[list[float | None]]:
    return [[None] * len(ends) for _ in columns]


def gpu_tops(mem_total: float | None, power_limit: float | None, nvlink: float | None) -> dict[str, float]:
    """What a GPU can do at most, by column. Bytes, watts, bytes a second one way; None: not known."""
    tops = {
        "mem_used_bytes": mem_total, "power_watts": power_limit, "nvlink_tx_bytes_per_second": nvlink,
        "nvlink_rx_bytes_per_second": nvlink,
    }  # fmt: skip
    return {column: top for column, top in tops.items() if top}


def gpu_name(index: int | None) -> str:
    return "GPU ?" if index is None else f"GPU {index}"


def port_known(device: str, about: str, line_rate: float | None) -> DeviceAbout:
    rate = line_rate or 0.0
    tops = {"tx_bytes_per_second": rate, "rx_bytes_per_second": rate} if rate else {}
    return DeviceAbout(device, about, tops)


def in_frame(frame: Frame, node: str) -> NodeSeries:
    """The newest rows that a frame has of a node: means over their intervals. A node without rows has no moments."""
    from ...core.scalars import known, text, whole  # noqa: PLC0415 - pandas' side

    gpu, fabric, host = (rows[rows["node"] == node] for rows in (frame.gpu, frame.fabric, frame.host))
    stamps = sorted(set(gpu["ts"]) | set(fabric["ts"]) | set(host["ts"]))[-MOMENTS:]
    newest = gpu[gpu["ts"] == stamps[-1]]["interval_seconds"] if stamps else gpu["interval_seconds"]
    names = dict(zip(frame.workloads["workload_id"], frame.workloads["name"], strict=True))
    uses = frame.uses[(frame.uses["node"] == node) & (frame.uses["ts_end"] >= (stamps[-1] if stamps else 0.0))]
    work: dict[str, tuple[tuple[str, str], ...]] = {}
    for uuid, workload in zip(uses["gpu_uuid"], uses["workload_id"], strict=True):
        work[uuid] = (*work.get(uuid, ()), (str(workload), str(names.get(workload, workload))))
    parents = set(frame.gpus["parent_uuid"])
    gpus = {
        str(row["gpu_uuid"]): DeviceAbout(
            gpu_name(whole(row["gpu_index"])), " ".join(filter(None, (text(row["sku"]), text(row["mig_profile"])))),
            gpu_tops(
                known(row["mem_total_bytes"]), known(row["power_limit_watts"]), known(row["nvlink_bytes_per_second"])
            ),
            work.get(row["gpu_uuid"], ()),
        )
        for row in frame.gpus[frame.gpus["node"] == node].sort_values("gpu_index").to_dict("records")
        if row["gpu_uuid"] not in parents
    }  # fmt: skip
    ports = fabric.assign(key=[f"{d}/{p:.0f}" for d, p in zip(fabric["device"], fabric["port"], strict=True)])
    about = {
        str(row["key"]): port_known(
            str(row["key"]), f"{row['role']} {row['link_layer']}", known(row["line_rate_bytes_per_second"])
        )
        for row in ports.drop_duplicates("key", keep="last").to_dict("records")
    }
    return NodeSeries(
        node, tuple(stamps), float(newest.iloc[-1]) if len(newest) else 0.0,
        (
            *devices_of("gpu", _rows(gpu, "gpu_uuid", GPU_GAUGES), gpus, list(GPU_GAUGES), stamps),
            *devices_of("port", _rows(ports, "key", PORT_GAUGES), about, list(PORT_GAUGES), stamps),
            *devices_of("host", _rows(host.assign(key=""), "key", HOST_GAUGES), {"": HOST}, list(HOST_GAUGES), stamps),
        ),
    )  # fmt: skip


HOST = DeviceAbout("host", "", {})


def _rows(rows: pd.DataFrame, key: str, gauges: Mapping[str, object]) -> Iterable[tuple[object, ...]]:
    return rows[[key, "ts", *(f"{column}_mean" for column in gauges)]].itertuples(index=False, name=None)
