"""What each GPU draws at rest, with memory held and with nothing resident, and at which clock."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.frame import Frame
from ..types import RestLevel
from ..workloads.mig import whole_gpus
from ..workloads.sku_lookup import GpuIndex

Floats = npt.NDArray[np.float64]


def rest_levels(frame: Frame, index: GpuIndex, rows: pd.DataFrame) -> tuple[RestLevel, ...]:
    """Every whole GPU that was seen at rest, by node and id. `rows`: the measures of the frame's `gpu`, in its order.

    The watts are the GPU's own levels, low quantiles of its rows at rest (`features/rest.py`); the clocks are
    medians of the same rows. GPUs that are cut into instances are left out: their instances share one clock.
    """
    if frame.gpu.empty:
        return ()
    idle, memory_held = rows["idle"].to_numpy(bool), rows["held"].to_numpy(bool)
    clock = rows["clock_ratio"].to_numpy(float)
    held, free = rows["rest_power"].to_numpy(float), rows["rest_free_power"].to_numpy(float)
    whole = set(whole_gpus(frame).itertuples(index=False, name=None)) - set(frame.parents.values())
    found = []
    for (node, uuid), at in sorted(frame.gpu_keys.rows(), key=lambda one: one[0]):
        if (node, uuid) not in whole or not idle[at].any():
            continue
        sku = index.sku(node, uuid)
        resting = at[idle[at]]
        found.append(
            RestLevel(
                node, uuid, sku.name if sku else None,
                _median(held[at]), _median(free[at]),
                _median(clock[resting[memory_held[resting]]]),
                _median(clock[resting[~memory_held[resting]]]),
            )
        )  # fmt: skip
    return tuple(found)


def _median(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    level = float(np.median(known)) if len(known) else math.nan
    return level if math.isfinite(level) else None
