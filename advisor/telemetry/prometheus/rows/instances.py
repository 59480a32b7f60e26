"""MIG instances and their GPU, as dcgm-exporter tells them: what is the GPU's stays with the GPU.

An instance's series carry its GPU's power, energy, clocks and temperature. The GPU itself may have no series at all:
then its power is what its instances repeat, and its memory in use is theirs together.
"""

from __future__ import annotations

import warnings

import numpy as np

from .gpus import GpuRows
from .series_to_rows import first_known

# A ratio of an instance may be taken over a part of it, at most over one of the GPU's SMs; beyond lie blanks.
MOST_INSTANCE_RATIO = 256.0
# What an instance's series say of the whole GPU.
_OF_THE_GPU = ("power_watts_mean", "energy_joules_mean", "power_watts_n", "energy_joules_n")
_MEANS = ("power_watts_mean", "energy_joules_mean", "sm_clock_hertz_mean", "mem_clock_hertz_mean")
_COUNTS = ("observed_seconds", "n", "n_all", "power_watts_n", "energy_joules_n")


def fold_instances(rows: GpuRows) -> None:
    """Give each divided GPU a row of its own for the time of its instances, and take from them what is not theirs."""
    cells, parts = rows.cells, dict[str, list[int]]()
    for key, row in cells.rows.items():
        one = rows.about[key]
        if one.kind == "mig" and one.parent is not None:
            parts.setdefault(one.parent + key[len(one.uuid) :], []).append(row)
    for parent in parts:
        cells.rows.setdefault(parent, len(cells.rows))
    columns = cells.columns
    for name in columns if parts else ():
        columns[name] = cells.column(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of moments at which nothing is known
        for parent, own in parts.items():
            at, there = cells.rows[parent], columns["observed_seconds"][own] > 0
            for name in (one for one in _COUNTS if one in columns):
                columns[name][at] = np.fmax(columns[name][at], np.nanmax(columns[name][own], axis=0))
            for name in (one for one in _MEANS if one in columns):
                columns[name][at] = first_known((columns[name][at], np.nanmean(columns[name][own], axis=0)))
            if "mem_used_bytes_mean" in columns:
                used = columns["mem_used_bytes_mean"]
                known = ~np.isnan(used[own])
                is_whole = known.any(axis=0) & (known | ~there).all(axis=0)
                used[at] = first_known((used[at], np.where(is_whole, np.nansum(used[own], axis=0), np.nan)))
            for name in ("gpu_util_mean", "gpu_util_p95", "gpu_util_max"):
                if name in columns:
                    columns[name][at, there.any(axis=0)] = np.nan
            for name in (one for one in _OF_THE_GPU if one in columns):
                columns[name][own] = np.nan
