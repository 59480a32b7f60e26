"""Tables of measured runs under power caps. The format is in docs/method.md.

Columns: gpu, dataset, network, batch_size, power_limit_watts, seconds_per_epoch, average_power_watts. The lines of one
GPU, dataset, network and batch size are one run; its line at the highest limit is the run as it is today, and the
others are what is to be predicted from it.

benchmarks/fit/power_caps.csv: training traces of Zeus (You et al., NSDI 2023), github.com/ml-energy/zeus, Apache-2.0;
each line the median over optimizers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from skuwise.rules.base.sanitize import clean
from skuwise.rules.catalog.loader import Catalog
from skuwise.rules.catalog.types import GpuSku
from skuwise.rules.models import RestingPowers

from .tables import read_table

TABLE = Path(__file__).with_name("power_caps.csv")
SOURCE = "training traces of ml-energy/zeus (NSDI 2023), Apache-2.0"
NEEDED = (
    "gpu", "dataset", "network", "batch_size", "power_limit_watts", "seconds_per_epoch", "average_power_watts",
)  # fmt: skip
# What the table calls a GPU whose name alone would be that of others as well.
NAMES: Mapping[str, str] = {"RTX 6000": "Quadro-RTX-6000"}


@dataclass(frozen=True)
class Line:
    """One limit of one run. Watts are means of an epoch."""

    gpu: GpuSku
    work: tuple[str, str, int]  # dataset, network, batch size
    limit_watts: float
    seconds: float
    watts: float

    @property
    def run(self) -> tuple[str, str, str, int]:
        return self.gpu.name, *self.work


@dataclass(frozen=True)
class Capped:
    """What is to be predicted: `full` is the same run at the highest limit, all that a prediction may use of it.

    `rest_watts`: of the GPU with nothing to do. `time`, `joules`: measured, under the cap over `full`.
    """

    full: Line
    under: Line
    rest_watts: float

    @property
    def network(self) -> str:
        return self.full.work[1]

    @property
    def gpu(self) -> str:
        return self.full.gpu.name

    @property
    def time(self) -> float:
        return self.under.seconds / self.full.seconds

    @property
    def joules(self) -> float:
        return self.time * self.under.watts / self.full.watts


@dataclass(frozen=True)
class Table:
    """The same as parallel arrays, for fits."""

    watts: NDArray[np.float64]
    rest_watts: NDArray[np.float64]
    limit_watts: NDArray[np.float64]
    cap_watts: NDArray[np.float64]
    time: NDArray[np.float64]
    joules: NDArray[np.float64]

    @classmethod
    def of(cls, capped: Sequence[Capped]) -> Table:
        rows = [(c.full.watts, c.rest_watts, c.full.limit_watts, c.under.limit_watts, c.time, c.joules) for c in capped]
        return cls(*np.array(rows, dtype=float).reshape(-1, 6).T)


def read_caps(path: Path, catalog: Catalog, resting: RestingPowers) -> tuple[list[Capped], dict[str, int]]:
    """The lines below each run's highest limit, and how many were refused for which reason. Raises UsageError where the
    file is no such table."""
    lines, refused = read_table(path, NEEDED, lambda row, _: _line(row, catalog))
    return _capped(lines, resting, refused), refused


def _line(row: Mapping[str, str | None], catalog: Catalog) -> Line | str:
    name = row["gpu"] or ""
    gpu = catalog.gpu_asked(NAMES.get(name, name))
    if gpu is None:
        return f"unknown GPU {clean(name)}"
    try:
        limit, seconds, watts = (float(row[key] or "nan") for key in NEEDED[4:])
        batch = int(row["batch_size"] or "")
    except ValueError:
        return "a value that is no number"
    if not all(math.isfinite(v) and v > 0 for v in (limit, seconds, watts, batch)):
        return "a value that is missing, zero or negative"
    if limit > gpu.tdp_watts:
        return f"a limit above the rated power of {gpu.name}"
    return Line(gpu, (row["dataset"] or "", row["network"] or "", batch), limit, seconds, watts)


def _capped(lines: Sequence[Line], resting: RestingPowers, refused: dict[str, int]) -> list[Capped]:
    runs: dict[tuple[str, str, str, int], dict[float, Line]] = {}
    for line in lines:
        limits = runs.setdefault(line.run, {})
        if line.limit_watts in limits:
            refused["a limit that its run has already"] = refused.get("a limit that its run has already", 0) + 1
        else:
            limits[line.limit_watts] = line
    rest = _rest({key: limits[max(limits)] for key, limits in runs.items()}, resting)
    cappeds: list[Capped] = []
    for limits in runs.values():
        full = limits[max(limits)]
        if len(limits) == 1:
            refused["a run under one limit alone"] = refused.get("a run under one limit alone", 0) + 1
        cappeds += [
            Capped(full, line, rest[full.gpu.name]) for limit, line in limits.items() if limit < full.limit_watts
        ]
    return cappeds


def _rest(full: Mapping[tuple[str, str, str, int], Line], resting: RestingPowers) -> dict[str, float]:
    """Watts of each GPU with nothing to do: the lowest mean of its runs at the highest limit, which is what telemetry
    sees of a GPU that mostly waits, within what is known of its rest (rules/resting_power.yaml)."""
    lowest: dict[str, Line] = {}
    for line in full.values():
        if line.gpu.name not in lowest or line.watts < lowest[line.gpu.name].watts:
            lowest[line.gpu.name] = line
    out = {}
    for name, line in lowest.items():
        gpu = resting.gpus.get(name)
        low = gpu.low if gpu else resting.shares.low * line.gpu.tdp_watts
        high = gpu.high if gpu else resting.shares.high * line.gpu.tdp_watts
        out[name] = min(max(line.watts, low), high)
    return out
