"""Drives the NVML sources through a scenario, step by step, and prints what they read as JSON lines.

A separate process, because LD_LIBRARY_PATH counts at start only. Reads one JSON array of steps from stdin:
``["open", t]``, ``["probe"]``, ``["read", t]``, ``["events", t, n]`` (until n came), ``["wants"]``
(whether a probe is wanted), ``["close"]``, ``["live"]`` (GPM sample buffers held) and ``["calls", name]`` (how often an
NVML function was called). At ``t`` seconds of the scenario the sources' monotonic clock stands at 1000 + t.
"""

import ctypes
import dataclasses
import json
import os
import sys
import time
from pathlib import Path

from skuwise.agent.model import Event, Instant, Probe, Reading
from skuwise.agent.sampler import Sampler
from skuwise.agent.sources.nvidia_driver import NvidiaDriver
from skuwise.tests.nvmlstub import LIBRARY, StubClock

MAX_GAP_SECONDS = 10.0


def _instant(seconds: float) -> Instant:
    return Instant(1_800_000_000.0 + seconds, 1000.0 + seconds)


def _reading(reading: Reading) -> dict[str, object]:
    processes = None
    if reading.processes is not None:
        processes = [[process.gpu_uuid, process.pid, process.mem_used_bytes] for process in reading.processes]
    absences = sorted([absence.scope, absence.subject, absence.metric, absence.reason] for absence in reading.absences)
    return {"gpus": reading.gpus, "processes": processes, "absences": absences}


def _probe(probe: Probe) -> dict[str, object]:
    lines = [[c.subject, c.metric, c.origin, c.absence.reason if c.absence else None] for c in probe.capabilities]
    gpus = [dataclasses.asdict(gpu) for gpu in probe.gpus]
    return {"gpus": gpus, "capabilities": lines, "unnamed_gpus": probe.unnamed_gpus}


def _events(driver: NvidiaDriver, count: int) -> dict[str, object]:
    (source,), events, ends = driver.beside, list[Event](), time.monotonic() + 50
    lines = _probe(source.probe())["capabilities"]
    while sum(event.count for event in events) < count and time.monotonic() < ends:
        time.sleep(0.02)
        events += source.read(_instant(0.0)).events
    absences = _reading(source.read(_instant(0.0)))["absences"]
    return {"lines": lines, "events": [dataclasses.asdict(event) for event in events], "absences": absences}


def main() -> None:
    clock = StubClock(Path(os.environ["SKUWISE_NVML_CLOCK"]))
    instant = _instant(0.0)
    driver = NvidiaDriver(1.0, MAX_GAP_SECONDS, now=lambda: instant.monotonic_seconds)
    for name, *arguments in json.load(sys.stdin):
        answer: object = None
        if name in ("open", "read", "events"):
            instant = _instant(arguments[0])
            clock.set(arguments[0])
        if name == "open":
            driver.open(instant)
            driver.beside[0].probe()  # it listens from here on
            answer = dataclasses.asdict(driver.fault.of("source", "nvml")) if driver.fault else None
        elif name == "probe":
            answer = {source.name: _probe(source.probe()) for source in driver.sources}
        elif name == "read":
            answer = {source.name: _reading(source.read(instant)) for source in driver.sources}
        elif name == "events":
            answer = _events(driver, arguments[1])
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
