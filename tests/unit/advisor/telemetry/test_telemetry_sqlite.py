"""Databases of the real store, read back as a frame: hours, minutes, samples, several files, and bad ones."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from skuwise.advisor.core.frame import Window
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.agent.metrics import BIN_EDGES
from skuwise.agent.model import FabricPort, Gpu, Node, Tick, Workload
from skuwise.agent.store.node_writer import NodeWriter
from skuwise.agent.store.writer import Writer
from skuwise.rules.base.errors import NothingToDo

HOUR = 3600.0
T0 = 1_790_000_000.0 // HOUR * HOUR
RATE = 50e9


def _node(writer: Writer, name: str = "n1", ts: float = T0, machine: str = "m1") -> NodeWriter:
    node = writer.for_node(Node(name, "c", machine_id=machine, gpu_count=1), ts)
    node.set_gpus([Gpu(f"GPU-{name}", 0, "NVIDIA H100 80GB HBM3", mem_total_bytes=80 * 2**30)], ts)
    node.set_ports([FabricPort("mlx5_0", 1, "compute", "InfiniBand", RATE)], ts)
    return node


@contextmanager
def _writing(folder: Path) -> Iterator[NodeWriter]:
    with Writer.open(folder / "n1.db") as writer:
        yield _node(writer)


def _ticks(node: NodeWriter, start: float, seconds: Sequence[float], sm: float = 0.5) -> None:
    values = {"gpu_util": 0.9, "sm_active": sm, "tensor_active": 0.25, "power_watts": 300.0, "throttle_reasons": 4.0}
    fabric = {"mlx5_0/1": {"tx_bytes_per_second": 0.2 * RATE, "rx_bytes_per_second": 0.1 * RATE}}
    for second in seconds:
        at = start + second
        node.add_tick(Tick(at, 1.0, {"GPU-n1": values}, fabric, {"mlx5_0/1": "ACTIVE"}, {"cpu_util": 0.3}))


def _hours(node: NodeWriter, count: int, name: str = "n1", start: float = T0) -> None:
    bins = [0.0] * len(BIN_EDGES)
    bins[-3] = 3600.0
    columns = ("ts", "device", "observed_seconds", "sm_active_mean", "sm_active_p95", "sm_active_max",
               "tensor_active_bins")  # fmt: skip
    rows = [(start + (n + 1) * HOUR, f"GPU-{name}", 3600.0, 0.5, 0.75, 1.0, bins) for n in range(count)]
    node.put_rollups("gpu_hour", columns, rows)


def _minutes(node: NodeWriter, start: float, sm_active: Sequence[float]) -> None:
    rows = [(start + 60 * n, "GPU-n1", 60.0, value) for n, value in enumerate(sm_active, 1)]
    node.put_rollups("gpu_minute", ("ts", "device", "observed_seconds", "sm_active_mean"), rows)


def test_a_young_database_is_read_from_its_samples(tmp_path: Path) -> None:
    with _writing(tmp_path) as node:
        _ticks(node, T0, range(1, 91))
    frame = read_frame([tmp_path])
    assert frame.gpu["ts"].tolist() == [T0 + 60, T0 + 120] and frame.gpu["interval_seconds"].tolist() == [60, 60]
    assert frame.gpu["observed_seconds"].tolist() == pytest.approx([60, 30])
    first = frame.gpu.iloc[0]
    assert first["sm_active_mean"] == pytest.approx(0.5) and first["power_watts_p95"] == pytest.approx(300)
    assert first["gpu_util_n"] == 60 and (first["throttled_fraction"], first["duty"]) == (1.0, 1.0)
    assert np.isnan(first["dram_active_mean"]) and first["tensor_active_bins"] is None
    port = frame.fabric.iloc[0]
    assert port["util_mean"] == pytest.approx(0.2) and (port["active_fraction"], port["role"]) == (1.0, "compute")
    assert frame.host["cpu_util_mean"].iloc[0] == pytest.approx(0.3) and frame.window.end == T0 + 120


def test_hours_first_then_minutes_then_samples_each_moment_once(tmp_path: Path) -> None:
    with _writing(tmp_path) as node:
        _hours(node, 24)
        # Thirty minutes of the next hour as minutes, then a minute and a half of samples.
        _minutes(node, T0 + 24 * HOUR, [0.4] * 30)
        _ticks(node, T0 + 24 * HOUR + 1800, range(1, 91))
    frame = read_frame([tmp_path])
    assert len(frame.gpu) == 24 + 30 + 2
    assert float(frame.gpu["observed_seconds"].sum()) == pytest.approx(24 * 3600 + 1800 + 90)
    first, *_, last = frame.gpu["tensor_active_bins"]
    assert frame.gpu["ts"].is_unique and last is None and first.shape == (len(BIN_EDGES),) and first.sum() == 3600
    assert frame.gpu["sm_active_p95"].iloc[0] == pytest.approx(0.75)


def test_hours_that_a_use_cuts_are_read_as_minutes(tmp_path: Path) -> None:
    with _writing(tmp_path) as node:
        _hours(node, 4)
        # At rest before somebody uses it: what works then would be somebody's, too.
        _minutes(node, T0, [0.0] * 90 + [0.4] * 150)
        used = Workload("w1", "s1", "train", "process")
        node.put_workload_use(used, "GPU-n1", T0 + 1.5 * HOUR, T0 + 4 * HOUR, "process")
    frame = read_frame([tmp_path])
    assert frame.gpu["interval_seconds"].value_counts().to_dict() == {60.0: 60, 3600.0: 3}
    assert float(frame.gpu["observed_seconds"].sum()) == pytest.approx(4 * 3600)
    assert frame.workloads["name"].tolist() == ["train"] and frame.uses["shared"].tolist() == [0.0]


def test_rows_of_a_minute_or_of_five_stand_in_place_of_hours(tmp_path: Path) -> None:
    with _writing(tmp_path) as node:
        _hours(node, 2)
        columns = ("ts", "device", "observed_seconds", "sm_active_mean", "sm_active_p95", "sm_active_max", "gpu_util_n")
        minutes = [
            (T0 + 60 * (n + 1), "GPU-n1", 60.0 if n % 5 else 30.0, 0.1 * (n % 5), 0.6, 0.7 + 0.05 * (n % 5), 60)
            for n in range(120)
        ]
        node.put_rollups("gpu_minute", columns, minutes)
        _ticks(node, T0 + 2 * HOUR, range(1, 181), sm=0.4)
    window = Window(T0 + HOUR, T0 + 2 * HOUR + 180)
    fine = read_frame([tmp_path], window, resolution=60.0).gpu
    assert fine["ts"].tolist() == [T0 + HOUR + 60 * (n + 1) for n in range(63)]
    coarse = read_frame([tmp_path], window, resolution=300.0, wanted=()).gpu
    assert coarse["ts"].tolist() == [T0 + HOUR + 300 * (n + 1) for n in range(12)]
    first = coarse.iloc[0]
    assert (first["interval_seconds"], first["observed_seconds"], first["gpu_util_n"]) == (300, 270, 300)
    assert first["sm_active_mean"] == pytest.approx((0.1 + 0.2 + 0.3 + 0.4) * 60 / 270)
    assert (first["sm_active_max"], first["mem_total_bytes"]) == (pytest.approx(0.9), 80 * 2**30)
    assert np.isnan(first["power_watts_mean"])
    assert read_frame([tmp_path], window, resolution=300.0, wanted=("GPU-n2",)).gpu.empty


def test_a_window_cuts_at_its_edges(tmp_path: Path) -> None:
    with _writing(tmp_path) as node:
        _hours(node, 48)
    frame = read_frame([tmp_path], Window(T0 + 10.5 * HOUR, T0 + 20 * HOUR))
    assert frame.gpu["ts"].min() == T0 + 12 * HOUR and len(frame.gpu) == 9
    last_day = read_frame([tmp_path], since_seconds=86400, until=T0 + 40 * HOUR)
    assert last_day.window == Window(T0 + 16 * HOUR, T0 + 40 * HOUR) and len(last_day.gpu) == 24


def test_the_fabric_is_remembered_beyond_the_window(tmp_path: Path) -> None:
    columns = ("ts", "device", "observed_seconds", "util_mean", "util_max")
    with _writing(tmp_path) as node:
        _hours(node, 100)
        rows = [(T0 + (n + 1) * HOUR, "mlx5_0/1", 3600.0, 0.0, 0.5 if n == 3 else 0.0) for n in range(100)]
        node.put_rollups("fabric_hour", columns, rows)
    frame = read_frame([tmp_path], since_seconds=86400)
    assert frame.fabric["ts"].min() > T0 + 70 * HOUR
    (history,) = frame.fabric_history.to_dict("records")
    assert history["last_active_ts"] == T0 + 4 * HOUR and history["hours"] == pytest.approx(100)


def test_a_folder_of_nodes_and_two_machines_of_one_name(tmp_path: Path) -> None:
    for n, machine in enumerate(("m1", "m2")):
        with Writer.open(tmp_path / f"{machine}.db") as writer:
            _hours(_node(writer, machine=machine), 5, start=T0 + n * 5 * HOUR)
    with Writer.open(tmp_path / "n2.db") as writer:
        _hours(_node(writer, "n2"), 5, "n2")
    frame = read_frame([tmp_path])
    assert frame.nodes["node"].tolist() == ["n1", "n2"] and len(frame.gpu) == 15


def test_an_empty_database_and_an_empty_window_say_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "n1.db"
    with Writer.open(path) as writer:
        writer.for_node(Node("n1"), T0)
    with pytest.raises(NothingToDo, match="No samples yet"):
        read_frame([path])
    with Writer.open(path) as writer:
        _hours(_node(writer), 5)
    with pytest.raises(NothingToDo, match="has data from 2026-09-21 14:00 UTC to 2026-09-21 19:00 UTC"):
        read_frame([path], Window(T0 - 100 * HOUR, T0 - 50 * HOUR))
