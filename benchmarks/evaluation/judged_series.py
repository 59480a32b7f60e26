"""Labelled series judged as a user has them: as an agent's own database, or behind a Prometheus with dcgm-exporter's
metrics. Names say nothing of what a series was."""

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.rulebook import Rulebook
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.agent.model import FabricPort, Gpu, Node, Tick, Workload
from skuwise.agent.store.rollups import RollupJob
from skuwise.agent.store.writer import Writer
from skuwise.rules.base.errors import NothingToDo
from skuwise.rules.catalog.loader import Catalog
from skuwise.tests.server_metrics.prometheus_series import Series
from skuwise.tests.support.prometheus_engines import prometheus

from ...tests.support.stored_rows import put_ticks
from ..engine import frame_of
from ..scoring import ABSTAINED, Answer, util_kind
from .labelled import FABRIC_VALUES, FACTS, GPU_VALUES, LINE_RATE, LabelledSeries, read_labels, read_series

WEEK, HOUR, ROW, MINUTE = 7 * 86400.0, 3600.0, 300.0, 60.0
HOURLY_FROM = 12 * HOUR  # a window so long is read from a server in rows of an hour
# What most sites have of a GPU.
BASIC = ("gpu_util", "mem_used_bytes", "mem_total_bytes", "power_watts")
MIB = 2.0**20
# dcgm-exporter's name of each value, and how many of its units are one of ours.
_DCGM: Mapping[str, tuple[str, float]] = {
    "gpu_util": ("DCGM_FI_DEV_GPU_UTIL", 100.0),
    "power_watts": ("DCGM_FI_DEV_POWER_USAGE", 1.0),
    "temperature_celsius": ("DCGM_FI_DEV_GPU_TEMP", 1.0),
    "sm_clock_hertz": ("DCGM_FI_DEV_SM_CLOCK", 1e-6),
    "mem_clock_hertz": ("DCGM_FI_DEV_MEM_CLOCK", 1e-6),
    "mem_used_bytes": ("DCGM_FI_DEV_FB_USED", 1 / MIB),
    "throttle_reasons": ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 1.0),
    "sm_active": ("DCGM_FI_PROF_SM_ACTIVE", 1.0),
    "sm_occupancy": ("DCGM_FI_PROF_SM_OCCUPANCY", 1.0),
    "tensor_active": ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1.0),
    "dram_active": ("DCGM_FI_PROF_DRAM_ACTIVE", 1.0),
    "fp64_active": ("DCGM_FI_PROF_PIPE_FP64_ACTIVE", 1.0),
    "fp32_active": ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", 1.0),
    "fp16_active": ("DCGM_FI_PROF_PIPE_FP16_ACTIVE", 1.0),
    "pcie_tx_bytes_per_second": ("DCGM_FI_PROF_PCIE_TX_BYTES", 1.0),
    "pcie_rx_bytes_per_second": ("DCGM_FI_PROF_PCIE_RX_BYTES", 1.0),
    "nvlink_tx_bytes_per_second": ("DCGM_FI_PROF_NVLINK_TX_BYTES", 1.0),
    "nvlink_rx_bytes_per_second": ("DCGM_FI_PROF_NVLINK_RX_BYTES", 1.0),
}


@dataclass(frozen=True, slots=True)
class JudgedSeries:
    """A series and the verdict on it. `verdict` None: nothing of it was seen."""

    series: LabelledSeries
    verdict: WorkloadVerdict | None

    @property
    def kind(self) -> Answer:
        label, verdict = self.series.label, self.verdict
        use = self.series.gpu["gpu_util"].mean() if "gpu_util" in self.series.gpu else math.nan
        return Answer(
            truth=label.kind,
            verdict=verdict.kind.label if verdict else ABSTAINED,
            confidence=verdict.kind.confidence if verdict else 0.0,
            accept=label.kinds,
            owner=label.owner,
            gpus=self.series.gpus,
            baseline=ABSTAINED if math.isnan(use) else util_kind({"engine_active": use}),
            about=self._about(),
        )

    @property
    def bottleneck(self) -> Answer | None:
        """None: the label names none."""
        label, verdict = self.series.label, self.verdict
        if label.bottleneck is None:
            return None
        said = (verdict.bottleneck.label, verdict.bottleneck.confidence) if verdict else (ABSTAINED, 0.0)
        return Answer(label.bottleneck, *said, accept=label.bottlenecks, owner=label.owner, about=self._about())

    def _about(self) -> str:
        label, verdict = self.series.label, self.verdict
        features = {name: round(value, 3) for name, value in (verdict.features.items() if verdict else ())}
        others = [(a.label, a.confidence) for a in verdict.kind.alternatives] if verdict else []
        shares = dict(verdict.bottleneck.time_shares) if verdict else {}
        return (
            f"{label.owner} {label.file.name} ({label.work or label.source}; {label.gpu}); "
            f"alternatives {others}; time {shares}\n    {features}"
        )


