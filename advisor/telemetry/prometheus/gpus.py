"""Rows of GPUs from our agent's page and from dcgm-exporter, each GPU and moment told by one of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from . import queries
from .answers import Answer, Floats, Grid, Labels
from .cells import Cells, first_known, from_bins, weights_of
from .names import agent_node, gpu_of, node_of
from .plan import Log

# An interval of scraping longer than this is not believed: a value says nothing of what came five minutes later.
MAX_SCRAPE_SECONDS = 300.0
_INDEX = re.compile(r"[0-9]{1,4}")
_BINNED = ("gpu_util", "sm_active", "tensor_active", "dram_active", "nvlink")


@dataclass(frozen=True, slots=True)
class About:
    """What a GPU is, as far as its series say."""

    node: str
    index: float = float("nan")
    name: str | None = None
    sku: str | None = None
    kind: str = "gpu"
    parent: str | None = None
    mig_profile: str | None = None


@dataclass
class GpuRows:
    """Measures by GPU (uuid) and moment, and what each GPU is."""

    cells: Cells[str]
    about: dict[str, About] = field(default_factory=dict)


def agent_rows(grid: Grid, answers: Mapping[str, Answer], bins: Mapping[str, Answer]) -> GpuRows:
    """From the answers to `queries.agent_gpu_asks`, `agent_about_asks` and `agent_bin_asks`, by name."""
    cells: Cells[str] = Cells(grid)
    about: dict[str, About] = {}
    for labels in answers["gpus"].labels if "gpus" in answers else ():
        uuid, node = labels.get("gpu_uuid"), agent_node(labels)
        if uuid and node:
            about[uuid] = About(
                node, _index(labels.get("gpu_index")), labels.get("name"), labels.get("sku"),
                labels.get("kind", "gpu"), labels.get("parent_uuid"), labels.get("mig_profile"),
            )  # fmt: skip

    def key(labels: Labels) -> str | None:
        uuid, node = labels.get("gpu_uuid"), agent_node(labels)
        if uuid and node:
            about.setdefault(uuid, About(node))
            return uuid
        return None

    for name, answer in answers.items():
        if name != "gpus":
            how = "max" if name in ("observed", "n") or name.endswith("_max") else "mean"
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
    _counts(cells, cells.column("n"))
    return GpuRows(cells, about)


def dcgm_rows(grid: Grid, answers: Mapping[str, Answer], memory: Sequence[Answer], log: Log) -> GpuRows:
    """From the answers to `queries.dcgm_asks`, by name, and to `queries.dcgm_memory_ask`, by moment."""
    cells: Cells[str] = Cells(grid)
    counts = answers["n"]
    nodes = _homes(counts, log)
    about: dict[str, About] = {}
    for labels in counts.labels:
        found = gpu_of(labels)
        if found is None or found[0] not in nodes:
            continue
        uuid, parent = found
        about[uuid] = About(
            nodes[uuid], _index(labels.get("gpu")), labels.get("modelName"),
            kind="mig" if parent else "gpu", parent=parent, mig_profile=labels.get("GPU_I_PROFILE"),
        )  # fmt: skip

    def key(labels: Labels) -> str | None:
        found = gpu_of(labels)
        return found[0] if found is not None and nodes.get(found[0]) == node_of(labels) else None

    weights = weights_of(counts)
    # Of several series of a GPU (a copy for each pod, two exporters) the fullest says how much of a row was seen.
    cells.put("n", counts, key, how="max")
    cells.put("n_all", counts, key, how="sum")
    for name, answer in answers.items():
        if name != "n":
            how = "max" if name.endswith("_max") else "mean"
            cells.put(
                name, answer, key, how=how, weights=weights, scale=queries.scale_of(name), most=queries.most_of(name)
            )
    samples = np.minimum(cells.column("n_all"), _usual(cells.column("n_all"), cells.column("n")))
    interval = scrape_seconds(samples, grid.step)
    cells.columns["observed_seconds"] = np.minimum(samples * interval[:, None], grid.step)
    for statistic in ("mean", "p95", "max"):
        # On MIG instances the driver's utilization is missing; the engine's activity says the same.
        if f"engine_{statistic}" in cells.columns:
            name = f"gpu_util_{statistic}"
            cells.columns[name] = first_known((cells.column(name), cells.column(f"engine_{statistic}")))
    _counts(cells, samples)
    cells.columns["mem_total_bytes"] = np.repeat(_memory(memory, cells.rows, key)[:, None], grid.count, axis=1)
    return GpuRows(cells, about)


def _memory(told: Sequence[Answer], rows: Mapping[str, int], key_of: Callable[[Labels], str | None]) -> Floats:
    """How much memory each GPU has, bytes; the middle of what was told of it."""
    seen: dict[str, list[float]] = {}
    for answer in told:
        for labels, values in zip(answer.labels, answer.values, strict=True):
            key, value = key_of(labels), float(values[0]) * queries.MIB
            if key is not None and key in rows and 0 <= value <= queries.MOST_MEMORY_BYTES:
                seen.setdefault(key, []).append(value)
    out = np.full(len(rows), np.nan)
    for uuid, values in seen.items():
        out[rows[uuid]] = np.median(values)
    return out


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


def _homes(counts: Answer, log: Log) -> dict[str, str]:
    """The node of each GPU. Where two exporters name different ones, the one that saw it more often is believed."""
    seen: dict[str, dict[str, float]] = {}
    reporters: dict[tuple[str, str], set[str]] = {}
    for labels, values in zip(counts.labels, counts.values, strict=True):
        found, node = gpu_of(labels), node_of(labels)
        if found is None or node is None:
            continue
        own = seen.setdefault(found[0], {})
        own[node] = own.get(node, 0.0) + float(np.nansum(values))
        reporters.setdefault((found[0], node), set()).add(f"{labels.get('job', '')}|{labels.get('instance', '')}")
    several = [uuid for uuid, nodes in seen.items() if len(nodes) > 1]
    if several:
        where = ", ".join(sorted(seen[several[0]]))
        log.add(
            f"{len(several)} GPUs are reported under several nodes ({several[0]}: {where}); each counts once, where it "
            "was seen most."
        )
    homes = {uuid: max(sorted(nodes), key=nodes.__getitem__) for uuid, nodes in seen.items()}
    twice = [uuid for uuid, node in homes.items() if len(reporters[uuid, node]) > 1]
    if twice:
        log.add(f"{len(twice)} GPUs are reported by more than one exporter or target ({twice[0]}); each counts once.")
    return homes


def _usual(total: Floats, fullest: Floats) -> Floats:
    """The most samples that a row of each GPU can have from one exporter: that of its fullest series."""
    if not len(total):
        return total
    with np.errstate(all="ignore"):
        most = np.nanmax(np.where(np.isnan(fullest), 0.0, fullest), axis=1, initial=0.0)
    return np.repeat(most[:, None], total.shape[1], axis=1)


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


def _counts(cells: Cells[str], samples: Floats) -> None:
    """How many samples stand behind a measure: all of the row's where it has a value."""
    for name in ("gpu_util", "tensor_active", "dram_active", "power_watts"):
        cells.columns[f"{name}_n"] = np.where(np.isnan(cells.column(f"{name}_mean")), np.nan, samples)


def _index(text: str | None) -> float:
    return float(text) if text is not None and _INDEX.fullmatch(text) else float("nan")
