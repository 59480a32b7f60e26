"""What a GPU sustains where nobody measured it: the middle of what was measured on others, for labels alone.

Without it every row of such a GPU would be unknown. The measured shares lie close together (matrix products 0.73 to
0.91 of the peak, memory 0.77 to 0.92), and the label's thresholds are further apart than that; a dollar or a predicted
time is not built on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from ....rules.catalog.types import GpuSku


@dataclass(frozen=True, slots=True)
class Sustained:
    """Share of the peak (0..1) assumed for matrix products and for memory; NaN where the catalog has no measurement."""

    compute: float = math.nan
    memory: float = math.nan


def assumed(gpus: Iterable[GpuSku]) -> Sustained:
    """The medians over the GPUs of a catalog that were measured."""
    known = tuple(gpus)
    compute = [sku.achieved.bf16_gemm for sku in known if sku.achieved.bf16_gemm]
    memory = [sku.achieved.mem for sku in known if sku.achieved.mem]
    return Sustained(median(compute) if compute else math.nan, median(memory) if memory else math.nan)
