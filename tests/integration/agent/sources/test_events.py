"""XID, ECC and MIG events: from the stub's driver through their own thread, and out."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from skuwise.tests.nvmlstub import read_calls, stub_env

A, B = "GPU-00000000-0000-4000-8000-000000000000", "GPU-00000000-0000-4000-8000-000000000001"
GPUS = "[gpu 0-1]\n"
SCRIPT = """
import dataclasses, json, sys, time
from skuwise.agent.model import Instant
from skuwise.agent.sources.nvidia.nvml_events import EventSource
from skuwise.agent.sources.nvidia.nvml_session import NvmlSession
session = NvmlSession(retry_seconds=30.0)
source = EventSource(session)
session.open(Instant(1.8e9, 0.0))
answer = {"opened": session.fault is None}
answer["lines"] = [[c.subject, c.origin, c.absence.reason if c.absence else None] for c in source.probe().capabilities]
events, ends, wanted = [], time.monotonic() + 60, int(sys.argv[1])
while sum(one["count"] for one in events) < wanted and time.monotonic() < ends:
    reading = source.read(Instant(0.0, 0.0))
    events += [dataclasses.asdict(one) for one in reading.events]
    time.sleep(0.02)
answer["events"] = events
answer["absences"] = sorted([a.scope, a.subject, a.reason] for a in source.read(Instant(0.0, 0.0)).absences)
session.close()
answer["closed"] = sorted([a.subject, a.reason] for a in source.read(Instant(0.0, 0.0)).absences)
print(json.dumps(answer))
"""


def told(folder, scenario, count=0, **options):
    """What the source told of a scenario, once `count` events came."""
    environment = stub_env(folder, scenario, **options)
    command = [sys.executable, "-c", SCRIPT, str(count)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _short(event):
    return [event["gpu_uuid"], event["kind"], event["code"], event["detail"], event["count"]]


def test_events_name_their_gpu_kind_and_code(tmp_path):
    scenario = (
        GPUS
        + """
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
    )
    answer = told(tmp_path, scenario, 5)
    assert sorted(map(_short, answer["events"]), key=str) == sorted([
        [A, "xid", 79, "GPU has fallen off the bus", 1],
        [A, "ecc-double-bit", None, "", 1],
        [B, "xid", 13, "graphics engine exception, GPU instance 2", 1],
        [B, "xid", 9999, "", 1],
        [B, "mig-change", None, "", 1],
    ], key=str)  # fmt: skip
    assert answer["absences"] == []
    origin = "nvmlEventSetWait_v2 (ecc-single-bit, ecc-double-bit, xid, mig-change)"
    assert answer["lines"] == [[A, origin, None], [B, origin, None]]


def test_a_gpu_that_tells_of_nothing_and_one_that_refuses_are_absent_and_the_other_is_heard(tmp_path):
    scenario = "[gpu 0]\nevent_types = 0x4\n[gpu 1]\nfault.nvmlDeviceRegisterEvents = !4\n[gpu 2]\nevent = 0.1 0x8 63\n"
    answer = told(tmp_path, scenario, 1)
    assert answer["absences"] == [["gpu", A, "not-supported"], ["gpu", B, "no-permission"]]
    assert [one["code"] for one in answer["events"]] == [63]


@pytest.mark.parametrize(
    ("scenario", "missing", "reason"),
    [
        ("[system]\nfault.nvmlEventSetCreate = !999\n[gpu 0]", (), "nvml-error"),
        ("[system]\nfault.nvmlEventSetWait_v2 = !15\n[gpu 0]", (), "gpu-lost"),
        ("[gpu 0]", ("nvmlEventSet*",), "not-supported"),
        ("[gpu 0]", ("nvmlEventSetWait_v2",), "not-supported"),
        ("[system]\nfault.nvmlInitWithFlags = !9\n[gpu 0]", (), "no-driver"),
    ],
)
def test_without_events_the_reason_is_said(tmp_path, scenario, missing, reason):
    answer = told(tmp_path, scenario, missing=missing)
    assert [line[2] for line in answer["lines"]] == [reason]
    assert answer["absences"] == [["source", "events", reason]]


@pytest.mark.slow
def test_a_wait_that_does_not_return_holds_up_nobody(tmp_path):
    answer = told(tmp_path, "[system]\ndelay_ms.nvmlEventSetWait_v2 = 600000\n[gpu 0]\n")
    assert [line[2] for line in answer["lines"]] == ["not-read-yet"]
    assert answer["closed"] == [["events", "released"]]
    assert "nvmlEventSetFree" not in read_calls(tmp_path)  # the set is still in use
