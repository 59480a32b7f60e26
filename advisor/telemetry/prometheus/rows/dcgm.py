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
from ..promql.labels import DRIVER_LABEL, gpu_of, node_of
from ..promql.promql import engine_asks
from .gpus import About, GpuRows, count_samples, device_index, scrape_seconds
from .homes import homes_of, reporter, reporters_note, unnamed_note, whole_gpu
from .instances import MOST_INSTANCE_RATIO, fold_instances
from .series_to_rows import Cells, Weights, first_known

NodeOf = Callable[[Labels], str | None]
KeyOf = Callable[[Labels], str | None]
# So many ids of GPUs make one query, more are asked for all.
_MOST_UUIDS = 200
_RATIOS = ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active", "engine")
# Means of two exporters for one GPU and row that lie further apart than this contradict one another.
_DISAGREE = 0.25


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
    names, step = found.names, found.step
    asks = queries.dcgm_asks(names, matches, step, found.ruled, scrape_seconds=found.scrape_seconds)
    energy = queries.energy_ask(names, matches, step)
    answers = dict(asking.ranges([*asks, *([energy] if energy else [])], found.dcgm_gpus))
    counts, joules = answers.pop("n"), answers.pop(queries.ENERGY, None)
    known = _known(answers, grid)
    used = _masks("gpu_util_mean", answers["gpu_util_mean"]) if "gpu_util_mean" in answers else {}
    silent = {device for device, own in known.items() if device not in used or (own & ~used[device]).any()}
    silent |= {device for device in known if "/gi" in device}
    silent |= {one[0] for one in map(gpu_of, found.named) if one is not None and one[0] not in known}
    if silent:
        engine = engine_asks(names, matches, step, found.ruled, _uuids(silent))
        answers |= dict(asking.ranges(engine, found.dcgm_gpus)) if engine else {}
        known = _known(answers, grid)
    seen, nothing = _counted(counts, grid), np.zeros(grid.count)
    left = {device: own & ~(seen.get(device, nothing) > 0) for device, own in known.items()}
    for gauge, devices in _counters(left, answers, names):
        ask = queries.count_ask(gauge, matches, step, _uuids(devices))
        counts = joined_counts(counts, asking.ranges([ask], found.dcgm_gpus)[ask.name])
    memory = queries.dcgm_memory_ask(names, matches)
    told = asking.daily(memory) if memory else []
    answers["n"] = counts
    rows, key_of = keyed_rows(grid, answers, told, log, named=found.named, node=node, joules=joules)
    return rows, counts, key_of


def dcgm_rows(grid: Grid, answers: Mapping[str, SeriesAnswer], memory: Sequence[SeriesAnswer], log: Log) -> GpuRows:
    """From the answers to `queries.dcgm_asks`, by name, and to `queries.dcgm_memory_ask`, by moment."""
    return keyed_rows(grid, dict(answers), memory, log)[0]


