"""A short look at this node, for `once` and `doctor`: nothing is stored. And what each source costs, by CPU time."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..base.clock import SystemClock
from ..config import AgentConfig
from ..model import WorkloadUse
from ..sampler import MIN_SPACING_SECONDS, Sampled
from ..sources.base import SlowSource, Source
from ..sources.registry import SOURCES
from .assembly import Agent, assemble

_READINGS = 7
# What speaks of a driver is read in one go on its thread, so it has one cost. Pages are read beside the ticks.
_TOGETHER = {"nvml": "nvml", "gpm": "nvml", "nvlink": "nvml"}
_BESIDE = frozenset(spec.name for spec in SOURCES if spec.every_seconds is not None)


@dataclass(frozen=True)
class NodeProbe:
    """The agent, closed again; its second reading; whose work was seen; and, where asked for, each source's cost."""

    agent: Agent
    sampled: Sampled
    uses: tuple[WorkloadUse, ...]
    costs: Mapping[str, float]


def probe_node(
    config: AgentConfig, environ: Mapping[str, str], clock: SystemClock, seconds: float, *, with_costs: bool = False
) -> NodeProbe:
    """Read every source twice, `seconds` apart: the second reading's rates cover that time.

    With `with_costs` each source is then read some times more, and its CPU time taken.
    """
    agent = assemble(config, environ, clock.now)
    try:
        first = clock.now()
        agent.sampler.prime(first)
        clock.wait_until(first.monotonic_seconds + seconds)
        sampled = agent.sampler.sample(clock.now())
        uses = tuple(use for use in agent.attribution.attribute(sampled.processes or ())[1] if use.until is None)
        costs = measure_sources(agent.sampler.sources, clock) if with_costs else {}
    finally:
        agent.sampler.close()
        agent.attribution.close()
    return NodeProbe(agent, replace(sampled, absences=sampled.absences | agent.attribution.absences), uses, costs)


def measure_sources(sources: Iterable[Source], clock: SystemClock) -> dict[str, float]:
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


def source_cost(source: str, costs: Mapping[str, float]) -> float | None:
    """The cost of what a line of doctor names as its source; None: it is not read on a tick."""
    return costs.get(_TOGETHER.get(source, source))


def overhead_sentence(costs: Mapping[str, float]) -> str:
    """For a person: what a tick costs, source by source."""
    together = {"nvml": "nvml, gpm and nvlink"}
    named = [f"{together.get(name, name)} {seconds * 1e3:.2f} ms" for name, seconds in costs.items()]
    return (
        f"A reading costs {sum(costs.values()) * 1e3:.2f} ms of CPU: {', '.join(named)}. Pages are read on a thread "
        "beside it, each at most once in 10 s."
    )
