"""The points that no public source settles (docs/hardware.md): each test asks the hardware and writes what it said.

A test fails only where the answer contradicts what skuwise's code relies on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pynvml
import pytest
from skuwise.tests.hardware import nvml_device
from skuwise.tests.hardware.figures import coverage
from skuwise.tests.hardware.findings import Findings
from skuwise.tests.hardware.watched import Watch

pytestmark = pytest.mark.hardware
PROBE = Path(__file__).with_name("gpm_probe.py")
NOBODY = 65534
NO_PERMISSION = 4  # nvmlReturn_t


@pytest.fixture(scope="module")
def gpm() -> dict[str, Any]:
    """What GPM says to this user."""
    return _probe()


def _probe(*as_user: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, PROBE, *as_user], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"stage": "not run", "message": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout)


@pytest.fixture
def gpm_here(gpm: dict[str, Any]) -> dict[str, Any]:
    if not gpm.get("supported"):
        pytest.skip(f"this GPU or driver has no GPM (at {gpm['stage']}: {gpm.get('message', 'not supported')})")
    return gpm


def test_who_may_read_gpm(gpm_here: dict[str, Any], findings: Findings) -> None:
    params = Path("/proc/driver/nvidia/params")
    lines = params.read_text().splitlines() if params.exists() else []
    profiling = next((line for line in lines if line.startswith("RmProfilingAdminOnly")), "not shown")
    others = _probe(str(NOBODY)) if os.getuid() == 0 else gpm_here
    settled = others["stage"] != "not run"
    answer = "yes" if others.get("stage") == "done" else str(others.get("message", "refused"))
    findings.add(
        "gpm-privileges",
        "May an ordinary user read GPM?",
        f"{answer} ({profiling})",
        settled=settled,
        uid=others.get("uid"),
        code=others.get("code"),
        stage=others.get("stage"),
    )
    if settled and others.get("stage") != "done":
        assert others.get("code") == NO_PERMISSION, "the agent takes code 4 for a lack of privileges, not this one"


def test_how_close_gpm_samples_may_lie(gpm_here: dict[str, Any], findings: Findings) -> None:
    assert gpm_here["stage"] == "done", gpm_here
    spacings = gpm_here["spacings"]
    good = [gap for gap, said in spacings.items() if said == {"code": 0, "nan": False}]
    findings.add(
        "gpm-spacing",
        "How close may two GPM samples lie?",
        f"values at {', '.join(good)} s",
        spacings=spacings,
        sample_get_seconds=gpm_here["sample_get_seconds"],
    )
    assert "0.2" in good and "1.0" in good


def test_which_gpm_metrics_answer(gpm_here: dict[str, Any], findings: Findings) -> None:
    said = gpm_here["metrics"]
    refused = {number: value for number, value in said.items() if value is None or value < 0}
    findings.add("gpm-metrics", "Which GPM metrics answer?", f"all but {sorted(refused) or 'none'}", metrics=said)
    needed = {"2", "3", "5", "10"}  # SM_UTIL, SM_OCCUPANCY, ANY_TENSOR, DRAM_BW_UTIL
    assert not needed & refused.keys()
    assert all(value is None or value <= 100 for number, value in said.items() if int(number) <= 13)


def test_memory_v2_leaves_the_reserve_out_of_used(findings: Findings) -> None:
    with nvml_device.device() as handle:
        one = pynvml.nvmlDeviceGetMemoryInfo(handle)
        two: Any = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    rest = two.total - two.reserved - two.free - two.used
    findings.add(
        "memory-v2",
        "Does nvmlDeviceGetMemoryInfo_v2.used leave out the driver's reserve?",
        f"v1 used {one.used}, v2 used {two.used}, reserved {two.reserved}; total - reserved - free - used = {rest}",
        v1_used=one.used,
        v2_used=two.used,
        v2_reserved=two.reserved,
        total=two.total,
    )
    assert two.reserved > 0
    assert abs(rest) <= 2 * 2**20  # the parts make the whole only where used does not hold the reserve
    assert one.used == pytest.approx(two.used + two.reserved, abs=64 * 2**20)


def test_how_the_energy_counter_steps(findings: Findings) -> None:
    with nvml_device.device() as handle:
        steps = nvml_device.energy_steps(handle, 3.0)
    if steps.period_seconds is None:
        pytest.skip("field 83 does not move on this GPU")
    findings.add(
        "energy-step",
        "How often does the energy counter (field 83) move, and by how much?",
        f"every {steps.period_seconds * 1e3:.1f} ms by {steps.step_joules} J",
        reads=steps.reads,
        changes=steps.changes,
    )
    # Power at 0.1 s is a difference of this counter: a step of 10 ms is an error of up to a tenth there.
    assert steps.period_seconds <= 0.11


def test_what_the_power_readings_mean(findings: Findings) -> None:
    with nvml_device.device() as handle:
        before, began = nvml_device.energy_joules(handle), time.perf_counter()
        time.sleep(2.0)
        passed, drawn = time.perf_counter() - began, nvml_device.energy_joules(handle) - before
        fields = nvml_device.read_fields(handle, [(185, 0), (186, 0), (185, 1), (186, 1)])
        usage = pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3
    shown = {f"{f.field}/{f.scope}": f.value if f.value is None else f.value / 1e3 for f in fields}
    findings.add(
        "power-readings",
        "What do fields 185 and 186 and nvmlDeviceGetPowerUsage say beside the energy counter?",
        f"{drawn / passed:.1f} W from energy, {usage:.1f} W usage, fields {shown}",
        codes={f"{f.field}/{f.scope}": f.code for f in fields},
    )
    assert usage == pytest.approx(drawn / passed, rel=0.25)


def test_which_link_counters_answer(findings: Findings) -> None:
    with nvml_device.device() as handle:
        links = nvml_device.read_fields(handle, [(91, 0)])[0].value or 0
        wanted = [(f, s) for f in nvml_device.NVLINK_FIELDS for s in (nvml_device.ALL_LINKS, 0)]
        wanted += [(field, 0) for field in nvml_device.PCIE_FIELDS]
        fields = nvml_device.read_fields(handle, wanted)
        summed, parts = _sum_and_parts(handle, links)
    findings.add(
        "link-counters",
        "Which NVLink and PCIe counters answer, and is scope UINT_MAX the sum of the links?",
        f"{links} links; sum {summed}, parts {parts}",
        settled=links > 0,
        codes={f"{f.field}/{f.scope}": f.code for f in fields},
        slowest_seconds=max(f.latency_seconds for f in fields),
    )
    if summed is not None and parts is not None:
        assert summed == pytest.approx(parts, rel=0.01, abs=1024)


def _sum_and_parts(handle: Any, links: int) -> tuple[int | None, int | None]:
    """Field 138 (KiB sent, all time) as the driver sums it, and summed here over the links."""
    read = nvml_device.read_fields(handle, [(138, nvml_device.ALL_LINKS), *((138, link) for link in range(links))])
    values = [f.value for f in read[1:]]
    return read[0].value, sum(v for v in values if v is not None) if values and None not in values else None


def test_no_call_of_a_tick_blocks(findings: Findings) -> None:
    with nvml_device.device() as handle:
        calls = {
            "nvmlDeviceGetUtilizationRates": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle),
            "nvmlDeviceGetMemoryInfo_v2": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2),
            "nvmlDeviceGetClockInfo": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "nvmlDeviceGetTemperature": lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "nvmlDeviceGetComputeRunningProcesses": lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle),
            "nvmlDeviceGetFieldValues": lambda: nvml_device.read_fields(handle, [(83, 0), (138, 0), (139, 0)]),
        }
        costs = {name: nvml_device.call_seconds(50, call) for name, call in calls.items()}
        avoided = nvml_device.call_seconds(5, lambda: pynvml.nvmlDeviceGetPcieThroughput(handle, 0))
    slowest = max(costs, key=lambda name: costs[name][0])
    findings.add(
        "call-cost",
        "What does each NVML call of a tick cost?",
        f"slowest is {slowest}, {costs[slowest][0] * 1e3:.2f} ms; the avoided nvmlDeviceGetPcieThroughput takes "
        f"{avoided[0] * 1e3:.0f} ms",
        median_and_worst_seconds=costs,
    )
    # A ratio, not a time: no call of the tick may be of the kind that samples for a while before it answers.
    assert costs[slowest][0] < avoided[0] / 2


@pytest.mark.slow
def test_bursts_reach_gpm(watch: Watch, findings: Findings) -> None:
    fast = watch("matmul", 0.1)
    there = {m: coverage(fast.ticks, fast.uuid, m) for m in ("sm_active", "tensor_active", "dram_active")}
    why = sorted({a.reason for a in fast.header.absences if a.subject == fast.uuid})
    findings.add(
        "gpm-at-0.1s",
        "Does GPM answer at every tick of 0.1 s, where samples lie barely more than 100 ms apart?",
        f"values in {min(there.values()):.0%} of the ticks; absences: {', '.join(why) or 'none'}",
        coverage=there,
    )
    assert min(there.values()) == 1.0 or why, "what is missing has no recorded reason"