def keyed_rows(
    grid: Grid,
    answers: dict[str, SeriesAnswer],
    memory: Sequence[SeriesAnswer],
    log: Log,
    *,
    named: Iterable[Labels] = (),
    node: NodeOf = node_of,
    joules: SeriesAnswer | None = None,
) -> tuple[GpuRows, KeyOf]:
    """The same, and the key of the rows that a series speaks of; `answers` are let go as they are taken in.

    `named`: labels of any series that names a GPU. `joules`: the answer to `queries.energy_ask`, which makes no row
    observed by itself."""
    cells: Cells[str] = Cells(grid)
    counts, who = answers["n"], whole_gpu(node)
    heard = [*counts.labels, *(labels for name, one in answers.items() if name != "n" for labels in one.labels), *named]
    every = list({id(labels): labels for labels in heard}.values())  # the same labels are mostly the same object
    homes = homes_of(counts, every, who, log)
    several = reporters_note(counts, who, log)
    unnamed_note(every, node, log)

    reused = _reused(every)

    def named_as(labels: Labels) -> tuple[str, str | None] | None:
        found = gpu_of(labels)
        # The number of an instance is given again when its GPU is divided anew.
        if found is not None and found[0] in reused:
            return f"{found[0]}.{labels.get('GPU_I_PROFILE', '')}", found[1]
        return found

    @_remembered
    def key(labels: Labels) -> str | None:
        found, whole = named_as(labels), who(labels)
        suffix = homes.suffix(*whole) if whole is not None else None
        return None if found is None or suffix is None else found[0] + suffix

    about: dict[str, About] = {}
    for labels in every:
        found, whole, own = named_as(labels), who(labels), key(labels)
        if found is None or whole is None or own is None or own in about:
            continue
        uuid, parent = found
        place, index, name = homes.node(*whole), device_index(labels.get("gpu")), labels.get("modelName")
        about[own] = About(
            place, index, name, kind="mig" if parent else "gpu", parent=parent,
            mig_profile=labels.get("GPU_I_PROFILE"), uuid=uuid, driver_version=labels.get(DRIVER_LABEL),
        )  # fmt: skip
        if parent:
            about.setdefault(
                parent + own[len(uuid) :],
                About(place, index, name, uuid=parent, driver_version=labels.get(DRIVER_LABEL)),
            )
    weights = Weights(counts)
    # Of several series of a GPU (a copy for each pod, two exporters) the fullest says how much of a row was seen.
    cells.put("n", counts, key, how="max")
    cells.put("n_all", counts, key, how="sum")
    measured = [name for name in answers if name != "n"]
    for name in measured:
        how = "max" if name.endswith("_max") else "mean"
        # Only where several tell of one GPU are answers needed again.
        answer = answers[name] if several else answers.pop(name)
        answer = _clipped(answer) if name.rpartition("_")[0] in _RATIOS else answer
        cells.put(name, answer, key, how=how, weights=weights, scale=queries.scale_of(name), most=queries.most_of(name))
    _without_contradictions(cells, answers, several, key=key, who=who, log=log)
    samples = np.minimum(cells.column("n_all"), _usual(cells.column("n_all"), cells.column("n")))
    if measured:
        # A row of blanks was scraped, and nothing was observed in it.
        samples = np.where(_any_known([cells.column(name) for name in measured]), samples, np.nan)
    interval = scrape_seconds(samples, grid.step)
    cells.columns["observed_seconds"] = np.minimum(samples * interval[:, None], grid.step)
    instances = [row for own, row in cells.rows.items() if about[own].kind == "mig"]
    for statistic in ("mean", "p95", "max"):
        name = f"gpu_util_{statistic}"
        # Of an instance the driver's utilization is absent, or a 0 that means nothing.
        told = cells.column(name)
        told[instances] = np.nan
        cells.columns[name] = first_known((told, cells.column(f"engine_{statistic}")))
    count_samples(cells, samples)
    if joules is not None:
        _energy(cells, joules, key, weights, samples)
    cells.columns["mem_total_bytes"] = np.repeat(_memory(memory, cells.rows, key)[:, None], grid.count, axis=1)
    rows = GpuRows(cells, about)
    fold_instances(rows)
    return rows, key


def _remembered(key_of: KeyOf) -> KeyOf:
    """The same, asked once of labels that are one object; they are held, so that no others take their ids."""
    keys: dict[int, tuple[Labels, str | None]] = {}

    def key(labels: Labels) -> str | None:
        known = keys.get(id(labels))
        if known is None:
            known = keys[id(labels)] = labels, key_of(labels)
        return known[1]

    return key


def _reused(series: Iterable[Labels]) -> set[str]:
    """The instances that had several profiles in the window."""
    profiles: dict[str, set[str]] = {}
    for labels in series:
        found = gpu_of(labels)
        if found is not None and found[1] is not None:
            profiles.setdefault(found[0], set()).add(labels.get("GPU_I_PROFILE", ""))
    return {instance for instance, own in profiles.items() if len(own) > 1}


def joined_counts(first: SeriesAnswer, second: SeriesAnswer) -> SeriesAnswer:
    """Samples of each series by the metric that has most of them."""
    place = {tuple(sorted(labels.items())): n for n, labels in enumerate(first.labels)}
    labels, values = [*first.labels], [*first.values]
    for one, counts in zip(second.labels, second.values, strict=True):
        at = place.get(tuple(sorted(one.items())))
        if at is None:
            labels.append(one)
            values.append(counts)
        else:
            values[at] = np.fmax(values[at], counts)
    columns = second.values.shape[1] if len(second.labels) else first.values.shape[1]
    return SeriesAnswer(tuple(labels), np.array(values, dtype=float).reshape(len(labels), columns))


