"""What the NVML sources read through real pynvml, unit by unit, against what the scenario says."""

import pytest
from skuwise.agent.metrics import GPU_METRICS
from skuwise.tests.nvmlstub import drive

A, B = "GPU-00000000-0000-4000-8000-000000000000", "GPU-00000000-0000-4000-8000-000000000001"
UNITS = ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active", "fp16_active")

BUSY = """
gpu_util = 0.87
sm_active = 0.5 10.5:0.7
sm_occupancy = 0.31
tensor_active = 0.42
dram_active = 0.63
fp64_active = 0.011
fp32_active = 0.12
fp16_active = 0.013
mem_used_bytes = 34359738368
power_watts = 300 10.5:500
sm_clock_hertz = 1.755e9
mem_clock_hertz = 2.619e9
temperature_celsius = 61
throttle_reasons = 0x24
pcie_tx_bytes_per_second = 3e9
pcie_rx_bytes_per_second = 12e9
nvlink_tx_bytes_per_second = 180e9 10.5:200e9
nvlink_rx_bytes_per_second = 170e9
nvlink_links = 18
"""


def first_values(scenario: str) -> dict[str, float]:
    """What a scenario says of a GPU at first."""
    said = {
        name: values.split()[0] for name, _, values in (line.partition(" = ") for line in scenario.split("\n")) if name
    }
    return {name: int(value, 0) if value.startswith("0x") else float(value) for name, value in said.items()}


AT_11 = first_values(BUSY) | {
    "sm_active": 0.6, "power_watts": 400.0, "energy_joules": 400.0, "nvlink_tx_bytes_per_second": 190e9
}  # fmt: skip
UNITS_AT_11 = {name: AT_11[name] for name in UNITS}
LINKS_AT_11 = {name: value for name, value in AT_11.items() if name.endswith("_per_second")}
TRUTH_AT_11 = {name: AT_11[name] for name in AT_11.keys() - {*UNITS_AT_11, *LINKS_AT_11, "nvlink_links"}}


def _absent(reading, uuid):
    return {metric: reason for _, subject, metric, reason in reading["absences"] if subject == uuid}


def read_at(folder, scenario, *times, **options):
    """What probing reports, and each reading."""
    return drive(folder, scenario, [["open", 0], ["probe"], *(["read", t] for t in times)], **options)[1:]


def test_a_gpu_with_gpm_gives_every_metric_in_base_units(tmp_path):
    read = read_at(tmp_path, f"[gpu 0]{BUSY}", 10, 11)[-1]
    assert read["nvml"]["gpus"][A] == pytest.approx(TRUTH_AT_11, rel=1e-6)
    assert read["gpm"]["gpus"][A] == pytest.approx({**UNITS_AT_11, **LINKS_AT_11}, rel=1e-6)
    assert read["nvlink"] == {"gpus": {}, "processes": None, "absences": []}
    assert {*read["nvml"]["gpus"][A], *read["gpm"]["gpus"][A]} == {metric.name for metric in GPU_METRICS}
    assert read["nvml"]["absences"] == read["gpm"]["absences"] == []


@pytest.mark.parametrize(
    ("counters", "links"),
    [("gpm = no", 18), ("gpm = no\nnvlink_counters = bytes\nnvlink_links_active = 12\n", 12)],  # the second: NVLink5
)
def test_a_gpu_without_gpm_gives_the_links_from_counters_and_no_proxy_for_its_units(tmp_path, counters, links):
    probe, _, read = read_at(tmp_path, f"[gpu 0]{BUSY}{counters}", 10, 11)
    assert probe["nvml"]["gpus"][0]["nvlink_links"] == links
    assert read["nvml"]["gpus"][A] == pytest.approx(TRUTH_AT_11, rel=1e-6)
    assert read["gpm"]["gpus"] == {}
    assert _absent(read["gpm"], A) == dict.fromkeys(UNITS, "no-gpm")
    assert read["nvlink"]["gpus"][A] == pytest.approx(LINKS_AT_11, rel=1e-6)
    assert read["nvlink"]["absences"] == []


def test_the_driver_is_asked_once_who_the_gpus_are(tmp_path):
    scenario = """
[system]
driver = 575.57.08
[gpu 0]
name = NVIDIA H200
uuid = GPU-aaaa
bus_id = 00000001:9B:00.0
memory_total_bytes = 150754820096
power_limit_watts = 700
nvlink_links = 18
nvlink_mb_per_second = 26562
[gpu 1]
name = NVIDIA L40S
gpm = no
nvlink_links = 0
"""
    (probe,) = read_at(tmp_path, scenario)
    h200, l40s = probe["nvml"]["gpus"]
    assert (h200["uuid"], h200["name"], h200["pci_bus_id"]) == ("GPU-aaaa", "NVIDIA H200", "00000001:9B:00.0")
    assert (h200["mem_total_bytes"], h200["power_limit_watts"]) == (150754820096, 700.0)
    assert (h200["nvlink_links"], h200["nvlink_bytes_per_second"]) == (18, pytest.approx(478.116e9))
    assert (h200["kind"], h200["driver_version"], h200["minor"]) == ("gpu", "575.57.08", 0)
    assert (l40s["name"], l40s["nvlink_links"], l40s["nvlink_bytes_per_second"]) == ("NVIDIA L40S", 0, None)
    reasons = {(subject, metric): reason for subject, metric, _, reason in probe["gpm"]["capabilities"]}
    assert reasons["GPU-aaaa", "sm_active"] is None
    assert reasons[B, "sm_active"] == "no-gpm"
    links = {metric: reason for subject, metric, _, reason in probe["nvlink"]["capabilities"] if subject == B}
    assert links["nvlink_tx_bytes_per_second"] == "no-nvlink"
    assert links["pcie_tx_bytes_per_second"] is None


