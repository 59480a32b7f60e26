"""MIG instances and their GPU, as dcgm-exporter tells them: what is the GPU's stays with the GPU.

An instance's series carry its GPU's power, energy, clocks and temperature. The GPU itself may have no series at all:
then its power is what its instances repeat, and its memory in use is theirs together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..client.response import Floats
from .gpus import GpuRows
from .series_to_rows import first_known

# A ratio of an instance may be taken over a part of it, at most over one of the GPU's SMs; beyond lie blanks.
MOST_INSTANCE_RATIO = 256.0
# What an instance's series say of the whole GPU.
_OF_THE_GPU = ("power_watts_mean", "energy_joules_mean")
_SAME = ("power_watts_mean", "energy_joules_mean", "sm_clock_hertz_mean", "mem_clock_hertz_mean")
_COUNTS = ("power_watts_n", "energy_joules_n")
_SUMMED = ("mem_used_bytes_mean",)
_OF_USE = ("gpu_util_mean", "gpu_util_p95", "gpu_util_max")


def fold_instances(rows: GpuRows) -> None:
    """Give each divided GPU a row of its own for the time of its instances, and take from them what is not theirs."""
    cells, about = rows.cells, rows.about
    parts: dict[str, list[int]] = {}
    for key, row in cells.rows.items():
        one = about[key]
        if one.kind == "mig" and one.parent is not None:
            parts.setdefault(one.parent + key[len(one.uuid) :], []).append(row)
    if not parts:
        return
    for parent in parts:
        cells.rows.setdefault(parent, len(cells.rows))
    for name in cells.columns:
        cells.columns[name] = cells.column(name)
    columns = cells.columns
    for parent, own in parts.items():
        at = cells.rows[parent]
        observed = columns["observed_seconds"]
        divided = (observed[own] > 0).any(axis=0)
        observed[at] = np.fmax(observed[at], _over(observed[own], np.nanmax))
        for name in ("n", "n_all", *_COUNTS):
            if name in columns:
                columns[name][at] = np.fmax(columns[name][at], _over(columns[name][own], np.nanmax))
        for name in (one for one in _SAME if one in columns):
            columns[name][at] = first_known((columns[name][at], _over(columns[name][own], np.nanmean)))
        for name in (one for one in _SUMMED if one in columns):
            columns[name][at] = first_known((columns[name][at], _sum(columns[name][own], observed[own] > 0)))
        for name in (one for one in _OF_USE if one in columns):
            columns[name][at, divided] = np.nan
        for name in (one for one in (*_OF_THE_GPU, *_COUNTS) if one in columns):
            columns[name][own] = np.nan


def _sum(values: Floats, there: npt.NDArray[np.bool_]) -> Floats:
    """The sum of some rows at each moment; NaN where one that was there is not known."""
    known = ~np.isnan(values)
    return np.where(known.any(axis=0) & (known | ~there).all(axis=0), np.nansum(values, axis=0), np.nan)


def _over(values: Floats, how: Callable[..., Floats]) -> Floats:
    """One value a moment over some rows; NaN where none is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.where(np.isnan(values).all(axis=0), np.nan, how(values, axis=0))
