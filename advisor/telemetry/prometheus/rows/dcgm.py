"""Rows of GPUs and MIG instances from dcgm-exporter's series: no metric is the one by which GPUs are counted.

A GPU is observed in a row where any metric has a reading in it. Its samples are counted by the metrics that all GPUs
usually have; a row that has others only counts as full.

What exporters say that cannot be or is said several times: impossible samples, counters that count nothing, GPUs of
which a series for each pod or those of two exporters speak at once.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from ....core.coded_text import coded
from ....core.frame import Window
from ...activity import Device, DeviceSeries
from .. import promql as queries
from ..client.range_planner import Ask, Log
from ..client.response import Grid, Labels, SeriesAnswer
from ..promql import DCGM_GAUGES, DRIVER_LABEL, GAUGES, DcgmQueries, agent_gpu_asks, agent_node, gpu_of, of_gpus
from ..questions import Questions
from . import gpus as gpu_rows
from .gpus import About, Cells, GpuRows, Homes, Matrix, Who, label_set, reporter
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
        rows = [row for row, s in enumerate(beyond.labels) if s.get("measure") == gauge.measure and gpu_of(s)]
        names, labels = gauge.known(made.present), [beyond.labels[row] for row in rows]
        if not rows or not names:
            continue
        gpus, nodes = [name[0] for name in map(gpu_of, labels) if name], [node(label) or "" for label in labels]
        series = pd.Index([label_set(label) - {("measure", gauge.measure)} for label in labels], dtype=object)
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
        fields = {f"{link}_{end}_bytes_per_second": f"DCGM_FI_PROF_{link}_{end}_BYTES".upper() for end in ("tx", "rx")}
        traffic = np.fmax(*(cells.column(f"{measure}_mean") for measure in fields))
        worked = (cells.column("gpu_util_mean") > _WORK_USE) & (traffic == 0)
        for node, at in by_node.items():
            # A single GPU has no other to talk to.
            is_alone = len(at) == 1 and link == "nvlink"
            if is_alone or (traffic[at] > 0).any() or worked[at].sum(axis=1).max() * cells.grid.step < _WORK_SECONDS:
                continue
            for measure, metric in fields.items():
                for column in (f"{measure}_mean", f"{measure}_p95"):
                    cells.column(column)[at] = np.nan
                rows.absences.append({
                    "node": node, "gpu_uuid": None, "device": None, "scope": "source", "metric": measure,
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
        pods = [s.get("exported_pod" if t in exported else "pod") for s, t in zip(series, targets, strict=True)]
        return pd.MultiIndex.from_arrays([list(map(key_of, series)), targets]), np.array(pods, dtype=bool)

    index, is_pod = placed(counts.labels)
    samples = pd.DataFrame(np.nan_to_num(counts.values), index)
    device, pods = (samples[chosen].groupby(level=[0, 1]).max() for chosen in (~is_pod, is_pod))
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
        device, pods = (np.where(chosen, answer.values, np.nan) for chosen in (~of_pods, of_pods))
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


KeyOf = Callable[[Labels], str | None]
# A ratio of an instance may be taken over a part of it, at most over one of the GPU's SMs; beyond lie blanks.
_MOST_INSTANCE_RATIO = 256.0
# What an instance's series say of the whole GPU.
_OF_THE_GPU = ("power_watts_mean", "energy_joules_mean", "power_watts_n", "energy_joules_n")
_MEANS = ("power_watts_mean", "energy_joules_mean", "sm_clock_hertz_mean", "mem_clock_hertz_mean")
_COUNTS = ("observed_seconds", "n", "n_all", "power_watts_n", "energy_joules_n")


def read_dcgm(asked: Questions, *, log: Log, node: KeyOf) -> tuple[GpuRows, SeriesAnswer, KeyOf]:
    """Rows of GPUs, the counts of samples by series, whose labels show who held what, and the row of a series."""
    survey = asked.survey
    made = DcgmQueries(survey.names, asked.of_wanted("UUID"), survey.step, survey.ruled, survey.scrape_seconds)

    def ask(asks: Sequence[Ask]) -> dict[str, SeriesAnswer]:
        answers = asked.ask(asks, survey.dcgm_gpus)
        leave_out_impossible(lambda ask: asked.ask(ask, survey.dcgm_gpus), made, answers, node, log)
        return {name: readings_of(name, answer) for name, answer in answers.items()}

    answers = ask(made.of_all())
    counts, named = answers.pop("n"), gpu_rows.named_gpus(asked)
    # The engine's activity says of instances, and of GPUs that lack utilization, what utilization says of others.
    use = answers.get("gpu_util_mean", SeriesAnswer.nothing(1))
    used = set(map(gpu_of, (use.labels[row] for row in np.flatnonzero(~np.isnan(use.values).all(axis=1)))))
    every = set(map(gpu_of, (*named, *(labels for answer in (counts, *answers.values()) for labels in answer.labels))))
    lacking = {gpu[0] for gpu in every if gpu is not None and (gpu[1] or gpu not in used)}
    if lacking and "engine_mean" not in answers:
        engine = GAUGES["engine"]
        answers |= ask([*made.statistics(engine, *of_gpus(lacking)), *made.beyond([engine])])
    memory = [asked.daily(memory_ask) for memory_ask in made.memory()]
    rows, key_of = dcgm_rows(asked.grid, counts, answers, log, named=named, node=node, memory=memory)
    return rows, counts, key_of


def dcgm_rows(
    grid: Grid, counts: SeriesAnswer, readings: dict[str, SeriesAnswer], log: Log, *, node: KeyOf,
    named: Iterable[Labels] = (), memory: Sequence[SeriesAnswer] = (),
) -> tuple[GpuRows, KeyOf]:  # fmt: skip
    """Rows of GPUs, and the key of a series' row.

    `counts`: samples by series and row; `readings`: measures by name, in the frame's units, released as they
    are taken in; `named`: labels of any series that names a GPU; `memory`: the answers to `DcgmQueries.memory`.
    """

    def who(labels: Labels) -> tuple[str, str] | None:  # an instance is where its GPU is
        name, its_node = gpu_of(labels), node(labels)
        return (name[1] or name[0], its_node) if name and its_node is not None else None

    every = [labels for reading in (counts, *readings.values()) for labels in reading.labels]
    every = list({id(labels): labels for labels in (*every, *named)}.values())  # mostly the same objects
    several = gpu_rows.reporters_note(counts, who, log)
    gpu_rows.unnamed_note(every, node, log)
    key, about = _gpus(every, who, gpu_rows.homes_of(counts, every, who, log))
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
    forget_contradictions(means, lambda labels: key(labels) if who(labels) in several else None, cells, log)
    # The most samples that a row can have from one exporter is that of the fullest series. Where a GPU has readings of
    # other metrics only, its rows count as full.
    most = np.nan_to_num(cells.column("n")).max(axis=1, keepdims=True, initial=0.0)
    samples = np.fmin(cells.column("n_all"), np.where(most > 0, most, grid.step / 60.0))
    if read := [~np.isnan(cells.column(name)) for name in measured if name != queries.ENERGY]:
        # A row of blanks was scraped, and nothing was observed in it.
        samples = np.where(np.logical_or.reduce(read), samples, np.nan)
    cells.columns["observed_seconds"] = np.minimum(
        samples * gpu_rows.scrape_seconds(samples, grid.step)[:, None], grid.step
    )
    instances = [row for row_key, row in cells.rows.items() if about[row_key].kind == "mig"]
    for statistic in ("mean", "p95", "max"):
        use = cells.column(f"gpu_util_{statistic}")
        use[instances] = np.nan  # of an instance the driver's utilization is absent, or a 0 that means nothing
        cells.columns[f"gpu_util_{statistic}"] = _filled(use, cells.column(f"engine_{statistic}"))
    gpu_rows.count_samples(cells, samples)
    cells.columns["energy_joules_n"] = np.where(np.isnan(cells.column(queries.ENERGY)), np.nan, samples)
    if memory:
        sizes = pd.concat([pd.Series(a.values[:, 0] * queries.MIB, list(map(key, a.labels))) for a in memory])
        sizes_of = sizes[(sizes > 0) & (sizes <= queries.MOST_MEMORY_BYTES)].groupby(level=0).median()
        total = sizes_of.reindex(list(cells.rows)).to_numpy(np.float32)
        cells.columns["mem_total_bytes"] = np.repeat(total[:, None], grid.count, axis=1)
    fold_instances(rows)
    forget_still_counters(rows)
    return rows, key


def _gpus(every: Sequence[Labels], who: Who, homes: Homes) -> tuple[KeyOf, dict[str, About]]:
    keys: dict[int, tuple[Labels, str | None]] = {}
    profiles = {(target[0], labels.get("GPU_I_PROFILE")) for labels in every if (target := gpu_of(labels))}
    reused = {name for name, count in Counter(name for name, _ in profiles).items() if count > 1 and "/gi" in name}

    def named(labels: Labels) -> tuple[str, str | None] | None:
        name = gpu_of(labels)  # the number of an instance is reused when its GPU is divided again
        return (f"{name[0]}.{labels.get('GPU_I_PROFILE', '')}", name[1]) if name and name[0] in reused else name

    def key(labels: Labels) -> str | None:
        # Of the same object the same, found once: labels are held, so that no others take their id.
        if id(labels) not in keys:
            name, whole = named(labels), who(labels)
            suffix = homes.get(whole) if whole is not None else None
            keys[id(labels)] = labels, None if name is None or suffix is None else name[0] + suffix
        return keys[id(labels)][1]

    about: dict[str, About] = {}
    for labels in every:
        target, whole, row_key = named(labels), who(labels), key(labels)
        if target is None or whole is None or row_key is None or row_key in about:
            continue
        uuid, parent = target
        gpu = About(whole[1], gpu_rows.device_index(labels.get("gpu")), labels.get("modelName"), uuid=parent or uuid,
                    driver_version=labels.get(DRIVER_LABEL))  # fmt: skip
        about.setdefault((parent or uuid) + row_key[len(uuid) :], gpu)
        if parent:
            about[row_key] = replace(gpu, kind="mig", parent=parent, mig_profile=labels.get("GPU_I_PROFILE"), uuid=uuid)
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
    """Give each GPU that is divided into MIG instances a separate row for their time, and take from them what is the
    GPU's: their series repeat its power, energy, clocks and temperature, and it may have no series at all."""
    cells, parts = rows.cells, defaultdict[str, list[int]](list)
    for key, row in cells.rows.items():
        if (gpu := rows.about[key]).parent:
            parts[gpu.parent + key[len(gpu.uuid) :]].append(row)
    for parent in parts:
        cells.rows.setdefault(parent, len(cells.rows))
    for parent, instances in parts.items():
        at, there = cells.rows[parent], cells.column("observed_seconds")[instances] > 0
        for name in list(cells.columns):
            column = cells.column(name)
            if name in _COUNTS:
                column[at] = np.fmax(column[at], np.fmax.reduce(column[instances]))
            elif name in _MEANS:
                column[at] = _filled(column[at], pd.DataFrame(column[instances]).mean().to_numpy())
            elif name == "mem_used_bytes_mean":  # not known where that of any instance is not
                used = np.where(there, column[instances], 0.0).sum(axis=0)
                column[at] = _filled(column[at], np.where(there.any(axis=0), used, np.nan))
            elif name.startswith("gpu_util_"):
                column[at, there.any(axis=0)] = np.nan
            if name in _OF_THE_GPU:
                column[instances] = np.nan