def _known(answers: Mapping[str, SeriesAnswer], grid: Grid) -> dict[str, npt.NDArray[np.bool_]]:
    """Device -> the rows in which any metric has a reading."""
    out: dict[str, npt.NDArray[np.bool_]] = {}
    for name, answer in answers.items():
        for device, mask in _masks(name, answer).items() if name.endswith("_mean") else ():
            out[device] = out[device] | mask if device in out else mask
    return {device: mask for device, mask in out.items() if mask.shape == (grid.count,)}


def _readings(name: str, answer: SeriesAnswer) -> Iterable[tuple[str, npt.NDArray[np.bool_]]]:
    with np.errstate(invalid="ignore"):
        scaled = answer.values * queries.scale_of(name)
        most = MOST_INSTANCE_RATIO if name.rpartition("_")[0] in _RATIOS else queries.most_of(name)
        known = (scaled >= 0) & (scaled <= most)
    for labels, mask in zip(answer.labels, known, strict=True):
        found = gpu_of(labels)
        if found is not None:
            yield found[0], mask


def _counted(counts: SeriesAnswer, grid: Grid) -> dict[str, Floats]:
    out: dict[str, Floats] = {}
    for labels, values in zip(counts.labels, counts.values, strict=True):
        found = gpu_of(labels)
        if found is not None:
            out[found[0]] = np.maximum(out.get(found[0], np.zeros(grid.count)), np.nan_to_num(values))
    return out


def _counters(
    left: Mapping[str, npt.NDArray[np.bool_]], answers: Mapping[str, SeriesAnswer], names: Iterable[str]
) -> Iterable[tuple[str, set[str]]]:
    """The fewest metrics that count what the first did not: each with the devices that it is asked for."""
    present = set(names)
    open_ = {device: mask.copy() for device, mask in left.items() if mask.any()}
    by_gauge = {
        gauge.names: _masks(f"{gauge.measure}_mean", answers[f"{gauge.measure}_mean"])
        for gauge in queries.DCGM_GAUGES
        if f"{gauge.measure}_mean" in answers
    }
    while open_ and by_gauge:
        gains = {
            gauge: sum(int((mask & own[device]).sum()) for device, mask in open_.items() if device in own)
            for gauge, own in by_gauge.items()
        }
        best = max(gains, key=lambda gauge: gains[gauge])
        own = by_gauge.pop(best)
        if not gains[best]:
            return
        devices = {device for device, mask in open_.items() if device in own and (mask & own[device]).any()}
        for name in (one for one in best if one in present):
            yield name, devices
        for device in devices:
            open_[device] &= ~own[device]
        open_ = {device: mask for device, mask in open_.items() if mask.any()}


def _masks(name: str, answer: SeriesAnswer) -> dict[str, npt.NDArray[np.bool_]]:
    out: dict[str, npt.NDArray[np.bool_]] = {}
    for device, mask in _readings(name, answer):
        out[device] = out[device] | mask if device in out else mask
    return out


def _uuids(devices: Iterable[str]) -> tuple[str, ...]:
    """The whole GPUs of some devices; none where they are too many, or too odd, to be named in a query."""
    wholes = tuple(sorted({device.partition("/gi")[0] for device in devices}))
    return wholes if len(wholes) <= _MOST_UUIDS and all(map(queries.is_plain_id, wholes)) else ()


def _clipped(answer: SeriesAnswer) -> SeriesAnswer:
    """Ratios of instances may exceed 1 by far (NVIDIA/DCGM#152): then all of the instance was busy."""
    cut = np.array([gpu_of(labels) is not None and "GPU_I_ID" in labels for labels in answer.labels], dtype=np.bool_)
    if not cut.any():
        return answer
    values = answer.values.copy()
    with np.errstate(invalid="ignore"):
        over = cut[:, None] & (values > 1) & (values <= MOST_INSTANCE_RATIO)
    values[over] = 1.0
    return SeriesAnswer(answer.labels, values)


