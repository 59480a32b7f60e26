"""A GPU driver over no library that hangs when it is told to."""

import threading

from skuwise.agent.model import Gpu, Instant, Probe, Reading
from skuwise.agent.sources.base import Fault, UnreadGpu
from skuwise.agent.sources.gpu_backend import NO_DRIVER


class Session:
    """A driver over no library: opening succeeds, hangs or finds nothing."""

    version = None

    def __init__(self, here: bool = True) -> None:
        self.fault: Fault | None = Fault(NO_DRIVER, "It is not open.", "")
        self.here = here
        self.answers = threading.Event()
        self.answers.set()
        self.gpus = Gpus(self)
        self.sources = (self.gpus,)
        self.beside = ()

    def open(self, instant: Instant) -> None:
        self.answers.wait()
        self.fault = None if self.here else self.fault

    def close(self) -> None:
        self.fault = Fault("released", "It is closed.", "")

    def burst_reader(self, max_gap_seconds: float, metrics: object) -> None:
        return None

    def unread_gpus(self) -> list[UnreadGpu]:
        return []


class Gpus:
    """One GPU; `read` hangs while the session does."""

    name = "nvml"

    def __init__(self, session: Session) -> None:
        self.session = session
        self.reads = 0

    def probe(self) -> Probe:
        return Probe(gpus=(Gpu("GPU-1", 0, "H100"),))

    def read(self, instant: Instant) -> Reading:
        self.reads += 1
        self.session.answers.wait()
        return Reading(gpus={"GPU-1": {"power_watts": 300.0}})

    def close(self) -> None:
        self.session.answers.wait()
        self.session.close()


def at(seconds: float) -> Instant:
    return Instant(1.8e9 + seconds, seconds)


def reasons(reading: Reading) -> set[tuple[str, str]]:
    return {(one.subject, one.reason) for one in reading.absences}
