"""What the GPUs of each node drew together, interval by interval, against what they are rated for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from ...core.frame import Frame
from ..types import NodePower
from ..workloads.inventory import Inventory
from ..workloads.mig import whole_gpus
from ..workloads.sku_lookup import GpuIndex
from .measured_energy import RowEnergy

P95 = 0.95


def node_power(frame: Frame, inventory: Inventory, index: GpuIndex, energy: RowEnergy) -> Mapping[str, NodePower]:
    """Every node of the inventory. An interval counts where each GPU that the node has was measured in it: what is
    missing would make the node look lighter than it is."""
    whole = whole_gpus(frame)
    limits: dict[str, list[float]] = {}
    for node, uuid in whole.itertuples(index=False, name=None):
        limit = float(index.table["power_limit"].get((node, uuid), np.nan)) if len(index.table) else np.nan
        limits.setdefault(str(node), []).append(limit)
    sums = _sums(frame, whole, energy)
    return {
        node: _of_node(sums.get(node), counted.gpu_count, limits.get(node, [])) for node, counted in
        inventory.nodes.items()
    }  # fmt: skip


def _sums(frame: Frame, whole: pd.DataFrame, energy: RowEnergy) -> dict[str, pd.DataFrame]:
    if frame.gpu.empty:
        return {}
    known = ~np.isnan(energy.watts) & frame.gpu_keys.among(whole.itertuples(index=False, name=None))
    told = frame.gpu.loc[known, ["node", "ts", "interval_seconds"]].assign(
        watts=energy.watts[known], gpu=frame.gpu_keys.number[known]
    )
    keys = ["ts", "interval_seconds"]
    return {
        str(node): rows.groupby(keys, sort=True).agg(watts=("watts", "sum"), gpus=("gpu", "nunique")).reset_index()
        for node, rows in told.groupby("node", sort=False)
    }


def _of_node(rows: pd.DataFrame | None, gpus: int, limits: list[float]) -> NodePower:
    rated = float(sum(limits)) if limits and len(limits) == gpus and not np.isnan(limits).any() else None
    whole = rows[rows["gpus"] >= gpus] if rows is not None else None
    if whole is None or whole.empty or gpus <= 0:
        return NodePower(None, None, None, rated, None)
    watts, weights = whole["watts"].to_numpy(float), whole["interval_seconds"].to_numpy(float)
    order = np.argsort(watts)
    passed = np.cumsum(weights[order])
    p95 = watts[order][np.searchsorted(passed, P95 * passed[-1])]
    return NodePower(
        float(np.average(watts, weights=weights)), float(p95), float(watts.max()), rated, float(weights.max())
    )  # fmt: skip
