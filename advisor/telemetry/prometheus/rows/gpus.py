"""Rows of GPUs from our agent's page, and those of two roads as one: each GPU and moment told by one of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..client.range_planner import Log
from ..client.response import Floats, Grid, Labels, SeriesAnswer
from ..promql.labels import agent_node
from .homes import homes_of
from .series_to_rows import Cells, from_bins

# An interval of scraping longer than this is not believed: a value says nothing of what came five minutes later.
MAX_SCRAPE_SECONDS = 300.0
_INDEX = re.compile(r"[0-9]{1,4}")
_TOTALS = ("observed", "n", "energy_joules", "energy_seconds")
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
    """Measures by GPU (uuid) and moment, and what each GPU is."""

    cells: Cells[str]
    about: dict[str, About] = field(default_factory=dict)


def agent_rows(grid: Grid, answers: Mapping[str, SeriesAnswer], bins: Mapping[str, SeriesAnswer], log: Log) -> GpuRows:
    """From the answers to `queries.agent_gpu_asks`, `agent_about_asks` and `agent_bin_asks`, by name."""
    cells: Cells[str] = Cells(grid)
    about: dict[str, About] = {}
    counts = next((answers[name] for name in ("observed", "gpus") if name in answers), SeriesAnswer.nothing(grid.count))
    info = answers["gpus"].labels if "gpus" in answers else ()
    homes = homes_of(counts, info, _who, log)

    def key(labels: Labels) -> str | None:
        found = _who(labels)
        suffix = homes.suffix(*found) if found is not None else None
        if found is None or suffix is None:
            return None
        about.setdefault(found[0] + suffix, About(homes.node(*found), uuid=found[0]))
        return found[0] + suffix

    for labels in info:
        found, own = _who(labels), key(labels)
        if found is not None and own is not None:
            about[own] = About(
                homes.node(*found), device_index(labels.get("gpu_index")), labels.get("name"), labels.get("sku"),
                labels.get("kind", "gpu"), labels.get("parent_uuid"), labels.get("mig_profile"), found[0],
                labels.get("driver_version"),
            )  # fmt: skip

    for name, answer in answers.items():
        if name != "gpus":
            how = "max" if name in _TOTALS or name.endswith("_max") else "mean"
            cells.put(name, answer, key, how=how)
    cells.columns["observed_seconds"] = np.minimum(cells.column("observed"), grid.step)
    for name in _BINNED:
        if name in bins:
            cells.put_bins(f"{name}_bins", bins[name], key, cells.column("observed_seconds"))
            if not np.isnan(cells.bins[f"{name}_bins"]).all():
                p95, most = from_bins(cells.bin_column(f"{name}_bins"))
                cells.columns[f"{name}_p95"] = p95
                if name != "nvlink":
                    gauge = cells.column(f"{name}_max")
                    cells.columns[f"{name}_max"] = np.fmax(gauge, most)
    _dynamics(cells)
    count_samples(cells, cells.column("n"))
    _energy(cells)
    return GpuRows(cells, about)


def _who(labels: Labels) -> tuple[str, str] | None:
    uuid, node = labels.get("gpu_uuid"), agent_node(labels)
    return (uuid, node) if uuid and node else None


def scrape_seconds(samples: Floats, step: float) -> Floats:
    """How far the samples of each series lie apart: a full row's count tells."""
    with np.errstate(invalid="ignore", divide="ignore"):
        most = np.nanmax(np.where(samples > 0, samples, 0.0), axis=1, initial=0.0)
        return np.minimum(step / most, MAX_SCRAPE_SECONDS, out=np.zeros(len(most)), where=most > 0)


