"""The course of one workload: its measures over time, what they are held against, and its roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...rules.catalog.loader import Catalog
from ...rules.catalog.types import GpuSku
from ...rules.policy.thresholds import WasteRule
from ..core.advice_types import Advice
from ..core.frame import Frame
from ..core.verdict_types import WorkloadVerdict
from .minutes import by_minute
from .reference_lines import Level, levels_of
from .roofline import Roofline, roof_of, roofline
from .subjects import recommended
from .workload_series import History, history_of

ROOFS = 4  # of its own GPU and of others: as many as can be told apart


@dataclass(frozen=True, slots=True)
class WorkloadTimeline:
    history: History
    levels: tuple[Level, ...]
    roofline: Roofline


def timeline_of(
    frame: Frame, advice: Advice, workload: WorkloadVerdict, catalog: Catalog, rules: Mapping[str, WasteRule]
) -> WorkloadTimeline:
    """`advice`: where its ways out stand. The roofs are those of its GPU, of the GPUs it might move to, and then of
    others that the provider of its node sells and somebody measured."""
    sku = catalog.gpu(workload.gpu_sku) if workload.gpu_sku else None
    return WorkloadTimeline(
        history_of(by_minute(frame, workload.nodes), workload.id),
        levels_of(frame, workload, sku, rules),
        roofline(workload, sku, _candidates(advice, workload, catalog)),
    )


def _candidates(advice: Advice, workload: WorkloadVerdict, catalog: Catalog) -> list[GpuSku]:
    found = {sku.name: sku for sku in recommended(advice, workload, catalog)}
    node = catalog.node(workload.node_sku) if workload.node_sku else None
    sold = [catalog.gpu(n.gpu) for n in catalog.nodes.values() if node is not None and n.provider == node.provider]
    others = {sku.name: sku for sku in sold if sku is not None and sku.name != workload.gpu_sku}
    for sku in sorted(others.values(), key=lambda one: (-one.mem_bandwidth_bytes_per_second, one.name)):
        roof = roof_of(sku)
        if roof is not None and not roof.missing:
            found.setdefault(sku.name, sku)
    return list(found.values())[: ROOFS - 1]
