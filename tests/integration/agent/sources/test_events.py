"""XID, ECC and MIG events: from the stub's driver through their own thread, and out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from skuwise.tests.integration.agent.sources.test_nvml_truth import A, B
from skuwise.tests.nvmlstub import drive, read_calls, stub_env
from skuwise.tests.support.sysfs_trees import dgx_like


def drive_events(folder, scenario, count, **options):
    """The lines of the source, its events once `count` of them came, and its absences."""
    answer = drive(folder, scenario, [["open", 0], ["events", 1, count]], **options)[1]
    absences = [[scope, subject, reason] for scope, subject, _, reason in answer["absences"]]
    return [[line[0], *line[2:]] for line in answer["lines"]], answer["events"], absences


def test_events_name_their_gpu_kind_and_code(tmp_path):
    scenario = """
[gpu 0-1]
event_types = 0x10b
[gpu 0]
event = 0.2 0x8 79
event = 0.2 0x2 0
[gpu 1]
event = 0.2 0x8 13 1 0 2
event = 0.2 0x8 9999
event = 0.2 0x100 0
event = 0.2 0x10 5
"""
    lines, events, absences = drive_events(tmp_path, scenario, 5)
    names = "gpu_uuid", "kind", "code", "detail", "count"
    assert sorted(([event[name] for name in names] for event in events), key=str) == sorted([
        [A, "xid", 79, "GPU has fallen off the bus", 1],
        [A, "ecc-double-bit", None, "", 1],
        [B, "xid", 13, "graphics engine exception, GPU instance 2", 1],
        [B, "xid", 9999, "", 1],
        [B, "mig-change", None, "", 1],
    ], key=str)  # fmt: skip
    assert absences == []
    assert lines == [[uuid, "nvmlEventSetWait_v2", None] for uuid in (A, B)]


@pytest.mark.parametrize(
    ("scenario", "missing", "absences", "codes"),
    [
        (
            "[gpu 0]\nevent_types = 0x4\n[gpu 1]\nfault.nvmlDeviceRegisterEvents = !4\n[gpu 2]\nevent = 0.1 0x8 63\n",
            (), [["gpu", A, "not-supported"], ["gpu", B, "no-permission"]], [63],
        ),
        ("[system]\nfault.nvmlEventSetCreate = !999\n[gpu 0]", (), [["source", "events", "nvml-error"]], []),
        ("[system]\nfault.nvmlEventSetWait_v2 = !15\n[gpu 0]", (), [["source", "events", "gpu-lost"]], []),
        ("[gpu 0]", ("nvmlEventSet*",), [["source", "events", "not-supported"]], []),
        ("[gpu 0]", ("nvmlEventSetWait_v2",), [["source", "events", "not-supported"]], []),
        ("[system]\nfault.nvmlInitWithFlags = !9\n[gpu 0]", (), [["source", "events", "no-driver"]], []),
    ],
)  # fmt: skip
def test_without_events_the_reason_is_said_and_other_gpus_are_heard(tmp_path, scenario, missing, absences, codes):
    lines, events, absent = drive_events(tmp_path, scenario, len(codes), missing=missing)
    assert absent == absences
    assert [line[2] for line in lines if line[2]] == [reason for *_, reason in absences]
    assert [event["code"] for event in events] == codes


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


def test_a_burst_finds_the_step_while_ticks_go_on_and_a_pause_ends_it(tmp_path: Path) -> None:
    _, bus_ids = dgx_like(tmp_path / "sys")
    places = "".join(f"[gpu {i}]\nbus_id = {bus_id}\n" for i, bus_id in enumerate(bus_ids[:2]))
    command = [sys.executable, "-m", "skuwise.tests.support.burst_fixtures", str(tmp_path / "sys")]
    env = stub_env(tmp_path, STEPS + places)
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    first, paused, end = map(json.loads, done.stdout.splitlines())
    assert [burst["gpu_uuid"] for burst in first["bursts"]] == [A, B]
    for burst in first["bursts"]:
        assert burst["period_seconds"] == pytest.approx(0.8, rel=0.05)
        assert burst["period_strength"] > 0.6
        assert burst["duty"] == pytest.approx(1.0)
        assert burst["sm_active_cv"] == pytest.approx(0.65, abs=0.2)
        assert burst["tensor_nvlink_correlation"] < -0.9
        assert burst["tensor_fabric_correlation"] > 0.6
        assert burst["n"] >= 20
    assert paused["bursts"] == [] and paused["absences"] == 0
    assert paused["seconds"] < 5  # not the whole burst
    assert sum(gpus == [A, B] for gpus, _ in end["ticks"]) >= 15
    assert ["paused"] in [reasons for _, reasons in end["ticks"]]
    assert end["ticks"][-1][0] == [A, B]
    calls = read_calls(tmp_path)
    assert calls["gpm.live_samples"] == 0
    assert calls["gpm.smallest_gap_seconds"] >= 0.1
