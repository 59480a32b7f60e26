"""MIG instances as devices under their parent: what is read of them, and what happens when they change."""

from __future__ import annotations

import pytest
from skuwise.tests.nvmlstub import drive, read_calls

PARENT = "GPU-00000000-0000-4000-8000-000000000000"
ONE, TWO = "MIG-00000000-0000-4000-8000-000000000000", "MIG-00000000-0000-4000-8000-000000000001"
SLICED = """
[gpu 0]
mig_mode = 1
nvlink_links = 18
power_watts = 300
sm_active = 0.5
gpu_util = 0.9
process = 1 1
[mig 0/0]
name = NVIDIA H100 80GB HBM3 MIG 3g.40gb
slices = 3
sm_active = 0.8
dram_active = 0.4
mem_used_bytes = 20e9
memory_total_bytes = 42e9
process = 77 19000000000
[mig 0/1]
sm_active = 0.1
"""
UNITS = ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active", "fp16_active")


def _absent(reading, uuid):
    return {metric: reason for _, subject, metric, reason in reading["absences"] if subject == uuid}


def _read(folder, scenario, *times, **options):
    return drive(folder, scenario, [["open", 0], ["probe"], *(["read", t] for t in times)], **options)[1:]


def test_instances_are_devices_under_their_parent(tmp_path):
    (probe,) = _read(tmp_path, SLICED)
    parent, one, two = probe["nvml"]["gpus"]
    assert (parent["uuid"], parent["kind"]) == (PARENT, "gpu")
    for instance, uuid in ((one, ONE), (two, TWO)):
        assert (instance["uuid"], instance["kind"], instance["parent_uuid"], instance["index"]) == (
            uuid,
            "mig",
            PARENT,
            0,
        )
    assert (one["slices"], one["mig_profile"], one["mem_total_bytes"]) == (3, "3g.40gb", 42_000_000_000)
    assert (two["slices"], two["mig_profile"], two["gpu_instance"]) == (1, "1g.10gb", 2)
    assert one["power_limit_watts"] is one["pci_bus_id"] is one["nvlink_links"] is None


def test_an_instance_has_its_units_and_memory_and_the_rest_is_its_parents(tmp_path):
    probe, _, last = _read(tmp_path, SLICED, 1, 2)
    assert last["gpm"]["gpus"][ONE] == pytest.approx(dict.fromkeys(UNITS, 0.0) | {"sm_active": 0.8, "dram_active": 0.4})
    assert last["gpm"]["gpus"][TWO]["sm_active"] == pytest.approx(0.1)
    assert last["gpm"]["gpus"][PARENT]["sm_active"] == pytest.approx(0.5)
    assert last["nvml"]["gpus"][ONE] == {"mem_used_bytes": 20e9}
    absent = _absent(last["nvml"], ONE)
    assert set(absent.values()) == {"mig"}
    assert {"gpu_util", "power_watts", "energy_joules", "temperature_celsius", "nvlink_tx_bytes_per_second"} <= set(
        absent
    )
    assert not absent.keys() & {*UNITS, "mem_used_bytes"}
    assert _absent(last["nvml"], PARENT)["gpu_util"] == "mig"
    assert last["nvml"]["gpus"][PARENT]["power_watts"] == pytest.approx(300)
    assert last["nvlink"] == {"gpus": {}, "processes": None, "absences": []}
    lines = {(line[0], line[1]): line[3] for line in probe["nvml"]["capabilities"]}
    assert (lines[ONE, "gpu_util"], lines[ONE, "mem_used_bytes"], lines[PARENT, "gpu_util"]) == ("mig", None, "mig")


def test_compute_instances_that_share_a_gpu_instance_are_not_told_apart(tmp_path):
    scenario = SLICED + "gpu_instance = 1\ncompute_instance = 1\n"
    last = _read(tmp_path, scenario, 1, 2)[-1]
    for uuid in (ONE, TWO):
        assert _absent(last["gpm"], uuid) == dict.fromkeys(UNITS, "mig-shared")
        assert uuid in last["nvml"]["gpus"]


@pytest.mark.parametrize(
    "garbage",
    [
        "fault.nvmlDeviceGetMigMode = !999",
        "[mig 0/0]\nfault.nvmlDeviceGetUUID = !999",
        "[mig 0/0]\ngpu_instance = 4000000",
        f"[mig 0/1]\nuuid = {ONE}",
        "[mig 0/0]\nfault.nvmlDeviceGetMemoryInfo_v2 = !2\nfault.nvmlGpmMigSampleGet = !2",
        "[mig 0/0]\nsm_active = nan\nname = \x1b[31m MIG \nslices = 99",
    ],
)  # fmt: skip
def test_whatever_the_driver_says_of_instances_the_gpu_is_read(tmp_path, garbage):
    target = "" if garbage.startswith("[") else "[gpu 0]\n"
    probe, *_, last = _read(tmp_path, f"{SLICED}{target}{garbage}\n", 1, 2, 3)
    assert probe["nvml"]["gpus"][0]["uuid"] == PARENT
    assert last["gpm"]["gpus"][PARENT]["sm_active"] == pytest.approx(0.5)
    uuids = [gpu["uuid"] for gpu in probe["nvml"]["gpus"]]
    assert len(set(uuids)) == len(uuids)
    assert all(gpu["slices"] in (None, 1, 3) for gpu in probe["nvml"]["gpus"])
    assert set(last["gpm"]["gpus"]) | set(last["nvml"]["gpus"]) <= set(uuids)


def test_a_gpu_that_is_not_in_mig_mode_costs_one_question_in_ten_seconds(tmp_path):
    steps = [["open", 0], ["probe"], *(["read", t] for t in range(1, 41)), ["calls", "nvmlDeviceGetMigMode"]]
    steps += [["calls", "nvmlDeviceGetMigDeviceHandleByIndex"], ["close"]]
    *_, asked, handles, _ = drive(tmp_path, "[gpu 0]\n", steps)
    assert asked <= 6
    assert handles == 0
    assert read_calls(tmp_path)["gpm.live_samples"] == 0
