"""Drives the NVML sources through a scenario, step by step, and prints what they read as JSON lines.

A process of its own, because LD_LIBRARY_PATH counts at start only. Reads one JSON array of steps from stdin:
``["open", t]``, ``["probe"]``, ``["read", t]`` or ``["read", t, late]``, ``["wants"]`` (whether a probe is wanted),
``["close"]``, ``["live"]`` (GPM sample buffers held) and ``["calls", name]`` (how often an NVML function was called).
At ``t`` seconds of the scenario the sources' monotonic clock stands at 1000 + t; a reading is asked for then and comes
``late`` seconds later.
"""

import ctypes
import dataclasses
import json
import os
import sys
from pathlib import Path

from skuwise.agent.model import Absence, Instant, Probe, Reading
from skuwise.agent.sampler import Sampler
from skuwise.agent.sources.nvidia_driver import NvidiaDriver
from skuwise.tests.nvmlstub import LIBRARY, StubClock

MAX_GAP_SECONDS = 10.0


def _instant(seconds: float) -> Instant:
    return Instant(1_800_000_000.0 + seconds, 1000.0 + seconds)


def _absence(entry: Absence) -> list[str]:
    return [entry.scope, entry.subject, entry.metric, entry.reason]


def _reading(reading: Reading) -> dict[str, object]:
    processes = None
    if reading.processes is not None:
        processes = [[process.gpu_uuid, process.pid, process.mem_used_bytes] for process in reading.processes]
    return {"gpus": reading.gpus, "processes": processes, "absences": sorted(map(_absence, reading.absences))}


def _probe(probe: Probe) -> dict[str, object]:
    lines = [[c.subject, c.metric, c.origin, c.absence.reason if c.absence else None] for c in probe.capabilities]
    gpus = [dataclasses.asdict(gpu) for gpu in probe.gpus]
    return {"gpus": gpus, "capabilities": lines, "unnamed_gpus": probe.unnamed_gpus}


def main() -> None:
    clock = StubClock(Path(os.environ["SKUWISE_NVML_CLOCK"])) if "SKUWISE_NVML_CLOCK" in os.environ else None
    reading_at = 0.0
    driver = NvidiaDriver(1.0, MAX_GAP_SECONDS, now=lambda: reading_at)
    for name, *arguments in json.load(sys.stdin):
        answer: object = None
        if name in ("open", "read"):
            reading_at = _instant(sum(arguments)).monotonic_seconds
            if clock is not None:
                clock.set(sum(arguments))
        if name == "open":
            driver.open(_instant(arguments[0]))
            answer = dataclasses.asdict(driver.fault.of("source", "nvml")) if driver.fault else None
        elif name == "probe":
            answer = {source.name: _probe(source.probe()) for source in driver.sources}
        elif name == "read":
            answer = {source.name: _reading(source.read(_instant(arguments[0]))) for source in driver.sources}
        elif name == "wants":
            answer = Sampler(driver.sources, 1.0, MAX_GAP_SECONDS).wants_probe
        elif name == "close":
            for source in driver.sources:
                source.close()
        elif name == "live":
            answer = ctypes.CDLL(LIBRARY).nvmlStubLiveGpmSamples()
        elif name == "calls":
            answer = ctypes.CDLL(LIBRARY).nvmlStubCalls(arguments[0].encode())
        print(json.dumps(answer))  # noqa: T201


if __name__ == "__main__":
    main()
