"""What the agent is told of one GPU vendor. Everything else it knows of that vendor stands in the vendor's own folder.

`GPU_BACKENDS` (`agent/sources/gpu_backends.py`) lists them, one line each. A node may have none of them, one, or
several at once: each gets a guard of its own (`agent/service/driver`), and an empty list is an agent without
GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..config import AgentConfig
from ..model import Absence, Capability, Instant
from .base import Fault, Source, UnreadGpu

# The reason of a fault where the vendor's driver is not on the node at all.
NO_DRIVER = "no-driver"
# The reason of a fault that only a new process mends: the driver was changed under this one.
DRIVER_MISMATCH = "driver-mismatch"


class BurstReader(Protocol):
    """Reads the GPUs many times a second, beside the ticks."""

    def each(
        self, now: Callable[[], Instant]
    ) -> Generator[tuple[str, Instant, Mapping[str, float] | None], None, frozenset[Absence]]:
        """One reading, a GPU a step and each at its own instant: (uuid, instant, values). Returns the absences.

        Other jobs may come between two steps: where one of them lets go of the driver, or finds other GPUs, it ends.
        """
        ...


class GpuDriver(Protocol):
    """One vendor's driver, open or not.

    All of it may hang, so the guard calls it where that does no harm, one call at a time and not always from the same
    thread; `fault`, `version` and `unread_gpus` only look at what is known and are asked from the loop's.
    """

    @property
    def fault(self) -> Fault | None:
        """Why nothing can be read; None: it is open."""
        ...

    @property
    def version(self) -> str | None:
        """The driver's version as it was when opened; None: not known."""
        ...

    @property
    def sources(self) -> Sequence[Source]:
        """What is read on the guard's thread. The first names the GPUs, and closing all lets go of the driver."""
        ...

    @property
    def beside(self) -> Sequence[Source]:
        """What waits on threads of its own, and tells even while the driver hangs."""
        ...

    def open(self, instant: Instant) -> object:
        """Take the GPUs up, or find out why not (`fault`). Does nothing when open."""
        ...

    def burst_reader(self, max_gap_seconds: float, metrics: Collection[str]) -> BurstReader | None:
        """A reader of these metrics with counters of its own; None: this vendor's GPUs have no bursts."""
        ...

    def unread_gpus(self) -> Sequence[UnreadGpu]:
        """GPUs whose activity the driver does not tell and another source may."""
        ...


def _as_it_is(line: Capability, procfs: Path) -> Capability:  # noqa: ARG001
    return line


@dataclass(frozen=True, slots=True)
class GpuBackend:
    """One vendor's GPUs.

    `name`: under which absences and doctor know the driver as a whole. `vendor`: as people write it. `sources`: names
    of the driver's `GpuDriver.sources`, which are read in one go. `library`: what is read through. `version_file`
    (under sysfs): the version of the kernel's module, which differs from the open driver's once it was changed; empty:
    not to be told. `burst_source`: which of the sources its bursts ask; empty: it has none. `explain`: one of doctor's
    lines with the exact cause, as procfs tells it. `connect` imports what is heavy.
    """

    name: str
    vendor: str
    library: str
    sources: tuple[str, ...]
    connect: Callable[[AgentConfig], GpuDriver]
    version_file: str = ""
    burst_source: str = ""
    explain: Callable[[Capability, Path], Capability] = _as_it_is

    def __post_init__(self) -> None:
        if not (self.name and self.vendor and self.library and self.name in self.sources):
            raise ValueError(f"The backend {self.name!r} leaves out its name, its vendor, its library or its sources.")
        if self.burst_source and self.burst_source not in self.sources:
            raise ValueError(f"The backend {self.name} has no source {self.burst_source} for its bursts.")
