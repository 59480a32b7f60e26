"""What the NVML sources do when driver, GPU or counter misbehave: a reason for each, and nothing invented."""

import pytest
from skuwise.tests.integration.agent.sources.test_nvml_truth import UNITS, A, B, _absent, read_at
from skuwise.tests.nvmlstub import drive, read_calls

SOURCES = ("nvml", "gpm", "nvlink")


@pytest.mark.parametrize(("code", "reason"), [(9, "no-driver"), (18, "driver-mismatch"), (4, "no-permission")])
def test_without_a_working_driver_every_source_says_so_and_none_raises(tmp_path, code, reason):
    scenario = f"[system]\nfault.nvmlInitWithFlags = !{code}\n[gpu 0]"
    opened, probe, read, _ = drive(tmp_path, scenario, [["open", 0], ["probe"], ["read", 1], ["close"]])
    assert opened["reason"] == reason
    assert opened["remedy"]
    for source in SOURCES:
        assert probe[source]["gpus"] == []
        assert [line[3] for line in probe[source]["capabilities"]] == [reason]
        assert read[source] == {"gpus": {}, "processes": None, "absences": [["source", source, "*", reason]]}


def test_a_driver_without_gpm_or_newer_functions_is_read_all_the_same(tmp_path):
    missing = ["nvmlGpm*", "*EventReasons", "nvmlDeviceGetTemperature", "*Processes_v3"]
    scenario = "[gpu 0]\nnvlink_links = 4\nnvlink_tx_bytes_per_second = 5e9\nthrottle_reasons = 4\nprocess = 7 8\n"
    read = read_at(tmp_path, scenario, 1, 2, missing=missing)[-1]
    assert _absent(read["gpm"], A) == dict.fromkeys(UNITS, "no-gpm")
    assert read["nvlink"]["gpus"][A]["nvlink_tx_bytes_per_second"] == pytest.approx(5e9, rel=1e-6)
    assert {"throttle_reasons": 4.0, "temperature_celsius": 40.0}.items() <= read["nvml"]["gpus"][A].items()
    assert read["nvml"]["processes"] == [[A, 7, 8]]


def test_a_lost_gpu_is_set_aside_and_taken_up_again_while_the_others_go_on(tmp_path):
    scenario = "[gpu 0-1]\nsm_active = 0.5\npower_watts = 300\n[gpu 1]\nfault.* = ok 10:!15 60:ok\n"
    times = [8, 9, 10, 11, 39, 41, 69, 70, 71, 72]
    steps = [["open", 0], ["probe"], *(["read", t] for t in times), ["calls", "nvmlGpmSampleAlloc"]]
    *reads, allocated = drive(tmp_path, scenario, steps)[2:]
    at = dict(zip(times, reads, strict=True))
    for t in times:
        assert A in at[t]["nvml"]["gpus"]
    assert at[9]["gpm"]["gpus"][B]["sm_active"] == pytest.approx(0.5)
    for t in (10, 11, 39, 41, 69):
        assert B not in at[t]["nvml"]["gpus"]
        assert B not in at[t]["gpm"]["gpus"]
        for source in SOURCES:
            assert _absent(at[t][source], B) == {"*": "gpu-lost"}
    assert _absent(at[71]["nvml"], B) == {"energy_joules": "first-reading"}
    assert _absent(at[71]["gpm"], B)["sm_active"] == "first-reading"
    assert at[72]["gpm"]["gpus"][B]["sm_active"] == pytest.approx(0.5)
    assert at[72]["nvml"]["gpus"][B]["energy_joules"] == pytest.approx(300.0)
    assert allocated == 4


def test_nan_and_errors_of_single_metrics_are_missing_with_their_reason(tmp_path):
    scenario = """
[gpu 0]
sm_active = 0.5
tensor_active = nan
dram_active = !21
fp64_active = !4
fp32_active = 1.3
fp16_active = -0.2
sm_occupancy = 1.0004
pcie_tx_bytes_per_second = nan
gpu_util = !3
temperature_celsius = !999
"""
    read = read_at(tmp_path, scenario, 1, 2)[-1]
    absent = _absent(read["gpm"], A)
    assert absent["tensor_active"] == absent["pcie_tx_bytes_per_second"] == "not-a-number"
    assert absent["dram_active"] == "nvml-error"
    assert absent["fp64_active"] == "no-permission"
    assert absent["fp32_active"] == absent["fp16_active"] == "out-of-range"
    assert read["gpm"]["gpus"][A]["sm_active"] == pytest.approx(0.5)
    assert read["gpm"]["gpus"][A]["sm_occupancy"] == 1.0  # 100.04 % is rounding
    assert not absent.keys() & read["gpm"]["gpus"][A].keys()
    assert _absent(read["nvml"], A) == {"gpu_util": "not-supported", "temperature_celsius": "nvml-error"}


