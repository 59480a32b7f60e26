"""Answers as rows of the frame: measures of devices by moment (`Cells`); rows of GPUs from our agent's page, and those
of two exporters as one, each GPU and moment as one of them has it.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from .....agent.metrics import BIN_EDGES
from ....core.coded_text import coded
from ....core.column_rows import WIDTH, BinsArray
from ..client.range_planner import Log
from ..client.response import Grid, Labels, SeriesAnswer
from ..promql import DCGM_GAUGES, HOST_LABELS, agent_node, gpu_of, selector
from ..questions import Questions

K = TypeVar("K", bound=Hashable)
Matrix = npt.NDArray[np.floating[Any]]
_EDGES = np.array(BIN_EDGES)
# The bound of a bucket as text differs between clients by its last digits.
_EDGE_DIGITS = 8
_BUCKETS = {**{edge: n for n, edge in enumerate(_EDGES[1:].round(_EDGE_DIGITS).tolist())}, np.inf: WIDTH - 1}


def label_set(labels: Labels) -> frozenset[tuple[str, str]]:
    """What equal labels have in common."""
    return frozenset(labels.items())


@dataclass
class Cells(Generic[K]):
    """Measures by name, each a float32 matrix of devices by moments, of names that end with ``_bins`` by bins as well;
    NaN: missing. Devices come in the order they are met."""

    grid: Grid
    rows: dict[K, int] = field(default_factory=dict)
    columns: dict[str, Matrix] = field(default_factory=dict)

    def put(
        self, name: str, answer: SeriesAnswer, key_of: Callable[[Labels], K | None], *, how: str = "mean",
        weights: SeriesAnswer | None = None, least: float = 0.0, most: float = np.inf,
    ) -> None:  # fmt: skip
        """Add an answer. Where several series are of a device at a moment, `how` (mean, max, sum) joins them; the
        `weights` of a mean are the values of the series with the same labels, 1 of others.

        A value below `least` or above `most` is no reading and counts as missing.
        """
        whose = [key_of(labels) for labels in answer.labels]
        at = np.array([-1 if key is None else self.rows.setdefault(key, len(self.rows)) for key in whose], np.intp)
        out = self.columns[name] = np.full((len(self.rows), self.grid.count), np.nan, np.float32)
        values = pd.DataFrame(answer.values[at >= 0])
        values, by = values.where((values >= least) & (values <= most)), at[at >= 0]
        if how != "mean":
            joined = getattr(values.groupby(by), how)(min_count=1)
        else:
            weight = values.notna().astype(float)
            if weights is not None:
                index = {label_set(labels): row for row, labels in enumerate(weights.labels)}
                weights_of = np.vstack([weights.values, np.ones(values.shape[1])])
                labels = (labels for labels, row in zip(answer.labels, at, strict=True) if row >= 0)
                weight *= np.nan_to_num(weights_of)[[index.get(label_set(label), -1) for label in labels]]
            joined = (values.fillna(0.0) * weight).groupby(by).sum() / weight.groupby(by).sum()
        out[joined.index] = joined

    def put_bins(self, name: str, answer: SeriesAnswer, key_of: Callable[[Labels], K | None], seconds: Matrix) -> None:
        """Add a histogram's buckets as seconds in each bin. `seconds`: how long each device was observed, by moment."""
        bounds = pd.to_numeric(pd.Series([labels.get("le") for labels in answer.labels], dtype=object), errors="coerce")
        buckets = bounds.round(_EDGE_DIGITS).map(_BUCKETS).fillna(-1).to_numpy(np.intp)
        keys = [key_of(labels) for labels in answer.labels]
        at = np.array([-1 if key is None else self.rows.get(key, -1) for key in keys], dtype=np.intp)
        matched = (at >= 0) & (buckets >= 0)
        counts = np.zeros((len(self.rows), WIDTH, self.grid.count), np.float32)
        np.add.at(counts, (at[matched], buckets[matched]), np.nan_to_num(answer.values[matched]))
        # A bucket that is not there counts no more than the one below it; a client may leave out those that are empty.
        # Each bucket's increase is extrapolated by itself: what goes down by that is no negative count.
        inside = np.diff(np.maximum.accumulate(counts, axis=1), axis=1, prepend=np.float32(0.0)).transpose(0, 2, 1)
        whole = inside.sum(axis=2, keepdims=True)
        scaled = inside / np.where(whole > 0, whole, np.nan) * seconds[: len(counts), :, None]
        self.columns[name] = scaled.astype(np.float32)

    def column(self, name: str) -> Matrix:
        """A measure with a row for each device, to be changed in place; all NaN where it was not asked for or not
        answered."""
        column = self.columns.get(name)
        missing = len(self.rows) - (0 if column is None else len(column))
        if column is None or missing:
            more = (WIDTH,) if name.endswith("_bins") else ()
            nothing = np.full((missing, self.grid.count, *more), np.nan, np.float32)
            if column is None:
                return nothing
            column = self.columns[name] = np.concatenate([column, nothing])
        return column

    def table(
        self, columns: Sequence[str], texts: Mapping[str, Callable[[K], object]], bins: Sequence[str] = (), *,
        only: Collection[K] | None = None,
    ) -> pd.DataFrame:  # fmt: skip
        """One row for each device and moment that was observed, sorted by the texts and the moment.

        `columns` of the table are filled from measures of the same name, `texts` from the device; what is not there is
        NaN. ``ts``, ``interval_seconds`` and ``observed_seconds`` (a measure) are always given. `only`: the devices
        that are wanted; None: all.
        """
        keys = list(self.rows)
        chosen = [row for row, key in enumerate(keys) if only is None or key in only]
        order = sorted(chosen, key=lambda row: tuple(str(of(keys[row])) for of in texts.values()))
        place, moment = np.nonzero(self.column("observed_seconds")[order] > 0)
        device = np.array(order, dtype=np.intp)[place]
        nothing = np.full(len(device), np.nan)
        nothing.flags.writeable = False  # it stands for every measure that is missing
        out: dict[str, object] = {}
        for name in columns:
            has = name in self.columns
            if name in texts:
                cells = np.array([*(texts[name](key) for key in keys), None], dtype=object)
                out[name] = pd.Series(cells[device], dtype=object)
            elif name in bins:
                out[name] = BinsArray(self.column(name)[device, moment]) if has else BinsArray.missing(len(device))
            else:
                out[name] = self.column(name)[device, moment].astype(np.float64) if has else nothing
        out["ts"] = self.grid.start + moment * self.grid.step
        out["interval_seconds"] = np.full(len(device), self.grid.step)
        # Without a copy into blocks, which would take the room of all columns twice more.
        return pd.DataFrame(out, columns=[*columns], copy=False)

    def keep(self, keys: Collection[K], columns: Collection[str]) -> None:
        """Release the rows of all other devices, and all other measures."""
        at = [row for key, row in self.rows.items() if key in keys]
        for name in [*self.columns]:
            matrix = self.column(name)
            del self.columns[name]
            if name in columns:
                self.columns[name] = matrix[at]
        self.rows = {key: n for n, key in enumerate(key for key in self.rows if key in keys)}

    def seen(self) -> dict[K, tuple[float, float]]:
        """Of each device when its first row begins and its last one ends; devices never observed are left out."""
        observed, grid = self.column("observed_seconds") > 0, self.grid
        first, last = observed.argmax(axis=1) - 1, grid.count - 1 - observed[:, ::-1].argmax(axis=1)
        start, end = (grid.start + at * grid.step for at in (first, last))
        return {key: (float(start[row]), float(end[row])) for key, row in self.rows.items() if observed[row].any()}


