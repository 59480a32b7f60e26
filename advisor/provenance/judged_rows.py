"""What an advice judged, row by row, as tables of a SQLite file: the numbers of findings are plain SELECTs on them.

`TABLES` has their columns. A row of ``judged_rows`` is one GPU (or MIG instance) over one interval as it was judged:
what was not believed of it is missing. ``workload_rows`` says whose it was, ``gpu_time`` shares each observed moment
out once. Ratios are 0..1, times are Unix seconds, NULL is missing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd

from ...agent.metrics import BIN_EDGES
from ...rules.base.errors import UsageError
from ..core.frame import Frame
from ..core.histogram_array import BinsArray
from ..rulebook import Rulebook
from ..verdicts.measured_rows import MeasuredRows, measured_rows
from ..verdicts.workloads.attribution import Attribution
from ..verdicts.workloads.mig import whole_gpus

Tables = Mapping[str, pd.DataFrame]

# Columns of judged_rows, the measure of `verdicts.features.utilization` each one is, and what of the view gpu_hours
# (gpu_minutes where only minutes are kept) it is made of. The ``*_sustained`` are use over what the GPU sustains.
MEASURES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "engine_active": ("g", ("gpu_util_mean", "sm_active_mean")),
    "engine_active_max": ("g_max", ("gpu_util_max", "sm_active_max")),
    "sm_active": ("sm", ("sm_active_mean",)),
    "sm_occupancy": ("o", ("sm_occupancy_mean",)),
    "tensor_use": ("c", ("tensor_active_mean", "sm_clock_hertz_mean")),
    "hbm_use": ("m", ("dram_active_mean", "mem_clock_hertz_mean")),
    "nvlink_use": ("n", ("nvlink_tx_bytes_per_second_mean", "nvlink_rx_bytes_per_second_mean")),
    "fabric_use": ("i", ()),
    "pcie_use": ("p", ("pcie_tx_bytes_per_second_mean", "pcie_rx_bytes_per_second_mean")),
    "tensor_sustained": ("u_c", ()),
    "hbm_sustained": ("u_m", ()),
    "nvlink_sustained": ("u_n", ()),
    "network_sustained": ("exchange", ()),
    "pcie_sustained": ("u_p", ()),
    "duty": ("duty", ("duty",)),
    "throttled": ("throttled", ("throttled_fraction",)),
    "clock_ratio": ("clock_ratio", ("sm_clock_hertz_mean",)),
    "power_watts": ("power", ("power_watts_mean",)),
    "idle_power_watts": ("idle_power", ()),
    "power_over_idle": ("power_over_idle", ()),
    "mem_used": ("mem", ("mem_used_bytes_mean", "mem_total_bytes")),
    "mem_used_max": ("mem_max", ("mem_used_bytes_max", "mem_total_bytes")),
    "idle": ("idle", ()),
    "fault": ("fault", ()),
}  # fmt: skip
# Seconds by bin of `bin_edges`, as JSON.
BINS: Mapping[str, str] = {
    "tensor_bins": "tensor_active_bins", "hbm_bins": "dram_active_bins", "sm_bins": "sm_active_bins",
    "nvlink_bins": "nvlink_bins",
}  # fmt: skip
TABLES: Mapping[str, tuple[str, ...]] = {
    # `part`: of a GPU that the row stands for; `instance`: of MIG; `bottleneck`: the label of the row;
    # `tensor_share`, `hbm_share`: the share of its peak that the GPU sustains.
    "judged_rows": (
        "row INTEGER PRIMARY KEY", "node", "gpu_uuid", "instance", "part", "ts", "interval_seconds", *MEASURES,
        "bottleneck", "tensor_share", "hbm_share", *BINS,
    ),
    # `seconds` of the row observed while the workload held the GPU; `whole`: nearly all of it; `shared` with others.
    "workload_rows": ("row", "workload_id", "seconds", "whole", "shared"),
    # `state`: held (by `holder`), shared, drained or nobody.
    "gpu_time": ("row", "holder", "state", "seconds"),
    "uses": ("workload_id", "node", "gpu_uuid", "ts_start", "ts_end"),
    "judged_nodes": ("node", "gpu_count"),
    "compute_ports": (
        "node", "port", "ts", "interval_seconds", "observed_seconds", "util_mean", "util_max", "util_p95", "util_bins",
    ),
    # How long each compute port is known, also before the window.
    "port_history": ("node", "port", "hours"),
    "bin_edges": ("slot", "low", "high"),
}  # fmt: skip


def judged_tables(frame: Frame, book: Rulebook) -> Tables:
    """The tables of `TABLES` that an advice on this frame, judged by this book, rests on."""
    judged = measured_rows(frame, book)
    nodes = [(name, float(node.gpu_count)) for name, node in judged.inventory.nodes.items()]
    high = (*BIN_EDGES[1:], 1.0)
    return {
        "judged_rows": _gpu_rows(judged),
        "workload_rows": judged.attribution.workload_rows,
        "gpu_time": _gpu_time(judged.attribution),
        "uses": judged.frame.uses,
        "judged_nodes": pd.DataFrame(nodes, columns=["node", "gpu_count"]),
        **_ports(judged.frame),
        "bin_edges": pd.DataFrame({"slot": range(len(high)), "low": BIN_EDGES, "high": high}),
    }


def write_rows(tables: Tables, path: Path) -> None:
    """The tables as a new SQLite file at `path`. Raises UsageError where it cannot be written."""
    if path.exists():
        raise UsageError(f"{path} already exists.", "Use a new file name.")
    try:
        with closing(sqlite3.connect(path)) as db, db:
            for name, columns in TABLES.items():
                db.execute(f"CREATE TABLE {name} ({', '.join(columns)})")
                marks = ", ".join("?" for _ in columns)
                cells = [_cells(tables[name][column.split()[0]]) for column in columns]
                db.executemany(f"INSERT INTO {name} VALUES ({marks})", zip(*cells, strict=True))
            db.execute("CREATE INDEX by_workload ON workload_rows (workload_id)")
            db.execute("CREATE INDEX by_gpu ON judged_rows (node, gpu_uuid)")
            db.execute("CREATE INDEX by_row ON gpu_time (row)")
    except sqlite3.Error as error:
        raise UsageError(f"Cannot write the rows to {path}: {error}.", "Use another file.") from None


def _gpu_rows(judged: MeasuredRows) -> pd.DataFrame:
    gpu = judged.frame.gpu
    peaks = judged.index.rows
    whole = pd.MultiIndex.from_frame(whole_gpus(judged.frame))
    return pd.DataFrame(
        {
            "row": np.arange(len(gpu)),
            "node": gpu["node"].to_numpy(),
            "gpu_uuid": gpu["gpu_uuid"].to_numpy(),
            "instance": ~pd.MultiIndex.from_frame(gpu[["node", "gpu_uuid"]]).isin(whole),
            "part": judged.parts,
            "ts": gpu["ts"].to_numpy(),
            "interval_seconds": gpu["interval_seconds"].to_numpy(),
            **{name: judged.rows[measure].to_numpy() for name, (measure, _) in MEASURES.items()},
            "bottleneck": judged.rows["label"].to_numpy(),
            "tensor_share": peaks["eta_c"].to_numpy(),
            "hbm_share": peaks["eta_m"].to_numpy(),
            **{name: gpu[column].array for name, column in BINS.items()},
        }
    )


def _gpu_time(attribution: Attribution) -> pd.DataFrame:
    places = attribution.places
    holder = places["workload_id"]
    states = [places["shared"].astype(bool), places["drained"].astype(bool), holder.notna()]
    state = np.select(states, ["shared", "drained", "held"], default="nobody")
    return pd.DataFrame({"row": places["row"], "holder": holder, "state": state, "seconds": places["seconds"]})


def _ports(frame: Frame) -> dict[str, pd.DataFrame]:
    ports, known = _compute_ports(frame.fabric), _compute_ports(frame.fabric_history)
    if frame.fabric_history.empty:  # the source cannot look back beyond the window
        seconds = ports.groupby(["node", "port"])["observed_seconds"].sum()
        known = (seconds / 3600).rename("hours").reset_index()
    return {"compute_ports": ports, "port_history": known}


def _compute_ports(ports: pd.DataFrame) -> pd.DataFrame:
    """Those of the compute fabric, each named ``device/port``."""
    if ports.empty:
        return pd.DataFrame(columns=[*TABLES["compute_ports"], "hours"])
    own = ports[ports["role"] == "compute"]
    return own.assign(port=[f"{device}/{int(port)}" for device, port in zip(own["device"], own["port"], strict=True)])


def _cells(column: pd.Series) -> list[object]:
    if isinstance(column.array, BinsArray):
        return [None if cell is None else json.dumps([float(seconds) for seconds in cell]) for cell in column.array]
    values = column.astype(int) if column.dtype == bool else column
    return values.astype(object).where(column.notna(), None).tolist()
