"""What each row of a GPU drew: by the GPU's own energy counter where it was read, else power times time.

A counter counts what flowed between two readings, so it misses nothing; a mean of power readings is as good as they are
dense. Where a counter missed a part of a row (its first reading, a reset, an agent that began anew) the rest of the row
is power times time. A counter that tells more than the GPU can have drawn went back or was mixed up with another: it is
not believed in that row, and power stands. Without either, nothing is known, and that is never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.frame import Frame
from ..workloads.sku_lookup import GpuIndex

Floats = npt.NDArray[np.float64]

# Boards exceed their limit for moments, never over a row of minutes: so much room, of the limit.
LIMIT_ROOM = 1.2
# The most that any board draws, W, where neither driver nor catalog tells its limit (telemetry/plausible.py).
WATTS_MOST = 3000.0
# Power that is read once a minute misses bursts; a counter beyond so many times of it tells of another GPU, or of a
# step back that was taken for growth.
POWER_ROOM = 1.5
_COUNTS = ("gpu_util_n", "tensor_active_n", "dram_active_n", "power_watts_n", "energy_joules_n")


@dataclass(frozen=True)
class RowEnergy:
    """For every row of the frame's `gpu`, in its order. `watts`: mean power over what was measured of it, NaN where
    nothing was; `measured`: that as a share of its observed time; `counted`: of its energy, the share that a counter
    told."""

    watts: Floats
    measured: Floats
    counted: Floats


def row_energy(frame: Frame, index: GpuIndex) -> RowEnergy:
    """What every row drew. A MIG instance has no counter of its own: its row is told its GPU's power, of which it has
    the part that its hours have."""
    gpu = frame.gpu
    if gpu.empty:
        return RowEnergy(np.empty(0), np.empty(0), np.empty(0))
    limit = index.rows["power_limit"].to_numpy(float)
    told = {name: gpu[name].to_numpy(float) for name in (*_COUNTS, "power_watts_mean", "energy_joules_mean")}
    own = of_rows(gpu["observed_seconds"].to_numpy(float), told, limit)
    return _with_instances(frame, own)


def of_rows(seconds: Floats, told: Mapping[str, Floats], limit_watts: Floats) -> RowEnergy:
    """`seconds`: observed; `told`: columns of the frame's `gpu`, by name; `limit_watts`: NaN where it is not known."""
    power, samples = told["power_watts_mean"], told["energy_joules_n"]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        # All in watts over the row's time: a product with seconds and its division lose digits where seconds are tiny.
        counter = told["energy_joules_mean"] * samples / seconds
        every = np.fmax.reduce([told[name] for name in _COUNTS])
        # A counter that steps more rarely than it is read covers more than its samples: as long as it took at that
        # power.
        by_watts = np.where(power > 0, counter / power, 0.0)
        covered = np.fmin(np.fmax(samples / every, by_watts), 1.0)
        most = np.where(limit_watts > 0, LIMIT_ROOM * limit_watts, WATTS_MOST) * covered
        counted = (counter > 0) & (seconds > 0) & (counter <= most) & ~(counter > POWER_ROOM * power)
        covered = np.where(counted, covered, 0.0)
        known = np.isfinite(power) & (power > 0) & (seconds > 0)
        by_counter = np.where(counted, counter, 0.0)
        by_power = np.where(known, power * (1.0 - covered), 0.0)
        measured = np.where(known, 1.0, covered)
        total = by_counter + by_power
        watts = np.where(measured > 0, total / measured, np.nan)
        share = np.where(total > 0, by_counter / total, 0.0)
    return RowEnergy(watts, measured, share)


def _with_instances(frame: Frame, own: RowEnergy) -> RowEnergy:
    """The same, with the rows of instances told what their GPU drew at the same time."""
    parent_of = frame.parents
    if not parent_of:
        return own
    gpu = frame.gpu
    keys = list(zip(gpu["node"].astype(str), gpu["gpu_uuid"].astype(str), strict=True))
    at = np.array([key in parent_of for key in keys], dtype=np.bool_)
    if not at.any():
        return own
    moments = list(zip(gpu["ts"].to_numpy(float), gpu["interval_seconds"].to_numpy(float), strict=True))
    rows = pd.Series(
        np.nonzero(~at)[0],
        index=pd.MultiIndex.from_tuples([(*keys[n], *moments[n]) for n in np.nonzero(~at)[0]])
        if not at.all()
        else pd.MultiIndex.from_arrays([[], [], [], []]),
    )
    rows = rows[~rows.index.duplicated()]
    wanted = pd.MultiIndex.from_tuples([(*parent_of[keys[n]], *moments[n]) for n in np.nonzero(at)[0]])
    found = rows.reindex(wanted).to_numpy(float)
    there = ~np.isnan(found)
    place = np.where(there, found, 0).astype(np.intp)
    out = [one.copy() for one in (own.watts, own.measured, own.counted)]
    for values, source, missing in zip(out, (own.watts, own.measured, own.counted), (np.nan, 0.0, 0.0), strict=True):
        values[at] = np.where(there, source[place], missing)
    return RowEnergy(*out)