def combined(first: GpuRows, second: GpuRows) -> GpuRows:
    """Each GPU and moment as `first` tells it, as `second` does where `first` saw nothing."""
    out: Cells[str] = Cells(first.cells.grid)
    for rows in (first, second):
        for key in rows.cells.rows:
            out.rows.setdefault(key, len(out.rows))
    spread = [_spread(rows.cells, out) for rows in (first, second)]
    seen = spread[0]["observed_seconds"] > 0 if "observed_seconds" in spread[0] else np.zeros((len(out.rows), 1), bool)
    empty = np.full((len(out.rows), out.grid.count), np.nan)
    for name in dict.fromkeys([*spread[0], *spread[1]]):
        out.columns[name] = np.where(seen, spread[0].get(name, empty), spread[1].get(name, empty))
    for cells in (first.cells, second.cells):
        for name in cells.bins:
            if name not in out.bins:
                out.bins[name] = out.bin_column(name)
            held = cells.bin_column(name)
            for key, row in cells.rows.items():
                target = out.bins[name][out.rows[key]]
                np.copyto(target, held[row], where=np.isnan(target))
    # A MIG instance has another name in each: where our agent sees a GPU, its own names count.
    known = {about.node for about in first.about.values()}
    about = {uuid: one for uuid, one in second.about.items() if one.kind == "gpu" or one.node not in known}
    about.update(first.about)
    for uuid in [uuid for uuid in out.rows if uuid not in about]:
        out.columns["observed_seconds"][out.rows[uuid]] = np.nan
    return GpuRows(out, about)


def _spread(cells: Cells[str], out: Cells[str]) -> dict[str, Floats]:
    at = [out.rows[key] for key in cells.rows]
    spread = {}
    for name in cells.columns:
        matrix = np.full((len(out.rows), out.grid.count), np.nan)
        matrix[at] = cells.column(name)
        spread[name] = matrix
    return spread


def _dynamics(cells: Cells[str]) -> None:
    """What is formed of the integrals of squares and products."""
    mean, squared = cells.column("sm_active_mean"), cells.column("sm_squared")
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt(np.clip(squared - mean**2, 0.0, None))
        cells.columns["sm_active_cv"] = np.where(mean > 0, spread / mean, np.nan)
        for pair in ("nvlink", "fabric"):
            part = {
                name: cells.column(f"{pair}_{name}")
                for name in (
                    "tensor_seconds", "traffic_bytes", "tensor_squared_seconds", "traffic_squared_seconds",
                    "product_bytes",
                )
            }  # fmt: skip
            both = part["product_bytes"] - part["tensor_seconds"] * part["traffic_bytes"]
            first = part["tensor_squared_seconds"] - part["tensor_seconds"] ** 2
            second = part["traffic_squared_seconds"] - part["traffic_bytes"] ** 2
            # Of what does not vary (but for rounding) no correlation can be told.
            varies = (first > 1e-9) & (second > 1e-9 * part["traffic_squared_seconds"])
            cells.columns[f"tensor_{pair}_correlation"] = np.where(
                varies, np.clip(both / np.sqrt(np.clip(first * second, 1e-300, None)), -1.0, 1.0), np.nan
            )
    cells.columns["idle_run_seconds"] = np.minimum(cells.column("idle_run_seconds"), cells.grid.step)


def count_samples(cells: Cells[str], samples: Floats) -> None:
    """Add how many samples stand behind a measure: all of the row's where it has a value."""
    for name in ("gpu_util", "tensor_active", "dram_active", "power_watts"):
        cells.columns[f"{name}_n"] = np.where(np.isnan(cells.column(f"{name}_mean")), np.nan, samples)


def _energy(cells: Cells[str]) -> None:
    """The energy counter's growth as joules a sample, and how many of the samples it covers."""
    joules, seconds = cells.column("energy_joules"), cells.column("energy_seconds")
    with np.errstate(invalid="ignore", divide="ignore"):
        covered = np.minimum(seconds / cells.column("observed"), 1.0) * cells.column("n")
        told = (joules > 0) & (covered > 0)
        cells.columns["energy_joules_mean"] = np.where(told, joules / covered, np.nan)
        cells.columns["energy_joules_n"] = np.where(told, covered, np.nan)


def device_index(text: str | None) -> float:
    """The number that a label gives a GPU; NaN where it is none."""
    return float(text) if text is not None and _INDEX.fullmatch(text) else float("nan")
