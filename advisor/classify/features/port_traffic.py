"""What the network ports of each node carried, moment by moment, and whether all that it has were read."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ....rules.catalog.loader import Catalog
from ...core.frame import Frame
from ...rulebook import Rulebook

_COLUMNS = ("wire", "bytes", "ethernet", "rdma", "ports", "known", "loud", "has_ethernet", "sure")
# Reason of an absence: node_exporter's collector ended with an error, so that what it did not report may exist.
FAILED = "collector-failed"
_USED = [
    "node", "device", "port", "link_layer", "role", "ts", "interval_seconds", "line_rate_bytes_per_second",
    "active_fraction", "util_mean", "tx_bytes_per_second_mean", "rx_bytes_per_second_mean",
]  # fmt: skip


def port_traffic(frame: Frame, book: Rulebook) -> pd.DataFrame:
    """By node, moment and length of row: what its ports carried, and whether all of them were read (`known`).

    `wire`, `bytes`, `ethernet`: of the busiest port, the share of what an exchange can reach, the bytes per second, and
    of plain Ethernet the share of its line rate. `rdma`: the busiest RDMA port's use. `ports`: how many were read;
    `loud`, `has_ethernet`: whether one carried more than next to nothing, and whether one is plain Ethernet; `sure`:
    whether it is known if the node has RDMA ports. Flags are 0 and 1.
    """
    level = {name: threshold.value for name, threshold in book.bottlenecks.items()}
    rdma = _rdma(frame, book.catalog)
    keys = ["node", "ts", "interval_seconds"]
    # A storage port carries no exchange.
    ports = frame.fabric.loc[frame.fabric["role"] != "storage", _USED] if not frame.fabric.empty else frame.fabric
    if ports.empty:
        return pd.DataFrame(columns=list(_COLUMNS), dtype=float)
    plain = (ports["link_layer"] == "Ethernet") & (ports["role"] != "compute")
    line = ports["line_rate_bytes_per_second"]
    line = line.where(line > 0)
    used = ports["util_mean"]
    bytes_ = ports[["tx_bytes_per_second_mean", "rx_bytes_per_second_mean"]]
    # One direction alone may be the quiet one.
    rate = bytes_.max(axis=1, skipna=False).fillna(used * line)
    reach = line.where(~plain, line.fillna(np.inf).clip(upper=level["network_tcp_bytes_per_second_max"]))
    use = (rate / reach).fillna(used.where(~plain))
    # Of a port of unknown speed, the share is the least that it can be; only few bytes are surely quiet.
    quiet = (use <= level["network_quiet_max"]) & (line.notna() | (rate <= level["network_quiet_bytes_per_second_max"]))
    read, down = use.notna(), ports["active_fraction"] == 0.0
    port = ports.groupby(["node", "device", "port"], sort=False, dropna=False).ngroup()
    ever = (read | ~down).groupby(port).transform("any")
    table = pd.DataFrame(
        {
            **{key: ports[key] for key in keys},
            "wire": use, "bytes": rate,
            "ethernet": (rate / line).fillna(use).where(plain).clip(upper=1.0), "rdma": use.where(~plain),
            "ports": read.astype(float), "settled": (read | down).where(ever, False).astype(float),
            "loud": (read & ~quiet).astype(float), "has_ethernet": (plain & read).astype(float),
            "is_rdma": (~plain & read).astype(float),
        }
    )  # fmt: skip
    by = table.groupby(keys)
    out = by[["wire", "bytes", "ethernet", "rdma", "loud", "has_ethernet", "is_rdma"]].max()
    out["ports"] = by["ports"].sum()
    count = port[ever].groupby(ports["node"][ever]).nunique()
    node = out.index.get_level_values("node")
    expected = pd.Series(node.map(count.to_dict()), index=out.index).fillna(0.0)
    has = pd.Series(node.map(rdma), index=out.index, dtype=object)
    sure = (out["is_rdma"] == 1.0) | (has == False)  # noqa: E712 - None: not known
    # Where it is said to have none and shows one, or the other way round, what is seen counts.
    out["sure"] = sure.astype(float)
    out["known"] = (sure & (out["ports"] > 0) & (by["settled"].sum() >= expected)).astype(float)
    return out[list(_COLUMNS)]


def _rdma(frame: Frame, catalog: Catalog) -> dict[str, bool]:
    """Whether a node has RDMA ports: by the catalog, else where a source looked for them, did not fail, and found
    none."""
    out: dict[str, bool] = {}
    absences = frame.absences
    if not absences.empty:
        none, failed = (set(absences.loc[absences["reason"] == why, "node"]) for why in ("no-fabric", FAILED))
        out |= dict.fromkeys(map(str, none - failed), False)
    for node, name in zip(frame.nodes["node"], frame.nodes["node_sku"], strict=True):
        sku = catalog.node(name) if isinstance(name, str) and name else None
        if sku is not None and sku.fabric.rdma is not None:
            out[str(node)] = sku.fabric.rdma
    return out
