"""Rows of GPUs from our agent's page, and those of two exporters as one: each GPU and moment as one of them has it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ..client.range_planner import Log
from ..client.response import Grid, Labels, SeriesAnswer
from ..promql.labels import agent_node
from .homes import homes_of
from .series_to_rows import Cells, Matrix, from_bins

# An interval of scraping longer than this is not believed: a value says nothing of what came five minutes later.
MAX_SCRAPE_SECONDS = 300.0
_INDEX = re.compile(r"[0-9]{1,4}")
_BINNED = ("gpu_util", "sm_active", "tensor_active", "dram_active", "nvlink")


@dataclass(frozen=True, slots=True)
class About:
    """What a GPU is on one node, as far as its series say. `uuid`: its id, of which the key of its rows is made."""

    node: str
    index: float = float("nan")
    name: str | None = None
    sku: str | None = None
    kind: str = "gpu"
    parent: str | None = None
    mig_profile: str | None = None
    uuid: str = ""
    driver_version: str | None = None


@dataclass
class GpuRows:
    """Measures by GPU (uuid) and moment, and what each GPU is.

    `absences`: rows of the frame's `absences` that the values themselves show. `pods`: of GPUs that pods share and that
    have a value of their own beside, the use of each pod by row, 0..1 of the GPU.
    """

    cells: Cells[str]
    about: dict[str, About] = field(default_factory=dict)
    absences: list[dict[str, object]] = field(default_factory=list)
    pods: SeriesAnswer | None = None


def agent_rows(grid: Grid, answers: Mapping[str, SeriesAnswer], bins: Mapping[str, SeriesAnswer], log: Log) -> GpuRows:
    """From the answers to `agent_gpu_asks` and `agent_bin_asks`, by name."""
    cells: Cells[str] = Cells(grid)
    about: dict[str, About] = {}
    nothing = SeriesAnswer.nothing(grid.count)
    info = answers.get("gpus", nothing).labels
    homes = homes_of(answers.get("observed", nothing), info, _who, log)

    def key(labels: Labels) -> str | None:
        found = _who(labels)
        if found is None or (suffix := homes.get(found)) is None:
            return None
        about.setdefault(found[0] + suffix, About(found[1], uuid=found[0]))
        return found[0] + suffix

    for labels in info:
        if (own := key(labels)) is not None:
            about[own] = replace(
                about[own], index=device_index(labels.get("gpu_index")), name=labels.get("name"), sku=labels.get("sku"),
                kind=labels.get("kind", "gpu"), parent=labels.get("parent_uuid"), mig_profile=labels.get("mig_profile"),
                driver_version=labels.get("driver_version"),
            )  # fmt: skip
    for name, answer in answers.items():
        if name != "gpus":
            how = "max" if name in ("observed", "n") or name.endswith("_max") else "mean"
            cells.put(name, answer, key, how=how, least=-1.0 if name.endswith("correlation") else 0.0)
    cells.columns["observed_seconds"] = np.minimum(cells.column("observed"), grid.step)
    cells.columns["idle_run_seconds"] = np.minimum(cells.column("idle_run_seconds"), grid.step)
    for name in (one for one in _BINNED if one in bins):
        cells.put_bins(f"{name}_bins", bins[name], key, cells.column("observed_seconds"))
        if not np.isnan(cells.columns[f"{name}_bins"]).all():
            cells.columns[f"{name}_p95"], most = from_bins(cells.column(f"{name}_bins"))
            cells.columns[f"{name}_max"] = np.fmax(cells.column(f"{name}_max"), most)
    count_samples(cells, cells.column("n"))
    return GpuRows(cells, about)


def _who(labels: Labels) -> tuple[str, str] | None:
    uuid, node = labels.get("gpu_uuid"), agent_node(labels)
    return (uuid, node) if uuid and node else None


def scrape_seconds(samples: Matrix, step: float) -> Matrix:
    """How far the samples of each series lie apart: a full row's count tells."""
    most = np.nan_to_num(samples).max(axis=1, initial=0.0)
    return np.where(most > 0, np.minimum(step / np.maximum(most, 1e-9), MAX_SCRAPE_SECONDS), 0.0)


def combined(first: GpuRows, second: GpuRows) -> GpuRows:
    """Each GPU and moment as `first`, our agent's, has it, as `second` does where `first` saw nothing."""
    # A MIG instance has another name in each: where our agent sees a GPU, its own names count.
    nodes = {about.node for about in first.about.values()}
    about = {uuid: one for uuid, one in second.about.items() if one.kind == "gpu" or one.node not in nodes}
    about |= first.about
    keys = dict.fromkeys(key for key in (*first.cells.rows, *second.cells.rows) if key in about)
    out: Cells[str] = Cells(first.cells.grid, {key: row for row, key in enumerate(keys)})

    def placed(cells: Cells[str], name: str) -> Matrix:
        matrix = cells.column(name)
        whole = np.concatenate([matrix, np.full_like(matrix[:1], np.nan)])
        return whole[[cells.rows.get(key, -1) for key in keys]]

    seen = placed(first.cells, "observed_seconds") > 0
    for name in dict.fromkeys([*first.cells.columns, *second.cells.columns]):
        own, other = placed(first.cells, name), placed(second.cells, name)
        out.columns[name] = np.where(seen.T, own.T, other.T).T  # of bins the last axis comes first
    absences = [one for one in second.absences if one["node"] not in nodes]
    return GpuRows(out, about, absences, second.pods)


def count_samples(cells: Cells[str], samples: Matrix) -> None:
    """Add how many samples stand behind a measure: all of the row's where it has a value."""
    for name in ("gpu_util", "tensor_active", "dram_active", "power_watts"):
        cells.columns[f"{name}_n"] = np.where(np.isnan(cells.column(f"{name}_mean")), np.nan, samples)


def device_index(text: str | None) -> float:
    """The number that a label gives a GPU; NaN where it is none."""
    return float(text) if text is not None and _INDEX.fullmatch(text) else float("nan")
