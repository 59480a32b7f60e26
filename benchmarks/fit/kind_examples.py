"""Labelled examples for the kinds' model: fleets of the first simulator, seen through many windows and many agents.

The second generator (benchmarks/generators/second) is for judging alone and never comes in here. Names, commands and
schedulers are taken away before anything is measured: what simulated people call their work must not be learnt."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.core.histogram_array import BinsArray
from skuwise.advisor.simulate.simulator import simulate
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.verdicts.judge import judge

from ..withheld import coarse, hidden

UNTIL = 1_790_000_000.0 - 1_790_000_000.0 % 3600  # a fixed moment (2026-09-21): the same fleets every time
HOUR = 3600.0
OTHER_AGES = 0.4  # of the examples are shown again at another age
GAPS = 0.3  # each group of features is missing in this share of the second showing
UNEVEN_STEPS = 0.15  # of trainings are shown again with steps that repeat badly
# What comes and goes together: with a source, an agent, a habit of the simulator.
_GROUPS: tuple[tuple[str, ...], ...] = (
    ("period_share", "period_strength", "period_seconds"),
    ("write_bursts",),
    ("mem_flat", "mem_cv", "mem_level"),
    ("nvlink_utilization", "nvlink_symmetry", "tensor_nvlink_correlation"),
    ("sm_active_cv",),
    ("swing", "drift", "diurnal_share", "diurnal_amplitude"),
    ("duty", "idle_run_hours"),
    ("memory_over_compute", "hbm_of_sustained_busy_p95", "tensor_of_sustained_busy_p95"),
    ("chain_hours", "ended"),
)


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is simulated once. `windows`: hours before the end at which a window begins and ends."""

    scenario: str
    seed: int
    days: float
    windows: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Example:
    """One workload as one agent saw it in one window. `group`: the fleet it is of, so that a split keeps it whole."""

    group: str
    view: str
    kind: str
    bottleneck: str
    features: Mapping[str, float]


def minutes(frame: Frame) -> Frame:
    """The frame as means over a minute would leave it: no rhythm, no runs, and percentiles of what is left."""
    gpu = _without(frame, "period", "duty", "idle_run", "sm_active_cv", "tensor_nvlink", "tensor_fabric")
    for column in [c for c in gpu.columns.astype(str) if c.endswith(("_p95", "_max"))]:
        mean = gpu[column.rpartition("_")[0] + "_mean"]
        # Half of what a second exceeds the mean by is left where phases last as long as the mean does.
        gpu[column] = mean + 0.5 * (gpu[column] - mean)
    gpu["gpu_util_n"] = gpu["observed_seconds"] / 60
    return dataclasses.replace(frame, gpu=gpu)


def driver_alone(frame: Frame) -> Frame:
    """The frame as the driver alone would leave it, on a GPU without GPM: engine, memory, power, links."""
    return dataclasses.replace(
        frame,
        gpu=_without(frame, "sm_active", "sm_occ", "tensor", "dram", "fp64", "fp32", "fp16", "duty", "idle_run"),
    )


def _without(frame: Frame, *prefixes: str) -> pd.DataFrame:
    gpu = frame.gpu.copy()
    for column in gpu.columns.astype(str):
        if column.startswith(prefixes):
            gpu[column] = BinsArray.missing(len(gpu)) if column.endswith("_bins") else np.nan
        elif column.endswith("_bins") and prefixes[0] == "period":
            gpu[column] = BinsArray.missing(len(gpu))  # seconds spent in bins are no longer known
    return gpu


VIEWS: Mapping[str, Callable[[Frame], Frame]] = {
    "1 s": lambda frame: frame,
    "60 s": minutes,
    "30 s, exporter's defaults": coarse,
    "driver alone": driver_alone,
}


def examples_of(fleet: Fleet, views: Iterable[str] = VIEWS) -> list[Example]:
    """Every workload of a fleet, in every window and view in which anything of it was seen."""
    book = load_rulebook(None, None, UNTIL)
    out: list[Example] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.db"
        made = simulate(fleet.scenario, path, days=fleet.days, seed=fleet.seed, until=UNTIL, minutes_seconds=HOUR)
        truths = {truth.workload_id: truth for truth in made.truths}
        for begin, end in fleet.windows:
            frame = hidden(read_frame([path], Window(UNTIL - begin * HOUR, UNTIL - end * HOUR)))
            for view in views:
                for workload in judge(VIEWS[view](frame), book).workloads:
                    truth = truths[workload.id]
                    if workload.features.get("hours", 0.0) > 0:
                        group = f"{fleet.scenario}/{fleet.seed}"
                        out.append(Example(group, view, truth.kind, truth.bottleneck, dict(workload.features)))
    return out


def with_other_ages(examples: Iterable[Example], seed: int = 0) -> Iterator[Example]:
    """Every example, and beside it one of another age: the life of simulated work follows its kind too closely.

    A service may be an hour old or be taken down, a queue may be worked off for weeks, and whoever watches since an
    hour ago sees nothing older. What tells training on one node from fine-tuning is its length: there it stays.
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
        if example.kind in ("training", "fine-tuning") and small:
            long = example.kind == "training"
            if (long and chain < 28) or (not long and chain > 20):
                continue
        elif ends and example.kind in ("online-inference", "interactive"):
            features["ended"] = 1.0
        features["chain_hours"] = features["span_hours"] = chain
        yield Example(example.group, example.view, example.kind, example.bottleneck, features)


def with_gaps(examples: Iterable[Example], seed: int = 0) -> Iterator[Example]:
    """Every example, and beside it one that lacks some groups of features, or whose steps repeat badly.

    No single sign may carry a verdict: real work lacks now this one and now that one, which simulated work has.
    """
    rng = np.random.default_rng(seed)
    for example in examples:
        yield example
        lost = {name for group in _GROUPS if rng.random() < GAPS for name in group}
        features = {name: value for name, value in example.features.items() if name not in lost}
        uneven = rng.random() < UNEVEN_STEPS and example.kind in ("training", "fine-tuning")
        if uneven and "period_share" in features:  # sequences of any length, data that comes unevenly
            features["period_share"] = float(rng.uniform(0, 0.2))
        if features != example.features:
            yield Example(example.group, example.view, example.kind, example.bottleneck, features)


def gather(fleets: Sequence[Fleet], processes: int, told: Callable[[str], None]) -> list[Example]:
    """The examples of all fleets, in their order whatever process made them."""
    out: list[Example] = []
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for fleet, part in zip(fleets, pool.imap(examples_of, fleets), strict=True):
            told(f"{fleet.scenario} {fleet.seed}: {len(part)} examples")
            out.extend(part)
    return out


def save(examples: Iterable[Example], path: Path) -> None:
    with path.open("w") as file:
        for example in examples:
            file.write(json.dumps(dataclasses.asdict(example)) + "\n")


def load(path: Path) -> Iterator[Example]:
    with path.open() as file:
        for line in file:
            yield Example(**json.loads(line))
