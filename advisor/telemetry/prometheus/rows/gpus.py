"""Rows of GPUs from our agent's page, and those of two exporters as one: each GPU and moment as one of them has it."""

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
    """Measures by GPU (uuid) and moment, and what each GPU is.

    `absences`: rows of the frame's `absences` that the values themselves show. `pods`: of GPUs that pods share and that
    have a value of their own beside, what the exporter says of each pod by row: ``gpu_util_mean`` (0..1 of the GPU) and
    ``mem_used_bytes_mean``. `spoiled`: measures with samples that are no readings.
    """

    cells: Cells[str]
    about: dict[str, About] = field(default_factory=dict)
    absences: list[dict[str, object]] = field(default_factory=list)
    pods: dict[str, SeriesAnswer] = field(default_factory=dict)
    spoiled: frozenset[str] = frozenset()


def agent_rows(grid: Grid, answers: Mapping[str, SeriesAnswer], bins: Mapping[str, SeriesAnswer], log: Log) -> GpuRows:
    """From the answers to `agent_gpu_asks`, `agent_about_asks` and `agent_bin_asks`, by name."""
    cells: Cells[str] = Cells(grid)
    about: dict[str, About] = {}
    counts = next((answers[name] for name in ("observed", "gpus") if name in answers), SeriesAnswer.nothing(grid.count))
    info = answers["gpus"].labels if "gpus" in answers else ()
    homes = homes_of(counts, info, _who, log)

    def key(labels: Labels) -> str | None:
        found = _who(labels)
        suffix = homes.get(found) if found is not None else None
        if found is None or suffix is None:
            return None
        about.setdefault(found[0] + suffix, About(found[1], uuid=found[0]))
        return found[0] + suffix

    for labels in info:
        found, own = _who(labels), key(labels)
        if found is not None and own is not None:
            about[own] = About(
                found[1], device_index(labels.get("gpu_index")), labels.get("name"), labels.get("sku"),
                labels.get("kind", "gpu"), labels.get("parent_uuid"), labels.get("mig_profile"), found[0],
                labels.get("driver_version"),
            )  # fmt: skip
    for name, answer in answers.items():
        if name != "gpus":
            cells.put(name, answer, key, how="max" if name in _TOTALS or name.endswith("_max") else "mean")
    cells.columns["observed_seconds"] = np.minimum(cells.column("observed"), grid.step)
    for name in (one for one in _BINNED if one in bins):
        cells.put_bins(f"{name}_bins", bins[name], key, cells.column("observed_seconds"))
        if not np.isnan(cells.bins[f"{name}_bins"]).all():
            cells.columns[f"{name}_p95"], most = from_bins(cells.bin_column(f"{name}_bins"))
            if name != "nvlink":
                cells.columns[f"{name}_max"] = np.fmax(cells.column(f"{name}_max"), most)
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
    """Each GPU and moment as `first` has it, as `second` does where `first` saw nothing."""
    out: Cells[str] = Cells(first.cells.grid)
    parts = (first.cells, second.cells)
    out.rows = {key: row for row, key in enumerate(dict.fromkeys([*parts[0].rows, *parts[1].rows]))}
    places = [[out.rows[key] for key in cells.rows] for cells in parts]
    seen = out.column("")
    seen[places[0]] = first.cells.column("observed_seconds")
    for name in dict.fromkeys([*parts[0].columns, *parts[1].columns]):
        values = out.column("")
        values[places[1]] = second.cells.column(name)
        own = out.column("")
        own[places[0]] = first.cells.column(name)
        out.columns[name] = np.where(seen > 0, own, values)
    for name in dict.fromkeys([*parts[0].bins, *parts[1].bins]):
        out.bins[name] = out.bin_column(name)
        for cells, at in zip(reversed(parts), reversed(places), strict=True):
            held = cells.bin_column(name)
            out.bins[name][at] = np.where(np.isnan(held), out.bins[name][at], held)
    # A MIG instance has another name in each: where our agent sees a GPU, its own names count.
    known = {about.node for about in first.about.values()}
    about = {uuid: one for uuid, one in second.about.items() if one.kind == "gpu" or one.node not in known}
    about |= first.about
    out.columns["observed_seconds"][[row for uuid, row in out.rows.items() if uuid not in about]] = np.nan
    absences = [one for one in second.absences if one["node"] not in known]
    return GpuRows(out, about, absences, second.pods, second.spoiled)


def _dynamics(cells: Cells[str]) -> None:
    """What is formed of the integrals of squares and products."""
    mean = cells.column("sm_active_mean")
    with np.errstate(invalid="ignore", divide="ignore"):
        spread = np.sqrt(np.clip(cells.column("sm_squared") - mean**2, 0.0, None))
        cells.columns["sm_active_cv"] = np.where(mean > 0, spread / mean, np.nan)
        for pair in ("nvlink", "fabric"):
            tensor, traffic = cells.column(f"{pair}_tensor_seconds"), cells.column(f"{pair}_traffic_bytes")
            squared = cells.column(f"{pair}_traffic_squared_seconds")
            both = cells.column(f"{pair}_product_bytes") - tensor * traffic
            first, second = cells.column(f"{pair}_tensor_squared_seconds") - tensor**2, squared - traffic**2
            # Of what does not vary (but for rounding) no correlation can be told.
            varies = (first > 1e-9) & (second > 1e-9 * squared)
            found = np.clip(both / np.sqrt(np.clip(first * second, 1e-300, None)), -1.0, 1.0)
            cells.columns[f"tensor_{pair}_correlation"] = np.where(varies, found, np.nan)
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
        is_known = (joules > 0) & (covered > 0)
        cells.columns["energy_joules_mean"] = np.where(is_known, joules / covered, np.nan)
        cells.columns["energy_joules_n"] = np.where(is_known, covered, np.nan)


def device_index(text: str | None) -> float:
    """The number that a label gives a GPU; NaN where it is none."""
    return float(text) if text is not None and _INDEX.fullmatch(text) else float("nan")
