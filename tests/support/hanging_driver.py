"""A GPU driver over no library that hangs when it is told to."""

import threading

from skuwise.agent.model import Gpu, Instant, Probe, Reading
from skuwise.agent.sources.base import Fault
from skuwise.agent.sources.nvml_table import NO_DRIVER


class Driver:
    """In place of `NvidiaDriver`: one GPU. While `answers` is not set, what opens, reads or closes it hangs."""

    version, interval_seconds, max_gap_seconds = None, 1.0, 10.0

    def __init__(self) -> None:
        self.fault: Fault | None = Fault(NO_DRIVER, "It is not open.", "")
        self.answers = threading.Event()
        self.answers.set()
        self.reads = 0
        self.sources = (self,)
        self.name = "nvml"

    def open(self, instant: Instant) -> None:
        self.answers.wait()
        self.fault = None

    def probe(self) -> Probe:
        return Probe(gpus=(Gpu("GPU-1", 0, "H100"),))

    def read(self, instant: Instant) -> Reading:
        self.reads += 1
        self.answers.wait()
        return Reading(gpus={"GPU-1": {"power_watts": 300.0}})

    def close(self) -> None:
        self.answers.wait()
        self.fault = Fault("released", "It is closed.", "")


def at(seconds: float) -> Instant:
    return Instant(1.8e9 + seconds, seconds)


def reasons(reading: Reading) -> set[tuple[str, str]]:
    return {(absence.subject, absence.reason) for absence in reading.absences}
