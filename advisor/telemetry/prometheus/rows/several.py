"""GPUs of which several series speak at once: one for each pod that shares it, or those of two exporters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from ....core.coded_text import coded
from ..client.range_planner import Log
from ..client.response import Labels, SeriesAnswer
from .homes import reporter
from .series_to_rows import Cells
from .workloads import targets_with_exported, work_of

Mask = npt.NDArray[np.bool_]
KeyOf = Callable[[Labels], str | None]
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

    def __init__(self, counts: SeriesAnswer, key_of: KeyOf) -> None:
        self.pods: dict[str, SeriesAnswer] = {}
        self._key = key_of
        by_gpu: dict[tuple[str | None, str], list[int]] = {}
        for row, labels in enumerate(counts.labels):
            by_gpu.setdefault(self._gpu(labels), []).append(row)
        self._exported = targets_with_exported(counts.labels)
        self._at_once: dict[tuple[str | None, str], Mask] = {}
        for gpu, at in by_gpu.items():
            is_pod = np.array([len(at) > 1 and self._is_pod(counts.labels[row]) for row in at])
            if gpu[0] is not None and is_pod.any() and not is_pod.all():
                samples = np.nan_to_num(counts.values[at])
                together = samples[is_pod].max(axis=0) + samples[~is_pod].max(axis=0)
                if (at_once := together > _AT_ONCE * samples.max()).any():
                    self._at_once[gpu] = at_once

    def of_devices(self, name: str, answer: SeriesAnswer) -> SeriesAnswer:
        """The answer without what it says of pods in rows in which the device speaks for itself."""
        device: dict[tuple[str | None, str], Mask] = {}
        pods: list[tuple[int, tuple[str | None, str]]] = []
        for row, labels in enumerate(answer.labels if self._at_once else ()):
            gpu = self._gpu(labels)
            if gpu in self._at_once and self._is_pod(labels):
                pods.append((row, gpu))
            elif gpu in self._at_once:
                own = self._at_once[gpu] & ~np.isnan(answer.values[row])
                device[gpu] = device.get(gpu, own) | own
        at = [row for row, gpu in pods if gpu in device]
        if not at:
            return answer
        values, masks = answer.values.copy(), np.array([device[gpu] for _, gpu in pods if gpu in device])
        if name in _OF_PODS:
            self.pods[name] = SeriesAnswer(tuple(answer.labels[row] for row in at), np.where(masks, values[at], np.nan))
        values[at] = np.where(masks, np.nan, values[at])
        return SeriesAnswer(answer.labels, values)

    def _gpu(self, labels: Labels) -> tuple[str | None, str]:
        """A GPU of one exporter: two of them may well contradict one another."""
        return self._key(labels), reporter(labels)

    def _is_pod(self, labels: Labels) -> bool:
        return work_of(labels, exported=reporter(labels) in self._exported) is not None


def forget_contradictions(apart: Mapping[str, Cells[tuple[str, str]]], cells: Cells[str], log: Log) -> None:
    """Where two exporters give different values for one GPU's use, neither is believed. `apart`: means of each measure
    by GPU and exporter."""
    rows: dict[str, int] = {}
    for measure, means in apart.items():
        by_gpu: dict[str, list[int]] = {}
        for (gpu, _), row in means.rows.items():
            by_gpu.setdefault(gpu, []).append(row)
        for gpu, at in by_gpu.items():
            values = means.columns["mean"][at]
            with np.errstate(invalid="ignore"):
                wrong = np.fmax.reduce(values) - np.fmin.reduce(values) > _DISAGREE
            for column in (f"{measure}_{one}" for one in ("mean", "p95", "max") if wrong.any()):
                rows[gpu] = max(rows.get(gpu, 0), int(wrong.sum()))
                cells.columns[column] = cells.column(column)
                cells.columns[column][cells.rows[gpu], wrong] = np.nan
    if rows:
        log.add(
            coded(
                "exporters-contradict",
                "Two exporters report conflicting values for {gpus} GPUs during {gpu_hours:.0f} "
                "GPU-hours ({first}). These hours count as unknown.",
                gpus=len(rows), gpu_hours=sum(rows.values()) * cells.grid.step / 3600, first=min(rows),
            )
        )  # fmt: skip
