"""The agent as a person runs it, on a node whose every value is known: the views say what the scenario says."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from skuwise.tests.nvmlstub import read_calls, stub_env
from skuwise.tests.support.metrics_fixtures import VLLM, counted, dcgm_page, serving
from skuwise.tests.support.sysfs_trees import dgx_like

HOPPER = """
[gpu 0-1]
name = NVIDIA H100 80GB HBM3
nvlink_links = 18
gpu_util = 0.87
sm_active = 0.5
sm_occupancy = 0.31
tensor_active = 0.42
dram_active = 0.63
fp64_active = 0.011
fp32_active = 0.12
fp16_active = 0.013
mem_used_bytes = 34359738368
power_watts = 412
sm_clock_hertz = 1.755e9
mem_clock_hertz = 2.619e9
temperature_celsius = 61
throttle_reasons = 0x24
pcie_tx_bytes_per_second = 3e9
pcie_rx_bytes_per_second = 12e9
nvlink_tx_bytes_per_second = 180e9
nvlink_rx_bytes_per_second = 170e9
"""
TRUTH = {
    "gpu_util": 0.87, "sm_active": 0.5, "sm_occupancy": 0.31, "tensor_active": 0.42, "dram_active": 0.63,
    "fp64_active": 0.011, "fp32_active": 0.12, "fp16_active": 0.013, "mem_used_bytes": 34359738368, "power_watts": 412,
    "sm_clock_hertz": 1.755e9, "mem_clock_hertz": 2.619e9, "temperature_celsius": 61, "throttle_reasons": 0x24,
    "pcie_tx_bytes_per_second": 3e9, "pcie_rx_bytes_per_second": 12e9, "nvlink_tx_bytes_per_second": 180e9,
    "nvlink_rx_bytes_per_second": 170e9,
}  # fmt: skip


def node(folder: Path, scenario: str = HOPPER, **options: object) -> tuple[dict[str, str], list[str]]:
    _, bus_ids = dgx_like(folder / "sys")
    (folder / "sys" / "block").mkdir(exist_ok=True)
    places = "".join(f"[gpu {i}]\nbus_id = {bus_id}\n" for i, bus_id in enumerate(bus_ids[:2]))
    return stub_env(folder, scenario + places, **options), ["--path.sysfs", str(folder / "sys")]  # type: ignore[arg-type]


def skuwise(*arguments: str, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "skuwise", *arguments]
    return subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)


def rows(db: Path, sql: str) -> list[dict[str, object]]:
    with sqlite3.connect(f"file:{db}?mode=ro", uri=True) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(sql)]


@pytest.mark.slow
def test_the_views_say_what_the_scenario_says(tmp_path: Path) -> None:
    env, paths = node(tmp_path)
    db = tmp_path / "node.db"
    done = skuwise(
        "agent", "run", "--db", str(db), "--interval", "0.2s", "--duration", "3s", *paths, env=env, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "2 GPUs, 10 fabric ports" in done.stderr
    samples = rows(db, "SELECT * FROM gpu_samples")
    assert len(samples) == 2 * 15
    for name, value in TRUTH.items():
        seen = [row[name] for row in samples if row[name] is not None]
        assert len(seen) >= 20, name
        assert seen == pytest.approx([value] * len(seen), rel=0.03), name
    for row in samples:
        if row["energy_joules"] is not None:
            assert row["energy_joules"] == pytest.approx(412 * row["interval_seconds"], rel=0.35)  # type: ignore[operator]
    total = sum(row["energy_joules"] or 0 for row in samples)  # type: ignore[misc]
    assert total == pytest.approx(2 * 412 * 3, rel=0.12)
    ports = rows(db, "SELECT DISTINCT device, role, state, line_rate_bytes_per_second AS rate FROM fabric_samples")
    assert {(p["device"], p["role"]) for p in ports} >= {("mlx5_0", "compute"), ("mlx5_1", "compute")}
    assert {p["state"] for p in ports} == {"ACTIVE"}
    assert {p["rate"] for p in ports} == {50e9}
    assert rows(db, "SELECT count(*) AS n FROM host_samples WHERE cpu_util IS NOT NULL")[0]["n"] == 15
    (seen,) = rows(db, "SELECT node, gpu_count, agent_version FROM nodes")
    assert seen["gpu_count"] == 2 and seen["agent_version"]
    assert [r["sku"] for r in rows(db, "SELECT sku FROM gpus")] == ["H100-SXM5"] * 2
    calls = read_calls(tmp_path)
    assert "nvmlDeviceGetPcieThroughput" not in calls
    assert calls["gpm.live_samples"] == 0


@pytest.mark.slow
def test_dcgm_exporter_stands_in_for_gpm_once_a_page(tmp_path: Path) -> None:
    scenario = HOPPER.replace("H100 80GB HBM3", "A100-SXM4-80GB") + "gpm = no\npcie_start_bytes = 1e10\n"
    env, paths = node(tmp_path, scenario)
    db = tmp_path / "node.db"
    uuids = [f"GPU-00000000-0000-4000-8000-{i:012d}" for i in range(2)]
    values = {"DCGM_FI_PROF_SM_ACTIVE": 0.61, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "9223372036854775794"}
    page = "".join(dcgm_page(values, uuid, i=i) for i, uuid in enumerate(uuids))
    with serving(page) as (url, asked):
        env["SKUWISE_DCGM_URL"] = url
        run = ("agent", "run", "--db", str(db), "--interval", "0.2s", "--duration", "2s", *paths)
        assert skuwise(*run, env=env, cwd=tmp_path).returncode == 0
        assert asked == ["/metrics"]  # 2 s are less than its interval
        doctor = skuwise("agent", "doctor", "--format", "json", *paths, env=env, cwd=tmp_path)
    samples = rows(db, "SELECT gpu_uuid, sm_active, tensor_active FROM gpu_samples")
    given = [row["gpu_uuid"] for row in samples if row["sm_active"] == pytest.approx(0.61)]
    assert sorted(given, key=str) == uuids
    assert sum(row["sm_active"] is not None for row in samples) == 2
    assert {row["tensor_active"] for row in samples} == {None}
    absent = {(r["metric"], r["reason"]) for r in rows(db, "SELECT metric, reason FROM absences")}
    assert not any(metric == "sm_active" for metric, _ in absent)
    assert ("tensor_active", "not-supported") in absent
    lines = {line["metric"]: line for line in json.loads(doctor.stdout) if line["subject"] == uuids[0]}
    assert (lines["sm_active"]["status"], lines["sm_active"]["source"]) == ("read", "dcgm")
    assert "DCGM_FI_PROF_DRAM_ACTIVE, gauge" in lines["dram_active"]["remedy"]
    assert lines["pcie_tx_bytes_per_second"]["origin"] == "NVML field 197"


@pytest.mark.slow  # two pages of a server lie 10 s apart
def test_a_local_server_is_watched(tmp_path: Path) -> None:
    env, paths = node(tmp_path)
    db = tmp_path / "node.db"
    steps = iter(range(100))

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        request.wfile.write(counted(VLLM, next(steps)).encode())

    with serving(answer) as (url, _):
        env["SKUWISE_SERVING_ENDPOINTS"] = url
        run = ("agent", "run", "--db", str(db), "--interval", "1s", "--duration", "13s", *paths)
        assert skuwise(*run, env=env, cwd=tmp_path).returncode == 0
    (sample,) = rows(db, "SELECT * FROM serving_samples")
    assert sample["engine"] == "vllm"
    assert sample["endpoint"] == url
    assert sample["workload_id"] is None  # this test serves it, and holds no GPU
    assert sample["kv_cache_usage"] == pytest.approx(0.4565)
    assert sample["prompt_tokens_per_second"] == pytest.approx(1000 / float(str(sample["interval_seconds"])), rel=0.01)


@pytest.mark.slow
def test_once_prints_every_metric_as_json(tmp_path: Path) -> None:
    env, paths = node(tmp_path)
    done = skuwise("agent", "once", "--format", "json", *paths, env=env, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    reading = json.loads(done.stdout)
    assert len(reading["gpus"]) == 2
    for name, value in TRUTH.items():
        # Power is a counter's over half a second of this machine's time, which it may be late to read.
        nearness = 0.5 if name == "power_watts" else 0.03
        assert reading["gpus"][0][name] == pytest.approx(value, rel=nearness), name
    table = skuwise("agent", "once", *paths, env=env, cwd=tmp_path).stdout
    assert "H100-SXM5" in table and "50.0 %" in table and "mlx5_0/1" in table
    assert "1 readings" not in table


@pytest.mark.slow
def test_doctor_names_cause_and_remedy(tmp_path: Path) -> None:
    env, paths = node(tmp_path, HOPPER + "gpm = no\n")
    done = skuwise("agent", "doctor", "--format", "json", *paths, env=env, cwd=tmp_path)
    lines = json.loads(done.stdout)
    missing = [line for line in lines if line["reason"] == "no-gpm"]
    assert missing and all(line["remedy"] for line in missing)
    # What cannot be read has its sentence and its remedy, whatever it is; what is read on a tick has its cost.
    assert all(line["detail"] and line["remedy"] for line in lines if line["status"] == "absent")
    costs = {line["source"]: line["source_cpu_seconds"] for line in lines}
    assert costs["nvml"] == costs["nvlink"] and costs["nvml"] > 0 and costs["host"] > 0 and costs["store"] is None
    assert any(line["source"] == "serving" and line["reason"] == "not-configured" for line in lines)
    assert any(line["metric"] == "power_watts" and line["status"] == "read" for line in lines)
    table = skuwise("agent", "doctor", *paths, env=env, cwd=tmp_path).stdout
    assert "no-gpm" in table and "Remedy:" in table and len(table.splitlines()) < 50
