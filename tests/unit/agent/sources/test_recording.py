"""Recordings: what is written is read again to the last value, and nothing else is taken for one."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from skuwise.agent.base.clock import Clock
from skuwise.agent.model import Absence, FabricPort, Gpu, Instant, Node, Tick
from skuwise.agent.sampler import Sampled, Sampler, run_loop
from skuwise.agent.sources.base import Source
from skuwise.agent.sources.replay import recording as recording_module
from skuwise.agent.sources.replay.recording import (
    Recording,
    RecordingClock,
    RecordingSource,
    read_recording,
    timeline,
    write_recording,
)
from skuwise.agent.sources.replay.recording_format import Label, Made, RecordedAbsence, RecordingHeader
from skuwise.rules.base.errors import SourceError

START = 1_780_000_000.0
GPU = Gpu("GPU-0", 0, "NVIDIA H200", sku="H200", mem_total_bytes=150_754_820_096, power_limit_watts=700.0)
PORT = FabricPort("mlx5_0", 1, "compute", "InfiniBand", 50e9)
HEADER = RecordingHeader(
    label=Label("training", "compute", "a made-up example for this test"),
    made=Made("simulated", "tests/unit/agent/sources/test_recording.py", "2026-01-02T03:04:05Z"),
    node=Node("node-0", cluster="c", gpu_count=1),
    gpus=(GPU,),
    ports=(PORT,),
    interval_seconds=1.0,
    truth={"flops": 1.5e18, "seconds": 3.0},
    versions={"skuwise": "0.1.0", "driver": "580.1"},
    absences=(RecordedAbsence("gpu", "GPU-0", "fp64_active", "not-supported", START, "No.", "None.", START + 2.5),),
)


def tick(number: int, interval: float = 1.0, **gpu: float) -> Tick:
    return Tick(
        START + number,
        interval,
        gpus={"GPU-0": {"sm_active": 0.1 * number, "energy_joules": 100.0, "mem_used_bytes": 1024.0 * number, **gpu}},
        fabric={"mlx5_0/1": {"tx_bytes_per_second": 1e9}},
        port_states={"mlx5_0/1": "ACTIVE"},
        host={"cpu_util": 0.25, "mem_total_bytes": 2**40},
    )


TICKS = (tick(1), tick(2), tick(3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "example.jsonl.gz"


def pack(path: Path, lines: list[Any], ending: str = "\n") -> None:
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}{ending}" for line in lines)
    path.write_bytes(gzip.compress(text.encode("utf-8", "surrogatepass")))


def unpack(path: Path) -> list[Any]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_round_trip_keeps_every_value(path: Path) -> None:
    write_recording(path, HEADER, TICKS)
    assert read_recording(path) == Recording(HEADER, TICKS)


def test_same_content_gives_same_bytes(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other-name.jsonl.gz"
    write_recording(path, HEADER, TICKS)
    write_recording(other, HEADER, iter(TICKS))
    assert path.read_bytes() == other.read_bytes()
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["example.jsonl.gz", "other-name.jsonl.gz"]


def test_missing_stays_missing_and_zero_stays_zero(path: Path) -> None:
    bare = Tick(START + 1, 1.0, gpus={"GPU-0": {"tensor_active": 0.0}})
    write_recording(path, HEADER, [bare])
    (read,) = read_recording(path).ticks
    assert read.gpus == {"GPU-0": {"tensor_active": 0.0}}
    assert read.fabric == {} and read.host == {} and read.port_states == {}


Edit = Callable[[list[Any]], object]
BAD_LINES: dict[str, tuple[Edit, str]] = {
    "unknown key in the header": (lambda x: x[0].update(colour="blue"), "unknown key 'colour'"),
    "unknown key in the label": (lambda x: x[0]["label"].update(colour="blue"), "unknown key 'colour'"),
    "unknown key in a GPU": (lambda x: x[0]["gpus"][0].update(price=1), "unknown key 'price'"),
    "unknown key in a tick": (lambda x: x[1].update(gpu={}), "unknown key 'gpu'"),
    "unknown metric": (lambda x: x[1]["gpus"]["GPU-0"].update(sm_util=1), "'sm_util', which is unknown"),
    "unknown truth": (lambda x: x[0]["truth"].update(tflops=1), "'tflops', which is unknown"),
    "unknown device": (lambda x: x[1]["gpus"].update({"GPU-9": {}}), "'GPU-9', which is unknown"),
    "unknown port": (lambda x: x[1]["port_states"].update(mlx9="ACTIVE"), "'mlx9', which is unknown"),
    "newer schema": (lambda x: x[0].update(schema="skuwise.recording/2"), "not skuwise.recording/1"),
    "no label": (lambda x: x[0].pop("label"), "lacks label"),
    "wrong kind": (lambda x: x[0]["label"].update(kind="mining"), "label.kind is 'mining'"),
    "wrong method": (lambda x: x[0]["made"].update(method="memory"), "made.method is 'memory'"),
    "time without a zone": (lambda x: x[0]["made"].update(at="2026-01-02T03:04:05"), "RFC 3339"),
    "time that is none": (lambda x: x[0]["made"].update(at="2026-13-02T03:04:05Z"), "is not a time"),
    "text for a number": (lambda x: x[1]["gpus"]["GPU-0"].update(sm_active="1"), "not a number"),
    "null for missing": (lambda x: x[1]["gpus"]["GPU-0"].update(sm_active=None), "not a number"),
    "true for a number": (lambda x: x[1]["gpus"]["GPU-0"].update(sm_active=True), "not a number"),
    "number for text": (lambda x: x[0]["node"].update(node=7), "not text"),
    "fraction for a count": (lambda x: x[0]["gpus"][0].update(index=0.5), "which it cannot be"),
    "below zero": (lambda x: x[1]["gpus"]["GPU-0"].update(power_watts=-1), "below zero"),
    "no time in the tick": (lambda x: x[1].pop("ts"), "lacks ts"),
    "interval of nothing": (lambda x: x[1].update(interval_seconds=0), "not above zero"),
    "time goes back": (lambda x: x[2].update(ts=x[1]["ts"]), "does not come after"),
    "device twice": (lambda x: x[0]["gpus"].append(x[0]["gpus"][0]), "a device twice"),
    "too long a text": (lambda x: x[0]["label"].update(work="x" * 5000), "at most 4096"),
    "huge integer": (lambda x: x[1]["gpus"]["GPU-0"].update(power_watts=10**400), "not finite"),
    "a list for a tick": (lambda x: x.__setitem__(1, []), "not an object"),
    "an object for a list": (lambda x: x[0].update(gpus={}), "not a list"),
    "blank line": (lambda x: x.__setitem__(1, ""), "is not JSON"),
    "NaN": (lambda x: x.__setitem__(1, '{"ts":1,"interval_seconds":NaN}'), "NaN"),
    "infinity": (lambda x: x.__setitem__(1, '{"ts":Infinity,"interval_seconds":1}'), "Infinity"),
    "infinity in digits": (lambda x: x.__setitem__(1, '{"ts":1e999,"interval_seconds":1}'), "not finite"),
    "key twice": (lambda x: x.__setitem__(1, '{"ts":1,"ts":2,"interval_seconds":1}'), "same key twice"),
    "deep nesting": (lambda x: x.__setitem__(1, "[" * 200_000), "is not JSON"),
    "endless digits": (lambda x: x.__setitem__(1, '{"ts":' + "9" * 5000 + ',"interval_seconds":1}'), "is not JSON"),
    "count that is none": (lambda x: x[0].update(tick_count=-1), "not a count"),
    "lines missing": (lambda x: x.pop(), "holds 2 ticks, but its header announces 3"),
    "only a header": (lambda x: x.__delitem__(slice(1, None)), "holds no ticks"),
    "nothing": (lambda x: x.clear(), "is empty"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_bad_lines_are_refused_with_a_remedy(path: Path, case: str) -> None:
    edit, expected = BAD_LINES[case]
    write_recording(path, HEADER, TICKS)
    lines = unpack(path)
    edit(lines)
    pack(path, lines)
    with pytest.raises(SourceError) as caught:
        read_recording(path)
    assert expected in caught.value.message
    assert caught.value.remedy
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_the_line_is_named(path: Path) -> None:
    write_recording(path, HEADER, TICKS)
    lines = unpack(path)
    lines[2]["extra"] = 1
    pack(path, lines)
    with pytest.raises(SourceError, match=r"^Line 3 of the recording"):
        read_recording(path)


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.999])
def test_truncated_gzip_is_refused(path: Path, keep: float) -> None:
    write_recording(path, HEADER, [tick(n) for n in range(1, 400)])
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(SourceError, match="cut off"):
        read_recording(path)


def test_truncations_and_flips_are_refused_cleanly(path: Path) -> None:
    write_recording(path, HEADER, TICKS)
    whole = path.read_bytes()
    good = read_recording(path)
    for length in range(0, len(whole), 5):
        path.write_bytes(whole[:length])
        with pytest.raises(SourceError):
            read_recording(path)
    for position in range(0, len(whole), 5):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        try:
            assert read_recording(path) == good  # a flip in gzip's own time stamp or system byte says nothing new
        except SourceError as error:
            assert error.remedy


def test_a_bomb_is_refused_before_it_is_unpacked(path: Path) -> None:
    write_recording(path, HEADER, TICKS)
    header = gzip.decompress(path.read_bytes()).splitlines()[0]
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header + b"\n")
        for _ in range(recording_module.MAX_BYTES // 2**20 + 1):
            file.write(b" " * 2**20)
    with pytest.raises(SourceError, match="more than 67108864 bytes"):
        read_recording(path)


def test_files_that_are_no_recording_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        read_recording(path)
    with pytest.raises(SourceError, match="Is a directory"):
        read_recording(tmp_path)
    path.write_text("not gzip at all, but long enough")
    with pytest.raises(SourceError, match="not sound gzip"):
        read_recording(path)
    path.write_bytes(b"")
    with pytest.raises(SourceError, match="is empty"):
        read_recording(path)
    path.write_bytes(gzip.compress(b"\xff\xfe{\n"))
    with pytest.raises(SourceError, match="not UTF-8"):
        read_recording(path)
    path.write_bytes(gzip.compress(b'{"schema"'))
    with pytest.raises(SourceError, match="middle of a line"):
        read_recording(path)


def test_what_a_reader_would_refuse_is_not_written(path: Path) -> None:
    bad: dict[str, tuple[RecordingHeader, list[Tick]]] = {
        "holds no ticks": (HEADER, []),
        "a value that JSON does not support": (HEADER, [tick(1, power_watts=float("nan"))]),
        "which is unknown": (HEADER, [tick(1, watts=1.0)]),
        "does not come after": (HEADER, [tick(2), tick(1)]),
        "is unknown": (dataclasses.replace(HEADER, truth={"luck": 1.0}), [tick(1)]),
    }
    for expected, (header, ticks) in bad.items():
        with pytest.raises(SourceError, match=expected):
            write_recording(path, header, ticks)
    assert not list(path.parent.iterdir())
    with pytest.raises(SourceError, match="cannot be written"):
        write_recording(path / "no" / "folder", HEADER, TICKS)


def replay(recording: Recording, interval: float = 1.0, max_gap: float = 10.0) -> list[Sampled]:
    clock = RecordingClock(recording)
    kept: list[Sampled] = []
    sampler = Sampler([RecordingSource(recording)], interval, max_gap)
    run_loop(sampler, clock, kept.append, lambda stats: None, lambda: 0, stopped=clock.over)
    return kept


def test_the_shapes_are_those_of_the_agent() -> None:
    source: Source = RecordingSource(Recording(HEADER, TICKS))
    clock: Clock = RecordingClock(Recording(HEADER, TICKS))
    probe = source.probe()
    assert probe.gpus == (GPU,) and probe.ports == (PORT,)
    assert ("GPU-0", "sm_active") in {(line.subject, line.metric) for line in probe.capabilities if not line.absence}
    assert [line.absence.reason for line in probe.capabilities if line.absence] == ["not-supported"]
    assert clock.now() == Instant(START, 0.0) and clock.cpu_seconds() == 0.0
    source.close()
    source.close()


def test_the_agents_loop_gives_the_recorded_ticks_again() -> None:
    kept = replay(Recording(HEADER, TICKS))
    assert [sampled.tick for sampled in kept] == list(TICKS)
    reasons = [{absence.reason for absence in sampled.absences} for sampled in kept]
    assert reasons == [{"not-supported"}, {"not-supported"}, set()]


def test_jitter_and_missed_ticks_replay_as_they_were() -> None:
    ticks = (tick(1), dataclasses.replace(tick(2), ts=START + 2.004, interval_seconds=1.004), tick(5, 2.996), tick(6))
    kept = replay(Recording(HEADER, ticks))
    assert [sampled.tick.ts for sampled in kept] == [t.ts for t in ticks]
    assert [sampled.tick.interval_seconds for sampled in kept] == pytest.approx([1.0, 1.004, 2.996, 1.0])
    assert [sampled.tick.gpus for sampled in kept] == [t.gpus for t in ticks]


def test_a_slewed_wall_clock_does_not_bend_the_intervals() -> None:
    ticks = tuple(dataclasses.replace(tick(n), ts=START + n * 1.0005) for n in range(1, 30))
    moments = timeline(Recording(HEADER, ticks))
    assert [moment.monotonic_seconds for moment in moments] == list(range(30))


def test_reading_more_seldom_joins_what_the_interval_held() -> None:
    source = RecordingSource(Recording(HEADER, (tick(1, gpu_util=1.0), tick(2), tick(3), tick(4))))
    source.read(Instant(0.0, 100.0))
    two = source.read(Instant(2.0, 102.0))
    values = two.gpus["GPU-0"]
    assert values["sm_active"] == pytest.approx(0.15)
    assert values["energy_joules"] == 200.0
    assert values["mem_used_bytes"] == 2048.0
    assert "gpu_util" not in values, "the newest tick lacks it, so the interval does"
    assert two.host["cpu_util"] == pytest.approx(0.25) and two.port_states == {"mlx5_0/1": "ACTIVE"}


def test_where_nothing_was_recorded_nothing_is_given() -> None:
    source = RecordingSource(Recording(HEADER, (tick(1), tick(5, 4.0))))
    first = source.read(Instant(0.0, 7.0))
    assert first.gpus == {}
    assert source.read(Instant(1.0, 8.0)).gpus == TICKS[0].gpus
    gap = source.read(Instant(2.0, 9.0))
    assert gap.gpus == {} and gap.absences == {
        Absence("source", "recording", "*", "not-recorded", "The recording has no tick for this interval.")
    }
    assert source.read(Instant(5.0, 12.0)).gpus["GPU-0"]["sm_active"] == pytest.approx(0.5)
    (over,) = source.read(Instant(6.0, 13.0)).absences
    assert over.reason == "recording-over"
