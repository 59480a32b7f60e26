"""Time that tests and benchmarks move themselves."""

from skuwise.agent.base.clock import SystemClock
from skuwise.agent.model import Instant


class SteppedClock(SystemClock):
    """A clock that moves only when told or waited on: tests run hours in no time."""

    def __init__(self, wall_seconds: float, monotonic_seconds: float = 0.0) -> None:
        super().__init__()
        self._wall = wall_seconds
        self._monotonic = monotonic_seconds
        self.cpu = 0.0

    def now(self) -> Instant:
        return Instant(self._wall, self._monotonic)

    def cpu_seconds(self) -> float:
        return self.cpu

    def advance(self, seconds: float) -> None:
        self._wall += seconds
        self._monotonic += seconds

    def wait_until(self, monotonic_seconds: float) -> None:
        if monotonic_seconds > self._monotonic:
            self.advance(monotonic_seconds - self._monotonic)