def test_a_counter_that_goes_back_is_a_gap_of_one_interval(tmp_path):
    scenario = """
[gpu 0]
gpm = no
nvlink_links = 12
power_watts = 100
nvlink_tx_bytes_per_second = 1e9
pcie_rx_bytes_per_second = 2e9
energy_reset_at = 2.5
nvlink_reset_at = 2.5
pcie_reset_at = 2.5
"""
    *_, back, after = read_at(tmp_path, scenario, 1, 2, 3, 4)
    assert _absent(back["nvml"], A) == {"energy_joules": "counter-reset"}
    assert back["nvml"]["gpus"][A]["power_watts"] == 100.0
    assert _absent(back["nvlink"], A)["nvlink_tx_bytes_per_second"] == "counter-reset"
    assert _absent(back["nvlink"], A)["pcie_rx_bytes_per_second"] == "counter-reset"
    assert after["nvlink"]["gpus"][A]["nvlink_tx_bytes_per_second"] == pytest.approx(1e9, rel=1e-6)
    assert after["nvml"]["gpus"][A]["energy_joules"] == pytest.approx(100.0)


def test_a_pcie_counter_tells_nothing_before_it_has_shown_more_than_32_bits(tmp_path):
    scenario = "[gpu 0]\ngpm = no\npcie_tx_bytes_per_second = 1e9\n"
    reads, metric = read_at(tmp_path, scenario, 1, 2, 3, 4)[1:], "pcie_tx_bytes_per_second"
    reasons = [_absent(read["nvlink"], A).get(metric) for read in reads]
    assert reasons == ["first-reading", "counter-wrap", "counter-wrap", None]
    assert reads[3]["nvlink"]["gpus"][A][metric] == pytest.approx(1e9)


def test_two_gpm_samples_never_lie_closer_than_100_ms(tmp_path):
    times = [1.0, 1.05, 1.09, 1.1, 1.2, 1.25, 1.3, 1.45]
    steps = [["open", 0], ["probe"], *(["read", t] for t in times), ["close"]]
    reads = drive(tmp_path, "[gpu 0]\nsm_active = 0.5", steps)[2:-1]
    seen = {t: A in read["gpm"]["gpus"] for t, read in zip(times, reads, strict=True)}
    assert seen == {1.0: False, 1.05: False, 1.09: False, 1.1: True, 1.2: True, 1.25: False, 1.3: True, 1.45: True}
    assert _absent(reads[1]["gpm"], A)["sm_active"] == "too-soon"
    assert read_calls(tmp_path)["gpm.smallest_gap_seconds"] >= 0.1 - 1e-6


def test_a_tick_allocates_nothing_and_asks_nothing_that_blocks(tmp_path):
    scenario = "[gpu 0-7]\nnvlink_links = 18\nsm_active = 0.5\nprocess = 1 2\n[gpu 6-7]\ngpm = no\n"
    steps = [["open", 0], ["probe"], ["live"], *(["read", t] for t in range(1, 41)), ["live"], ["close"], ["live"]]
    answers = drive(tmp_path, scenario, steps)
    assert (answers[2], answers[-3], answers[-1]) == (12, 12, 0)  # two for each GPU with GPM, for good
    calls = read_calls(tmp_path)
    assert calls["nvmlGpmSampleAlloc"] == calls["nvmlGpmSampleFree"] == 12
    assert calls["nvmlGpmSampleGet"] == 6 * (1 + 40)
    assert calls["nvmlGpmMetricsGet"] == 6 * 39
    assert "nvmlDeviceGetPcieThroughput" not in calls
    assert calls["nvmlDeviceGetComputeRunningProcesses_v3"] == 8 * (1 + 4)  # the probe, and seconds 2, 12, 22, 32


