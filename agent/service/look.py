"""A short look at this node, for `once` and `doctor`: nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..clock import Clock
from ..config import AgentConfig
from ..model import WorkloadUse
from ..sampler import Sampled
from .assembly import Agent, assemble


def look(
    config: AgentConfig, environ: Mapping[str, str], clock: Clock, seconds: float
) -> tuple[Agent, Sampled, tuple[WorkloadUse, ...]]:
    """Read every source twice, `seconds` apart, and give the second reading, whose rates cover that time."""
    agent = assemble(config, environ, clock.now)
    try:
        first = clock.now()
        agent.sampler.prime(first)
        clock.wait_until(first.monotonic_seconds + seconds)
        sampled = agent.sampler.sample(clock.now())
        uses = agent.attribution.attribute(sampled.processes or ())[1]
    finally:
        agent.sampler.close()
        agent.attribution.close()
    return agent, replace(sampled, absences=sampled.absences | agent.attribution.absences), uses