def _energy(cells: Cells[str], joules: SeriesAnswer, key: KeyOf, weights: Weights, samples: Floats) -> None:
    """The energy counter's growth of devices that have rows, as joules a sample with their count."""
    cells.put(
        queries.ENERGY, joules, lambda labels: own if (own := key(labels)) in cells.rows else None, weights=weights,
        scale=queries.JOULES_PER_COUNT, most=queries.MOST_JOULES_A_SAMPLE,
    )  # fmt: skip
    grown = cells.column(queries.ENERGY)
    grown = np.where(grown > 0, grown, np.nan)  # no GPU draws nothing: a counter that stands still is stuck
    cells.columns[queries.ENERGY] = grown
    cells.columns["energy_joules_n"] = np.where(np.isnan(grown), np.nan, samples)


def _any_known(columns: Sequence[Floats]) -> npt.NDArray[np.bool_]:
    return np.logical_or.reduce([~np.isnan(one) for one in columns])


def _without_contradictions(
    cells: Cells[str],
    answers: Mapping[str, SeriesAnswer],
    several: set[tuple[str, str]],
    *,
    key: KeyOf,
    who: Callable[[Labels], tuple[str, str] | None],
    log: Log,
) -> None:
    """Where two exporters tell one GPU's use differently, neither is believed: the row has no reading of it."""
    if not several:
        return
    weights = Weights(answers["n"])
    contradicted: dict[str, int] = {}
    for gauge in queries.DCGM_GAUGES:
        name = f"{gauge.measure}_mean"
        if gauge.most > 2 or name not in answers:
            continue
        apart: Cells[tuple[str, str]] = Cells(cells.grid)

        def by_reporter(labels: Labels) -> tuple[str, str] | None:
            own = key(labels) if who(labels) in several else None
            return None if own is None else (own, reporter(labels))

        apart.put(name, answers[name], by_reporter, weights=weights, scale=gauge.scale, most=gauge.most)
        low: dict[str, Floats] = {}
        high: dict[str, Floats] = {}
        for (own, _), row in apart.rows.items():
            values = apart.columns[name][row]
            low[own] = np.fmin(low[own], values) if own in low else values
            high[own] = np.fmax(high[own], values) if own in high else values
        for own, top in high.items():
            with np.errstate(invalid="ignore"):
                wrong = top - low[own] > _DISAGREE
            if wrong.any():
                contradicted[own] = max(contradicted.get(own, 0), int(wrong.sum()))
                for statistic in ("mean", "p95", "max"):
                    column = f"{gauge.measure}_{statistic}"
                    if column in cells.columns:
                        cells.columns[column] = cells.column(column)
                        cells.columns[column][cells.rows[own], wrong] = np.nan
    if contradicted:
        first = min(contradicted)
        hours = sum(contradicted.values()) * cells.grid.step / 3600
        log.add(
            coded(
                "exporters-contradict",
                "Two exporters report conflicting values for {gpus} GPUs during {gpu_hours:.0f} "
                "GPU-hours ({first}). These hours count as unknown.",
                gpus=len(contradicted),
                gpu_hours=hours,
                first=str(first),
            )
        )


def _memory(told: Sequence[SeriesAnswer], rows: Mapping[str, int], key_of: Callable[[Labels], str | None]) -> Floats:
    """How much memory each GPU has, bytes; the middle of what was told of it."""
    seen: dict[str, list[float]] = {}
    for answer in told:
        for labels, values in zip(answer.labels, answer.values, strict=True):
            key, value = key_of(labels), float(values[0]) * queries.MIB
            if key is not None and key in rows and 0 < value <= queries.MOST_MEMORY_BYTES:
                seen.setdefault(key, []).append(value)
    out = np.full(len(rows), np.nan)
    for uuid, values in seen.items():
        out[rows[uuid]] = np.median(values)
    return out


def _usual(total: Floats, fullest: Floats) -> Floats:
    """The most samples that a row of each GPU can have from one exporter: that of its fullest series."""
    if not len(total):
        return total
    with np.errstate(all="ignore"):
        most = np.nanmax(np.where(np.isnan(fullest), 0.0, fullest), axis=1, initial=0.0)
    return np.repeat(most[:, None], total.shape[1], axis=1)
