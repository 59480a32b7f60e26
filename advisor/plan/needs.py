"""What each pool has to carry in each hour, and what of it is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .problem import PlanOption, PlanSeries, Problem, whole_nodes_of

Counts = npt.NDArray[np.int64]


class Needs:
    """`base`: pool -> whole GPUs in each hour with the work as it is, `fixed_gpus` and the reserve; `whole`: whole
    nodes of jobs. `change`, `change_nodes`: option -> what it adds of each to which pool."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.hours = max(problem.hours, 1)
        # A rented node can be of a pool that has no other.
        self.base: dict[str, Counts] = {}
        self.whole: dict[str, Counts] = {}
        self.size: dict[str, int] = {}
        for pool, nodes in problem.pools.items():
            always = sum(problem.fixed_gpus.get(n.name, 0) for n in nodes) + problem.reserve.get(pool, 0)
            self.base[pool] = np.full(self.hours, always, dtype=np.int64)
            self.whole[pool] = np.zeros(self.hours, dtype=np.int64)
            self.size[pool] = max(n.gpus for n in nodes)
        for s in problem.series:
            for pool, own in self._needs(s, None):
                if pool in self.base:
                    self.base[pool] += own
            if s.jobs and s.pool in self.base:
                self.whole[s.pool] += self._whole(whole_nodes_of(s, None))
        self.change: dict[str, list[tuple[str, Counts]]] = {}
        self.change_nodes: dict[str, list[tuple[str, Counts]]] = {}
        for o in problem.options:
            s = problem.by_series[o.series]
            self.change[o.id] = [(pool, -own) for pool, own in self._needs(s, None)] + self._needs(s, o)
            self.change_nodes[o.id] = [(s.pool, -self._whole(whole_nodes_of(s, None)))] if s.jobs else []
            if s.jobs and o.pool is not None:
                self.change_nodes[o.id].append((o.pool, self._whole(whole_nodes_of(s, o))))

    def _needs(self, series: PlanSeries, option: PlanOption | None) -> list[tuple[str, Counts]]:
        return [(pool, self._whole(own)) for pool, own in self.problem.needs_of(series, option).items()]

    def _whole(self, values: npt.NDArray[np.float64]) -> Counts:
        padded = np.zeros(self.hours, dtype=np.int64)
        padded[: len(values)] = np.ceil(values - 1e-9)
        return padded

    def asked(self, chosen: Iterable[PlanOption]) -> dict[str, Counts]:
        """Pool -> GPUs in each hour, without those in MIG mode."""
        return _sum(self.base, self.change, chosen)

    def nodes(self, chosen: Iterable[PlanOption]) -> dict[str, Counts]:
        """Pool -> whole nodes that its jobs hold in each hour."""
        return _sum(self.whole, self.change_nodes, chosen)

    def delta(self, option: PlanOption, pool: str, hour: int) -> int:
        return sum(int(change[hour]) for where, change in self.change[option.id] if where == pool)

    def delta_nodes(self, option: PlanOption, pool: str, hour: int) -> int:
        return sum(int(change[hour]) for where, change in self.change_nodes[option.id] if where == pool)

    @cached_property
    def job_pools(self) -> frozenset[str]:
        """Pools in which jobs need whole nodes, or would with an option."""
        coming = {pool for own in self.change_nodes.values() for pool, change in own if (change > 0).any()}
        return frozenset(coming | {pool for pool, whole in self.whole.items() if whole.any()})

    def pools_of(self, option: PlanOption) -> frozenset[str]:
        """Pools of nodes whose needs an option changes."""
        return frozenset(pool for pool, _ in self.change[option.id] if pool in self.base)


def _sum(
    base: Mapping[str, Counts], changes: Mapping[str, list[tuple[str, Counts]]], chosen: Iterable[PlanOption]
) -> dict[str, Counts]:
    found = {pool: counts.copy() for pool, counts in base.items()}
    for o in chosen:
        for pool, change in changes[o.id]:
            if pool in found:
                found[pool] += change
    return found


def missing(asked: Counts, whole: Counts, size: int, room: int, empty: int) -> int:
    """GPUs that a pool misses in its worst hour: `room` are kept, `empty` whole nodes are free for jobs."""
    lack = int(asked.max(initial=0)) - room
    lack_nodes = (int(whole.max(initial=0)) - empty) * size
    return max(lack, lack_nodes, 0)
