"""The stub itself, asked through pynvml's own functions: it is a tool others use."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from skuwise.tests.nvmlstub import StubClock, read_calls, stub_env

SCENARIO = """
[system]
driver = 560.35.03   # a comment
cuda = 12060
[gpu 0]
nvlink_links = 4
memory_reserved_bytes = 1000
mem_used_bytes = 5000
memory_total_bytes = 100000
power_watts = 123.456
energy_start_joules = 10
nvlink_start_bytes = 0
nvlink_tx_bytes_per_second = 4096000
pcie_rx_bytes_per_second = 2048000
process = 12 34
[gpu 1]
gpm = no
delay_ms.nvmlDeviceGetName = 1
fault.nvmlDeviceGetUUID = ok 100:!15
"""
ASK = """
import json, pynvml as n
n.nvmlInit()
a, b = (n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount()))
def code(call, *arguments):
    try:
        return call(*arguments)
    except n.NVMLError as error:
        return ["error", error.value]
fields = n.nvmlDeviceGetFieldValues(a, [83, 91, (138, 0xFFFFFFFF), (138, 1), (140, 0xFFFFFFFF), (202, 0), 197, 999])
older, newer = n.nvmlGpmSampleAlloc(), n.nvmlGpmSampleAlloc()
n.nvmlGpmSampleGet(a, older)
answer = {
    "driver": n.nvmlSystemGetDriverVersion(),
    "cuda": n.nvmlSystemGetCudaDriverVersion(),
    "uuid": n.nvmlDeviceGetUUID(a),
    "same": n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(b))),
    "by_bus": n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId("0000:11:00.0")),
    "bus": n.nvmlDeviceGetPciInfo(a).busId.decode() if isinstance(n.nvmlDeviceGetPciInfo(a).busId, bytes)
    else n.nvmlDeviceGetPciInfo(a).busId,
    "v1": n.nvmlDeviceGetMemoryInfo(a).used,
    "v2": n.nvmlDeviceGetMemoryInfo(a, n.nvmlMemory_v2).used,
    "power": n.nvmlDeviceGetPowerUsage(a),
    "energy": n.nvmlDeviceGetTotalEnergyConsumption(a),
    "fields": [[f.nvmlReturn, f.value.ullVal if f.valueType == 3 else f.value.uiVal] for f in fields],
    "pcie": n.nvmlDeviceGetPcieThroughput(a, n.NVML_PCIE_UTIL_RX_BYTES),
    "processes": [[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(a)],
    "none": n.nvmlDeviceGetComputeRunningProcesses(b),
    "serial": code(n.nvmlDeviceGetSerial, a),
    "mig": n.nvmlDeviceGetMigMode(a),
    "temperature": [n.nvmlDeviceGetTemperature(a, 0), n.nvmlDeviceGetTemperatureV(a, 0)],
    "gpm": [n.nvmlGpmQueryDeviceSupport(g).isSupportedDevice for g in (a, b)],
    "no_gpm": code(n.nvmlGpmSampleGet, b, newer),
    "unknown": code(n.nvmlDeviceGetHandleByUUID, "GPU-nobody"),
    "absent": code(n.nvmlDeviceGetFanSpeed, a),
    "name": n.nvmlDeviceGetName(b),
    "remote": n.nvmlDeviceGetNvLinkRemoteDeviceType(a, 0),
    "sms": n.nvmlDeviceGetAttributes(a).multiprocessorCount,
}
print(json.dumps(answer))
"""


def _ask(script, environment):
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=30, check=False
    )


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stub")
    environment = stub_env(folder, SCENARIO, stepped=True)
    StubClock(folder / "nvml.clock").set(10.0)
    done = _ask(ASK, environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) | {"calls": read_calls(folder)}


def test_pynvml_finds_the_scenarios_node(answer):
    assert (answer["driver"], answer["cuda"]) == ("560.35.03", 12060)
    assert answer["uuid"] == "GPU-00000000-0000-4000-8000-000000000000"
    assert answer["same"] == answer["by_bus"] == 1
    assert answer["bus"] == "00000000:10:00.0"
    assert answer["name"] == "NVIDIA H100 80GB HBM3"
    assert (answer["mig"], answer["temperature"], answer["remote"], answer["sms"]) == ([0, 0], [40, 40], 2, 132)


def test_memory_counts_the_reserve_in_version_1_only(answer):
    assert (answer["v1"], answer["v2"]) == (6000, 5000)


def test_counters_are_integrals_of_rates_in_the_drivers_units(answer):
    assert answer["power"] == 123456
    assert answer["energy"] == 10_000 + 1_234_560  # mJ
    energy, links, all_kib, one_kib, raw_kib, bytes_field, pcie, unknown = answer["fields"]
    assert energy == [0, 1_244_560]
    assert links == [0, 4]
    assert (all_kib, one_kib, raw_kib) == ([0, 40_000], [0, 10_000], [0, 42_500])
    assert bytes_field[0] == unknown[0] == 3
    assert pcie == [0, 10**9]
    assert answer["pcie"] == 2000


def test_processes_and_what_a_gpu_does_not_have(answer):
    assert answer["processes"] == [[12, 34]]
    assert answer["none"] == []
    assert answer["gpm"] == [1, 0]
    assert answer["serial"] == answer["no_gpm"] == ["error", 3]
    assert answer["unknown"] == ["error", 6]
    assert answer["absent"] == ["error", 13]  # a function that the stub does not have


def test_calls_are_counted_and_written_at_the_end(answer):
    assert answer["calls"]["nvmlDeviceGetPcieThroughput"] == 1
    assert answer["calls"]["gpm.live_samples"] == 2
    assert "nvmlShutdown" not in answer["calls"]


def test_without_a_stepped_clock_time_runs_from_init(tmp_path):
    script = """
