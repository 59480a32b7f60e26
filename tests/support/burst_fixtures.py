"""An agent's reading half with ticks and bursts at once, for tests: in a separate process, because of the NVML stub.

``python -m skuwise.tests.support.burst_fixtures SYSFS`` takes one burst to its end, then one in whose midst the GPUs
are released, and takes them up again after two ticks. Beside them goes a tick every 0.2 s, and every `PERIOD_SECONDS`
the compute ports send for as long as the scenario's ``0.9 0.5:0.1 every:0.8`` is high. Prints one JSON line a burst,
and one of the ticks at the end.
"""

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from skuwise.agent.base.clock import SystemClock
from skuwise.agent.model import Reading
from skuwise.agent.service.bursts import MAX_GAP_SECONDS, Bursts
from skuwise.agent.service.driver_thread import DriverThread
from skuwise.agent.sources.fabric import InfinibandSource
from skuwise.agent.sources.nvidia_driver import NvidiaDriver

PERIOD_SECONDS, BUSY_SECONDS = 0.8, 0.5
TICK_SECONDS = 0.2


def send(sysfs: Path, seconds: float) -> None:
    """The compute ports' counters after so many seconds."""
    rounds, rest = divmod(seconds, PERIOD_SECONDS)
    words = int(1e9 * (rounds * BUSY_SECONDS + min(rest, BUSY_SECONDS)))
    for number in range(2):
        with (sysfs / f"class/infiniband/mlx5_{number}/ports/1/counters/port_xmit_data").open("r+b") as file:
            file.write(f"{words:020d}\n".encode())  # in place: it is never seen empty


def after(seconds: float) -> Callable[[], bool]:
    ends = time.monotonic() + seconds
    return lambda: time.monotonic() >= ends


def main() -> None:
    sysfs, clock = Path(sys.argv[1]), SystemClock()
    driver = DriverThread(NvidiaDriver(TICK_SECONDS, 10.0))
    driver.read_seconds = 0.3
    driver.open(clock.now())
    fabric = InfinibandSource(sysfs, lambda: driver.gpus, MAX_GAP_SECONDS)
    started, readings = clock.now().monotonic_seconds, list[Reading]()

    def tick_until(ended: Callable[[], bool]) -> None:
        """The loop, which alone reads the driver's own sources, pauses and resumes."""
        while not ended():
            time.sleep(0.01)
            now = clock.now()
            send(sysfs, now.monotonic_seconds - started)
            if now.monotonic_seconds >= started + len(readings) * TICK_SECONDS:
                driver.begin(now)
                readings.append(driver.read(now))

    with ThreadPoolExecutor(1) as pool:
        for seconds, is_paused in ((3.0, False), (10.0, True)):
            bursts, began = Bursts(driver, fabric, clock.now, seconds), time.monotonic()
            taken = pool.submit(bursts.run)
            if is_paused:
                tick_until(after(0.5))
                driver.pause(clock.now(), 600.0)
            tick_until(taken.done)
            answer = [dataclasses.asdict(burst) for burst in taken.result()]
            row = {"bursts": answer, "absences": len(bursts.absences), "seconds": time.monotonic() - began}
            print(json.dumps(row))  # noqa: T201
    tick_until(after(2 * TICK_SECONDS))
    driver.resume()
    tick_until(after(3 * TICK_SECONDS))
    ticks = [[sorted(reading.gpus), sorted({absence.reason for absence in reading.absences})] for reading in readings]
    print(json.dumps({"ticks": ticks}))  # noqa: T201
    driver.close()


if __name__ == "__main__":
    main()
