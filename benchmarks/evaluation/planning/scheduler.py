"""Jobs on the nodes of their pool, hour by hour, each on the first that has room. Who finds none waits, others pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Job:
    """`arrives`, `hours`: whole hours, counted from any moment. `gpus`: on each of its `nodes` nodes; a job on several
    takes them whole. `pool`: node SKU."""

    id: int
    series: int
    pool: str
    nodes: int
    gpus: int
    arrives: int
    hours: int


@dataclass(frozen=True, slots=True)
class Ran:
    """A job on its GPUs (node -> indices) from one hour to another."""

    job: Job
    start: int
    places: Mapping[str, tuple[int, ...]]

    @property
    def waited(self) -> int:
        return self.start - self.job.arrives


@dataclass(frozen=True, slots=True)
class Host:
    """A node as jobs find it. `free`: GPUs that nothing else holds; `whole`: none is held by anything else."""

    name: str
    pool: str
    free: tuple[int, ...]
    whole: bool


@dataclass
class Schedule:
    """`waiting`: jobs that never began, with the hours that they had waited."""

    ran: list[Ran] = field(default_factory=list)
    waiting: dict[int, int] = field(default_factory=dict)

    def waits(self) -> dict[int, int]:
        return {**{r.job.id: r.waited for r in self.ran}, **self.waiting}


def schedule(hosts: Sequence[Host], jobs: Sequence[Job], until: int) -> Schedule:
    """Run `jobs` on `hosts` until the hour `until`."""
    out = Schedule()
    free = {h.name: set(h.free) for h in hosts}
    whole = {h.name: h.whole for h in hosts}
    by_pool: dict[str, list[str]] = {}
    for h in hosts:
        by_pool.setdefault(h.pool, []).append(h.name)
    total = {h.name: len(h.free) for h in hosts}
    arriving = sorted(jobs, key=lambda j: (j.arrives, j.id))
    queue: list[Job] = []
    ends: dict[int, list[Ran]] = {}
    first = arriving[0].arrives if arriving else until
    at = 0

    def place(job: Job, names: Sequence[str]) -> dict[str, tuple[int, ...]] | None:
        if job.nodes > 1:
            fits = [n for n in names if whole[n] and len(free[n]) == total[n] >= job.gpus][: job.nodes]
        else:
            fits = [n for n in names if len(free[n]) >= job.gpus][:1]
        return {n: tuple(sorted(free[n])[: job.gpus]) for n in fits} if len(fits) == job.nodes else None

    for hour in range(first, until):
        for done in ends.pop(hour, []):
            for name, gpus in done.places.items():
                free[name] |= set(gpus)
        while at < len(arriving) and arriving[at].arrives <= hour:
            queue.append(arriving[at])
            at += 1
        left = []
        for job in queue:
            places = place(job, by_pool.get(job.pool, ()))
            if places is None:
                left.append(job)
                continue
            for name, gpus in places.items():
                free[name] -= set(gpus)
            run = Ran(job, hour, places)
            out.ran.append(run)
            ends.setdefault(hour + job.hours, []).append(run)
        queue = left
    out.waiting = {job.id: until - job.arrives for job in queue}
    return out


def mean_waits(jobs: Sequence[Job], ran: Schedule) -> Mapping[str, float]:
    """Node SKU -> hours that its jobs waited, on average."""
    waits = ran.waits()
    pools: dict[str, list[int]] = {}
    for job in jobs:
        pools.setdefault(job.pool, []).append(waits.get(job.id, 0))
    return {pool: sum(own) / len(own) for pool, own in pools.items()}