def from_bins(bins: Matrix) -> tuple[Matrix, Matrix]:
    """95th percentile and maximum of counts in bins: the middle of the bin, and the lower edge of the highest.

    A maximum is never too high: silence is judged by it as well as load.
    """
    counts = np.nan_to_num(bins).astype(np.float64)
    total = counts.sum(axis=2)
    place = (np.cumsum(counts, axis=2) >= 0.95 * total[:, :, None] - 1e-6).argmax(axis=2)
    middle = (_EDGES + np.append(_EDGES[1:], 1.0)) / 2
    highest = WIDTH - 1 - (counts > 0)[:, :, ::-1].argmax(axis=2)
    edges = np.where(place == 0, 0.0, middle[place]), _EDGES[highest]
    p95, most = (np.where(total > 0, values, np.nan).astype(np.float32) for values in edges)
    return p95, most


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
        name = _who(labels)
        if name is None or (suffix := homes.get(name)) is None:
            return None
        about.setdefault(name[0] + suffix, About(name[1], uuid=name[0]))
        return name[0] + suffix

    for labels in info:
        if (gpu := key(labels)) is not None:
            about[gpu] = replace(
                about[gpu], index=device_index(labels.get("gpu_index")), name=labels.get("name"), sku=labels.get("sku"),
                kind=labels.get("kind", "gpu"), parent=labels.get("parent_uuid"), mig_profile=labels.get("mig_profile"),
                driver_version=labels.get("driver_version"),
            )  # fmt: skip
    for name, answer in answers.items():
        if name != "gpus":
            how = "max" if name in ("observed", "n") or name.endswith("_max") else "mean"
            cells.put(name, answer, key, how=how, least=-1.0 if name.endswith("correlation") else 0.0)
    cells.columns["observed_seconds"] = np.minimum(cells.column("observed"), grid.step)
    cells.columns["idle_run_seconds"] = np.minimum(cells.column("idle_run_seconds"), grid.step)
    for name in (candidate for candidate in _BINNED if candidate in bins):
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
    """The interval between the samples of each series, from the count of a full row."""
    most = np.nan_to_num(samples).max(axis=1, initial=0.0)
    return np.where(most > 0, np.minimum(step / np.maximum(most, 1e-9), MAX_SCRAPE_SECONDS), 0.0)


