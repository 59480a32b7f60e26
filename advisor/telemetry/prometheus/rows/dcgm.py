"""Rows of GPUs and MIG instances from dcgm-exporter's series: no metric is the one by which GPUs are counted.

A GPU is observed in a row where any metric has a reading in it, and its samples are counted by the metrics that have
them: those of one metric first, and of others where that one is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....core.coded_text import coded
from ..client.range_planner import Ask, Log
from ..client.response import Floats, Grid, Labels, SeriesAnswer
from ..discovery import Discovery
from ..promql import promql as queries
from ..promql.labels import DRIVER_LABEL, gpu_of, has_exported, node_of, work_of
from ..promql.promql import DCGM_GAUGES, GAUGES, DcgmQueries, gauge_of, of_gpus
from .gpus import About, GpuRows, count_samples, device_index, scrape_seconds
from .homes import homes_of, reporter, reporters_note, unnamed_note, whole_gpu
from .impossible import leave_out_impossible
from .instances import MOST_INSTANCE_RATIO, fold_instances
from .series_to_rows import Cells, SeriesIndex, Weights, first_known

Mask = npt.NDArray[np.bool_]
NodeOf = Callable[[Labels], str | None]
KeyOf = Callable[[Labels], str | None]
# Means of two exporters for one GPU and row that lie further apart than this contradict one another.
_DISAGREE = 0.25
# Two series of a GPU that together have so many times the samples of one speak at the same time.
_AT_ONCE = 1.05
# A counter of traffic that counted nothing while its node's GPUs worked for so long does not count.
_WORK_USE, _WORK_SECONDS = 0.1, 2 * 3600.0


@dataclass(frozen=True)
class DcgmQuestions:
    """How a server is asked: `ranges` for measures over the window (and how many series they have), `daily` for what
    hardly changes."""

    ranges: Callable[[Sequence[Ask], int], Mapping[str, SeriesAnswer]]
    daily: Callable[[Ask], list[SeriesAnswer]]


def read_dcgm(
    asking: DcgmQuestions, found: Discovery, matches: Sequence[str], grid: Grid, *, log: Log, node: NodeOf = node_of
) -> tuple[GpuRows, SeriesAnswer, KeyOf]:
    """Rows of GPUs, the counts of samples by series, of which the labels tell who held what, and whose rows a series
    speaks of."""
    made = DcgmQueries(found.names, matches, found.step, found.ruled, found.scrape_seconds)

    def ask(asks: Sequence[Ask]) -> dict[str, SeriesAnswer]:
        return dict(asking.ranges(asks, found.dcgm_gpus)) if asks else {}

    answers = ask([*made.of_all(), *made.energy()])
    counts, joules = answers.pop("n"), answers.pop(queries.ENERGY, None)
    # The engine's activity says of instances, and of GPUs that lack utilization, what utilization says of others.
    known, used = _observed(answers), _observed({"": answers.get("gpu_util_mean", SeriesAnswer.nothing(grid.count))})
    lacking = {one for one, own in known.items() if "/gi" in one or one not in used or (own & ~used[one]).any()}
    lacking |= {one[0] for one in map(gpu_of, found.named) if one is not None and one[0] not in known}
    if lacking and "engine_mean" not in answers:
        answers |= ask(made.statistics(GAUGES["engine"], *of_gpus(lacking)))
    spoiled = leave_out_impossible(ask, made, answers, node, log)
    answers = {name: _readings(name, answer) for name, answer in answers.items()}
    counted = _observed({"": counts}, least=1e-9)
    left = {one: own & ~counted[one] if one in counted else own for one, own in _observed(answers).items()}
    for gauge in DCGM_GAUGES if any(own.any() for own in left.values()) else ():
        own = _observed({"": answers[f"{gauge.measure}_mean"]}) if f"{gauge.measure}_mean" in answers else {}
        devices = [one for one, mask in own.items() if (mask & left[one]).any()]
        for name in gauge.names if devices else ():
            if name in found.names:
                counts = joined_counts(counts, ask([made.count(name, *of_gpus(devices))])["n"])
        left |= {one: left[one] & ~own[one] for one in devices}
    memory = [answer for one in made.memory() for answer in asking.daily(one)]
    rows, key_of = dcgm_rows(grid, counts, answers, log, named=found.named, node=node, joules=joules, memory=memory)
    rows.spoiled = spoiled
    return rows, counts, key_of


def dcgm_rows(
    grid: Grid,
    counts: SeriesAnswer,
    readings: dict[str, SeriesAnswer],
    log: Log,
    *,
    named: Iterable[Labels] = (),
    node: NodeOf = node_of,
    joules: SeriesAnswer | None = None,
    memory: Sequence[SeriesAnswer] = (),
) -> tuple[GpuRows, KeyOf]:
    """Rows of GPUs, and the key of the rows that a series speaks of.

    `counts`: samples by series and row; `readings`: measures by name, in the frame's units, which are let go as they
    are taken in; `named`: labels of any series that names a GPU; `joules`: the answer to `DcgmQueries.energy`, which
    makes no row observed by itself; `memory`: the answers to `DcgmQueries.memory`, by moment.
    """
    who = whole_gpu(node)
    every = [labels for one in (counts, *readings.values()) for labels in one.labels]
    every = list({id(labels): labels for labels in (*every, *named)}.values())  # mostly the same objects
    homes = homes_of(counts, every, who, log)
    several = reporters_note(counts, who, log)
    unnamed_note(every, node, log)
    reused = _reused(every)
    keys: dict[int, tuple[Labels, str | None]] = {}

    def gpu(labels: Labels) -> tuple[str, str | None] | None:
        found = gpu_of(labels)
        # The number of an instance is given again when its GPU is divided anew.
        is_reused = found is not None and found[0] in reused
        return (f"{found[0]}.{labels.get('GPU_I_PROFILE', '')}", found[1]) if found and is_reused else found

    def key(labels: Labels) -> str | None:
        known = keys.get(id(labels))
        if known is None:
            found, whole = gpu(labels), who(labels)
            suffix = homes.suffix(*whole) if whole is not None else None
            own = None if found is None or suffix is None else found[0] + suffix
            known = keys[id(labels)] = labels, own  # labels are held, so that no others take their id
        return known[1]

    about: dict[str, About] = {}
    for labels in every:
        found, whole, own = gpu(labels), who(labels), key(labels)
        if found is None or whole is None or own is None or own in about:
            continue
        uuid, parent = found
        place, index, name = homes.node(*whole), device_index(labels.get("gpu")), labels.get("modelName")
        profile, driver = labels.get("GPU_I_PROFILE"), labels.get(DRIVER_LABEL)
        kind = "mig" if parent else "gpu"
        about[own] = About(place, index, name, None, kind, parent, profile, uuid, driver)
        if parent:
            about.setdefault(parent + own[len(uuid) :], About(place, index, name, uuid=parent, driver_version=driver))
    cells: Cells[str] = Cells(grid)
    rows = GpuRows(cells, about)
    weights, shared = Weights(counts), _SharedGpus(counts, grid, key)
    # Of several series of a GPU (a copy for each pod, two exporters) the fullest says how much of a row was seen.
    cells.put("n", counts, key, how="max")
    cells.put("n_all", counts, key, how="sum")
    contradicted: dict[tuple[str, str], Mask] = {}
    measured = list(readings)
    for name in measured:
        answer = shared.of_devices(readings.pop(name))
        if name in ("gpu_util_mean", "mem_used_bytes_mean") and shared.taken.labels:
            rows.pods[name] = shared.taken
        cells.put(name, answer, key, how="max" if name.endswith("_max") else "mean", weights=weights)
        gauge = gauge_of(name)
        if several and gauge is not None and gauge.is_ratio and name.endswith("_mean"):
            apart: Cells[tuple[str, str]] = Cells(grid)
            apart.put(name, answer, lambda one: (key(one) or "", reporter(one)) if who(one) in several else None)
            contradicted |= {(gauge.measure, own): wrong for own, wrong in _contradictions(apart, name)}
    _forget(contradicted, cells, log)
    samples = cells.column("n_all")
    if len(samples):
        # The most samples that a row can have from one exporter is that of the fullest series.
        samples = np.fmin(samples, np.nan_to_num(cells.column("n")).max(axis=1, keepdims=True))
    if measured:
        # A row of blanks was scraped, and nothing was observed in it.
        is_read = np.logical_or.reduce([~np.isnan(cells.column(name)) for name in measured])
        samples = np.where(is_read, samples, np.nan)
    interval = scrape_seconds(samples, grid.step)
    cells.columns["observed_seconds"] = np.minimum(samples * interval[:, None], grid.step)
    instances = [row for own, row in cells.rows.items() if about[own].kind == "mig"]
    for statistic in ("mean", "p95", "max"):
        use = cells.column(f"gpu_util_{statistic}")
        use[instances] = np.nan  # of an instance the driver's utilization is absent, or a 0 that means nothing
        cells.columns[f"gpu_util_{statistic}"] = first_known((use, cells.column(f"engine_{statistic}")))
    count_samples(cells, samples)
    if joules is not None:
        most = queries.MOST_JOULES_A_SAMPLE
        cells.put(
            queries.ENERGY, joules, lambda labels: own if (own := key(labels)) in cells.rows else None,
            weights=weights, scale=queries.JOULES_PER_COUNT, most=most,
        )  # fmt: skip
        grown = cells.columns[queries.ENERGY]
        grown[~(grown > 0)] = np.nan  # no GPU draws nothing: a counter that stands still is stuck
        cells.columns["energy_joules_n"] = np.where(np.isnan(grown), np.nan, samples)
    total = cells.columns["mem_total_bytes"] = cells.column("mem_total_bytes")
    for own, values in _memory(memory, key).items():
        total[cells.rows.get(own, [])] = np.median(values)
    fold_instances(rows)
    _forget_still_counters(rows)
    return rows, key


def joined_counts(first: SeriesAnswer, second: SeriesAnswer) -> SeriesAnswer:
    """Samples of each series by the metric that has most of them."""
    index, values, added = SeriesIndex(first.labels), first.values.copy(), []
    for row, labels in enumerate(second.labels):
        at = index.find(labels)
        if at < 0:
            added.append(row)
        else:
            values[at] = np.fmax(values[at], second.values[row])
    labels = (*first.labels, *(second.labels[row] for row in added))
    return SeriesAnswer(labels, np.vstack([values, second.values[added]]) if added else values)


def _readings(name: str, answer: SeriesAnswer) -> SeriesAnswer:
    """Values in the frame's unit; what cannot be is missing.

    Ratios of instances may exceed 1 by far (NVIDIA/DCGM#152): then all of the instance was busy.
    """
    gauge = gauge_of(name)
    if gauge is None:
        return answer
    values, most = answer.values * gauge.scale, np.full((len(answer.labels), 1), gauge.most)
    is_instance = np.array(["GPU_I_ID" in labels for labels in answer.labels], dtype=np.bool_)
    if gauge.is_ratio and is_instance.any():
        most[is_instance] = MOST_INSTANCE_RATIO
    with np.errstate(invalid="ignore"):
        values[~((values >= 0) & (values <= most))] = np.nan
        if gauge.is_ratio:
            values[is_instance] = np.minimum(values[is_instance], 1.0)
    return SeriesAnswer(answer.labels, values)


def _observed(answers: Mapping[str, SeriesAnswer], least: float = 0.0) -> dict[str, Mask]:
    """Device -> the rows in which any of these has a reading."""
    out: dict[str, Mask] = {}
    for name, answer in answers.items():
        with np.errstate(invalid="ignore"):
            known = _readings(name, answer).values >= least
        for labels, mask in zip(answer.labels, known, strict=True):
            found = gpu_of(labels)
            if found is not None:
                out[found[0]] = out[found[0]] | mask if found[0] in out else mask
    return out


def _reused(series: Iterable[Labels]) -> set[str]:
    """The instances that had several profiles in the window."""
    seen = {(found[0], labels.get("GPU_I_PROFILE", "")) for labels in series if (found := gpu_of(labels)) and found[1]}
    first = dict(seen)
    return {instance for instance, profile in seen if first[instance] != profile}


class _SharedGpus:
    """GPUs that pods share and of which the exporter tells the device's own values beside those of each pod.

    With ``--kubernetes-virtual-gpus`` dcgm-exporter 4.5.3 and later gives a pod its own share of utilization and memory
    (NVIDIA/dcgm-exporter#594): the device's series without a pod then speaks for the device. Elsewhere each pod has a
    copy of the device's value.
    """

    def __init__(self, counts: SeriesAnswer, grid: Grid, key_of: KeyOf) -> None:
        self._key = key_of
        by_target: dict[str, list[Labels]] = {}
        for labels in counts.labels:
            by_target.setdefault(reporter(labels), []).append(labels)
        self._exported = {target: has_exported(own) for target, own in by_target.items()}
        parts: dict[bool, Cells[str]] = {True: Cells(grid), False: Cells(grid)}
        for is_pod, cells in parts.items():
            cells.put("n", counts, lambda one, is_pod=is_pod: key_of(one) if self._is_pod(one) == is_pod else None,
                      how="max")  # fmt: skip
        self._at_once: dict[str, Mask] = {}
        for own in parts[True].rows.keys() & parts[False].rows.keys():
            pods, device = (parts[is_pod].columns["n"][parts[is_pod].rows[own]] for is_pod in (True, False))
            at_once = pods + device > _AT_ONCE * np.nanmax(np.fmax(pods, device))
            if at_once.any():
                self._at_once[own] = at_once
        self.taken = SeriesAnswer.nothing(grid.count)

    def of_devices(self, answer: SeriesAnswer) -> SeriesAnswer:
        """What speaks for devices; what the pods' own series said in the same rows is in `taken`."""
        device: dict[str, Mask] = {}
        pods: list[tuple[int, str]] = []
        for row, labels in enumerate(answer.labels if self._at_once else ()):
            own = self._key(labels)
            if own in self._at_once and self._is_pod(labels):
                pods.append((row, own))
            elif own in self._at_once:
                device[own] = ~np.isnan(answer.values[row]) | device.get(own, False)
        pods = [(row, own) for row, own in pods if own in device]
        at, values = [row for row, _ in pods], answer.values.copy() if pods else answer.values
        masks = [self._at_once[own] & device[own] for _, own in pods]
        self.taken = SeriesAnswer(
            tuple(answer.labels[row] for row in at), np.where(masks, values[at], np.nan) if at else values[:0]
        )
        for row, mask in zip(at, masks, strict=True):
            values[row, mask] = np.nan
        return SeriesAnswer(answer.labels, values)

    def _is_pod(self, labels: Labels) -> bool:
        return work_of(labels, exported=self._exported.get(reporter(labels), False)) is not None


def _contradictions(apart: Cells[tuple[str, str]], name: str) -> Iterable[tuple[str, Mask]]:
    """GPU -> the rows in which its exporters are too far apart."""
    by_gpu: dict[str, list[int]] = {}
    for (own, _), row in apart.rows.items():
        by_gpu.setdefault(own, []).append(row)
    for own, at in by_gpu.items():
        values = apart.columns[name][at]
        with np.errstate(invalid="ignore"):
            wrong = np.fmax.reduce(values) - np.fmin.reduce(values) > _DISAGREE
        if wrong.any():
            yield own, wrong


def _forget(contradicted: Mapping[tuple[str, str], Mask], cells: Cells[str], log: Log) -> None:
    """Where two exporters tell one GPU's use differently, neither is believed: the row has no reading of it."""
    rows: dict[str, int] = {}
    for (measure, own), wrong in contradicted.items():
        rows[own] = max(rows.get(own, 0), int(wrong.sum()))
        for column in (f"{measure}_{one}" for one in ("mean", "p95", "max")):
            if column in cells.columns:
                cells.columns[column] = cells.column(column)
                cells.columns[column][cells.rows[own], wrong] = np.nan
    if rows:
        log.add(
            coded(
                "exporters-contradict",
                "Two exporters report conflicting values for {gpus} GPUs during {gpu_hours:.0f} "
                "GPU-hours ({first}). These hours count as unknown.",
                gpus=len(rows),
                gpu_hours=sum(rows.values()) * cells.grid.step / 3600,
                first=min(rows),
            )
        )


def _memory(answers: Sequence[SeriesAnswer], key_of: KeyOf) -> dict[str, list[float]]:
    """How much memory each GPU has, bytes, as often as it was told."""
    out: dict[str, list[float]] = {}
    for answer in answers:
        for labels, value in zip(answer.labels, answer.values[:, 0] * queries.MIB, strict=True):
            key = key_of(labels)
            if key is not None and 0 < value <= queries.MOST_MEMORY_BYTES:
                out.setdefault(key, []).append(float(value))
    return out


def _forget_still_counters(rows: GpuRows) -> None:
    """Counters of traffic that read exactly 0 on each GPU of a node for the whole window, while they worked, do not
    count (NVIDIA/DCGM#149, NVIDIA/dcgm-exporter#485): what they tell is missing."""
    cells, by_node = rows.cells, dict[str, list[int]]()
    for key, row in cells.rows.items():
        if rows.about[key].kind == "gpu":
            by_node.setdefault(rows.about[key].node, []).append(row)
    for link, name in (("nvlink", "NVLINK"), ("pcie", "PCIE")):
        ways = [f"{link}_{way}_bytes_per_second" for way in ("tx", "rx")]
        if not all(f"{way}_mean" in cells.columns for way in ways):
            continue
        traffic = np.fmax(*(cells.column(f"{way}_mean") for way in ways))
        worked = (cells.column("gpu_util_mean") > _WORK_USE) & (traffic == 0)
        for node, own in by_node.items():
            # A single GPU has no other to talk to.
            is_alone = len(own) == 1 and link == "nvlink"
            if is_alone or (traffic[own] > 0).any() or worked[own].sum(axis=1).max() * cells.grid.step < _WORK_SECONDS:
                continue
            for way in ways:
                for column in (f"{way}_mean", f"{way}_p95"):
                    if column in cells.columns:
                        cells.columns[column] = cells.column(column)
                        cells.columns[column][own] = np.nan
                metric = f"DCGM_FI_PROF_{name}_{'TX' if '_tx_' in way else 'RX'}_BYTES"
                rows.absences.append({
                    "node": node, "gpu_uuid": None, "device": None, "scope": "source", "metric": way,
                    "reason": "counter-never-moved",
                    "detail": f"{metric} of dcgm-exporter read 0 on every GPU of {node} while they worked.",
                    "remedy": "Compare it with nvidia-smi nvlink --getthroughput d." if link == "nvlink" else "",
                    "since": cells.grid.start - cells.grid.step, "until": np.nan,
                })  # fmt: skip