import time, pynvml as n
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
first = n.nvmlDeviceGetTotalEnergyConsumption(h)
while n.nvmlDeviceGetTotalEnergyConsumption(h) == first:
    time.sleep(0.01)
print("moved")
"""
    assert _ask(script, stub_env(tmp_path, "[gpu 0]\npower_watts = 500")).stdout == "moved\n"


def test_a_value_that_repeats_is_the_same_in_every_round_and_counts_through_all(tmp_path):
    script = """
import os, pynvml as n
from pathlib import Path
from skuwise.tests.nvmlstub import StubClock
clock = StubClock(Path(os.environ["SKUWISE_NVML_CLOCK"]))
n.nvmlInit()
h = n.nvmlDeviceGetHandleByIndex(0)
for second in (0.2, 0.7, 80.2, 80.7):
    clock.set(second)
    print(n.nvmlDeviceGetPowerUsage(h), n.nvmlDeviceGetTotalEnergyConsumption(h))
"""
    scenario = "[gpu 0]\nenergy_start_joules = 0\npower_watts = 500 0.5:100 every:0.8\n"
    done = _ask(script, stub_env(tmp_path, scenario, stepped=True))
    # A round of 0.8 s is 250 J + 30 J; 80.2 s are a hundred of them and 0.2 s.
    assert done.stdout.split() == ["500000", "100000", "100000", "270000", "500000", "28100000", "100000", "28270000"]


@pytest.mark.parametrize(
    ("scenario", "complaint"),
    [
        ("[gpu 0]\nsm_activ = 1", "line 2: 'sm_activ' is not a key of [gpu]"),
        ("[gpu 0]\nsm_active = much", "is not a number"),
        ("[gpu 0]\nsm_active = 1 5:2 3:1", "do not go forward in time"),
        ("[gpu 0]\nsm_active = 1 0.5:0 every:0.5", "repeats before its last step"),
        ("[gpu 0]\nfault.nvmlDeviceGetLuck = !3", "names an unknown function"),
        ("[gpu 0-3]\nuuid = GPU-x", "would be the same for many"),
        ("[gpu 1]\n", "there is no [gpu 0]"),
        ("[node]\n", "is not [system], [gpu N], [gpu N-M] or [mig N/I]"),
        ("[gpu 0]\n[mig 1/0]", "names a GPU that does not stand before it"),
        ("[gpu 0]\n[mig 0/1]", "skips an instance"),
        ("[gpu 0]\nevent = 3 8", "is not TIME TYPE DATA"),
        ("name = x", "stands before the first section"),
        ("[gpu 99]", "outside 0..63"),
        ("[gpu 0]\nnvlink_links = 99", "more links than a GPU has"),
        ("[gpu 0]\ngpm = maybe", "neither yes nor no"),
    ],
)
def test_a_scenario_with_a_mistake_is_refused_with_its_line(tmp_path, scenario, complaint):
    done = _ask("import pynvml\npynvml.nvmlInit()", stub_env(tmp_path, scenario))
    assert done.returncode != 0
    assert complaint in done.stderr


def test_without_a_scenario_there_is_no_driver(tmp_path):
    environment = stub_env(tmp_path, "")
    del environment["SKUWISE_NVML_SCENARIO"]
    done = _ask("import pynvml\npynvml.nvmlInit()", environment)
    assert "NVMLError_DriverNotLoaded" in done.stderr


def test_processes_tell_the_stub_what_they_hold_while_they_live(tmp_path):
    folder = tmp_path / "processes"
    folder.mkdir()
    (folder / str(os.getpid())).write_text("1 4096\n0 8\n")
    (folder / "4194305").write_text("1 4096\n")  # above the largest PID there can be
    (folder / "no-pid").write_text("1 4096\n")
    ask = """
import json, pynvml as n
n.nvmlInit()
held = [n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(i)) for i in range(2)]
print(json.dumps([[[one.pid, one.usedGpuMemory] for one in processes] for processes in held]))
"""
    environment = stub_env(tmp_path, "[gpu 0-1]\n[gpu 0]\nprocess = 12 34\n", stepped=True)
    environment["SKUWISE_NVML_PROCESSES"] = str(folder)
    done = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[[12, 34], [os.getpid(), 8]], [[os.getpid(), 4096]]]
