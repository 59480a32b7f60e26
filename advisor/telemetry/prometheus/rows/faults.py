"""What exporters say that cannot be or is said several times: impossible samples, counters that count nothing, GPUs of
which a series for each pod or those of two exporters speak at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....core.coded_text import coded
from ..client.range_planner import Ask, Log
from ..client.response import Labels, SeriesAnswer
from ..promql.labels import gpu_of
from ..promql.promql import DCGM_GAUGES, DcgmQueries, of_gpus
from .gpus import GpuRows
from .homes import reporter
from .series_to_rows import Cells, label_set
from .workloads import targets_with_exported

# Two series of a GPU that together have so many times the samples of one speak at the same time.
_AT_ONCE = 1.05
# Means of two exporters for one GPU and row that lie further apart than this contradict one another.
_DISAGREE = 0.25
_WORK_USE, _WORK_SECONDS = 0.1, 2 * 3600.0


def leave_out_impossible(
    ask: Callable[[Sequence[Ask]], Mapping[str, SeriesAnswer]], made: DcgmQueries, answers: dict[str, SeriesAnswer],
    node: Callable[[Labels], str | None], log: Log,
) -> None:  # fmt: skip
    """Put what the possible samples say into `answers`, in the server's units, where there were others, and note how
    many.

    DCGM now and then reports a utilization of some hundreds to 200,000 %, or 4294967295 (NVIDIA/DCGM#199,
    NVIDIA/dcgm-exporter#418), which the mean of an hour hides. Rows whose largest sample shows one are asked for again.
    """
    beyond = answers.pop("beyond", SeriesAnswer.nothing(0))
    for gauge in DCGM_GAUGES:
        rows = [row for row, one in enumerate(beyond.labels) if one.get("measure") == gauge.measure and gpu_of(one)]
        names, labels = gauge.known(made.present), [beyond.labels[row] for row in rows]
        if not rows or not names:
            continue
        gpus, nodes = [found[0] for found in map(gpu_of, labels) if found], [node(one) or "" for one in labels]
        series = pd.Index([label_set(one) - {("measure", gauge.measure)} for one in labels], dtype=object)
        wrong = pd.DataFrame(~np.isnan(beyond.values[rows]), series)
        again = ask(made.statistics(gauge, *of_gpus(gpus), possible=True))
        for name in answers.keys() & again.keys():
            before, possible = _by_labels(answers[name]), _by_labels(again[name])
            mask = wrong.reindex(before.index, fill_value=False).to_numpy(bool)
            answers[name] = SeriesAnswer(answers[name].labels, np.where(mask, possible.reindex(before.index), before))
        # What never has a value is missing, and no fault of single samples. Copies of pods count once.
        mean = _by_labels(answers.get(f"{gauge.measure}_mean", SeriesAnswer.nothing(1)))
        counted = _by_labels(again["impossible"]).reindex(series).where(wrong).sum(axis=1, min_count=1)
        counted = counted.where(series.isin(mean.index[mean.notna().any(axis=1)]))
        samples = counted.groupby([gpus, nodes]).max().dropna()
        if len(samples):
            text = (
                "Impossible readings of {metric} on {gpus} GPUs of {nodes} nodes: {samples:.0f}. They are left out; "
                "the other samples of these hours count."
            )
            places = samples.index.get_level_values(1).nunique()
            count = {"gpus": len(samples), "nodes": places, "samples": float(samples.sum())}
            log.add(coded("impossible-readings", text, metric=names[0], **count))


def _by_labels(answer: SeriesAnswer) -> pd.DataFrame:
    return pd.DataFrame(answer.values, pd.Index(list(map(label_set, answer.labels)), dtype=object))


def forget_still_counters(rows: GpuRows) -> None:
    """Counters of traffic that read exactly 0 on each GPU of a node for the whole window, while they worked, count
    nothing (NVIDIA/DCGM#149, NVIDIA/dcgm-exporter#485): what they say is missing."""
    cells, by_node = rows.cells, dict[str, list[int]]()
    for key, row in cells.rows.items():
        if rows.about[key].kind == "gpu":
            by_node.setdefault(rows.about[key].node, []).append(row)
    for link in ("nvlink", "pcie"):
        ways = {f"{link}_{way}_bytes_per_second": f"DCGM_FI_PROF_{link}_{way}_BYTES".upper() for way in ("tx", "rx")}
        traffic = np.fmax(*(cells.column(f"{way}_mean") for way in ways))
        worked = (cells.column("gpu_util_mean") > _WORK_USE) & (traffic == 0)
        for node, own in by_node.items():
            # A single GPU has no other to talk to.
            is_alone = len(own) == 1 and link == "nvlink"
            if is_alone or (traffic[own] > 0).any() or worked[own].sum(axis=1).max() * cells.grid.step < _WORK_SECONDS:
                continue
            for way, metric in ways.items():
                for column in (f"{way}_mean", f"{way}_p95"):
                    cells.column(column)[own] = np.nan
                rows.absences.append({
                    "node": node, "gpu_uuid": None, "device": None, "scope": "source", "metric": way,
                    "reason": "counter-never-moved", "remedy": "",
                    "detail": f"{metric} of dcgm-exporter read 0 on every GPU of {node} while they worked.",
                    "since": cells.grid.start - cells.grid.step, "until": np.nan,
                })  # fmt: skip


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


def forget_contradictions(
    means: Mapping[str, SeriesAnswer], key_of: Callable[[Labels], str | None], cells: Cells[str], log: Log
) -> None:
    """Where two exporters give different values for one GPU's use, neither is believed. `means`: by measure."""
    lost = np.zeros((len(cells.rows), cells.grid.count), dtype=bool)
    for measure, mean in means.items():
        exporters = [list(map(key_of, mean.labels)), list(map(reporter, mean.labels))]
        by_gpu = pd.DataFrame(mean.values).groupby(exporters).mean().groupby(level=0)
        apart = by_gpu.max() - by_gpu.min() > _DISAGREE
        wrong = apart.reindex(list(cells.rows), fill_value=False).to_numpy(bool)
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
