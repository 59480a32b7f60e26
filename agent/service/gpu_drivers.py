"""The GPU drivers of one node, together: one vendor's, several, or none (an empty list is a node without GPUs)."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Gpu, Instant
from ..sources.base import Fault, UnreadGpu
from .guard import GuardedDriver

_NONE = Fault("no-backend", "This agent is built without a GPU driver.", "Install the full agent.")


class GpuDrivers:
    """Each guard is a source of the loop's own; here stands what is asked of all of them."""

    def __init__(self, guards: Sequence[GuardedDriver]) -> None:
        self.guards = tuple(guards)

    def open(self, instant: Instant, pause_seconds: float = 0.0) -> None:
        """Open each, or leave it alone for `pause_seconds`. Where one is found, those that this node does not have are
        let go; where none is, all are tried again later."""
        for guard in self.guards:
            if pause_seconds > 0:
                guard.pause(instant, pause_seconds)
            else:
                guard.open(instant)
        found = self._found
        for guard in set(self.guards) - set(found):
            guard.close()
        self.guards = found

    @property
    def _found(self) -> tuple[GuardedDriver, ...]:
        return tuple(guard for guard in self.guards if not guard.missing) or self.guards

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(gpu for guard in self.guards for gpu in guard.gpus)

    @property
    def fault(self) -> Fault | None:
        """Why some GPUs are not read at present; None while all are."""
        faults = (guard.fault for guard in self._found)
        return next((fault for fault in faults if fault is not None), None if self.guards else _NONE)

    @property
    def paused_until(self) -> float | None:
        """Monotonic seconds at which the pause of all ends by itself; None: not paused."""
        return max((guard.paused_until for guard in self.guards if guard.paused_until is not None), default=None)

    def pause(self, instant: Instant, seconds: float) -> bool:
        """Let go of all GPUs for `seconds`. Whether they are free now."""
        free = [guard.pause(instant, seconds) for guard in self.guards]  # each is asked, whatever another answers
        return all(free)

    def resume(self) -> None:
        """End the pause; the next reading takes the GPUs up again."""
        for guard in self.guards:
            guard.resume()

    def hung_seconds(self, monotonic_seconds: float) -> float:
        """For how long the slowest has not answered; 0.0 where all do."""
        return max((guard.hung_seconds(monotonic_seconds) for guard in self.guards), default=0.0)

    def wants_restart(self, monotonic_seconds: float, after_seconds: float) -> tuple[str, str] | None:
        """Which driver only a new process can read, and why; see `GuardedDriver.wants_restart`."""
        asked = ((guard.name, guard.wants_restart(monotonic_seconds, after_seconds)) for guard in self.guards)
        return next(((name, why) for name, why in asked if why is not None), None)

    def unread_gpus(self) -> list[UnreadGpu]:
        """GPUs whose activity is for other sources to tell."""
        return [gpu for guard in self.guards for gpu in guard.driver.unread_gpus()]
