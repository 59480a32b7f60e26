"""What one reading of each source costs here, by CPU time."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from ...base.clock import Clock
from ...sampler import MIN_SPACING_SECONDS
from ...sources.base import SlowSource, Source
from ...sources.gpu_backends import GPU_BACKENDS
from ...sources.registry import SOURCES

_READINGS = 7
# What speaks of a driver is read in one go on its thread, so it has one cost. Pages are read beside the ticks.
_TOGETHER = {source: backend.name for backend in GPU_BACKENDS for source in backend.sources}
_BESIDE = frozenset(spec.name for spec in SOURCES if spec.every_seconds is not None)


def read_costs(sources: Iterable[Source], clock: Clock) -> dict[str, float]:
    """CPU seconds of a reading, by source: the median of some, so that what the first ones set up does not count.

    The whole process's time counts, for the driver is read on a thread of its own. A source that fails has no cost.
    """
    spent: dict[str, list[float]] = {}
    wanted = [source for source in sources if source.name not in _BESIDE]
    for _ in range(_READINGS):
        instant = clock.now()
        for source in wanted:
            before = clock.cpu_seconds()
            try:
                if isinstance(source, SlowSource):
                    source.begin(instant)
                source.read(instant)
            except Exception:  # noqa: S112 - doctor has said so already
                continue
            spent.setdefault(source.name, []).append(clock.cpu_seconds() - before)
        clock.wait_until(instant.monotonic_seconds + MIN_SPACING_SECONDS)
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


def cost_of(source: str, costs: Mapping[str, float]) -> float | None:
    """The cost of what a line of doctor names as its source; None: it is not read on a tick."""
    return costs.get(_TOGETHER.get(source, source))


def sentence(costs: Mapping[str, float]) -> str:
    """For a person: what a tick costs, source by source."""
    together = {
        backend.name: f"{', '.join(one[:-1])} and {one[-1]}" for backend in GPU_BACKENDS if (one := backend.sources)[1:]
    }
    named = [f"{together.get(name, name)} {seconds * 1e3:.2f} ms" for name, seconds in costs.items()]
    return (
        f"A reading costs {sum(costs.values()) * 1e3:.2f} ms of CPU: {', '.join(named)}. Pages are read on a thread "
        "beside it, each at most once in 10 s."
    )