def _filled(first: Matrix, second: Matrix) -> Matrix:
    return np.where(np.isnan(first), second, first)


MAX_VALUES = 10_000_000
# Rows divide an hour, and with it every window.
STEPS = (60.0, 120.0, 300.0, 600.0, 900.0, 1800.0)
SCRAPES = 3  # the growth of counters is known over at least so many
_AGENT = "agent "
_USE = ("gpu_util_mean", "engine_mean", f"{_AGENT}gpu_util_mean", f"{_AGENT}sm_active_mean")
_MEMORY = ("mem_used_bytes_mean", f"{_AGENT}mem_used_bytes_mean")


def fine_series(
    asked: Questions, about: Mapping[str, About], key_of: KeyOf | None, devices: Sequence[Device], window: Window
) -> list[DeviceSeries]:
    """Series of `devices`, in rows so long that no more than `MAX_VALUES` values come back: up to 165 GPUs by minutes
    of 14 days. `about`: the frame's GPUs by the key of their rows; `key_of`: the key of a series of dcgm-exporter
    (None: the server has none)."""
    survey, wanted = asked.survey, set(devices)
    keys = {key: device for key, gpu in about.items() if (device := (gpu.node, gpu.uuid or key)) in wanted}
    # Where most are wanted, all are asked for, so that next week's queries are the same and found in the cache.
    uuids = [] if 2 * len(keys) >= len(about) else [uuid for _, uuid in keys.values()]
    count = len(keys) if of_gpus(uuids) else len(about)
    shortest = (survey.scrape_seconds or 60.0) * (SCRAPES if survey.agent_gpus else 1)
    fits = (s for s in STEPS if s >= shortest and count * 3 * window.seconds / s <= MAX_VALUES)
    step = next(fits, STEPS[-1])
    asks = []
    if key_of is not None:
        made = DcgmQueries(survey.names, asked.matches, step, scrape_seconds=survey.scrape_seconds)
        # Instances have no utilization, so of them the engine's activity is asked.
        has_use = "DCGM_FI_DEV_GPU_UTIL" in survey.names and not any("/gi" in uuid for _, uuid in keys.values())
        for name in ("gpu_util", "mem_used_bytes") if has_use else ("gpu_util", "engine", "mem_used_bytes"):
            asks += made.statistics(GAUGES[name], *of_gpus(uuids))
    if survey.agent_gpus:
        agent_asks = agent_gpu_asks(survey.names, (*asked.matches, *of_gpus(uuids, "gpu_uuid")), step)
        asks += [replace(ask, name=f"{_AGENT}{ask.name}") for ask in agent_asks]
    cells: Cells[str] = Cells(Grid(window.start + step, window.end, step))

    def key(labels: Labels) -> str | None:
        uuid, alias = labels.get("gpu_uuid"), key_of(labels) if key_of is not None else None
        several = (alias,) if uuid is None else (f"{uuid}@{agent_node(labels)}", uuid)
        return next((candidate for candidate in several if candidate in keys), None)

    # Of several series of one (a copy for each pod) the mean counts.
    asks = [ask for ask in asks if ask.name in (*_USE, *_MEMORY)]
    for ask, answer in asked.runner.matrices(asks, window, step, max(len(keys), 1)):
        cells.put(ask.name, readings_of(ask.name, answer), key)
    use, memory = (np.fmax.reduce([cells.column(name) for name in names]) for names in (_USE, _MEMORY))
    seen, ts = ~np.isnan(use) | ~np.isnan(memory), window.start + step * np.arange(1.0, cells.grid.count + 1)
    return [
        DeviceSeries(*keys[row_key], ts[has], step, use[row][has].astype(float), memory[row][has].astype(float))
        for row_key, row in sorted(cells.rows.items())
        if (has := seen[row]).any()
    ]