def read_folder(folder: Path, *, basic: bool = False, repeat_hours: float | None = None) -> list[LabelledSeries]:
    """Everything that a folder labels. `basic`: GPU use, memory and power alone. `repeat_hours`: what did one thing
    throughout is repeated for so long, by the minute: a job that runs again and again. Raises UsageError."""
    series = [read_series(label) for label in read_labels(folder)]
    series = [_basic(labelled_series) for labelled_series in series] if basic else series
    return [repeated(labelled_series, repeat_hours) for labelled_series in series] if repeat_hours else series


def _basic(series: LabelledSeries) -> LabelledSeries:
    dropped = [name for name in GPU_VALUES if name not in BASIC and name in series.gpu]
    return LabelledSeries(series.label, series.gpu.drop(columns=dropped), series.fabric.iloc[:0])


def repeated(series: LabelledSeries, hours: float) -> LabelledSeries:
    """A steady series that is shorter, again and again up to its end; one of another sort as it is."""
    if not series.label.is_steady or series.end - series.start >= hours * HOUR:
        return series
    at = np.arange(series.end - hours * HOUR + MINUTE, series.end + 1, MINUTE)
    length = series.end - series.start

    def again(rows: pd.DataFrame) -> pd.DataFrame:
        into = series.start + (at - series.end) % length  # the moment of the series that is seen
        nearest = np.searchsorted(rows["ts"].to_numpy(), into).clip(max=len(rows) - 1)
        return rows.iloc[nearest].assign(ts=at, interval_seconds=MINUTE)

    gpu = pd.concat([again(rows) for _, rows in series.gpu.groupby(["node", "gpu_uuid"])], ignore_index=True)
    ports = [again(rows) for _, rows in series.fabric.groupby(["node", "device"])]
    return LabelledSeries(series.label, gpu, pd.concat(ports, ignore_index=True) if ports else series.fabric)


def judge_series(series: Iterable[LabelledSeries]) -> Iterator[JudgedSeries]:
    """The verdicts of the rules that ship, each series in a separate agent's database."""
    book = load_rulebook(None, None, 0.0)
    with tempfile.TemporaryDirectory() as scratch:
        for n, labelled_series in enumerate(series):
            database = Path(scratch) / f"{n}.db"
            _store(labelled_series, book.catalog, database)
            frame = read_frame([database], Window(labelled_series.start, labelled_series.end))
            yield JudgedSeries(labelled_series, _verdict(frame, book))


def judge_served(series: Sequence[LabelledSeries], window_hours: float) -> Iterator[JudgedSeries]:
    """The same with all series in one Prometheus, each moved by whole weeks so that all end in one week, and a window
    of at least so long for each."""
    book = load_rulebook(None, None, 0.0)
    newest = max(labelled_series.end for labelled_series in series)
    moved = [(labelled, WEEK * math.floor((newest - labelled.end) / WEEK)) for labelled in series]
    metrics = sorted((m for labelled, shift in moved for m in exported(labelled, shift)), key=lambda m: m.name)
    with tempfile.TemporaryDirectory() as scratch, prometheus(Path(scratch), metrics) as url:
        for labelled_series, shift in moved:
            asked = max(labelled_series.end - labelled_series.start, window_hours * HOUR)
            row = HOUR if asked >= HOURLY_FROM else ROW
            start = math.floor((labelled_series.end - asked + shift) / row) * row
            end = math.ceil((labelled_series.end + shift) / row) * row
            nodes = "|".join(sorted(set(labelled_series.gpu["node"])))
            try:
                frame = frame_of(url, book.catalog, start, end, (f'Hostname=~"{nodes}"',))
            except NothingToDo:
                yield JudgedSeries(labelled_series, None)
            else:
                yield JudgedSeries(labelled_series, _verdict(frame, book))


def _verdict(frame: Frame, book: Rulebook) -> WorkloadVerdict | None:
    """Of what held the GPUs for the longest."""
    try:
        return max(judge(frame, book).workloads, key=lambda workload: workload.gpu_hours, default=None)
    except NothingToDo:
        return None


