"""Builds frames by hand, with known answers: nodes, their GPUs, hours of constant use, fabric ports and workloads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from skuwise.advisor.classify.judge import judge
from skuwise.advisor.classify.types import Verdicts
from skuwise.advisor.core.column_rows import BinsArray
from skuwise.advisor.core.frame import WAITING, Frame, Window
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.telemetry import queries
from skuwise.agent.metrics import BIN_EDGES

from .rulebooks import rulebook

HOUR = 3600.0
START = 1_788_000_000.0 // HOUR * HOUR  # a full hour; nothing depends on which
GIB = 1024.0**3

# An unused H100. Columns of the frame's `gpu`, hourly means; p95 and max follow unless given.
FREE: Mapping[str, float] = {
    "gpu_util": 0.0, "sm_active": 0.0, "sm_occupancy": 0.0, "tensor_active": 0.0, "dram_active": 0.0,
    "fp64_active": 0.0, "fp32_active": 0.0, "mem_used_bytes": 0.0, "power_watts": 70.0, "sm_clock_hertz": 1.98e9,
    "mem_clock_hertz": 2.619e9, "pcie_tx_bytes_per_second": 1e5, "pcie_rx_bytes_per_second": 1e5,
    "nvlink_tx_bytes_per_second": 0.0, "nvlink_rx_bytes_per_second": 0.0,
}  # fmt: skip
TRAINING: Mapping[str, float] = FREE | {
    "gpu_util": 0.97, "sm_active": 0.85, "sm_occupancy": 0.25, "tensor_active": 0.55, "dram_active": 0.25,
    "mem_used_bytes": 55 * GIB, "power_watts": 600.0, "sm_clock_hertz": 1.83e9,
    "nvlink_tx_bytes_per_second": 90e9, "nvlink_rx_bytes_per_second": 90e9, "duty": 0.98, "period_seconds": 8.0,
    "period_strength": 0.8, "sm_active_cv": 0.2, "throttled_fraction": 0.0,
}  # fmt: skip
DECODE: Mapping[str, float] = FREE | {
    "gpu_util": 0.99, "sm_active": 0.85, "sm_occupancy": 0.2, "tensor_active": 0.08, "dram_active": 0.62,
    "mem_used_bytes": 73.6 * GIB, "power_watts": 280.0, "duty": 0.99, "sm_active_cv": 0.03, "throttled_fraction": 0.0,
}  # fmt: skip
HELD: Mapping[str, float] = FREE | {"mem_used_bytes": 40 * GIB, "power_watts": 110.0, "duty": 0.0}


@dataclass
class FrameBuilder:
    """Collects rows; `frame` makes the frame. Hours are counted from `START`."""

    hours: int = 48
    gpu_rows: list[dict[str, object]] = field(default_factory=list)
    fabric_rows: list[dict[str, object]] = field(default_factory=list)
    host_rows: list[dict[str, object]] = field(default_factory=list)
    nodes: list[dict[str, object]] = field(default_factory=list)
    gpus: list[dict[str, object]] = field(default_factory=list)
    workloads: list[dict[str, object]] = field(default_factory=list)
    uses: list[dict[str, object]] = field(default_factory=list)
    absences: list[dict[str, object]] = field(default_factory=list)

    def node(
        self, name: str = "n1", gpus: int = 1, sku: str | None = "H100-SXM5",
        name_of_gpu: str = "NVIDIA H100 80GB HBM3", first_seen: float = START, gpu_count: int | None = None,
        driver: str | None = None,
    ) -> list[str]:  # fmt: skip
        """A node and its GPUs; gives their uuids."""
        end = START + self.hours * HOUR
        # A node of fewer GPUs than its SKU has would show the others as unobserved.
        node_sku = "azure/Standard_ND96isr_H100_v5" if gpus == 8 else None
        self.nodes.append({"node": name, "cluster": "c", "node_sku": node_sku,
                           "gpu_count": gpus if gpu_count is None else gpu_count, "first_seen": first_seen,
                           "last_seen": end})  # fmt: skip
        uuids = [f"GPU-{name}-{n}" for n in range(gpus)]
        for n, uuid in enumerate(uuids):
            self.gpus.append({"node": name, "gpu_uuid": uuid, "name": name_of_gpu, "sku": sku, "kind": "gpu",
                              "gpu_index": n, "mem_total_bytes": 80 * GIB, "power_limit_watts": 700.0,
                              "driver_version": driver, "nvlink_bytes_per_second": 450e9,
                              "valid_from": first_seen})  # fmt: skip
        return uuids

    def use(
        self, values: Mapping[str, float], node: str = "n1", uuid: str = "GPU-n1-0", *, start: int = 0,
        end: int | None = None, wave: str = "", interval: float = HOUR, observed: float = 1.0,
        **extra: Sequence[float] | float,
    ) -> None:  # fmt: skip
        """Rows of a GPU from hour `start` to `end`; `wave` follows the day; `extra` sets columns as named."""
        end = self.hours if end is None else end
        for n in range(int((end - start) * HOUR / interval)):
            ts = START + start * HOUR + (n + 1) * interval
            row: dict[str, object] = {"node": node, "gpu_uuid": uuid, "gpu_index": float(uuid.rsplit("-", 1)[1]),
                                      "ts": ts, "interval_seconds": interval, "observed_seconds": observed * interval,
                                      "mem_total_bytes": 80 * GIB}  # fmt: skip
            for name, value in values.items():
                if f"{name}_mean" not in queries.GPU_HOURS.numbers:
                    row[name] = value
                    continue
                level = value * (1 + 0.5 * np.sin(2 * np.pi * ts / 86400)) if name == wave else value
                if name == "power_watts" or not name.endswith(("_bytes", "_hertz", "_second")):
                    level *= 1 - 1e-7 * (n * 37 % 101) / 101  # what repeats to the last digit was not measured
                row |= {f"{name}_mean": level, f"{name}_p95": level, f"{name}_max": level}
            row["gpu_util_n"] = observed * interval
            for name in ("sm_active", "tensor_active", "dram_active"):
                row[f"{name}_bins"] = bins_at(row.get(f"{name}_mean"), observed * interval)
            nvlink = values.get("nvlink_tx_bytes_per_second")
            row["nvlink_bins"] = bins_at(None if nvlink is None else nvlink / 450e9, observed * interval)
            row |= {k: (v[n] if isinstance(v, Sequence) else v) for k, v in extra.items()}
            self.gpu_rows.append(row)

    def work(
        self, workload_id: str, uuids: Sequence[tuple[str, str]], *, start: float = 0, end: float | None = None,
        name: str = "w", series: str = "s", basis: str = "process", **about: object,
    ) -> None:  # fmt: skip
        """A workload that holds these (node, uuid) from hour `start` to `end`."""
        a, b = START + start * HOUR, START + (self.hours if end is None else end) * HOUR
        if workload_id not in {w["workload_id"] for w in self.workloads}:
            self.workloads.append({"workload_id": workload_id, "series_id": series, "name": name,
                                   "scheduler": "process", "first_seen": a, "last_seen": b} | about)  # fmt: skip
        for node, uuid in uuids:
            self.uses.append({"workload_id": workload_id, "node": node, "gpu_uuid": uuid, "basis": basis,
                              "ts_start": a, "ts_end": b, "shared": 0.0})  # fmt: skip

    def port(
        self, util: float | None, node: str = "n1", device: str = "mlx5_0", *, role: str = "compute",
        active: float = 1.0,
    ) -> None:  # fmt: skip
        """A fabric port with the same use through all hours; None: nothing could be read."""
        row = {"node": node, "device": device, "port": 1.0, "role": role, "link_layer": "InfiniBand",
               "interval_seconds": HOUR, "line_rate_bytes_per_second": 50e9, "observed_seconds": HOUR,
               "active_fraction": active}  # fmt: skip
        if util is not None:
            row |= {"util_mean": util, "util_p95": util, "util_max": util, "util_n": HOUR,
                    "tx_bytes_per_second_mean": util * 50e9, "rx_bytes_per_second_mean": util * 50e9,
                    "util_bins": bins_at(util, HOUR)}  # fmt: skip
        self.fabric_rows += [{**row, "ts": START + (n + 1) * HOUR} for n in range(self.hours)]

    def frame(self, window: Window | None = None) -> Frame:
        """The frame, with every column that the views have."""
        return Frame(
            window=window or Window(START, START + self.hours * HOUR),
            nodes=table(self.nodes, queries.NODES.columns, queries.NODES.numbers),
            gpus=table(self.gpus, queries.GPUS.columns, queries.GPUS.numbers),
            gpu=table(self.gpu_rows, queries.GPU_HOURS.columns, queries.GPU_HOURS.numbers),
            fabric=table(self.fabric_rows, queries.FABRIC_HOURS.columns, queries.FABRIC_HOURS.numbers),
            host=table(self.host_rows, queries.HOST_HOURS.columns, queries.HOST_HOURS.numbers),
            workloads=table(self.workloads, queries.WORKLOADS.columns, queries.WORKLOADS.numbers),
            uses=table(self.uses, queries.USES.columns, queries.USES.numbers),
            absences=table(self.absences, queries.ABSENCES.columns, queries.ABSENCES.numbers),
            source={"kind": "hand-made"},
        )

    def judged(self) -> Verdicts:
        """The verdicts on the frame by the rulebook that ships."""
        return judge(self.frame(), rulebook())


def queue(*rows: Mapping[str, object]) -> pd.DataFrame:
    """Jobs that wait, as a frame has them: of Slurm, one job each on one node, unless a row says otherwise."""
    job = {"scheduler": "slurm", "id": "1", "name": "train", "user": "ann", "jobs": 1, "gpus": 1.0, "nodes": 1.0,
           "since": START, "reason": "Resources"}  # fmt: skip
    made = pd.DataFrame([{**job, **row} for row in rows], columns=WAITING)
    return made.astype(object).where(made.notna(), None).astype({"gpus": float, "nodes": float, "since": float})


def bins_at(value: object, seconds: float) -> np.ndarray | None:
    """All seconds in the bin of one value; None where there is none."""
    if not isinstance(value, float):
        return None
    bins = np.zeros(len(BIN_EDGES))
    bins[np.searchsorted(BIN_EDGES, value, side="right") - 1] = seconds
    return bins


def table(rows: list[dict[str, object]], columns: Sequence[str], numbers: Sequence[str]) -> pd.DataFrame:
    """Rows as a table with these columns: numbers as floats with NaN, bins as such, the rest as objects with None."""
    made = pd.DataFrame(rows, columns=list(columns))
    for name in columns:
        made[name] = made[name].astype(float) if name in numbers else made[name].astype(object).where(
            made[name].notna(), None
        )  # fmt: skip
    return made.assign(**{name: BinsArray.of(made[name]) for name in columns if name.endswith("_bins")})


def at_work(
    values: Mapping[str, float], *, hours: int = 48, gpus: int = 1, name: str = "NVIDIA H100 80GB HBM3",
    work: Mapping[str, Any] | None = None, **extra: Any,
) -> FrameBuilder:  # fmt: skip
    """One workload that does one thing all along, alone on a node with `gpus` GPUs that the driver calls `name`.
    `work`: its identity; `extra`: as of `FrameBuilder.use`."""
    b = FrameBuilder(hours=hours)
    uuids = b.node(gpus=gpus, sku=None, name_of_gpu=name)
    for uuid in uuids:
        b.use(values, uuid=uuid, **extra)
    b.work("w", [("n1", uuid) for uuid in uuids], **(work or {}))
    return b


def alone(
    values: Mapping[str, float], *, hours: int = 36, gpus: int = 2, port: float | None = None, **extra: Any
) -> WorkloadVerdict:
    """The verdict on the workload of `at_work`. `port`: use of a fabric port of its node."""
    b = at_work(values, hours=hours, gpus=gpus, **extra)
    if port is not None:
        b.port(port)
    return b.judged().workloads[0]
