"""GPUs of which several series speak at once: one for each pod that shares it, or those of two exporters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....core.coded_text import coded
from ..client.range_planner import Log
from ..client.response import Labels, SeriesAnswer
from .homes import reporter
from .series_to_rows import Cells
from .workloads import targets_with_exported

# Two series of a GPU that together have so many times the samples of one speak at the same time.
_AT_ONCE = 1.05
# Means of two exporters for one GPU and row that lie further apart than this contradict one another.
_DISAGREE = 0.25


def pods_apart(
    counts: SeriesAnswer, key_of: Callable[[Labels], str | None]
) -> Callable[[SeriesAnswer], tuple[SeriesAnswer, SeriesAnswer | None]]:
    """What takes from an answer what it says of pods in rows in which the device speaks for itself; None: nothing.

    With ``--kubernetes-virtual-gpus`` dcgm-exporter 4.5.3 and later gives a pod its own share of utilization and memory
    (NVIDIA/dcgm-exporter#594): the device's series without a pod then speaks for the device. Elsewhere each pod has a
    copy of the device's value.
    """
    exported = targets_with_exported(counts.labels)

    def placed(series: Sequence[Labels]) -> tuple[pd.MultiIndex, npt.NDArray[np.bool_]]:
        """The GPU of one exporter, for two may well contradict one another, and whether a series is of a pod."""
        targets = list(map(reporter, series))
        pods = [one.get("exported_pod" if own in exported else "pod") for one, own in zip(series, targets, strict=True)]
        return pd.MultiIndex.from_arrays([list(map(key_of, series)), targets]), np.array(pods, dtype=bool)

    index, is_pod = placed(counts.labels)
    samples = pd.DataFrame(np.nan_to_num(counts.values), index)
    device, pods = (samples[own].groupby(level=[0, 1]).max() for own in (~is_pod, is_pod))
    most = samples.max(axis=1).groupby(level=[0, 1]).max()
    together = device.add(pods).gt(_AT_ONCE * most, axis=0)
    together = together[together.any(axis=1)]

    def apart(answer: SeriesAnswer) -> tuple[SeriesAnswer, SeriesAnswer | None]:
        if together.empty:
            return answer, None
        index, is_pod = placed(answer.labels)
        said = pd.DataFrame(~np.isnan(answer.values), index)[~is_pod].groupby(level=[0, 1]).any()
        both = together & said.reindex(together.index, fill_value=False)
        of_pods = both.reindex(index, fill_value=False).to_numpy(bool) & is_pod[:, None]
        device, pods = (np.where(own, answer.values, np.nan) for own in (~of_pods, of_pods))
        return SeriesAnswer(answer.labels, device), SeriesAnswer(answer.labels, pods)

    return apart


def contradictions(mean: SeriesAnswer, key_of: Callable[[Labels], str | None]) -> pd.DataFrame:
    """By GPU and row whether exporters give different values for its use."""
    exporters = [list(map(key_of, mean.labels)), list(map(reporter, mean.labels))]
    by_gpu = pd.DataFrame(mean.values).groupby(exporters).mean().groupby(level=0)
    return by_gpu.max() - by_gpu.min() > _DISAGREE


def forget_contradictions(apart: Mapping[str, pd.DataFrame], cells: Cells[str], log: Log) -> None:
    """Where two exporters give different values for one GPU's use, neither is believed. `apart`: `contradictions` by
    measure."""
    lost = np.zeros((len(cells.rows), cells.grid.count), dtype=bool)
    for measure, by_gpu in apart.items():
        wrong = by_gpu.reindex(list(cells.rows), fill_value=False).to_numpy(bool)
        for statistic in ("mean", "p95", "max"):
            cells.column(f"{measure}_{statistic}")[wrong] = np.nan
        lost |= wrong
    if gpus := [key for key, row in cells.rows.items() if lost[row].any()]:
        text = (
            "Two exporters report conflicting values for {gpus} GPUs during {gpu_hours:.0f} GPU-hours ({first}). These "
            "hours count as unknown."
        )
        hours = float(lost.sum()) * cells.grid.step / 3600
        log.add(coded("exporters-contradict", text, gpus=len(gpus), gpu_hours=hours, first=min(gpus)))
