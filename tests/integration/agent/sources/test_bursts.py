"""Bursts beside ticks, on GPUs whose rhythm is known: what they find, and that the ticks do not notice them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from skuwise.tests.nvmlstub import read_calls, stub_env
from skuwise.tests.support.sysfs_trees import dgx_like

# A training step of 0.8 s: it computes for 0.5 s and sends over NVLink for 0.3 s. Means over a second hide it.
STEPS = """
[gpu 0-1]
name = NVIDIA H100 80GB HBM3
nvlink_links = 18
sm_active = 0.9 0.5:0.1 every:0.8
tensor_active = 0.6 0.5:0 every:0.8
dram_active = 0.4
nvlink_tx_bytes_per_second = 0 0.5:200e9 every:0.8
nvlink_rx_bytes_per_second = 0 0.5:190e9 every:0.8
"""
UUIDS = [f"GPU-00000000-0000-4000-8000-{i:012d}" for i in range(2)]


def taken(folder: Path, scenario: str, *plan: list[object]) -> tuple[list[dict[str, Any]], list[Any]]:
    """What each step told, and the ticks beside them."""
    _, bus_ids = dgx_like(folder / "sys")
    places = "".join(f"[gpu {i}]\nbus_id = {bus_id}\n" for i, bus_id in enumerate(bus_ids[:2]))
    done = subprocess.run(
        [sys.executable, "-m", "skuwise.tests.support.burst_fixtures", str(folder / "sys"), json.dumps(plan)],
        env=stub_env(folder, scenario + places),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    *steps, end = [json.loads(line) for line in done.stdout.splitlines()]
    return steps, end["ticks"]


def test_a_burst_finds_the_step_while_ticks_go_on_and_a_pause_ends_it(tmp_path: Path) -> None:
    (first, paused), ticks = taken(tmp_path, STEPS, ["burst", 3.0], ["pause", 0.5], ["resume"])
    assert [burst["gpu_uuid"] for burst in first["bursts"]] == UUIDS
    for burst in first["bursts"]:
        assert burst["period_seconds"] == pytest.approx(0.8, rel=0.05)
        assert burst["period_strength"] > 0.6
        assert burst["duty"] == pytest.approx(1.0)
        assert burst["sm_active_cv"] == pytest.approx(0.65, abs=0.2)
        assert burst["tensor_nvlink_correlation"] < -0.9
        assert burst["tensor_fabric_correlation"] > 0.6
        assert burst["n"] >= 20
    assert paused["bursts"] == [] and paused["absences"] == []
    assert paused["seconds"] < 5  # not the whole burst
    seen = [(gpus, reasons) for _, gpus, reasons in ticks]
    assert sum(gpus == UUIDS for gpus, _ in seen) >= 15
    assert ["paused"] in [reasons for _, reasons in seen]
    assert seen[-1][0] == UUIDS
    calls = read_calls(tmp_path)
    assert calls["gpm.live_samples"] == 0
    assert calls["gpm.smallest_gap_seconds"] >= 0.1


def test_a_hung_driver_ends_a_burst_and_is_not_asked_again(tmp_path: Path) -> None:
    (step,), ticks = taken(tmp_path, STEPS + "delay_ms.nvmlGpmMetricsGet = 0 0.6:2500\n", ["burst", 3.0])
    assert step["bursts"] == [] and step["again"] == 0
    assert step["seconds"] < 3
    assert ["driver-hung"] in [reasons for _, _, reasons in ticks]


def test_without_gpm_there_is_no_burst_and_a_reason(tmp_path: Path) -> None:
    (step,), _ = taken(tmp_path, STEPS + "gpm = no\n", ["burst", 0.3])
    assert step["bursts"] == []
    assert step["absences"] == [[uuid, "burst", "no-gpm"] for uuid in UUIDS]
