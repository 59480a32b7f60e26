"""Rows of GPUs and MIG instances from dcgm-exporter's series: no metric is the one by which GPUs are counted.

A GPU is observed in a row where any metric has a reading in it. Its samples are counted by the metrics that all GPUs
usually have; a row that has others only counts as full.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from ..client.range_planner import Ask, Log
from ..client.response import Grid, Labels, SeriesAnswer
from ..promql import promql as queries
from ..promql.labels import DRIVER_LABEL, gpu_of
from ..promql.promql import GAUGES, DcgmQueries, of_gpus
from ..questions import Questions
from .faults import forget_contradictions, forget_still_counters, leave_out_impossible, pods_apart
from .gpus import About, GpuRows, count_samples, device_index, scrape_seconds
from .homes import Homes, Who, homes_of, named_gpus, reporters_note, unnamed_note, whole_gpu
from .series_to_rows import Cells, Matrix

KeyOf = Callable[[Labels], str | None]
# A ratio of an instance may be taken over a part of it, at most over one of the GPU's SMs; beyond lie blanks.
_MOST_INSTANCE_RATIO = 256.0
# What an instance's series say of the whole GPU.
_OF_THE_GPU = ("power_watts_mean", "energy_joules_mean", "power_watts_n", "energy_joules_n")
_MEANS = ("power_watts_mean", "energy_joules_mean", "sm_clock_hertz_mean", "mem_clock_hertz_mean")
_COUNTS = ("observed_seconds", "n", "n_all", "power_watts_n", "energy_joules_n")


def read_dcgm(asked: Questions, *, log: Log, node: KeyOf) -> tuple[GpuRows, SeriesAnswer, KeyOf]:
    """Rows of GPUs, the counts of samples by series, of which the labels tell who held what, and whose rows a series
    speaks of."""
    found = asked.found
    made = DcgmQueries(found.names, asked.of_wanted("UUID"), found.step, found.ruled, found.scrape_seconds)

    def ask(asks: Sequence[Ask]) -> dict[str, SeriesAnswer]:
        answers = asked.ask(asks, found.dcgm_gpus)
        leave_out_impossible(lambda one: asked.ask(one, found.dcgm_gpus), made, answers, node, log)
        return {name: readings_of(name, answer) for name, answer in answers.items()}

    answers = ask(made.of_all())
    counts, named = answers.pop("n"), named_gpus(asked)
    # The engine's activity says of instances, and of GPUs that lack utilization, what utilization says of others.
    use = answers.get("gpu_util_mean", SeriesAnswer.nothing(1))
    used = set(map(gpu_of, (use.labels[row] for row in np.flatnonzero(~np.isnan(use.values).all(axis=1)))))
    every = set(map(gpu_of, (*named, *(labels for one in (counts, *answers.values()) for labels in one.labels))))
    lacking = {gpu[0] for gpu in every if gpu is not None and (gpu[1] or gpu not in used)}
    if lacking and "engine_mean" not in answers:
        engine = GAUGES["engine"]
        answers |= ask([*made.statistics(engine, *of_gpus(lacking)), *made.beyond([engine])])
    memory = [asked.daily(one) for one in made.memory()]
    rows, key_of = dcgm_rows(asked.grid, counts, answers, log, named=named, node=node, memory=memory)
    return rows, counts, key_of


def dcgm_rows(
    grid: Grid, counts: SeriesAnswer, readings: dict[str, SeriesAnswer], log: Log, *, node: KeyOf,
    named: Iterable[Labels] = (), memory: Sequence[SeriesAnswer] = (),
) -> tuple[GpuRows, KeyOf]:  # fmt: skip
    """Rows of GPUs, and the key of the rows that a series speaks of.

    `counts`: samples by series and row; `readings`: measures by name, in the frame's units, which are let go as they
    are taken in; `named`: labels of any series that names a GPU; `memory`: the answers to `DcgmQueries.memory`.
    """
    who = whole_gpu(node)
    every = [labels for one in (counts, *readings.values()) for labels in one.labels]
    every = list({id(labels): labels for labels in (*every, *named)}.values())  # mostly the same objects
    several = reporters_note(counts, who, log)
    unnamed_note(every, node, log)
    key, about = _gpus(every, who, homes_of(counts, every, who, log))
    cells = Cells[str](grid)
    rows, apart_of = GpuRows(cells, about), pods_apart(counts, key)
    means: dict[str, SeriesAnswer] = {}
    # Of several series of a GPU (a copy for each pod, two exporters) the fullest says how much of a row was seen.
    cells.put("n", counts, key, how="max")
    cells.put("n_all", counts, key, how="sum")
    measured = list(readings)
    for name in measured:
        answer, pods = apart_of(readings.pop(name))
        if name == "gpu_util_mean":
            rows.pods = pods
        cells.put(name, answer, key, how="max" if name.endswith("_max") else "mean", weights=counts)
        gauge = GAUGES.get(name.removesuffix("_mean"))
        if several and gauge is not None and gauge.is_ratio:
            means[gauge.measure] = answer
    forget_contradictions(means, lambda one: key(one) if who(one) in several else None, cells, log)
    # The most samples that a row can have from one exporter is that of the fullest series. Where a GPU has readings of
    # other metrics only, its rows count as full.
    most = np.nan_to_num(cells.column("n")).max(axis=1, keepdims=True, initial=0.0)
    samples = np.fmin(cells.column("n_all"), np.where(most > 0, most, grid.step / 60.0))
    if read := [~np.isnan(cells.column(name)) for name in measured if name != queries.ENERGY]:
        # A row of blanks was scraped, and nothing was observed in it.
        samples = np.where(np.logical_or.reduce(read), samples, np.nan)
    cells.columns["observed_seconds"] = np.minimum(samples * scrape_seconds(samples, grid.step)[:, None], grid.step)
    instances = [row for own, row in cells.rows.items() if about[own].kind == "mig"]
    for statistic in ("mean", "p95", "max"):
        use = cells.column(f"gpu_util_{statistic}")
        use[instances] = np.nan  # of an instance the driver's utilization is absent, or a 0 that means nothing
        cells.columns[f"gpu_util_{statistic}"] = _filled(use, cells.column(f"engine_{statistic}"))
    count_samples(cells, samples)
    cells.columns["energy_joules_n"] = np.where(np.isnan(cells.column(queries.ENERGY)), np.nan, samples)
    if memory:
        sizes = pd.concat([pd.Series(one.values[:, 0] * queries.MIB, list(map(key, one.labels))) for one in memory])
        known = sizes[(sizes > 0) & (sizes <= queries.MOST_MEMORY_BYTES)].groupby(level=0).median()
        total = known.reindex(list(cells.rows)).to_numpy(np.float32)
        cells.columns["mem_total_bytes"] = np.repeat(total[:, None], grid.count, axis=1)
    fold_instances(rows)
    forget_still_counters(rows)
    return rows, key


def _gpus(every: Sequence[Labels], who: Who, homes: Homes) -> tuple[KeyOf, dict[str, About]]:
    """Which rows a series speaks of, and what each GPU is."""
    keys: dict[int, tuple[Labels, str | None]] = {}
    profiles = {(found[0], labels.get("GPU_I_PROFILE")) for labels in every if (found := gpu_of(labels))}
    reused = {one for one, count in Counter(one for one, _ in profiles).items() if count > 1 and "/gi" in one}

    def named(labels: Labels) -> tuple[str, str | None] | None:
        found = gpu_of(labels)  # the number of an instance is given again when its GPU is divided anew
        return (f"{found[0]}.{labels.get('GPU_I_PROFILE', '')}", found[1]) if found and found[0] in reused else found

    def key(labels: Labels) -> str | None:
        # Of the same object the same, found once: labels are held, so that no others take their id.
        if id(labels) not in keys:
            found, whole = named(labels), who(labels)
            suffix = homes.get(whole) if whole is not None else None
            keys[id(labels)] = labels, None if found is None or suffix is None else found[0] + suffix
        return keys[id(labels)][1]

    about: dict[str, About] = {}
    for labels in every:
        found, whole, own = named(labels), who(labels), key(labels)
        if found is None or whole is None or own is None or own in about:
            continue
        uuid, parent = found
        one = About(whole[1], device_index(labels.get("gpu")), labels.get("modelName"), uuid=parent or uuid,
                    driver_version=labels.get(DRIVER_LABEL))  # fmt: skip
        about.setdefault((parent or uuid) + own[len(uuid) :], one)
        if parent:
            about[own] = replace(one, kind="mig", parent=parent, mig_profile=labels.get("GPU_I_PROFILE"), uuid=uuid)
    return key, about


def readings_of(name: str, answer: SeriesAnswer) -> SeriesAnswer:
    """Values in the frame's unit; what cannot be is missing. Ratios of instances may exceed 1 by far
    (NVIDIA/DCGM#152): then all of the instance was busy."""
    if (gauge := GAUGES.get(name.rpartition("_")[0])) is None:
        return answer
    values = answer.values * gauge.scale
    is_instance = np.array(["GPU_I_ID" in labels for labels in answer.labels], dtype=bool)[:, None]
    most = np.where(is_instance, _MOST_INSTANCE_RATIO, gauge.most) if gauge.is_ratio else gauge.most
    values[~((values >= 0) & (values <= most))] = np.nan
    return SeriesAnswer(answer.labels, np.minimum(values, 1.0) if gauge.is_ratio else values)


def fold_instances(rows: GpuRows) -> None:
    """Give each GPU that is divided into MIG instances a row of its own for their time, and take from them what is the
    GPU's: their series repeat its power, energy, clocks and temperature, and it may have no series at all."""
    cells, parts = rows.cells, defaultdict[str, list[int]](list)
    for key, row in cells.rows.items():
        if (one := rows.about[key]).parent:
            parts[one.parent + key[len(one.uuid) :]].append(row)
    for parent in parts:
        cells.rows.setdefault(parent, len(cells.rows))
    for parent, own in parts.items():
        at, there = cells.rows[parent], cells.column("observed_seconds")[own] > 0
        for name in list(cells.columns):
            column = cells.column(name)
            if name in _COUNTS:
                column[at] = np.fmax(column[at], np.fmax.reduce(column[own]))
            elif name in _MEANS:
                column[at] = _filled(column[at], pd.DataFrame(column[own]).mean().to_numpy())
            elif name == "mem_used_bytes_mean":  # not known where that of any instance is not
                used = np.where(there, column[own], 0.0).sum(axis=0)
                column[at] = _filled(column[at], np.where(there.any(axis=0), used, np.nan))
            elif name.startswith("gpu_util_"):
                column[at, there.any(axis=0)] = np.nan
            if name in _OF_THE_GPU:
                column[own] = np.nan


def _filled(first: Matrix, second: Matrix) -> Matrix:
    """The first, and the second where it has no value."""
    return np.where(np.isnan(first), second, first)
