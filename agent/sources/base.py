"""What every source is: probed once, read each tick, closed at the end."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..model import Instant, Probe, Reading


class Source(Protocol):
    """One thing read on this node.

    A source never raises for what can be expected of hardware (no driver, a lost GPU, a restricted counter): it leaves
    an `Absence`. What it does raise is caught by the sampler, recorded as ``source-failed``, and does not touch the
    other sources.
    """

    name: str

    def probe(self) -> Probe:
        """Look once at what is here. May be called again after a change of hardware."""
        ...

    def read(self, instant: Instant) -> Reading:
        """One reading. Rates cover the time since this source's previous reading."""
        ...

    def close(self) -> None:
        """Let go of every handle. Idempotent."""
        ...


@runtime_checkable
class SlowSource(Protocol):
    """A source whose reading may take long: it begins, the others read, then `read` waits for what it began."""

    name: str

    def begin(self, instant: Instant) -> None:
        """Begin what `read` of the same instant gives. Returns soon and never raises."""
        ...
