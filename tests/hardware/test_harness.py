"""The parts of the hardware tests that need no GPU: truth, arithmetic, and what is said where something is missing."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from skuwise.agent.model import Tick
from skuwise.benchmarks.performance.agent.impact import Mode, TimedRun, run_rounds, timed_run
from skuwise.rules.base.errors import NothingToDo, SourceError
from skuwise.rules.catalog.gpu_files import load_gpus
from skuwise.rules.catalog.types import GpuSku
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel
from skuwise.tests.hardware import figures, impact, observe, workloads
from skuwise.tests.hardware.export import export_window
from skuwise.tests.hardware.findings import Findings
from skuwise.tests.hardware.nvml_device import PowerLog, no_gpu_reason
from skuwise.tests.hardware.observe import run_work
from skuwise.tests.hardware.recordings import TRUTH, Label, Made, read_recording, write_recording
from skuwise.tests.nvmlstub import stub_env

SCRIPTS = Path(__file__).parent
WITHOUT_TORCH = workloads.importlib.util.find_spec("torch") is None


def ticks(interval: float = 1.0, **values: float) -> list[Tick]:
    return [Tick(100.0 + n * interval, interval, gpus={"GPU-0": values}) for n in range(1, 5)]


@pytest.fixture
def h100() -> GpuSku:
    sku = load_gpus().find("H100-SXM5")
    assert sku is not None
    return sku


def test_every_workload_has_a_label_that_a_recording_takes() -> None:
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


@pytest.mark.skipif(not WITHOUT_TORCH, reason="PyTorch is installed here")
def test_without_pytorch_a_workload_says_so() -> None:
    with pytest.raises(NothingToDo, match="PyTorch is not installed") as caught:
        run_work("matmul", 0.1, python=sys.executable)
    assert caught.value.remedy
    line = subprocess.run([sys.executable, workloads.__file__, "train"], capture_output=True, text=True, check=False)
    assert line.returncode == 3
    assert json.loads(line.stdout) == {"workload": "train", "skipped": "PyTorch is not installed in this Python"}


def test_a_workload_that_fails_is_named() -> None:
    with pytest.raises(SourceError, match="The workload idle failed"):
        run_work("idle", 0.1, python="/bin/false")


def test_scripts_say_where_there_is_no_gpu() -> None:
    if no_gpu_reason() is None:
        pytest.skip("there is a GPU here")
    for script in ("record.py", "impact.py", "run.py"):
        done = subprocess.run([sys.executable, SCRIPTS / script], capture_output=True, text=True, check=False)
        assert done.returncode == 3
        assert "no NVIDIA driver" in done.stderr and "Traceback" not in done.stderr


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


@pytest.mark.slow
def test_impact_runs_work_beside_real_agents(tmp_path: Path) -> None:
    def run(mode: Mode) -> TimedRun:
        return timed_run(lambda: 10.0, mode, ("--path.sysfs", str(tmp_path)), settle_seconds=0)

    results, seconds = run_rounds(run, impact.MODES, 1, random.Random(1))
    assert [(result.mode, result.slowdown.median) for result in results] == [("1 s", 0), ("0.1 s", 0)]
    assert all(result.rss_bytes > 10e6 for result in results)
    assert seconds["off"] == [10.0]


def test_the_seconds_of_work_are_those_of_a_thousand_iterations() -> None:
    assert impact.seconds_of("idle", 0.1, python=sys.executable) >= 1000 * 0.05  # it sleeps


def test_findings_are_written_as_they_come(tmp_path: Path) -> None:
    found = Findings(tmp_path / "out" / "findings.json", {"gpu": "a GPU"})
    found.add("a", "Is it?", "not yet", settled=False)
    found.add("a", "Is it?", "yes", watts=1.5)
    written = json.loads(found.path.read_text())
    assert written["schema"] == "skuwise.findings/1" and written["machine"] == {"gpu": "a GPU"}
    (one,) = written["findings"]
    assert one["answer"] == "yes" and one["settled"] and one["measured"] == {"watts": 1.5}


@pytest.mark.slow
def test_the_real_agent_is_watched_into_a_recording(tmp_path: Path) -> None:
    environment = stub_env(tmp_path, "[gpu 0]\ntensor_active = 0.25\n")
    with observe.agent(tmp_path / "node.db", 0.2, environment):
        truth = run_work("idle", 1.0, python=sys.executable)
    header, ticks = export_window(
        tmp_path / "node.db",
        truth.figures["started_at"],
        truth.figures["ended_at"],
        label=Label(**truth.label),  # type: ignore[arg-type] - checked when it is written
        made=Made("stub", "this test", "2026-01-01T00:00:00Z"),
        interval_seconds=0.2,
        truth=truth.figures,
        versions=truth.versions,
    )
    write_recording(tmp_path / "idle.jsonl.gz", header, ticks)
    recording = read_recording(tmp_path / "idle.jsonl.gz")
    (gpu,) = recording.header.gpus
    assert truth.figures["started_at"] - 1e-3 <= recording.start
    assert recording.ticks[-1].ts <= truth.figures["ended_at"]
    assert {tick.gpus[gpu.uuid]["tensor_active"] for tick in recording.ticks} == {0.25}


def test_the_stub_cannot_pass_for_hardware(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SCRIPTS / "record.py", "--out", tmp_path / "out"],
        env=stub_env(tmp_path, "[gpu 0]\n"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3 and "test double" in done.stderr
    assert not (tmp_path / "out").exists()
