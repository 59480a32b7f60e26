"""Labelled examples for the kinds' model: fleets of the first simulator, seen through many windows and many agents.

The third generator (benchmarks/generators/third) is for judging alone and never comes in here. Names, commands and
schedulers are taken away before anything is measured: what simulated people call their work must not be learnt."""

import dataclasses
import multiprocessing
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import pandas as pd
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.column_rows import BinsArray
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.benchmarks.generators.first import SimulationReport, simulate
from skuwise.benchmarks.generators.first.builder import Truth
from skuwise.rules.policy.labels import ON_DEMAND_KINDS, TRAINING_KINDS

from ..withheld import coarse, hidden

UNTIL = 1_790_000_000.0 - 1_790_000_000.0 % 3600  # a fixed moment (2026-09-21): the same fleets every time
HOUR = 3600.0
OTHER_AGES = 0.4  # of the examples are shown again at another age
GAPS = 0.3  # each group of features is missing in this share of the second showing
UNEVEN_STEPS = 0.15  # of trainings are shown again with steps that repeat badly
_MEASURED = ("_mean", "_max", "_p95", "_n", "_bins", "_fraction")
_DYNAMICS = ("period", "duty", "idle_run", "sm_active_cv", "tensor_nvlink", "tensor_fabric")
# What comes and goes together: with a source, an agent, a habit of the simulator.
_GROUPS: tuple[tuple[str, ...], ...] = (
    ("period_share", "period_strength", "period_seconds"),
    ("write_bursts",),
    ("mem_flat", "mem_cv", "mem_level"),
    ("nvlink_utilization", "nvlink_symmetry", "tensor_nvlink_correlation"),
    ("sm_active_cv",),
    ("swing", "diurnal_share", "diurnal_amplitude"),
    ("duty", "idle_run_hours"),
    ("memory_over_compute", "hbm_of_sustained_busy_p95", "tensor_of_sustained_busy_p95"),
    ("chain_hours", "ended"),
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is simulated once. `windows`: hours before the end at which a window begins and ends.
    `ends_hours_before`: how long before `UNTIL`, so that fleets end at any hour and on any day of the week."""

    scenario: str
    seed: int
    days: float
    windows: tuple[tuple[float, float], ...]
    ends_hours_before: float = 0.0


@dataclass(frozen=True, slots=True)
class Example:
    """One workload as one agent saw it in one window. `group`: the fleet it is of, so that a split keeps it whole.

    `life`: hours from its first start to its end, or to the fleet's; None where unknown. `part`: what sort of its
    kind it is, empty where the scenario draws no sorts.
    """

    group: str
    view: str
    kind: str
    bottleneck: str
    features: Mapping[str, float]
    life: float | None = None
    part: str = ""


def driver_alone(frame: Frame) -> Frame:
    """The frame as the driver alone would leave it, on a GPU without GPM: engine, memory, power, links."""
    return dataclasses.replace(
        frame, gpu=_without(frame, "sm_active", "sm_occ", "tensor", "dram", "fp64", "fp32", "fp16", "duty", "idle_run")
    )


def exporter(frame: Frame) -> Frame:
    """The frame as a Prometheus has it that scrapes dcgm-exporter once a minute.

    On every other node the exporter has its default list (engine, tensor, DRAM, PCIe, memory, power), and without
    the host; half of the MIG instances have no engine at all, as their GPU use is unknown.
    """
    gpu = frame.gpu.copy()
    plain = gpu["node"].map(_coin).astype(bool)
    _blank(gpu, plain, ("sm_active", "sm_occupancy", "nvlink", "fp64", "fp32", "fp16"))
    instances = set(frame.gpus.loc[frame.gpus["kind"] == "mig", "gpu_uuid"])
    _blank(gpu, gpu["gpu_uuid"].isin(instances) & gpu["gpu_uuid"].map(_coin).astype(bool), ("gpu_util",))
    host = frame.host
    if not host.empty:
        host = host[~host["node"].map(_coin).astype(bool)]
    return since_then(dataclasses.replace(frame, gpu=gpu, host=host), lambda workload: _coin(f"start of {workload}"))


def use_and_memory(frame: Frame) -> Frame:
    """The frame as most published series are: GPU use and memory alone, of GPUs without a name half of the time."""
    gpu, gpus = frame.gpu.copy(), frame.gpus.copy()
    every = pd.Series(True, index=gpu.index)
    kept = ("gpu_util", "mem_used")
    names = [c for c in gpu.columns.astype(str) if c.endswith(_MEASURED) and not c.startswith(kept)]
    _blank(gpu, every, (*names, *_DYNAMICS))
    unnamed = gpu["node"].map(_coin).astype(bool)
    gpu.loc[unnamed, "mem_total_bytes"] = np.nan
    who = gpus["node"].map(_coin).astype(bool)
    gpus.loc[who, ["name", "sku"]] = ("unknown GPU", None)
    if "mem_total_bytes" in gpus:
        gpus.loc[who, "mem_total_bytes"] = np.nan
    nodes = frame.nodes.copy()
    for column in ("node_sku", "instance_type"):
        if column in nodes:
            nodes[column] = None
    nothing = {"fabric": frame.fabric.iloc[:0], "host": frame.host.iloc[:0]}
    return since_then(dataclasses.replace(frame, gpu=gpu, gpus=gpus, nodes=nodes, **nothing), lambda _: 1)


def since_then(frame: Frame, chosen: Callable[[str], int]) -> Frame:
    """The frame as one who looks on since its window began knows it: when `chosen` workloads started stays unknown."""
    uses, workloads = frame.uses.copy(), frame.workloads.copy()
    for table, column in ((uses, "ts_start"), (workloads, "first_seen")):
        if len(table):
            in_window = table["workload_id"].map(chosen).astype(bool)
            table.loc[in_window, column] = table.loc[in_window, column].clip(lower=frame.window.start)
    return dataclasses.replace(frame, uses=uses, workloads=workloads)


def _coin(name: str) -> int:
    """0 or 1, the same for one name always."""
    return crc32(f"view of {name}".encode()) >> 7 & 1


def _without(frame: Frame, *prefixes: str) -> pd.DataFrame:
    gpu = frame.gpu.copy()
    _blank(gpu, pd.Series(True, index=gpu.index), prefixes)
    return gpu


def _blank(gpu: pd.DataFrame, rows: pd.Series, prefixes: Sequence[str]) -> None:
    """Take what begins with `prefixes` out of some rows."""
    if not len(gpu) or not rows.any():
        return
    for column in gpu.columns.astype(str):
        if not column.startswith(tuple(prefixes)):
            continue
        if column.endswith("_bins"):
            if rows.all():
                gpu[column] = BinsArray.missing(len(gpu))
            else:
                matrix = gpu[column].array.matrix.copy()  # type: ignore[attr-defined]
                matrix[rows.to_numpy()] = np.nan
                gpu[column] = BinsArray(matrix)
        else:
            gpu[column] = gpu[column].astype(float)
            gpu.loc[rows, column] = 0.0 if column.endswith("_n") else np.nan


@dataclass(frozen=True, slots=True)
class View:
    """What one agent sees. `scraped`: by a server that scrapes once a minute; else each second is seen."""

    scraped: bool
    seen: Callable[[Frame], Frame]


VIEWS: Mapping[str, View] = {
    "1 s": View(False, lambda frame: frame),
    "driver alone": View(False, driver_alone),
    "30 s, exporter's defaults": View(False, coarse),
    "60 s": View(True, exporter),
    "60 s, use and memory": View(True, use_and_memory),
}
_OF_PARTS = (("60 s", "1 s"), ("60 s", "60 s, use and memory"))


def examples_of(fleet: Fleet, views: Iterable[str] = VIEWS) -> list[Example]:
    """Every workload of a fleet, in every window and view in which anything of it was seen."""
    book = load_rulebook(None, None, UNTIL)
    out: list[Example] = []
    chosen = {name: VIEWS[name] for name in views}
    until = UNTIL - fleet.ends_hours_before * HOUR
    for scraped in sorted({view.scraped for view in chosen.values()}):
        same_rate = {name: view for name, view in chosen.items() if view.scraped == scraped}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "fleet.db"
            made = simulate(
                fleet.scenario, path, days=fleet.days, seed=fleet.seed, until=until,
                minutes_seconds=0 if scraped else HOUR, scraped=scraped,
            )  # fmt: skip
            for number, (begin, end) in enumerate(fleet.windows):
                # Of a part of the time another two of the views: all of them would show much the same.
                seen = (
                    same_rate
                    if number == 0
                    else {name: same_rate[name] for name in _OF_PARTS[number % 2] if name in same_rate}
                )
                if not seen:
                    continue
                frame = hidden(read_frame([path], Window(until - begin * HOUR, until - end * HOUR)))
                for name, view in seen.items():
                    out += _examples(fleet, name, judge(view.seen(frame), book).workloads, made)
    return out


def _examples(
    fleet: Fleet, view: str, workloads: Iterable[WorkloadVerdict], made: SimulationReport
) -> Iterator[Example]:
    truths = {truth.workload_id: truth for truth in made.truths if isinstance(truth, Truth)}
    lives = {p.truth.workload_id: (p.runs[-1][1] - p.runs[0][0]) / HOUR for p in made.fleet.placed}
    for workload in workloads:
        truth = truths[workload.id]
        if workload.features.get("hours", 0.0) > 0:
            group = f"{fleet.scenario}/{fleet.seed}"
            features = dict(workload.features)
            yield Example(group, view, truth.kind, truth.bottleneck, features, lives.get(workload.id), truth.sort)


def with_other_ages(examples: Iterable[Example], seed: int = 0) -> Iterator[Example]:
    """Every example, and beside it one of another age: the life of simulated work follows its kind too closely.

    A service may be an hour old or be taken down, a queue may be worked off for weeks, and telemetry that began an
    hour ago sees nothing older. What distinguishes training on one node from fine-tuning is its length: there it stays.
    """
    rng = np.random.default_rng(seed)
    for example in examples:
        yield example
        if rng.random() >= OTHER_AGES:
            continue
        features = dict(example.features)
        chain = features.get("elapsed_hours", 0.0) * float(np.exp(rng.uniform(0, np.log(8))))
        ends = rng.random() < 0.25
        small = features.get("nodes", 1.0) < 2 and features.get("gpus", 1.0) <= 8
        if example.kind in TRAINING_KINDS and small:
            long = example.kind == "training"
            if (long and chain < 28) or (not long and chain > 20):
                continue
        elif ends and example.kind in ON_DEMAND_KINDS:
            features["ended"] = 1.0
        features["chain_hours"] = features["span_hours"] = chain
        yield dataclasses.replace(example, features=features)


def with_gaps(examples: Iterable[Example], seed: int = 0) -> Iterator[Example]:
    """Every example, and beside it one that lacks some groups of features, or whose steps repeat badly.

    No single sign may carry a verdict: real work lacks now this one and now that one, which simulated work has.
    """
    rng = np.random.default_rng(seed)
    for example in examples:
        yield example
        lost = {name for group in _GROUPS if rng.random() < GAPS for name in group}
        features = {name: value for name, value in example.features.items() if name not in lost}
        uneven = rng.random() < UNEVEN_STEPS and example.kind in TRAINING_KINDS
        if uneven and "period_share" in features:  # sequences of any length, data that comes unevenly
            features["period_share"] = float(rng.uniform(0, 0.2))
        if features != example.features:
            yield dataclasses.replace(example, features=features)


def varied_fleets(count: int, first_seed: int = 600) -> tuple[Fleet, ...]:
    """Fleets of the scenario `varied`: of a day to a week, ending at any hour of any day of the week, each watched over
    all of it and over two parts of half a day and more."""
    return tuple(_varied_fleet(first_seed + number, _DAYS[number % len(_DAYS)]) for number in range(count))


_DAYS = (3, 7, 1, 5, 0.6, 7, 1.2, 4, 2)


def _varied_fleet(seed: int, days: float) -> Fleet:
    rng = np.random.default_rng(seed)
    windows = [(24.0 * days, 0.0)]
    for _ in range(2 if days > 1.5 else 1):
        length = float(round(np.exp(rng.uniform(np.log(12), np.log(max(24.0 * days - 3, 14))))))
        stop = float(round(rng.uniform(0, max(24.0 * days - length, 0.0))))
        windows.append((length + stop, stop))
    return Fleet("varied", seed, days, tuple(windows), ends_hours_before=float(rng.integers(0, 7 * 24)))


def gather(fleets: Sequence[Fleet], processes: int, report: Callable[[str], None]) -> list[Example]:
    """The examples of all fleets, in their order whatever process made them."""
    out: list[Example] = []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for fleet, part in zip(fleets, pool.imap(examples_of, fleets), strict=True):
            report(f"{fleet.scenario} {fleet.seed}: {len(part)} examples")
            out.extend(part)
    return out
