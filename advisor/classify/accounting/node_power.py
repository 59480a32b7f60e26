"""What the GPUs of each node drew together, interval by interval, against what they are rated for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.frame import Frame
from ..types import NodePower
from ..workloads.inventory import Inventory
from ..workloads.mig import whole_gpus
from ..workloads.sku_lookup import GpuIndex
from .measured_energy import RowEnergy

Floats = npt.NDArray[np.float64]

P95 = 0.95


def node_power(frame: Frame, inventory: Inventory, index: GpuIndex, energy: RowEnergy) -> Mapping[str, NodePower]:
    """Every node of the inventory. An interval counts where each GPU that the node has was measured in it: what is
    missing would make the node look lighter than it is."""
    whole = whole_gpus(frame)
    limit_of = index.table["power_limit"].to_dict() if len(index.table) else {}
    limits: dict[str, list[float]] = {}
    for node, uuid in whole.itertuples(index=False, name=None):
        limits.setdefault(str(node), []).append(float(limit_of.get((node, uuid), np.nan)))
    sums = _sums(frame, whole, energy)
    return {
        node: _of_node(sums.get(node), counted.gpu_count, limits.get(node, [])) for node, counted in
        inventory.nodes.items()
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Sums:
    """Of each interval of one node: what its GPUs drew together, how many they were, and how long it was."""

    watts: Floats
    gpus: npt.NDArray[np.intp]
    seconds: Floats


def _sums(frame: Frame, whole: pd.DataFrame, energy: RowEnergy) -> dict[str, _Sums]:
    """Each node's intervals in their order."""
    keys = frame.gpu_keys
    known = np.flatnonzero(~np.isnan(energy.watts) & keys.among(whole.itertuples(index=False, name=None)))
    if not len(known):
        return {}
    nodes, names = keys.nodes()
    ts, seconds = (frame.gpu[name].to_numpy(float) for name in ("ts", "interval_seconds"))
    order = known[np.lexsort((keys.number[known], seconds[known], ts[known], nodes[known]))]
    node, ts, seconds, gpu = nodes[order], ts[order], seconds[order], keys.number[order]
    begins = _changes(node, ts, seconds)
    starts = np.flatnonzero(begins)
    watts = np.add.reduceat(energy.watts[order], starts)
    # A GPU that has two rows for one interval is one GPU.
    gpus = np.add.reduceat((begins | _changes(gpu)).astype(np.intp), starts)
    ends = np.searchsorted(node[starts], np.arange(len(names) + 1))
    return {
        str(name): _Sums(watts[a:b], gpus[a:b], seconds[starts[a:b]])
        for name, a, b in zip(names, ends[:-1], ends[1:], strict=True)
        if b > a
    }


def _changes(*columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether a row differs from the one before it; the first does."""
    out = np.ones(len(columns[0]), dtype=np.bool_)
    out[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return out


def _of_node(rows: _Sums | None, gpus: int, limits: list[float]) -> NodePower:
    rated = float(sum(limits)) if limits and len(limits) == gpus and not np.isnan(limits).any() else None
    whole = rows.gpus >= gpus if rows is not None else None
    if rows is None or whole is None or not whole.any() or gpus <= 0:
        return NodePower(None, None, None, rated, None)
    watts, weights = rows.watts[whole], rows.seconds[whole]
    order = np.argsort(watts)
    passed = np.cumsum(weights[order])
    p95 = watts[order][np.searchsorted(passed, P95 * passed[-1])]
    return NodePower(
        float(np.average(watts, weights=weights)), float(p95), float(watts.max()), rated, float(weights.max())
    )  # fmt: skip
