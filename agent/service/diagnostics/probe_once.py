"""A short look at this node, for `once` and `doctor`: nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...base.clock import Clock
from ...config import AgentConfig
from ...model import WorkloadUse
from ...sampler import Sampled
from ..runtime.assembly import Agent, assemble
from .source_overhead import read_costs


@dataclass(frozen=True)
class Looked:
    """The agent, closed again; its second reading; whose work was seen; and, where asked for, each source's cost."""

    agent: Agent
    sampled: Sampled
    uses: tuple[WorkloadUse, ...]
    costs: Mapping[str, float]


def look(
    config: AgentConfig, environ: Mapping[str, str], clock: Clock, seconds: float, *, with_costs: bool = False
) -> Looked:
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
        costs = read_costs(agent.sampler.sources, clock) if with_costs else {}
    finally:
        agent.sampler.close()
        agent.attribution.close()
    return Looked(agent, replace(sampled, absences=sampled.absences | agent.attribution.absences), uses, costs)
