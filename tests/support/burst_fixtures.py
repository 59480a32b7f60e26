"""An agent's reading half with ticks and bursts at once, for tests: a process of its own, because of the NVML stub.

``python -m skuwise.tests.support.burst_fixtures SYSFS`` takes one burst to its end, then one in whose midst the GPUs
are let go, and takes them up again after two ticks. Beside them goes a tick every 0.2 s, and every `PERIOD_SECONDS` the
compute ports send for as long as the scenario's ``0.9 0.5:0.1 every:0.8`` is high. Prints one JSON line a burst, and
one of the ticks at the end.
"""

import dataclasses
import json
import sys
import threading
import time
from pathlib import Path

from skuwise.agent.base.clock import SystemClock
from skuwise.agent.model import Instant, Reading
from skuwise.agent.service.bursts import MAX_GAP_SECONDS, Bursts
from skuwise.agent.service.driver_thread import DriverThread
from skuwise.agent.sources.fabric import InfinibandSource
from skuwise.agent.sources.nvidia_driver import NvidiaDriver

PERIOD_SECONDS, BUSY_SECONDS = 0.8, 0.5
TICK_SECONDS = 0.2


class Ticking(threading.Thread):
    """The loop: it alone reads the driver's own sources, pauses and resumes."""

    def __init__(self, driver: DriverThread, sysfs: Path, started: float) -> None:
        super().__init__(daemon=True)
        self._driver = driver
        self._ports = [sysfs / f"class/infiniband/mlx5_{i}/ports/1/counters/port_xmit_data" for i in range(2)]
        self._since = started
        self.ended = threading.Event()
        self.pause_at: float | None = None
        self.resume = False
        self.readings: list[tuple[Instant, Reading]] = []

    def run(self) -> None:
        clock = SystemClock()
        number = 0
        while not self.ended.wait(0.01):
            now = clock.now()
            self._send(now.monotonic_seconds - self._since)
            if self.pause_at is not None and now.monotonic_seconds >= self.pause_at:
                self.pause_at = None
                self._driver.pause(now, 600.0)
            if self.resume:
                self.resume = False
                self._driver.resume()
            if now.monotonic_seconds >= self._since + number * TICK_SECONDS:
                number += 1
                self._driver.begin(now)
                self.readings.append((now, self._driver.read(now)))

    def _send(self, seconds: float) -> None:
        rounds, rest = divmod(seconds, PERIOD_SECONDS)
        words = int(1e9 * (rounds * BUSY_SECONDS + min(rest, BUSY_SECONDS)))
        for port in self._ports:
            with port.open("r+b") as file:  # in place: the descriptor stays open on the other side
                file.write(f"{words:020d}\n".encode())


def main() -> None:
    sysfs = Path(sys.argv[1])
    nvidia = NvidiaDriver(TICK_SECONDS, 10.0)
    driver = DriverThread(nvidia, TICK_SECONDS, 10.0, sysfs=sysfs)
    driver.read_seconds = 0.3
    clock = SystemClock()
    driver.open(clock.now())
    ticking = Ticking(driver, sysfs, clock.now().monotonic_seconds)
    fabric = InfinibandSource(sysfs, lambda: driver.gpus, MAX_GAP_SECONDS)
    ticking.start()
    for seconds, pause_after in ((3.0, None), (10.0, 0.5)):
        bursts = Bursts(driver, fabric, clock.now, seconds)
        began = clock.now().monotonic_seconds
        ticking.pause_at = None if pause_after is None else began + pause_after
        answer = [dataclasses.asdict(burst) for burst in bursts.run()]
        row = {"bursts": answer, "absences": len(bursts.absences), "seconds": clock.now().monotonic_seconds - began}
        print(json.dumps(row))  # noqa: T201
    time.sleep(2 * TICK_SECONDS)
    ticking.resume = True
    time.sleep(3 * TICK_SECONDS)
    ticking.ended.set()
    ticking.join()
    ticks = [
        [at.monotonic_seconds, sorted(reading.gpus), sorted({absence.reason for absence in reading.absences})]
        for at, reading in ticking.readings
    ]
    print(json.dumps({"ticks": ticks}))  # noqa: T201
    driver.close()


if __name__ == "__main__":
    main()
