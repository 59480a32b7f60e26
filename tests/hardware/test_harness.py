"""The parts of the hardware tests that need no GPU: truth, arithmetic, and what is said where something is missing."""

import math
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest
from skuwise.agent.model import Gpu, Node, Tick
from skuwise.agent.store.writer import Writer
from skuwise.rules.base.errors import SourceError
from skuwise.rules.catalog.gpu_files import load_gpus
from skuwise.rules.catalog.types import GpuSku
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel
from skuwise.tests.hardware import figures, workloads
from skuwise.tests.hardware.nvml_device import PowerLog
from skuwise.tests.hardware.observe import TRUTH, run_work
from skuwise.tests.hardware.watched import read_ticks


def ticks(interval: float = 1.0, **values: float) -> list[Tick]:
    return [Tick(100.0 + n * interval, interval, gpus={"GPU-0": values}) for n in range(1, 5)]


@pytest.fixture
def h100() -> GpuSku:
    sku = load_gpus().find("H100-SXM5")
    assert sku is not None
    return sku


def test_every_workload_has_a_known_label() -> None:
    for work in workloads.WORKS.values():
        assert work.kind in get_args(KindLabel)
        assert work.bottleneck in get_args(BottleneckLabel)
        assert work.text


def test_transformer_flops_by_hand() -> None:
    # One layer, one token of width 4 over a vocabulary of 8: 12 x 16 + 4 x 8 weights, scores and values 2 x 2 x 4 each.
    shape = workloads.Transformer(layers=1, width=4, heads=1, tokens=1, batch=1, vocabulary=8)
    assert shape.matmul_parameters() == 192 + 32
    assert shape.forward_flops() == 2 * 224 + 4 * 4
    assert shape.step_flops() == 3 * shape.forward_flops()
    assert workloads.matmul_flops(2, 3, 4) == 48


@pytest.mark.parametrize("name", ["matmul", "decode", "train"])
def test_flops_are_those_that_pytorch_counts(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: its own count is checked where it is")
    from importlib import import_module

    prepared = workloads.WORKS[name].prepare(workloads.Bench(torch, "cpu", True))
    with import_module("torch.utils.flop_counter").FlopCounterMode(display=False) as counter:
        prepared.step()
    assert counter.get_total_flops() == prepared.per_step["flops"]


def test_a_workload_runs_as_a_command_and_prints_its_truth() -> None:
    truth = run_work("idle", 0.1, python=sys.executable)
    assert truth.label == {"kind": "idle", "bottleneck": "idle", "work": workloads.WORKS["idle"].text}
    assert set(truth.figures) <= set(TRUTH)
    assert truth.figures["flops"] == 0 and truth.gpu_uuid is None
    assert truth.figures["ended_at"] - truth.figures["started_at"] == pytest.approx(truth.figures["seconds"], abs=0.5)
    assert truth.per_second("iterations") > 0


def test_tensor_rate_follows_activity_and_clock(h100: GpuSku) -> None:
    full = figures.tensor_flops_per_second(ticks(tensor_active=1.0, sm_clock_hertz=1.83e9), "GPU-0", h100)
    slow = figures.tensor_flops_per_second(ticks(tensor_active=0.5, sm_clock_hertz=0.915e9), "GPU-0", h100)
    assert full == pytest.approx(989.4e12, rel=1e-3)
    assert slow == pytest.approx(989.4e12 / 4, rel=1e-3)
    assert figures.tensor_flops_per_second(ticks(tensor_active=1.0), "GPU-0", h100) is None


def test_dram_rate_and_means(h100: GpuSku) -> None:
    assert figures.dram_bytes_per_second(ticks(dram_active=0.5), "GPU-0", h100) == pytest.approx(1.675e12)
    assert figures.dram_bytes_per_second(ticks(sm_active=0.5), "GPU-0", h100) is None
    uneven = [Tick(1.0, 1.0, {"GPU-0": {"sm_active": 0.0}}), Tick(4.0, 3.0, {"GPU-0": {"sm_active": 1.0}})]
    assert figures.time_mean(uneven, "GPU-0", "sm_active") == 0.75
    assert figures.coverage([*uneven, Tick(5.0, 1.0)], "GPU-0", "sm_active") == pytest.approx(2 / 3)
    assert figures.energy_over_power(ticks(energy_joules=100.0, power_watts=100.0), "GPU-0") == 1.0
    assert figures.energy_over_power(ticks(power_watts=100.0), "GPU-0") is None


def test_power_log_interpolates_and_does_not_extrapolate() -> None:
    log = PowerLog({"GPU-0": [(10.0, 0.0, 100.0), (11.0, 100.0, 110.0), (12.0, 300.0, 200.0)]})
    assert log.joules_between("GPU-0", 10.5, 11.5) == 150.0
    assert log.mean_watts("GPU-0", 10.5, 12.0) == 155.0
    assert math.isnan(log.joules_between("GPU-0", 9.0, 11.0))
    assert math.isnan(log.mean_watts("GPU-1", 10.0, 12.0))


def test_ticks_are_those_inside_the_work(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "node.db", now=lambda: 1.78e9) as writer:
        node = writer.for_node(Node("n1"), 1.78e9)
        node.set_gpus([Gpu("GPU-0", 3, "NVIDIA H200", sku="H200"), Gpu("GPU-1", 4, "NVIDIA H200")], 1.78e9)
        node.put_ticks(Tick(1.78e9 + n, 1.0, {"GPU-0": {"sm_active": 0.5}, "GPU-1": {}}) for n in range(1, 5))
    with closing(sqlite3.connect(tmp_path / "node.db")) as connection:
        found, ticks = read_ticks(connection, "GPU-0", 1.78e9 + 1, 1.78e9 + 3)
        assert (found.index, found.sku, [tick.ts for tick in ticks]) == (3, "H200", [1.78e9 + 2, 1.78e9 + 3])
        assert ticks[0].gpus == {"GPU-0": {"sm_active": pytest.approx(0.5)}}
        with pytest.raises(SourceError, match="no tick of that window"):
            read_ticks(connection, "GPU-0", 1.0, 2.0)
