"""Recordings: exported from a database without what names the machine, read again to the last value, or refused."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from skuwise.agent.model import Absence, FabricPort, Gpu, Node, Tick
from skuwise.agent.store.writing.writer import Writer
from skuwise.rules.base.errors import SourceError
from skuwise.tests.hardware.export import export_window
from skuwise.tests.hardware.recordings import (
    Label,
    Made,
    RecordedAbsence,
    Recording,
    RecordingHeader,
    read_recording,
    write_recording,
)

START = 1_780_000_000.0
LABEL, MADE = Label("training", "compute", "a made-up example"), Made("simulated", "this test", "2026-01-02T03:04:05Z")
GPU = Gpu("GPU-0", 0, "NVIDIA H200", sku="H200", mem_total_bytes=150_754_820_096, power_limit_watts=700.0)
HEADER = RecordingHeader(
    LABEL,
    MADE,
    Node("node-0", cluster="c", gpu_count=1),
    (GPU,),
    1.0,
    ports=(FabricPort("mlx5_0", 1, "compute", "InfiniBand", 50e9),),
    truth={"flops": 1.5e18, "seconds": 3.0},
    versions={"skuwise": "0.1.0"},
    absences=(RecordedAbsence("gpu", "GPU-0", "fp64_active", "not-supported", START, "No.", "None.", START + 2.5),),
)
TICKS = (
    *(
        Tick(
            START + number,
            1.0,
            gpus={"GPU-0": {"sm_active": 0.1 * number, "energy_joules": 100.0, "tensor_active": 0.0}},
            fabric={"mlx5_0/1": {"tx_bytes_per_second": 1e9}},
            port_states={"mlx5_0/1": "ACTIVE"},
            host={"cpu_util": 0.25, "mem_total_bytes": float(2**40)},
        )
        for number in (1, 2)
    ),
    Tick(START + 3, 1.0, gpus={"GPU-0": {"temperature_celsius": -3.0}}),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "example.jsonl.gz"


def test_what_is_written_is_read_again_to_the_last_value(path: Path) -> None:
    write_recording(path, HEADER, TICKS)
    first = path.read_bytes()
    assert read_recording(path) == Recording(HEADER, TICKS)
    write_recording(path, HEADER, TICKS)
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda x: x[0].update(schema="skuwise.recording/2"), "Line 1 .* not skuwise.recording/1"),
        (lambda x: x[0]["label"].update(kind="mining"), "Line 1"),
        (lambda x: x[0].update(colour="blue"), "Line 1 .*colour"),
        (lambda x: x[0].pop("label"), "Line 1 .*label"),
        (lambda x: x[0]["truth"].update(tflops=1), "'tflops', which is unknown"),
        (lambda x: x[1]["gpus"]["GPU-0"].update(sm_util=1), "Line 2 .*'sm_util', which is unknown"),
        (lambda x: x[1]["gpus"].update({"GPU-9": {}}), "'GPU-9', which is unknown"),
        (lambda x: x[1]["gpus"]["GPU-0"].update(sm_active=None), "no finite number"),
        (lambda x: x[2].update(ts=x[1]["ts"]), "Line 3"),
        (lambda x: x.__delitem__(slice(1, None)), "no tick"),
        (lambda x: x.clear(), "Line 1"),
    ],
)
def test_a_wrong_line_is_named(path: Path, edit: Callable[[list[Any]], object], said: str) -> None:
    write_recording(path, HEADER, TICKS)
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    edit(lines)
    path.write_bytes(gzip.compress("".join(f"{json.dumps(line)}\n" for line in lines).encode()))
    with pytest.raises(SourceError, match=said):
        read_recording(path)


def test_what_is_cut_off_or_no_recording_is_refused(path: Path) -> None:
    write_recording(path, HEADER, TICKS)
    for content in (path.read_bytes()[:-20], b"not gzip at all", b""):
        path.write_bytes(content)
        with pytest.raises(SourceError):
            read_recording(path)
    with pytest.raises(SourceError):
        read_recording(path.with_name("none"))


def test_an_export_holds_the_window_and_not_whose_machine_it_was(tmp_path: Path) -> None:
    database = tmp_path / "node.db"
    with Writer.open(database, now=lambda: START) as writer:
        own = writer.for_node(Node("secret-host", "secret-cluster", machine_id="m", node_sku="test/node"), START)
        own.set_gpus([Gpu("GPU-secret", 0, "NVIDIA H200")], START)
        own.set_ports(HEADER.ports, START)
        own.set_absences(
            frozenset({Absence("gpu", "GPU-secret", "fp64_active", "not-supported", "GPU-secret cannot.")}), START + 2
        )
        own.put_ticks(
            Tick(tick.ts, 1.0, {"GPU-secret": tick.gpus["GPU-0"]}, tick.fabric, tick.port_states) for tick in TICKS
        )
    known = {"label": LABEL, "made": MADE, "interval_seconds": 1.0, "truth": {}, "versions": {}}
    header, ticks = export_window(database, START + 1, START + 3, **known)
    uuid = header.gpus[0].uuid
    assert [tick.ts for tick in ticks] == [START + 2, START + 3]
    assert ticks[0].gpus == {uuid: {"sm_active": 0.2, "energy_joules": 100.0, "tensor_active": 0.0}}
    assert ticks[0].fabric == TICKS[1].fabric and ticks[0].port_states == TICKS[1].port_states
    assert (header.node.node, header.node.machine_id, header.node.node_sku) == ("recorded", None, "test/node")
    assert [(absence.subject, absence.since) for absence in header.absences] == [(uuid, START + 2)]
    assert "secret" not in repr(header)
    with pytest.raises(SourceError, match="no tick of that window"):
        export_window(database, START - 1000, START - 900, **known)
    with pytest.raises(SourceError, match="cannot be exported"):
        export_window(tmp_path / "none.db", START, START + 1, **known)