def combined(first: GpuRows, second: GpuRows) -> GpuRows:
    """Each GPU and moment as `first`, our agent's, has it, as `second` does where `first` saw nothing."""
    # A MIG instance has another name in each: where our agent sees a GPU, its own names count.
    nodes = {about.node for about in first.about.values()}
    about = {uuid: gpu for uuid, gpu in second.about.items() if gpu.kind == "gpu" or gpu.node not in nodes}
    about |= first.about
    keys = dict.fromkeys(key for key in (*first.cells.rows, *second.cells.rows) if key in about)
    out: Cells[str] = Cells(first.cells.grid, {key: row for row, key in enumerate(keys)})

    def placed(cells: Cells[str], name: str) -> Matrix:
        matrix = cells.column(name)
        whole = np.concatenate([matrix, np.full_like(matrix[:1], np.nan)])
        return whole[[cells.rows.get(key, -1) for key in keys]]

    seen = placed(first.cells, "observed_seconds") > 0
    for name in dict.fromkeys([*first.cells.columns, *second.cells.columns]):
        ours, other = placed(first.cells, name), placed(second.cells, name)
        out.columns[name] = np.where(seen.T, ours.T, other.T).T  # of bins the last axis comes first
    absences = [absence for absence in second.absences if absence["node"] not in nodes]
    return GpuRows(out, about, absences, second.pods)


def count_samples(cells: Cells[str], samples: Matrix) -> None:
    """Add how many samples stand behind a measure: all of the row's where it has a value."""
    for name in ("gpu_util", "tensor_active", "dram_active", "power_watts"):
        cells.columns[f"{name}_n"] = np.where(np.isnan(cells.column(f"{name}_mean")), np.nan, samples)


def device_index(text: str | None) -> float:
    """The number that a label gives a GPU; NaN where it is none."""
    return float(text) if text is not None and _INDEX.fullmatch(text) else float("nan")


_GPU_LABELS = ("UUID", "gpu", "modelName", "GPU_I_PROFILE", "GPU_I_ID")
Who = Callable[[Labels], tuple[str, str] | None]
"""Of a series the id of its whole GPU and its node; None: neither is named."""
Homes = Mapping[tuple[str, str], str]
"""(GPU, node) -> suffix of the key of its rows; what is missing is reported by another node as well and left out."""


