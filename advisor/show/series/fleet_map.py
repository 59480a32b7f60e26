"""What each GPU of a fleet did on average over the window, with its node: the data of the fleet's map."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from ...core.advice_types import Unobserved
from ...core.frame import Frame
from ...core.scalars import known, records, text, whole

# Columns of the frame's gpu rows, in base units.
MEASURES = (
    "sm_active", "tensor_active", "dram_active", "nvlink_tx_bytes_per_second", "mem_used_bytes", "power_watts",
)  # fmt: skip
NO_PORTS = "no compute ports observed"


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU, or one MIG instance where a GPU is split.

    `values`: means over what was observed, in base units; a measure that was never read is missing. `fabric_util` among
    them is the node's: the mean share of the line rate over its compute ports. `workload`: the id of what held it
    longest in the window, None: nothing did. `index` None: unknown. `unobserved`: why nothing of it was observed in the
    window, None: something was. Without `gpu_uuid` it is the place of a GPU on a node of which none was observed.
    """

    node: str
    gpu_uuid: str
    index: int | None
    sku: str | None
    mig_profile: str | None
    mem_total_bytes: float | None
    workload: str | None
    values: Mapping[str, float]
    unobserved: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.node, self.gpu_uuid


class NodeUse(NamedTuple):
    """`fabric`: its compute ports in words. `gpus` in the order of their indices; where none was observed, as many
    places as there should be GPUs, one at least."""

    node: str
    node_sku: str | None
    fabric: str
    gpus: tuple[GpuUse, ...]


def nodes_with_gpus(frame: Frame, unobserved: Iterable[Unobserved] = ()) -> tuple[NodeUse, ...]:
    """Every node of the frame with its GPUs, by name. `unobserved`: GPUs that exist beside those of the frame, or of
    which the frame has no data; each is one GPU, also where it has MIG instances."""
    dark = {(absent.node, gpu): absent.reason for absent in unobserved for gpu in absent.gpus}
    means = weighted_means(frame.gpu, [f"{name}_mean" for name in MEASURES], ["node", "gpu_uuid"]).set_axis(
        MEASURES, axis=1
    )
    measured = {key: {n: v for n, v in row.items() if not math.isnan(v)} for key, row in means.to_dict("index").items()}
    holders = _holders(frame)
    ports, utils = _ports(frame.fabric)
    parents = set(zip(frame.gpus["node"], frame.gpus["parent_uuid"], strict=True))
    uses: dict[tuple[str, str], GpuUse] = {}
    for row in records(frame.gpus):
        key = node, uuid = str(row["node"]), str(row["gpu_uuid"])
        if key not in dark and (key in parents or (node, str(row["parent_uuid"])) in dark):
            continue  # its instances are listed instead of it, or it instead of them
        values = {**measured.get(key, {}), **({"fabric_util": utils[node]} if node in utils else {})}
        sku, profile, memory = text(row["sku"]) or text(row["name"]), text(row["mig_profile"]), row["mem_total_bytes"]
        holder, index = holders.get(key), whole(row["gpu_index"])
        uses[key] = GpuUse(node, uuid, index, sku, profile, known(memory), holder, values, dark.get(key))
    for key, reason in dark.items():
        uses.setdefault(key, GpuUse(*key, None, None, None, None, None, {}, reason))
    gpus: dict[str, list[GpuUse]] = {}
    for use in sorted(uses.values(), key=lambda use: (use.index is None, use.index or 0, use.gpu_uuid)):
        gpus.setdefault(use.node, []).append(use)
    nodes = []
    for row in records(frame.nodes.sort_values("node")):
        node, count = str(row["node"]), max(whole(row["gpu_count"]) or 1, 1)
        places = gpus.get(node) or [GpuUse(node, "", None, None, None, None, None, {})] * count
        nodes.append(NodeUse(node, text(row["node_sku"]), ports.get(node, NO_PORTS), tuple(places)))
    return tuple(nodes)


def weighted_means(rows: pd.DataFrame, columns: Sequence[str], keys: Sequence[str]) -> pd.DataFrame:
    """Means of columns by `keys`, weighted by observed seconds; NaN where nothing was read."""
    rows = rows.reindex(columns=[*keys, *columns, "observed_seconds"])
    values = rows[list(columns)].astype(float)
    weights = values.notna().mul(rows["observed_seconds"].astype(float).fillna(0.0), axis=0)
    by = [rows[key] for key in keys]
    sums, seconds = (table.groupby(by).sum() for table in (values.fillna(0.0) * weights, weights))
    return sums / seconds.where(seconds > 0)


def compute_ports(fabric: pd.DataFrame) -> pd.DataFrame:
    """The rows of the fabric that are of compute ports."""
    return fabric[fabric["role"] == "compute"] if not fabric.empty else fabric


def _holders(frame: Frame) -> dict[tuple[str, str], str]:
    """(node, uuid) -> the workload that held it longest within the window."""
    uses = frame.uses
    if uses.empty:
        return {}
    held = uses["ts_end"].clip(upper=frame.window.end) - uses["ts_start"].clip(lower=frame.window.start)
    sums = uses.assign(held=held).groupby(["node", "gpu_uuid", "workload_id"])["held"].sum().reset_index()
    longest = sums.sort_values(by=["held", "workload_id"]).drop_duplicates(["node", "gpu_uuid"], keep="last")
    return longest.set_index(["node", "gpu_uuid"])["workload_id"].astype(str).to_dict()  # type: ignore[return-value]


def _ports(fabric: pd.DataFrame) -> tuple[dict[str, str], dict[str, float]]:
    """Node -> its compute ports in words (``8 x 400 Gb/s InfiniBand``; no rate where it is unknown or differs), and
    node -> their mean share of the line rate."""
    ports, words = compute_ports(fabric), dict[str, str]()
    if ports.empty:
        return {}, {}
    for node, each in ports.drop_duplicates(["node", "device", "port"], keep="last").groupby("node"):
        rates = set(each["line_rate_bytes_per_second"].dropna())
        rate = f" {rates.pop() * 8e-9:.0f} Gb/s" if len(rates) == 1 else ""
        words[str(node)] = f"{len(each)} x{rate} {'/'.join(sorted(set(map(str, each['link_layer']))))}"
    utils = weighted_means(ports, ["util_mean"], ["node"])["util_mean"].dropna()
    return words, {str(node): float(mean) for node, mean in utils.items()}
