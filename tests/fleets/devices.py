"""A fleet without labels as series of its devices: by the second, or a minute apart as means or as scrapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from .jobs import GPUS
from .unlabelled import MINUTE, BareFleet, Lived, used_bytes, watts

if TYPE_CHECKING:
    from skuwise.advisor.telemetry.activity import DeviceSeries

How = Literal["seconds", "minutes", "scrapes"]


def device_series(fleet: BareFleet, lived: Lived, how: How) -> list[DeviceSeries]:
    """Every GPU. "minutes": means, as our agent's rollups; "scrapes": what stood at one moment of the minute, another
    one on each node, as a Prometheus has it. What was not observed is NaN."""
    from skuwise.advisor.telemetry.activity import DeviceSeries

    power, used = watts(fleet, lived), used_bytes(fleet, lived)
    rng = np.random.default_rng([fleet.seed, 29])
    found: list[DeviceSeries] = []
    for number, node in enumerate(fleet.nodes):
        offset = int(rng.integers(0, MINUTE))
        ends = fleet.start + (np.arange(1, fleet.seconds + 1) if how == "seconds" else
                              np.arange(1, fleet.seconds // MINUTE + 1) * MINUTE)  # fmt: skip
        for gpu in range(GPUS):
            row = number * GPUS + gpu
            util, memory, drawn = (
                _cut(np.where(lived.seen[number], one[row], np.nan), how, offset) for one in (lived.util, used, power)
            )
            step = 1.0 if how == "seconds" else float(MINUTE)
            own = ends.astype(np.float64)
            found.append(DeviceSeries(node.name, node.uuid(gpu), own, step, util, memory, drawn))
    return found


def _cut(row: npt.NDArray, how: How, offset: int) -> npt.NDArray[np.float64]:
    if how == "seconds":
        return row.astype(np.float64)
    minutes = row[: len(row) // MINUTE * MINUTE].reshape(-1, MINUTE).astype(np.float64)
    if how == "scrapes":
        return minutes[:, offset]
    known = ~np.isnan(minutes)
    count = known.sum(axis=1)
    total = np.where(known, minutes, 0.0).sum(axis=1)
    return np.divide(total, count, out=np.full(len(minutes), np.nan), where=count > 0)
