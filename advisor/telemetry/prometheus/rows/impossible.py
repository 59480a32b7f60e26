"""What an exporter says that cannot be: single samples beyond any reading, and counters that count nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ....core.coded_text import coded
from ..client.range_planner import Ask, Log
from ..client.response import Labels, SeriesAnswer
from ..promql.labels import gpu_of
from ..promql.promql import DCGM_GAUGES, DcgmGauge, DcgmQueries, of_gpus
from .gpus import GpuRows
from .series_to_rows import SeriesIndex

_WORK_USE, _WORK_SECONDS = 0.1, 2 * 3600.0


def leave_out_impossible(
    ask: Callable[[Sequence[Ask]], Mapping[str, SeriesAnswer]],
    made: DcgmQueries,
    answers: dict[str, SeriesAnswer],
    node: Callable[[Labels], str | None],
    log: Log,
) -> set[str]:
    """Put what the possible samples say into `answers`, in the server's units, where there were others, and note how
    many. Returns the measures that had some.

    DCGM now and then reports a utilization of some hundreds to 200,000 %, or 4294967295 (NVIDIA/DCGM#199,
    NVIDIA/dcgm-exporter#418), which the mean of an hour hides. Rows whose largest sample shows one are asked for again.
    """
    spoiled, largest = set(), _by_measure(answers.pop("beyond", SeriesAnswer.nothing(0)))
    for gauge in DCGM_GAUGES:
        mean = answers.get(f"{gauge.measure}_mean", SeriesAnswer.nothing(1))
        most = answers.get(f"{gauge.measure}_max", largest.get(gauge.measure, SeriesAnswer.nothing(0)))
        over = _over(gauge, mean, most)
        rows = np.nonzero(over.any(axis=1))[0].tolist()
        found = {row: device[0] for row in rows if (device := gpu_of(mean.labels[row]))}
        names = [name for name in gauge.names if name in made.present]
        if not found or not names:
            continue
        spoiled.add(gauge.measure)
        own = of_gpus(found.values())
        again = dict(ask([*made.statistics(gauge, *own, possible=True), made.impossible(gauge, *own)]))
        counted, samples = again.pop("impossible"), dict[str, float]()
        index = {name: SeriesIndex(answer.labels) for name, answer in (("impossible", counted), *again.items())}
        for name in answers.keys() & again.keys():
            place, after, values = SeriesIndex(answers[name].labels), again[name], answers[name].values.copy()
            for row in found:
                at, by = place.find(mean.labels[row]), index[name].find(mean.labels[row])
                if at >= 0:
                    values[at, over[row]] = after.values[by, over[row]] if by >= 0 else np.nan
            answers[name] = SeriesAnswer(answers[name].labels, values)
        for row, gpu in found.items():
            at = index["impossible"].find(mean.labels[row])
            # What never has a value is missing, and no fault of single samples. Copies of pods count once.
            if at >= 0 and not np.isnan(answers[f"{gauge.measure}_mean"].values[row]).all():
                samples[gpu] = max(samples.get(gpu, 0.0), float(np.nansum(counted.values[at, over[row]])))
        if samples:
            log.add(
                coded(
                    "impossible-readings",
                    "Impossible readings of {metric} on {gpus} GPUs of {nodes} nodes: {samples:.0f}. They are left "
                    "out; the other samples of these hours count.",
                    metric=names[0],
                    gpus=len(samples),
                    nodes=len({node(mean.labels[row]) for row, gpu in found.items() if gpu in samples}),
                    samples=sum(samples.values()),
                )
            )
    return spoiled


def _by_measure(beyond: SeriesAnswer) -> dict[str, SeriesAnswer]:
    """The answer to `DcgmQueries.beyond` of each measure, with the labels that its series have elsewhere."""
    rows: dict[str, list[int]] = {}
    for row, labels in enumerate(beyond.labels):
        rows.setdefault(labels.get("measure", ""), []).append(row)
    bare = [{name: value for name, value in labels.items() if name != "measure"} for labels in beyond.labels]
    return {name: SeriesAnswer(tuple(bare[row] for row in at), beyond.values[at]) for name, at in rows.items()}


def _over(gauge: DcgmGauge, mean: SeriesAnswer, largest: SeriesAnswer) -> npt.NDArray[np.bool_]:
    """The rows of each series of `mean` with a sample that is no reading. Ratios of MIG instances may exceed 1."""
    index, most = SeriesIndex(mean.labels), gauge.most / gauge.scale
    with np.errstate(invalid="ignore"):
        over, beyond = mean.values > most, largest.values > most
    for row in np.nonzero(beyond.any(axis=1))[0].tolist():
        at = index.find(largest.labels[row])
        over[[at] if at >= 0 else []] |= beyond[row]
    if gauge.is_ratio:
        over[np.array(["GPU_I_ID" in labels for labels in mean.labels], dtype=np.bool_)] = False
    return over


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
                    cells.columns[column] = cells.column(column)
                    cells.columns[column][own] = np.nan
                rows.absences.append({
                    "node": node, "gpu_uuid": None, "device": None, "scope": "source", "metric": way,
                    "reason": "counter-never-moved", "remedy": "",
                    "detail": f"{metric} of dcgm-exporter read 0 on every GPU of {node} while they worked.",
                    "since": cells.grid.start - cells.grid.step, "until": np.nan,
                })  # fmt: skip
