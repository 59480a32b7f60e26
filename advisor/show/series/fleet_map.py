"""What each GPU of a fleet did on average over the window, with what its node is: the ground of a map of the fleet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pandas as pd

from ...core.advice_types import Unobserved
from ...core.frame import Frame
from ...core.scalars import known, text, whole

# measure -> column of the frame's gpu rows, in base units.
_COLUMNS = {
    "sm_active": "sm_active_mean",
    "tensor_active": "tensor_active_mean",
    "dram_active": "dram_active_mean",
    "nvlink_tx_bytes_per_second": "nvlink_tx_bytes_per_second_mean",
    "mem_used_bytes": "mem_used_bytes_mean",
    "power_watts": "power_watts_mean",
}
NO_PORTS = "no compute ports observed"


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU, or one MIG instance where a GPU is split.

    `values`: means over what was observed, in base units; a measure that was never read is not in it. `fabric_util`
    among them is the node's: the mean share of the line rate over its compute ports. `workload`: the id of what held
    it longest in the window, None: nothing did. `index`: None where the road does not tell it. `unobserved`: why
    nothing of it was observed in the window, None: something was, or nobody asked.
    """

    node: str
    gpu_uuid: str
    index: int | None
    sku: str | None
    mig_profile: str | None
    mem_total_bytes: float | None
    power_limit_watts: float | None
    workload: str | None
    values: Mapping[str, float]
    unobserved: str | None = None


@dataclass(frozen=True, slots=True)
class NodeUse:
    """`fabric`: its compute ports in words. `gpus` in the order of their indices; empty where none is known, and then
    `gpu_count` says how many there should be (None: not known)."""

    node: str
    node_sku: str | None
    fabric: str
    gpu_count: int | None
    gpus: tuple[GpuUse, ...]


def nodes_with_gpus(frame: Frame, unobserved: Iterable[Unobserved] = ()) -> tuple[NodeUse, ...]:
    """Every node of the frame with its GPUs, by name. `unobserved`: GPUs that exist beside those of the frame, or of
    which the frame holds nothing (the inventory's); each is one GPU, also where it has MIG instances."""
    dark = {(one.node, gpu): one.reason for one in unobserved for gpu in one.gpus}
    listed: set[tuple[str, str]] = set()
    means, holders = _means(frame.gpu), _holders(frame)
    ports, utils = _ports(frame.fabric)
    parents = set(zip(frame.gpus["node"], frame.gpus["parent_uuid"], strict=True))
    gpus: dict[str, list[GpuUse]] = {}
    for row in frame.gpus.to_dict("records"):
        node, uuid = str(row["node"]), str(row["gpu_uuid"])
        if (node, uuid) not in dark and ((node, uuid) in parents or (node, str(row["parent_uuid"])) in dark):
            continue  # its instances stand for it, or it for them
        listed.add((node, uuid))
        values = dict(means.get((node, uuid), {}))
        if node in utils:
            values["fabric_util"] = utils[node]
        gpus.setdefault(node, []).append(
            GpuUse(
                node, uuid, whole(row["gpu_index"]), text(row["sku"]) or text(row["name"]),
                text(row["mig_profile"]), known(row["mem_total_bytes"]), known(row["power_limit_watts"]),
                holders.get((node, uuid)), MappingProxyType(values), dark.get((node, uuid)),
            )
        )  # fmt: skip
    for (node, uuid), reason in dark.items():
        if (node, uuid) not in listed:
            gpu_use = GpuUse(node, uuid, None, None, None, None, None, None, MappingProxyType({}), reason)
            gpus.setdefault(node, []).append(gpu_use)
    told = []
    for row in frame.nodes.sort_values("node").to_dict("records"):
        node = str(row["node"])
        own = sorted(gpus.get(node, ()), key=lambda gpu: (gpu.index is None, gpu.index or 0, gpu.gpu_uuid))
        sku, count = text(row["node_sku"]), whole(row["gpu_count"])
        told.append(NodeUse(node, sku, ports.get(node, NO_PORTS), count, tuple(own)))
    return tuple(told)


def _means(rows: pd.DataFrame) -> dict[tuple[str, str], dict[str, float]]:
    """(node, uuid) -> measure -> mean, each row by the seconds that were observed in it."""
    values = rows[list(_COLUMNS.values())].astype(float).set_axis(list(_COLUMNS), axis=1)
    weights = values.notna().mul(rows["observed_seconds"].fillna(0.0), axis=0)
    keys = [rows["node"].astype(str), rows["gpu_uuid"].astype(str)]
    sums, whole = (table.groupby(keys).sum() for table in (values.fillna(0.0) * weights, weights))
    means = (sums / whole.where(whole > 0)).to_dict("index")
    return {key: {name: value for name, value in own.items() if value == value} for key, own in means.items()}  # type: ignore[misc] # noqa: PLR0124


def _holders(frame: Frame) -> dict[tuple[str, str], str]:
    """(node, uuid) -> the workload that held it longest within the window."""
    uses = frame.uses
    if uses.empty:
        return {}
    held = uses["ts_end"].clip(upper=frame.window.end) - uses["ts_start"].clip(lower=frame.window.start)
    sums = uses.assign(held=held).groupby(["node", "gpu_uuid", "workload_id"])["held"].sum().reset_index()
    longest = sums.sort_values(by=["held", "workload_id"]).drop_duplicates(["node", "gpu_uuid"], keep="last")
    held_by = longest.set_index(["node", "gpu_uuid"])["workload_id"].astype(str)
    return held_by.to_dict()  # type: ignore[return-value]


def _ports(fabric: pd.DataFrame) -> tuple[dict[str, str], dict[str, float]]:
    """Node -> its compute ports in words, and node -> their mean share of the line rate."""
    ports = fabric[fabric["role"] == "compute"] if not fabric.empty else fabric
    if ports.empty:
        return {}, {}
    one_each = ports.drop_duplicates(["node", "device", "port"], keep="last")
    words = {str(node): _port_words(own) for node, own in one_each.groupby("node")}
    weight = ports["observed_seconds"].where(ports["util_mean"].notna()).fillna(0.0)
    sums = pd.DataFrame({"node": ports["node"], "w": weight, "v": ports["util_mean"].fillna(0.0) * weight})
    sums = sums.groupby("node").sum().query("w > 0")
    return words, {str(node): float(mean) for node, mean in (sums["v"] / sums["w"]).items()}


def _port_words(ports: pd.DataFrame) -> str:
    """``8 x 400 Gb/s InfiniBand``; the rate is left out where it is not known or not the same."""
    rates = {rate for rate in ports["line_rate_bytes_per_second"] if not math.isnan(rate)}
    rate = f" {rates.pop() * 8e-9:.0f} Gb/s" if len(rates) == 1 else ""
    return f"{len(ports)} x{rate} {'/'.join(sorted(set(map(str, ports['link_layer']))))}"
