"""Recordings of nodes, replayed: lines of JSON in gzip."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

from ..documents import by_json
from ..spoil import spoiled
from ..target import Prepared, Seed, Target
from ..verdict import finite

START = 1_780_000_000.0


def _prepare(folder: Path) -> Prepared:
    from skuwise.agent.model import FabricPort, Gpu, Node, Tick
    from skuwise.agent.sources.replay.recording import (
        RecordingClock,
        RecordingSource,
        read_recording,
        timeline,
        write_recording,
    )
    from skuwise.agent.sources.replay.recording_format import Header, Label, Made, RecordedAbsence

    header = Header(
        label=Label("training", "compute", "made up"),
        made=Made("simulated", "python -m skuwise.benchmarks.fuzzing", "2026-01-02T03:04:05Z"),
        node=Node("node-0", cluster="c", gpu_count=1),
        gpus=(Gpu("GPU-0", 0, "NVIDIA H200", sku="H200", mem_total_bytes=150_754_820_096),),
        ports=(FabricPort("mlx5_0", 1, "compute", "InfiniBand", 50e9),), interval_seconds=1.0, truth={"seconds": 3.0},
        absences=(RecordedAbsence("gpu", "GPU-0", "fp64_active", "not-supported", START, "No.", "None."),),
    )  # fmt: skip
    ticks = [
        Tick(START + n, 1.0, gpus={"GPU-0": {"sm_active": 0.1 * n, "energy_joules": 100.0}},
             fabric={"mlx5_0/1": {"tx_bytes_per_second": 1e9}}, port_states={"mlx5_0/1": "ACTIVE"},
             host={"cpu_util": 0.25})
        for n in range(1, 6)
    ]  # fmt: skip
    honest, path = folder / "honest.jsonl.gz", folder / "spoiled.jsonl.gz"
    write_recording(honest, header, ticks)

    def read(_: str, data: bytes) -> object:
        path.write_bytes(data)
        found = read_recording(path)
        finite([(tick.ts, tick.gpus, tick.fabric, tick.host) for tick in found.ticks], "a tick")
        clock = RecordingClock(found)
        source = RecordingSource(found)
        source.probe()
        for instant in timeline(found)[:20]:
            clock.wait_until(instant.monotonic_seconds)
            finite(source.read(clock.now()).gpus, "what is replayed")
        return found

    trees = by_json(b'"ts":', b'"gpus":{', b"NaN", b'"schema":')

    def mutate(draw: random.Random, seed: Seed, seeds: Sequence[Seed]) -> bytes:
        if draw.random() < 0.3:
            return spoiled(draw, seed.data, seeds)
        lines = gzip.decompress(seed.data).splitlines()
        place = draw.randrange(len(lines))
        line = Seed("line", lines[place])
        lines[place] = trees(draw, line, [line])
        if draw.random() < 0.3:
            own = json.loads(lines[0]) if place else {}
            if isinstance(own, dict) and own:
                own["tick_count"] = draw.choice((0, 4, 5, 6, -1, 2**70, None, "5"))
                lines[0] = json.dumps(own).encode()
        return gzip.compress(b"\n".join(lines) + draw.choice((b"\n", b"\n", b"")), 1, mtime=0)

    return Prepared([Seed("recording", honest.read_bytes())], read, mutate)


RECORDING = Target("recording", "recordings of nodes, read and replayed (agent/sources/recording)", _prepare)
