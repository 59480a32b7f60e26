"""What an exporter says that cannot be: single samples beyond any reading, and counters that count nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ....core.coded_text import coded
from ..client.range_planner import Ask, Log
from ..client.response import Labels, SeriesAnswer
from ..promql.labels import gpu_of
from ..promql.promql import DCGM_GAUGES, DcgmQueries, of_gpus
from .gpus import GpuRows
from .series_to_rows import label_set, series_index

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
        names, over, gpus = gauge.known(made.present), {}, {}
        for labels, values in zip(beyond.labels, beyond.values, strict=True):
            series = label_set(labels) - {("measure", gauge.measure)}
            if len(series) < len(labels) and (gpu := gpu_of(labels)) is not None:
                over[series], gpus[series] = ~np.isnan(values), (gpu[0], node(labels))
        if not over or not names:
            continue
        own = of_gpus(uuid for uuid, _ in gpus.values())
        again = dict(ask(made.statistics(gauge, *own, possible=True)))
        counted = again.pop("impossible")
        for name in answers.keys() & again.keys():
            answer, index = answers[name], series_index(again[name].labels)
            values = answer.values.copy()
            for row, series in enumerate(map(label_set, answer.labels)):
                if (mask := over.get(series)) is not None:
                    values[row, mask] = again[name].values[index[series], mask] if series in index else np.nan
            answers[name] = SeriesAnswer(answer.labels, values)
        # What never has a value is missing, and no fault of single samples. Copies of pods count once.
        mean = answers.get(f"{gauge.measure}_mean", SeriesAnswer.nothing(1))
        known = {label_set(mean.labels[row]) for row in np.flatnonzero(~np.isnan(mean.values).all(axis=1))}
        samples: dict[tuple[str, str | None], float] = {}
        for series, values in zip(map(label_set, counted.labels), counted.values, strict=True):
            if series in over and series in known:
                count = float(np.nansum(values[over[series]]))
                samples[gpus[series]] = max(samples.get(gpus[series], 0.0), count)
        if samples:
            log.add(
                coded(
                    "impossible-readings",
                    "Impossible readings of {metric} on {gpus} GPUs of {nodes} nodes: {samples:.0f}. They are left "
                    "out; the other samples of these hours count.",
                    metric=names[0], gpus=len(samples), nodes=len({place for _, place in samples}),
                    samples=sum(samples.values()),
                )
            )  # fmt: skip


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
