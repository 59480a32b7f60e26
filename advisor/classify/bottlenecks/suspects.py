"""Which GPU the others of a workload wait for."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.coded_text import CodedText, coded
from ...core.column_rows import ColumnRows

Floats = npt.NDArray[np.float64]

# A GPU is the suspect where it was the late one for most of the time that somebody was.
_SUSPECT_SHARE_MIN = 0.5
# A difference in waiting is worth telling from this share of the time on.
_WAITS_MIN = 0.1


def suspect(rows: ColumnRows, weights: Floats) -> list[CodedText]:
    """Which GPU the others wait for: the one that waits least, or does the same work at a lower clock."""
    slowed = rows.flags("late") | rows.flags("waiting")
    if not slowed.any():
        return []
    table, seconds = rows.where(slowed), pd.Series(weights[slowed])
    late = table.flags("late")
    by_gpu = seconds[late].groupby([table[name][late] for name in ("node", "gpu_uuid", "gpu_index")]).sum()
    if by_gpu.empty or by_gpu.max() < _SUSPECT_SHARE_MIN * by_gpu.sum():
        return [coded("no-single-suspect", "No single suspect: the late GPU changes over time.")]
    node, uuid, number = cast("tuple[str, str, float]", by_gpu.idxmax())
    its = (table["gpu_uuid"] == uuid) & late
    one, others = table.where(its), table.where(~late)

    def told(name: str) -> tuple[float, float]:
        return one.mean(name), others.mean(name)

    waits, clock, held = told("waits"), told("clock_ratio"), told("throttled")
    who = {"gpu_index": float(number), "node": str(node), "gpu_uuid": str(uuid)}
    said = [
        coded(
            "suspect-waits-least",
            "Suspect: GPU {gpu_index:.0f} of {node} ({gpu_uuid}). It waits {waits:.0%} of the time, the "
            "other GPUs {others_wait:.0%}, for the same work.",
            **who, waits=waits[0], others_wait=waits[1],
        )
        if waits[1] - waits[0] >= _WAITS_MIN
        else coded(
            "suspect-is-slower",
            "Suspect: GPU {gpu_index:.0f} of {node} ({gpu_uuid}). It does the same work more slowly.",
            **who,
        )
    ]  # fmt: skip
    if clock[0] < 0.95 * clock[1]:
        said.append(
            coded(
                "suspect-is-throttled",
                "SM clock of the suspect: {clock:.0%} of the other GPUs' clock. Throttled "
                "{throttled:.0%} of the time, the others {others_throttled:.0%}.",
                clock=clock[0] / clock[1], throttled=held[0], others_throttled=held[1],
            )
        )  # fmt: skip
    return said