def test_processes_are_listed_on_the_second_reading_and_every_ten_seconds(tmp_path):
    scenario = "[gpu 0]\nprocess = 4242 1073741824 0 12\nprocess = 77 -\n[gpu 1]\nprocess = 9 5"
    reads = read_at(tmp_path, scenario, *range(1, 15))
    looked = {t: read["nvml"]["processes"] for t, read in enumerate(reads) if read["nvml"].get("processes")}
    assert looked == {2: [[A, 4242, 1073741824], [A, 77, None], [B, 9, 5]], 12: [[A, 77, None], [B, 9, 5]]}


PARENT = A
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


def test_instances_are_devices_with_units_and_memory_and_the_rest_is_their_parents(tmp_path):
    probe, _, last = read_at(tmp_path, SLICED, 1, 2)
    parent, first, two = probe["nvml"]["gpus"]
    assert (parent["uuid"], parent["kind"]) == (PARENT, "gpu")
    for instance, uuid in ((first, ONE), (two, TWO)):
        about = [instance[name] for name in ("uuid", "kind", "parent_uuid", "index")]
        assert about == [uuid, "mig", PARENT, 0]
    assert (first["slices"], first["mig_profile"], first["mem_total_bytes"]) == (3, "3g.40gb", 42_000_000_000)
    assert (two["slices"], two["mig_profile"], two["gpu_instance"]) == (1, "1g.10gb", 2)
    assert first["power_limit_watts"] is first["pci_bus_id"] is first["nvlink_links"] is None
    assert last["gpm"]["gpus"][ONE] == pytest.approx(dict.fromkeys(UNITS, 0.0) | {"sm_active": 0.8, "dram_active": 0.4})
    assert [last["gpm"]["gpus"][uuid]["sm_active"] for uuid in (TWO, PARENT)] == pytest.approx([0.1, 0.5])
    assert last["nvml"]["gpus"][ONE] == {"mem_used_bytes": 20e9}
    of_parent = {metric.name for metric in GPU_METRICS} - {*UNITS, "mem_used_bytes"}
    assert _absent(last["nvml"], ONE) == dict.fromkeys(of_parent, "mig")
    assert _absent(last["nvml"], PARENT)["gpu_util"] == "mig"
    assert last["nvml"]["gpus"][PARENT]["power_watts"] == pytest.approx(300)
    assert last["nvlink"] == {"gpus": {}, "processes": None, "absences": []}
    lines = {(line[0], line[1]): line[3] for line in probe["nvml"]["capabilities"]}
    assert (lines[ONE, "gpu_util"], lines[ONE, "mem_used_bytes"], lines[PARENT, "gpu_util"]) == ("mig", None, "mig")


def test_compute_instances_that_share_a_gpu_instance_are_not_told_apart(tmp_path):
    scenario = SLICED + "gpu_instance = 1\ncompute_instance = 1\n"
    last = read_at(tmp_path, scenario, 1, 2)[-1]
    for uuid in (ONE, TWO):
        assert _absent(last["gpm"], uuid) == dict.fromkeys(UNITS, "mig-shared")
        assert uuid in last["nvml"]["gpus"]


def test_instances_that_go_and_are_made_anew_are_taken_up_within_ten_seconds(tmp_path):
    scenario = SLICED + "exists = 1 15:0 35:1\n"
    steps = [["open", 0], ["probe"]]
    for seconds in (2, 3, 14, 24, 25, 34, 44, 45, 46):
        steps += [["read", seconds], ["wants"], ["probe"]]
    answers = drive(tmp_path, scenario, steps)[2:]
    listed = [[gpu["uuid"] for gpu in probe["nvml"]["gpus"]] for probe in answers[2::3]]
    assert listed == [[PARENT, ONE, TWO]] * 3 + [[PARENT, ONE]] * 3 + [[PARENT, ONE, TWO]] * 3
    assert [number for number, wanted in enumerate(answers[1::3]) if wanted] == [3, 6]
    last = answers[-3]
    assert last["gpm"]["gpus"][TWO]["sm_active"] == pytest.approx(0.1)
    assert answers[12]["gpm"]["gpus"][PARENT]["sm_active"] == pytest.approx(0.5)  # other GPUs lose no interval


@pytest.mark.parametrize(
    "garbage",
    [
        "fault.nvmlDeviceGetMigMode = !999",
        "[mig 0/0]\nfault.nvmlDeviceGetUUID = !999",
        "[mig 0/0]\ngpu_instance = 4000000",
        f"[mig 0/1]\nuuid = {ONE}",
        "[mig 0/0]\nfault.nvmlDeviceGetMemoryInfo_v2 = !2\nfault.nvmlGpmMigSampleGet = !2",
        "[mig 0/0]\nsm_active = nan\nname = \x1b[31m MIG \n",
    ],
)  # fmt: skip
def test_whatever_the_driver_says_of_instances_the_gpu_isread_at(tmp_path, garbage):
    target = "" if garbage.startswith("[") else "[gpu 0]\n"
    probe, *_, last = read_at(tmp_path, f"{SLICED}{target}{garbage}\n", 1, 2, 3)
    assert probe["nvml"]["gpus"][0]["uuid"] == PARENT
    assert last["gpm"]["gpus"][PARENT]["sm_active"] == pytest.approx(0.5)
    uuids = [gpu["uuid"] for gpu in probe["nvml"]["gpus"]]
    assert len(set(uuids)) == len(uuids)
    assert set(last["gpm"]["gpus"]) | set(last["nvml"]["gpus"]) <= set(uuids)
