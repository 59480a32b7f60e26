"""Rows of GPUs and MIG instances from dcgm-exporter's series: no metric is the one by which GPUs are counted.

A GPU is observed in a row where any metric has a reading in it, and its samples are counted by the metrics that have
them: those of one metric first, and of others where that one is missing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..client.range_planner import Ask, Log
from ..client.response import Grid, Labels, SeriesAnswer
from ..discovery import Discovery
from ..promql import promql as queries
from ..promql.labels import DRIVER_LABEL, gpu_of, node_of
from ..promql.promql import DCGM_GAUGES, GAUGES, DcgmQueries, gauge_of, of_gpus
from .gpus import About, GpuRows, count_samples, device_index, scrape_seconds
from .homes import Homes, Who, homes_of, reporter, reporters_note, unnamed_note, whole_gpu
from .impossible import forget_still_counters, leave_out_impossible
from .series_to_rows import Cells, SeriesIndex, Weights, first_known
from .several import SharedGpus, forget_contradictions

Mask = npt.NDArray[np.bool_]
NodeOf = Callable[[Labels], str | None]
KeyOf = Callable[[Labels], str | None]
# A ratio of an instance may be taken over a part of it, at most over one of the GPU's SMs; beyond lie blanks.
_MOST_INSTANCE_RATIO = 256.0
# What an instance's series say of the whole GPU.
_OF_THE_GPU = ("power_watts_mean", "energy_joules_mean", "power_watts_n", "energy_joules_n")
_MEANS = ("power_watts_mean", "energy_joules_mean", "sm_clock_hertz_mean", "mem_clock_hertz_mean")
_COUNTS = ("observed_seconds", "n", "n_all", "power_watts_n", "energy_joules_n")


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

    spoiled: set[str] = set()

    def ask(asks: Sequence[Ask]) -> dict[str, SeriesAnswer]:
        answers = dict(asking.ranges(asks, found.dcgm_gpus)) if asks else {}
        found_again = leave_out_impossible(lambda one: asking.ranges(one, found.dcgm_gpus), made, answers, node, log)
        spoiled.update(found_again)
        return {name: readings_of(name, answer) for name, answer in answers.items()}

    answers = ask([*made.of_all(), *made.energy()])
    counts, joules = answers.pop("n"), answers.pop(queries.ENERGY, None)
    # The engine's activity says of instances, and of GPUs that lack utilization, what utilization says of others.
    known, used = _observed(answers), _observed(answers, "gpu_util_mean")
    lacking = {one for one, own in known.items() if "/gi" in one or (own & ~used.get(one, ~own)).any()}
    lacking |= {one[0] for one in map(gpu_of, found.named) if one is not None and one[0] not in known}
    if lacking and "engine_mean" not in answers:
        answers |= ask(made.statistics(GAUGES["engine"], *of_gpus(lacking)))
    counted = _observed({"n": SeriesAnswer(counts.labels, np.where(counts.values > 0, 1.0, np.nan))})
    left = {one: own & ~counted.get(one, ~own) for one, own in _observed(answers).items()}
    for gauge in DCGM_GAUGES if any(own.any() for own in left.values()) else ():
        own = _observed(answers, f"{gauge.measure}_mean")
        devices = [one for one, mask in own.items() if (mask & left[one]).any()]
        for name in gauge.names if devices else ():
            if name in found.names:
                counts = joined_counts(counts, ask([made.count(name, *of_gpus(devices))])["n"])
        left |= {one: left[one] & ~own[one] for one in devices}
    memory = [answer for one in made.memory() for answer in asking.daily(one)]
    rows, key_of = dcgm_rows(grid, counts, answers, log, named=found.named, node=node, joules=joules, memory=memory)
    rows.spoiled = frozenset(spoiled)
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
    several = reporters_note(counts, who, log)
    unnamed_note(every, node, log)
    gpus = _Gpus(every, who, homes_of(counts, every, who, log))
    key, cells = gpus.key, Cells[str](grid)
    rows, weights, shared = GpuRows(cells, gpus.about), Weights(counts), SharedGpus(counts, key)
    apart: dict[str, Cells[tuple[str, str]]] = {}

    def gpu_and_exporter(labels: Labels) -> tuple[str, str] | None:
        return (own, reporter(labels)) if who(labels) in several and (own := key(labels)) else None

    # Of several series of a GPU (a copy for each pod, two exporters) the fullest says how much of a row was seen.
    cells.put("n", counts, key, how="max")
    cells.put("n_all", counts, key, how="sum")
    measured = list(readings)
    for name in measured:
        answer = shared.of_devices(name, readings.pop(name))
        cells.put(name, answer, key, how="max" if name.endswith("_max") else "mean", weights=weights)
        gauge = gauge_of(name)
        if several and gauge is not None and gauge.is_ratio and name.endswith("_mean"):
            apart[gauge.measure] = Cells(grid)
            apart[gauge.measure].put("mean", answer, gpu_and_exporter, weights=weights)
    rows.pods = shared.pods
    forget_contradictions(apart, cells, log)
    # The most samples that a row can have from one exporter is that of the fullest series.
    most = np.nan_to_num(cells.column("n")).max(axis=1, keepdims=True, initial=0.0)
    samples = np.fmin(cells.column("n_all"), most)
    if measured:
        # A row of blanks was scraped, and nothing was observed in it.
        is_read = np.logical_or.reduce([~np.isnan(cells.column(name)) for name in measured])
        samples = np.where(is_read, samples, np.nan)
    cells.columns["observed_seconds"] = np.minimum(samples * scrape_seconds(samples, grid.step)[:, None], grid.step)
    instances = [row for own, row in cells.rows.items() if gpus.about[own].kind == "mig"]
    for statistic in ("mean", "p95", "max"):
        use = cells.column(f"gpu_util_{statistic}")
        use[instances] = np.nan  # of an instance the driver's utilization is absent, or a 0 that means nothing
        cells.columns[f"gpu_util_{statistic}"] = first_known((use, cells.column(f"engine_{statistic}")))
    count_samples(cells, samples)
    if joules is not None:
        known = tuple(labels for labels in joules.labels if key(labels) in cells.rows)
        grown = joules.values[[key(labels) in cells.rows for labels in joules.labels]] * queries.JOULES_PER_COUNT
        grown[~((grown > 0) & (grown <= queries.MOST_JOULES_A_SAMPLE))] = np.nan  # one that stands still is stuck
        cells.put(queries.ENERGY, SeriesAnswer(known, grown), key, weights=weights)
        cells.columns["energy_joules_n"] = np.where(np.isnan(cells.columns[queries.ENERGY]), np.nan, samples)
    sizes: dict[str | None, list[float]] = {}
    for answer in memory:
        for labels, size in zip(answer.labels, answer.values[:, 0] * queries.MIB, strict=True):
            if 0 < size <= queries.MOST_MEMORY_BYTES:
                sizes.setdefault(key(labels), []).append(float(size))
    total = [np.median(sizes.get(own, [np.nan])) for own in cells.rows]
    cells.columns["mem_total_bytes"] = np.repeat(np.array(total)[:, None], grid.count, axis=1)
    fold_instances(rows)
    forget_still_counters(rows)
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


class _Gpus:
    """Which rows a series speaks of, and what each GPU is."""

    def __init__(self, every: Sequence[Labels], who: Who, homes: Homes) -> None:
        self._who, self._homes = who, homes
        self._keys: dict[int, tuple[Labels, str | None]] = {}
        profiles = {(found[0], labels.get("GPU_I_PROFILE", "")) for labels in every if (found := gpu_of(labels))}
        first = dict(profiles)
        # The number of an instance is given again when its GPU is divided anew.
        self._reused = {device for device, profile in profiles if "/gi" in device and first[device] != profile}
        self.about: dict[str, About] = {}
        for labels in every:
            found, whole, own = self._gpu(labels), who(labels), self.key(labels)
            if found is None or whole is None or own is None or own in self.about:
                continue
            uuid, parent = found
            place, index, name = whole[1], device_index(labels.get("gpu")), labels.get("modelName")
            kind, profile, driver = "mig" if parent else "gpu", labels.get("GPU_I_PROFILE"), labels.get(DRIVER_LABEL)
            self.about[own] = About(place, index, name, None, kind, parent, profile, uuid, driver)
            if parent:
                whole_one = About(place, index, name, uuid=parent, driver_version=driver)
                self.about.setdefault(parent + own[len(uuid) :], whole_one)

    def key(self, labels: Labels) -> str | None:
        """Of the same object the same, found once: labels are held, so that no others take their id."""
        known = self._keys.get(id(labels))
        if known is None:
            found, whole = self._gpu(labels), self._who(labels)
            suffix = self._homes.get(whole) if whole is not None else None
            own = None if found is None or suffix is None else found[0] + suffix
            known = self._keys[id(labels)] = labels, own
        return known[1]

    def _gpu(self, labels: Labels) -> tuple[str, str | None] | None:
        found = gpu_of(labels)
        if found is not None and found[0] in self._reused:
            return f"{found[0]}.{labels.get('GPU_I_PROFILE', '')}", found[1]
        return found


def readings_of(name: str, answer: SeriesAnswer) -> SeriesAnswer:
    """Values in the frame's unit; what cannot be is missing.

    Ratios of instances may exceed 1 by far (NVIDIA/DCGM#152): then all of the instance was busy.
    """
    gauge = gauge_of(name)
    if gauge is None:
        return answer
    values, most = answer.values * gauge.scale, np.full((len(answer.labels), 1), gauge.most)
    is_instance = np.array(["GPU_I_ID" in labels for labels in answer.labels], dtype=np.bool_)
    if gauge.is_ratio:
        most[is_instance] = _MOST_INSTANCE_RATIO
    with np.errstate(invalid="ignore"):
        values[~((values >= 0) & (values <= most))] = np.nan
    if gauge.is_ratio and is_instance.any():
        values[is_instance] = np.minimum(values[is_instance], 1.0)
    return SeriesAnswer(answer.labels, values)


def _observed(answers: Mapping[str, SeriesAnswer], only: str = "") -> dict[str, Mask]:
    """Device -> the rows in which any measure has a reading, or this one."""
    out: dict[str, Mask] = {}
    for name in [only] if only else answers:
        answer = answers.get(name, SeriesAnswer.nothing(0))
        for labels, known in zip(answer.labels, ~np.isnan(answer.values), strict=True):
            found = gpu_of(labels)
            if found is not None:
                out[found[0]] = out[found[0]] | known if found[0] in out else known
    return out


def fold_instances(rows: GpuRows) -> None:
    """Give each GPU that is divided into MIG instances a row of its own for their time, and take from them what is the
    GPU's: their series repeat its power, energy, clocks and temperature, and it may have no series at all."""
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
