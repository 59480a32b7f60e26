"""Samples that are no readings, left out one by one: a mean of an hour hides one of 200,000 % in sixty.

DCGM now and then reports a utilization of some hundreds to 200,000 %, or 4294967295 (NVIDIA/DCGM#199,
NVIDIA/dcgm-exporter#418). Where the largest sample of a row shows one, the row is asked for again without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ....core.coded_text import coded
from ..client.range_planner import Ask, Log
from ..client.response import Labels, SeriesAnswer
from ..promql.labels import gpu_of
from ..promql.promql import DCGM_GAUGES, DcgmGauge, DcgmQueries, of_gpus
from .series_to_rows import SeriesIndex


def leave_out_impossible(
    ask: Callable[[Sequence[Ask]], dict[str, SeriesAnswer]],
    made: DcgmQueries,
    answers: dict[str, SeriesAnswer],
    node: Callable[[Labels], str | None],
    log: Log,
) -> frozenset[str]:
    """Put what the possible samples say into `answers`, as the server gave them, where there were others; note how
    many. Returns the measures that had some."""
    spoiled = set()
    for gauge in DCGM_GAUGES:
        beyond = answers.pop(f"{gauge.measure}_beyond", None)
        mean, names = answers.get(f"{gauge.measure}_mean"), [name for name in gauge.names if name in made.present]
        if mean is None or not names:
            continue
        over = _over(gauge, mean, [one for one in (beyond, answers.get(f"{gauge.measure}_max")) if one is not None])
        rows = np.nonzero(over.any(axis=1))[0].tolist()
        if not rows:
            continue
        spoiled.add(gauge.measure)
        own = of_gpus({found[0] for row in rows if (found := gpu_of(mean.labels[row]))})
        again = ask([*made.statistics(gauge, *own, possible=True), made.impossible(gauge, *own)])
        counted, counts = again.pop("impossible"), dict[str, float]()
        for name in (one for one in again if one in answers):
            before, after = answers[name], again[name]
            place, source, values = SeriesIndex(before.labels), SeriesIndex(after.labels), before.values.copy()
            for row in rows:
                at, by = place.find(mean.labels[row]), source.find(mean.labels[row])
                if at >= 0:
                    values[at, over[row]] = after.values[by, over[row]] if by >= 0 else np.nan
            answers[name] = SeriesAnswer(before.labels, values)
        index, nodes = SeriesIndex(counted.labels), set()
        for row in rows:
            at, found = index.find(mean.labels[row]), gpu_of(mean.labels[row])
            # What never has a value is missing, and no fault of single samples. Copies of pods count once.
            if at >= 0 and found and not np.isnan(answers[f"{gauge.measure}_mean"].values[row]).all():
                number = float(np.nansum(counted.values[at, over[row]]))
                counts[found[0]] = max(number, counts.get(found[0], 0.0))
                nodes.add(node(mean.labels[row]))
        if counts:
            log.add(
                coded(
                    "impossible-readings",
                    "Impossible readings of {metric} on {gpus} GPUs of {nodes} nodes: {samples:.0f}. They are left "
                    "out; the other samples of these hours count.",
                    metric=names[0],
                    gpus=len(counts),
                    nodes=len(nodes),
                    samples=sum(counts.values()),
                )
            )
    return frozenset(spoiled)


def _over(gauge: DcgmGauge, mean: SeriesAnswer, largest: Sequence[SeriesAnswer]) -> np.ndarray:
    """The rows of each series of `mean` with a sample that is no reading. Ratios of MIG instances may exceed 1."""
    with np.errstate(invalid="ignore"):
        over = mean.values * gauge.scale > gauge.most
        index = SeriesIndex(mean.labels)
        for answer in largest:
            beyond = answer.values * gauge.scale > gauge.most
            for row in np.nonzero(beyond.any(axis=1))[0].tolist():
                at = index.find(answer.labels[row])
                if at >= 0:
                    over[at] |= beyond[row]
    if gauge.is_ratio:
        over[["GPU_I_ID" in labels for labels in mean.labels]] = False
    return over