def homes_of(counts: SeriesAnswer, named: Iterable[Labels], who: Who, log: Log) -> Homes:
    """`counts`: samples by series and row. `named`: labels of any series that names a GPU."""
    by_gpu: dict[str, dict[str, npt.NDArray[np.bool_]]] = defaultdict(dict)
    for labels, values in zip(counts.labels, counts.values, strict=True):
        if (name := who(labels)) is not None:
            reports, node = by_gpu[name[0]], name[1]
            reports[node] = reports.get(node, False) | (values > 0)
    homes: dict[tuple[str, str], str] = {}
    at_once: dict[str, list[str]] = {}
    for uuid, reports in by_gpu.items():
        order = sorted(reports, key=lambda node: (reports[node].argmax(), reports[node].sum(), node))
        both = int((np.sum(list(reports.values()), axis=0) > 1).sum())
        # Scrapes of two may mix in the row in which one takes over from the other.
        if len(reports) == 1 or (both < len(reports) and all(there.sum() > both for there in reports.values())):
            homes |= {(uuid, node): f"@{node}" for node in order[:-1]} | {(uuid, order[-1]): ""}
        else:
            homes[uuid, max(sorted(reports), key=lambda node: reports[node].sum())] = ""
            at_once[uuid] = sorted(reports)
    for name in map(who, named):
        if name is not None and name[0] not in by_gpu:
            by_gpu[name[0]], homes[name] = {}, ""
    if at_once:
        uuid, names = next(iter(at_once.items()))
        text = (
            "GPUs reported under several nodes at once: {gpus} ({gpu_uuid}: {nodes}). Each counts once, on the node "
            "that reported it longest."
        )
        log.add(coded("gpus-under-several-nodes", text, gpus=len(at_once), gpu_uuid=uuid, nodes=", ".join(names)))
    return homes


def named_gpus(asked: Questions) -> list[Labels]:
    """The GPUs of series that nothing is read of, at the window's end and in its middle: such a series alone shows that
    a GPU exists. Google Managed Prometheus takes exact names only."""
    # The engine's activity is asked of some GPUs only.
    read = {name for gauge in DCGM_GAUGES for name in gauge.names if gauge.measure != "engine"}
    others = sorted(name for name in asked.survey.names - read if name.startswith(("DCGM_FI_DEV_", "DCGM_FI_PROF_")))
    kept, chosen = (*HOST_LABELS, *_GPU_LABELS), selector(asked.matches, 'UUID!=""')
    query = f"count by ({', '.join(kept)}) ({' or '.join(f'{name}{chosen}' for name in others)})"
    window = asked.survey.window
    moments = (window.end, (window.start + window.end) / 2) if others else ()
    return [labels for at in moments for labels in asked.instant(query, kept, at).labels]


def reporters_note(counts: SeriesAnswer, who: Who, log: Log) -> set[tuple[str, str]]:
    """The GPUs that several exporters or targets report at once, with their nodes."""
    by_gpu: dict[tuple[str, str], dict[str, npt.NDArray[np.bool_]]] = defaultdict(dict)
    for labels, values in zip(counts.labels, counts.values, strict=True):
        if (gpu := who(labels)) is not None:
            reports, target = by_gpu[gpu], reporter(labels)
            reports[target] = reports.get(target, False) | (values > 0)
    several = {gpu for gpu, reports in by_gpu.items() if (np.sum(list(reports.values()), axis=0) > 1).sum() > 1}
    if several:
        text = "GPUs reported by more than one exporter or target: {gpus} ({gpu_uuid}). Each counts once."
        log.add(coded("gpus-reported-twice", text, gpus=len(several), gpu_uuid=min(several)[0]))
    return several


def unnamed_note(series: Iterable[Labels], node_of: Callable[[Labels], str | None], log: Log) -> None:
    """Report GPUs that cannot be counted because their series are those of others, too."""
    lost: dict[str, set[str]] = defaultdict(set)
    for labels in series:
        if gpu_of(labels) is None:
            lost["UUID"].add(f"{node_of(labels) or 'unknown node'} GPU {labels.get('gpu') or 'unknown'}")
        elif node_of(labels) is None:
            lost["Hostname or instance"].add(labels["UUID"])
    for label, gpus in sorted(lost.items()):
        text = (
            "GPUs not counted: {gpus} ({first}). Their dcgm-exporter time series have no label {label}. Keep that "
            "label in metric_relabel_configs."
        )
        log.add(coded("label-missing", text, label=label, gpus=len(gpus), first=min(gpus)))


def reporter(labels: Labels) -> str:
    """Which exporter's target a series is of."""
    return f"{labels.get('job', '')}|{labels.get('instance', '')}"
