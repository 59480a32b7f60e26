"""GPUs of which several series speak at once: one for each pod that shares it, or those of two exporters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....core.coded_text import coded
from ..client.range_planner import Log
from ..client.response import Labels, SeriesAnswer
from .homes import reporter
from .series_to_rows import Cells
from .workloads import targets_with_exported, work_of

# Two series of a GPU that together have so many times the samples of one speak at the same time.
_AT_ONCE = 1.05
# Means of two exporters for one GPU and row that lie further apart than this contradict one another.
_DISAGREE = 0.25
_OF_PODS = ("gpu_util_mean", "mem_used_bytes_mean")


class SharedGpus:
    """GPUs that pods share and of which the exporter gives the device's own values beside those of each pod.

    With ``--kubernetes-virtual-gpus`` dcgm-exporter 4.5.3 and later gives a pod its own share of utilization and memory
    (NVIDIA/dcgm-exporter#594): the device's series without a pod then speaks for the device. Elsewhere each pod has a
    copy of the device's value. `pods`: what is said of pods, by measure.
    """

    def __init__(self, counts: SeriesAnswer, key_of: Callable[[Labels], str | None]) -> None:
        self.pods: dict[str, SeriesAnswer] = {}
        self._key, self._exported = key_of, targets_with_exported(counts.labels)
        by_gpu: dict[tuple[str | None, str], list[int]] = {}
        for row, labels in enumerate(counts.labels):
            by_gpu.setdefault(self._gpu(labels), []).append(row)
        self._at_once: dict[tuple[str | None, str], npt.NDArray[np.bool_]] = {}
        for gpu, at in by_gpu.items():
            is_pod = np.array([len(at) > 1 and self._is_pod(counts.labels[row]) for row in at])
            if gpu[0] is not None and is_pod.any() and not is_pod.all():
                samples = np.nan_to_num(counts.values[at])
                together = samples[is_pod].max(axis=0) + samples[~is_pod].max(axis=0)
                if (at_once := together > _AT_ONCE * samples.max()).any():
                    self._at_once[gpu] = at_once

    def of_devices(self, name: str, answer: SeriesAnswer) -> SeriesAnswer:
        """The answer without what it says of pods in rows in which the device speaks for itself."""
        device: dict[tuple[str | None, str], npt.NDArray[np.bool_]] = {}
        pods: dict[int, tuple[str | None, str]] = {}
        for row, labels in enumerate(answer.labels if self._at_once else ()):
            gpu = self._gpu(labels)
            if gpu in self._at_once and self._is_pod(labels):
                pods[row] = gpu
            elif gpu in self._at_once:
                device[gpu] = self._at_once[gpu] & ~np.isnan(answer.values[row]) | device.get(gpu, False)
        pods = {row: gpu for row, gpu in pods.items() if gpu in device}
        if not pods:
            return answer
        at, values = list(pods), answer.values.copy()
        masks = np.array([device[gpu] for gpu in pods.values()])
        if name in _OF_PODS:
            self.pods[name] = SeriesAnswer(tuple(answer.labels[row] for row in at), np.where(masks, values[at], np.nan))
        values[at] = np.where(masks, np.nan, values[at])
        return SeriesAnswer(answer.labels, values)

    def _gpu(self, labels: Labels) -> tuple[str | None, str]:
        """A GPU of one exporter: two of them may well contradict one another."""
        return self._key(labels), reporter(labels)

    def _is_pod(self, labels: Labels) -> bool:
        return work_of(labels, exported=reporter(labels) in self._exported) is not None


def contradictions(mean: SeriesAnswer, key_of: Callable[[Labels], str | None]) -> pd.DataFrame:
    """By GPU and row whether exporters give different values for its use."""
    exporters = [list(map(key_of, mean.labels)), list(map(reporter, mean.labels))]
    by_gpu = pd.DataFrame(mean.values).groupby(exporters).mean().groupby(level=0)
    return by_gpu.max() - by_gpu.min() > _DISAGREE


def forget_contradictions(apart: Mapping[str, pd.DataFrame], cells: Cells[str], log: Log) -> None:
    """Where two exporters give different values for one GPU's use, neither is believed. `apart`: `contradictions` by
    measure."""
    rows: dict[str, int] = {}
    for measure, wrong in apart.items():
        for gpu in wrong.index[wrong.any(axis=1)]:
            rows[gpu] = max(rows.get(gpu, 0), int(wrong.loc[gpu].sum()))
            for statistic in ("mean", "p95", "max"):
                cells.column(f"{measure}_{statistic}")[cells.rows[gpu], wrong.loc[gpu].to_numpy()] = np.nan
    if rows:
        log.add(
            coded(
                "exporters-contradict",
                "Two exporters report conflicting values for {gpus} GPUs during {gpu_hours:.0f} "
                "GPU-hours ({first}). These hours count as unknown.",
                gpus=len(rows), gpu_hours=sum(rows.values()) * cells.grid.step / 3600, first=min(rows),
            )
        )  # fmt: skip
