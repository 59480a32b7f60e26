"""The first stages of judging: every row of telemetry believed or not, attributed, measured and labelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..core.frame import Frame
from ..core.unobservable import Blind, blind_nodes
from ..rulebook import Rulebook
from .bottlenecks.bottlenecks import label_rows
from .bottlenecks.links import links_of
from .bottlenecks.stragglers import lateness
from .doubts import Doubt
from .features.port_traffic import port_traffic
from .features.resting_power import at_rest
from .features.soundness import examine
from .features.utilization import measures
from .workloads.attribution import Attribution, attribute
from .workloads.inventory import Inventory, inventory_of
from .workloads.mig import row_parts
from .workloads.sku_lookup import GpuIndex, index_gpus


@dataclass(frozen=True)
class MeasuredRows:
    """`frame`: without what was not believed (`doubts`). `rows` (measures, and the bottleneck as `label`) and `parts`
    (of a GPU) stand for the rows of its `gpu`, in their order. `blind`: nodes whose GPUs cannot be read, and why."""

    frame: Frame
    inventory: Inventory
    index: GpuIndex
    rows: pd.DataFrame
    parts: npt.NDArray[np.float64]
    attribution: Attribution
    doubts: tuple[Doubt, ...]
    blind: Mapping[str, Blind]


def measured_rows(frame: Frame, book: Rulebook) -> MeasuredRows:
    """Linear in the rows of the frame."""
    sound = examine(frame)
    frame = sound.frame
    blind = blind_nodes(frame.absences)
    # What was not believed was not observed either.
    inventory = inventory_of(frame, book.catalog.node_gpu_count, blind)
    index = index_gpus(frame, book.catalog)
    attribution = attribute(frame)
    rows, ports = measures(frame, index, port_traffic(frame, book), book)
    rows, power_doubts = at_rest(frame, index, rows, book, sound.contradicted)
    links = links_of(frame, index, rows, ports, attribution, book)
    del ports  # of a large fleet they are a tenth of all memory
    ranks = lateness(frame.gpu, rows, attribution.workload_rows, book.bottlenecks)
    rows = label_rows(frame.gpu, rows, ranks, links, book.bottlenecks)
    doubts = (*sound.doubts, *power_doubts)
    return MeasuredRows(frame, inventory, index, rows, row_parts(frame, index), attribution, doubts, blind)
