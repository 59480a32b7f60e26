"""The first stages of judging: every row of telemetry believed or not, measured, attributed and labelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...rules.policy.thresholds import Threshold
from ..core.frame import Frame
from .bottlenecks.bottlenecks import label_rows
from .bottlenecks.links import WireRule, links_of
from .features.assumed_efficiency import assumed
from .features.resting_power import power_doubts
from .features.soundness import Doubt, examine
from .features.utilization import MeasureRule, measures
from .workloads.attribution import Attribution, attribute
from .workloads.inventory import Inventory, inventory_of
from .workloads.mig import row_parts
from .workloads.sku_lookup import GpuCatalog, GpuIndex, index_gpus


@dataclass(frozen=True)
class MeasuredRows:
    """`frame`: without what was not believed (`doubts`). `rows`, `labels` (bottlenecks) and `parts` (of a GPU) stand
    for the rows of its `gpu`, in their order."""

    frame: Frame
    inventory: Inventory
    index: GpuIndex
    rows: pd.DataFrame
    labels: pd.Series
    parts: npt.NDArray[np.float64]
    attribution: Attribution
    doubts: tuple[Doubt, ...]


def measured_rows(frame: Frame, catalog: GpuCatalog, bottlenecks: Mapping[str, Threshold]) -> MeasuredRows:
    """`bottlenecks`: the thresholds of rules/bottlenecks.yaml. Linear in the rows of the frame."""
    examined = examine(frame)
    frame, contradicted = examined.frame, examined.contradicted
    # What was not believed was not observed either.
    inventory = inventory_of(frame, catalog.node_gpu_count)
    index = index_gpus(frame, catalog)
    rows = measures(frame, index, _measure_rule(bottlenecks), assumed(catalog.gpus.values()), contradicted)
    doubts = (*examined.doubts, *power_doubts(frame, rows, contradicted))
    attribution = attribute(frame)
    links = links_of(frame, index, rows, attribution, catalog, _wire_rule(bottlenecks))
    labels, rows = label_rows(frame.gpu, rows, attribution.mine, links, bottlenecks)
    parts = row_parts(frame, index.sku)
    # In one block a type: every workload takes its rows from it.
    return MeasuredRows(frame, inventory, index, rows.copy(), labels, parts, attribution, doubts)


def _measure_rule(bottlenecks: Mapping[str, Threshold]) -> MeasureRule:
    names = (
        "idle_engine_max", "idle_dram_max", "idle_power_over_idle_max", "fault_power_share_min", "network_util",
        "pcie_util",
    )  # fmt: skip
    return MeasureRule(*(bottlenecks[name].value for name in names))


def _wire_rule(bottlenecks: Mapping[str, Threshold]) -> WireRule:
    names = (
        "network_quiet_max", "network_quiet_bytes_per_second_max", "network_tcp_bytes_per_second_max",
        "network_used_min",
    )  # fmt: skip
    return WireRule(*(bottlenecks[name].value for name in names))
