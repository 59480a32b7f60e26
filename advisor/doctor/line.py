"""One line beside the advice where much of what it rests on is missing, from what was read for it anyway."""

from __future__ import annotations

from ...rules.catalog.loader import Catalog
from ..core.frame import Frame
from ..core.timestamps import span
from ..pipeline import Reasoned
from ..views.coverage import observed_fabrics
from .coverage import WINDOW_SHARE, metric_coverage, node_hours

# Measures of the line, by the words that it has for them.
_CORE = {
    "engine_active": "GPU activity", "tensor_active": "tensor activity", "dram_active": "DRAM activity",
    "mem_used": "memory used", "power": "power",
}  # fmt: skip
_MISSING_SHARE = 0.1


def coverage_line(frame: Frame, found: Reasoned, catalog: Catalog, command: str) -> str | None:
    """What is poorly covered; None where nothing is. `command`: the ``skuwise doctor`` with the remedies."""
    s, inventory = found.advice.summary, found.fleet.verdicts.inventory
    missing = s.unobserved_gpu_count
    parts: list[str] = []
    lacking = [
        f"{_CORE[one.metric]} on {one.having}"
        for one in metric_coverage(frame, found, node_hours(frame, inventory), catalog)
        if one.metric in _CORE and s.gpu_count - one.having > _MISSING_SHARE * s.gpu_count + missing
    ]
    if missing or lacking:
        parts.append(", ".join([f"{s.gpu_count - missing} of {s.gpu_count} GPUs observed", *lacking]))
    window, observed = s.window_hours, s.observed_hours
    if window is not None and observed is not None and observed < WINDOW_SHARE * window:
        parts.append(f"{span(observed * 3600)} of {span(window * 3600)} observed")
    if s.cost_usd is None:
        parts.append("no price")
    seen, fabrics = observed_fabrics(found.advice)
    if parts and frame.fabric.empty:
        parts.append("no fabric counters")
    elif parts and len(seen) < len(fabrics):
        parts.append(f"fabric observed on {len(seen)} of {len(fabrics)} nodes")
    if parts and len(frame.nodes) and frame.nodes["region"].isna().all():
        parts.append("region unknown")
    return f"Coverage: {'; '.join(parts)}. For remedies run '{command}'." if parts else None