@pytest.mark.parametrize(("entry_bytes", "count"), [(24, 3), (24, 62), (32, 1), (32, 3), (32, 62), (32, 200), (48, 3)])
def test_every_process_is_listed_whatever_the_size_of_the_drivers_entries(tmp_path, entry_bytes, count):
    processes = "".join(f"process = {100 + n} {n}000000\n" for n in range(count - 1)) + "process = 99 -\n"
    scenario = f"[system]\nprocess_bytes = {entry_bytes}\n[gpu 0]\n{processes}"
    *_, read, after = read_at(tmp_path, scenario, 1, 2, 3)
    listed = [[A, 100 + n, n * 1000000] for n in range(count - 1)] + [[A, 99, None]]
    is_known = entry_bytes < 48  # another layout cannot be understood
    assert read["nvml"]["processes"] == (listed if is_known else [])
    absent = {} if is_known else {"processes": "unknown-layout"}
    assert _absent(read["nvml"], A) == _absent(after["nvml"], A) == absent


def test_what_cannot_be_is_missing_and_the_next_interval_is_sound(tmp_path):
    scenario = """
[gpu 0]
gpu_util = 0.5 2:9.05 3:42949672.95 4:1.001 5:0.6
temperature_celsius = 50 2:82505 3:644245923 4:51
power_watts = 300 2:4290000 3:300
mem_used_bytes = 0 3:1e14 4:5
"""
    _, first, _, three, four, five = read_at(tmp_path, scenario, 1, 2, 3, 4, 5)
    assert _absent(first["nvml"], A) == {"energy_joules": "first-reading"}
    absent = dict.fromkeys(("gpu_util", "temperature_celsius", "mem_used_bytes", "energy_joules"), "out-of-range")
    assert _absent(three["nvml"], A) == absent
    assert three["nvml"]["gpus"][A]["power_watts"] == 300.0  # the driver's own reading
    assert four["nvml"]["gpus"][A]["energy_joules"] == five["nvml"]["gpus"][A]["energy_joules"] == pytest.approx(300.0)
    assert (four["nvml"]["gpus"][A]["gpu_util"], five["nvml"]["gpus"][A]["gpu_util"]) == (1.0, pytest.approx(0.6))
    assert four["nvml"]["gpus"][A]["temperature_celsius"] == 51.0


def test_a_gpu_lost_before_the_start_is_counted_and_taken_up_when_it_answers(tmp_path):
    scenario = "[gpu 0-2]\nsm_active = 0.5\n[gpu 1]\nfault.* = !15 10:ok\n"
    steps = [["open", 0], ["probe"], ["read", 1], ["read", 29], ["wants"], ["read", 30], ["wants"], ["probe"]]
    steps += [["wants"], ["read", 31], ["read", 32]]
    _, probe, early, late, before, _, wanted, again, after, _, last = drive(tmp_path, scenario, steps)
    uuids = [A, B, B[:-1] + "2"]
    assert [gpu["uuid"] for gpu in probe["nvml"]["gpus"]] == [uuids[0], uuids[2]]
    assert (probe["nvml"]["unnamed_gpus"], again["nvml"]["unnamed_gpus"]) == (1, 0)
    for reading in (early, late):
        assert ["source", "nvml/gpu1", "*", "gpu-lost"] in reading["nvml"]["absences"]
    assert (before, wanted, after) == (False, True, False)
    assert [gpu["uuid"] for gpu in again["nvml"]["gpus"]] == uuids
    assert sorted(last["gpm"]["gpus"]) == sorted(last["nvml"]["gpus"]) == uuids
    assert last["nvml"]["absences"] == []


@pytest.mark.parametrize("function", ["nvmlGpmQueryDeviceSupport", "nvmlGpmSampleGet", "nvmlDeviceGetFieldValues"])
def test_what_failed_at_the_start_is_asked_again(tmp_path, function):
    gpu = "[gpu 0]\nsm_active = 0.5\nnvlink_links = 4\nnvlink_tx_bytes_per_second = 5e9\n"
    scenario = f"{gpu}fault.{function} = !999 20:ok\n"
    steps = [["open", 0], ["probe"], ["read", 1], ["read", 2], ["read", 30], ["probe"], ["read", 31], ["read", 32]]
    _, _, _, early, _, probe, _, last = drive(tmp_path, scenario, steps)
    assert {"nvml-error", "no-gpm"} & {*_absent(early["gpm"], A).values(), *_absent(early["nvml"], A).values()}
    assert last["gpm"]["gpus"][A]["sm_active"] == pytest.approx(0.5)
    assert last["gpm"]["gpus"][A]["nvlink_tx_bytes_per_second"] == pytest.approx(5e9)
    assert probe["nvml"]["gpus"][0]["nvlink_links"] == 4
    assert last["nvml"]["absences"] == []