def _store(series: LabelledSeries, catalog: Catalog, database: Path) -> None:
    """A series' ticks, written and rolled up as the agent does, with one workload over its span on all its GPUs."""
    label, rows = series.label, series.gpu
    workload = Workload(f"w-{label.digest}", f"s-{label.digest}", f"series-{label.digest[:6]}", "process")
    with Writer.open(database, now=lambda: series.end) as writer:
        for node, node_rows in rows.groupby("node"):
            begin = float((node_rows["ts"] - node_rows["interval_seconds"]).min())
            gpus = list(_gpus(node_rows, label.gpu, catalog))
            about = Node(str(node), "labelled", gpu_count=len(gpus))
            store = writer.for_node(about, begin)
            store.set_gpus(gpus, begin)
            ports = series.fabric[series.fabric["node"] == node]
            rates = ports.groupby("device")[LINE_RATE].max().items()
            store.set_ports([FabricPort(str(name), 1, "compute", "InfiniBand", rate) for name, rate in rates], begin)
            put_ticks(store, _ticks(node_rows, ports))
            for gpu in gpus:
                store.put_workload_use(workload, gpu.uuid, series.start, series.end, "allocation")
            store.set_node(about, series.end)
    RollupJob(database).run(series.end + 86400.0)  # long after the last tick every period is over


def _gpus(rows: pd.DataFrame, name: str | None, catalog: Catalog) -> Iterator[Gpu]:
    """A node's GPUs as its driver reports them; what the series does not say is the catalog's."""
    sku = catalog.gpu(name) if name else None
    about: dict[str, int | float | str | None] = {}
    if sku is not None:
        about = {"sku": sku.name, "mem_total_bytes": sku.mem_bytes, "power_limit_watts": sku.tdp_watts}
        about["nvlink_bytes_per_second"] = sku.nvlink_bytes_per_second
    for (uuid, index), device_rows in rows.groupby(["gpu_uuid", "gpu_index"]):
        facts = device_rows[[fact for fact in FACTS if fact in device_rows]].max().dropna().to_dict()
        yield Gpu(uuid, int(index), sku.name if sku else name or "unknown GPU", **{**about, **facts})  # type: ignore[arg-type]


def _ticks(gpus: pd.DataFrame, ports: pd.DataFrame) -> Iterator[Tick]:
    """Of one node, oldest first. Its ports may be read at moments of their own."""
    intervals = dict(zip(ports["ts"], ports["interval_seconds"], strict=True))
    intervals |= dict(zip(gpus["ts"], gpus["interval_seconds"], strict=True))
    here, carried = _by_time(gpus, gpus["gpu_uuid"], GPU_VALUES), _by_time(ports, ports["device"] + "/1", FABRIC_VALUES)
    for ts, interval in sorted(intervals.items()):
        yield Tick(ts, interval, here.get(ts, {}), carried.get(ts, {}))


def _by_time(rows: pd.DataFrame, devices: pd.Series, names: Sequence[str]) -> dict[float, dict[str, dict[str, float]]]:
    """What each device has at a moment; what is missing is left out."""
    out: dict[float, dict[str, dict[str, float]]] = {}
    records = rows[[name for name in names if name in rows]].to_dict("records")
    for ts, device, values in zip(rows["ts"], devices, records, strict=True):
        out.setdefault(ts, {})[device] = {str(name): value for name, value in values.items() if value == value}
    return out


def exported(series: LabelledSeries, shift: float) -> Iterator[Series]:
    """What dcgm-exporter and node_exporter export of a series, `shift` seconds later. Its pod's name says nothing."""
    label = series.label
    pod = {"namespace": "default", "pod": f"work-{label.digest}", "container": "main"}
    for (node, uuid, index), rows in series.gpu.groupby(["node", "gpu_uuid", "gpu_index"]):
        labels = {
            "gpu": f"{index:.0f}", "UUID": uuid, "device": f"nvidia{index:.0f}", "Hostname": node,
            "modelName": label.gpu or "unknown GPU", "instance": f"{node}:9400", "job": "dcgm-exporter", **pod,
        }  # fmt: skip
        values = {name: rows[column] * factor for column, (name, factor) in _DCGM.items() if column in rows}
        if "mem_total_bytes" in rows:
            values["DCGM_FI_DEV_FB_FREE"] = (rows["mem_total_bytes"] - rows["mem_used_bytes"]) / MIB
        for name, column in values.items():
            present = column.notna().to_numpy()
            yield Series(name, labels, rows["ts"].to_numpy()[present] + shift, column.to_numpy(float)[present])
    for (node, device), rows in series.fabric.groupby(["node", "device"]):
        labels = {"device": device, "port": "1", "instance": f"{node}:9100", "Hostname": node, "job": "node-exporter"}
        ts = rows["ts"].to_numpy(float) + shift
        directions = {"transmitted": "tx_bytes_per_second", "received": "rx_bytes_per_second"}
        for direction, column in directions.items():
            counter = np.cumsum((rows[column] * rows["interval_seconds"]).to_numpy(float))
            yield Series(f"node_infiniband_port_data_{direction}_bytes_total", labels, ts, counter)
        for name, value in (("rate_bytes_per_second", rows[LINE_RATE].max()), ("state_id", 4.0)):
            yield Series(f"node_infiniband_{name}", labels, ts, np.full(len(ts), value))
