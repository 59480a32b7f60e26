"""Replicas of a service behind one balancer, from first principles: what a trial compares, with a known answer.

Requests arrive at random (Poisson) along the day, and a balancer sends each to a replica. That works on up to `batch`
of them at once and the others wait in its queue, first come, first served. A step with n requests takes
`slow` x (base + each x n) seconds and gives each request one token. Nothing here knows how a trial is evaluated.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Engine:
    """`base`, `each`: seconds of a step, and more of it for each request in it; `batch`: most at once. `slow`: all of
    that times so much. Energy above `rest_watts`: joules of a step, and of each request in it; `answer`: mean tokens of
    an answer."""

    base: float = 0.03
    each: float = 0.0015
    batch: int = 16
    slow: float = 1.0
    rest_watts: float = 90.0
    step_joules: float = 8.0
    request_joules: float = 0.4
    answer: float = 120.0

    def step(self, requests: int) -> float:
        return self.slow * (self.base + self.each * requests)

    @property
    def most(self) -> float:
        """Requests per second with a full batch."""
        return self.batch / self.step(self.batch) / self.answer


# As a replica that works on one request at a time: an M/G/1 queue.
ONE_BY_ONE = Engine(base=0.03, each=0.0, batch=1, answer=60.0)
Hour = Mapping[str, float]


def day(hour: float, peak: float) -> float:
    """Requests per second at an hour of the day: a fifth at night of what it is in the afternoon, less at week-ends."""
    wave = 0.6 + 0.4 * math.sin(2 * math.pi * (hour - 9) / 24)
    return peak * wave * (0.7 if (hour // 24) % 7 >= 5 else 1.0)


# Which replica takes the next request, by how many each has.
Balancer = Callable[[np.random.Generator, Sequence[int]], int]


def evenly(rng: np.random.Generator, held: Sequence[int]) -> int:
    """At random; round robin tells as little of the replicas' speed."""
    return int(rng.integers(len(held)))


def least_requests(rng: np.random.Generator, held: Sequence[int]) -> int:
    """To the replica with the fewest, as routers of inference servers do."""
    least = min(held)
    idle = [n for n, count in enumerate(held) if count == least]
    return idle[int(rng.integers(len(idle)))] if len(idle) > 1 else idle[0]


def canary(rng: np.random.Generator, held: Sequence[int]) -> int:
    """A tenth to the first, and the rest evenly."""
    return 0 if rng.random() < 0.1 else int(rng.integers(1, len(held)))


@dataclass
class _Server:
    """One replica at a moment. `progress`: tokens that each request in its batch has had since it began."""

    engine: Engine
    hours: int
    rng: np.random.Generator
    backlog: bool
    now: float = 0.0
    progress: float = 0.0
    queue: int = 0
    active: list[float] = field(default_factory=list)  # at which progress one is done

    def __post_init__(self) -> None:
        self.busy, self.running, self.tokens, self.requests, self.joules = ([0.0] * self.hours for _ in range(5))
        for _ in range(self.engine.batch if self.backlog else 0):
            self._begin()

    @property
    def held(self) -> int:
        return len(self.active) + self.queue

    def take(self) -> None:
        self.requests[min(int(self.now // HOUR), self.hours - 1)] += 1
        if len(self.active) < self.engine.batch:
            self._begin()
        else:
            self.queue += 1

    def go_on(self, until: float) -> None:
        engine, active = self.engine, self.active
        while self.now < until:
            n, hour = len(active), int(self.now // HOUR)
            at = min(until, (hour + 1) * HOUR)
            if not n:
                self.now = at
                continue
            step = engine.step(n)
            done = self.now + (active[0] - self.progress) * step
            at = min(at, done)
            passed = at - self.now
            self.busy[hour] += passed
            self.running[hour] += n * passed
            self.tokens[hour] += n * passed / step
            self.joules[hour] += (engine.step_joules + engine.request_joules * n) * passed / step
            self.progress += passed / step
            self.now = at
            if at == done:
                heapq.heappop(active)
                if self.queue or self.backlog:
                    self.queue -= 0 if self.backlog else 1
                    self.requests[hour] += 1 if self.backlog else 0
                    self._begin()

    def told(self) -> list[Hour]:
        return [
            {
                "busy": self.busy[n] / HOUR, "running": self.running[n] / HOUR, "tokens": self.tokens[n] / HOUR,
                "requests": self.requests[n] / HOUR, "watts": self.engine.rest_watts + self.joules[n] / HOUR,
            }
            for n in range(self.hours)
        ]  # fmt: skip

    def _begin(self) -> None:
        heapq.heappush(self.active, self.progress + self.rng.exponential(self.engine.answer))


def replica(
    engine: Engine, peak: float, hours: int, rng: np.random.Generator, *, first_hour: int = 0, backlog: bool = False
) -> list[Hour]:
    """What one replica does in each hour. `peak`: requests per second in the busiest hour; `backlog`: it takes a new
    request from a common queue whenever one is done, so that its batch is always full."""
    (own,) = replicas([engine], peak, hours, rng, evenly, first_hour=first_hour, backlog=backlog)
    return own


def replicas(
    engines: Sequence[Engine], peak: float, hours: int, rng: np.random.Generator, balancer: Balancer, *,
    first_hour: int = 0, backlog: bool = False,
) -> list[list[Hour]]:  # fmt: skip
    """Likewise what each of several does behind one balancer; `peak` is of all."""
    servers = [_Server(engine, hours, rng, backlog) for engine in engines]
    for at in _arrivals(peak, hours, first_hour, rng) if not backlog else ():
        for server in servers:
            server.go_on(at)
        servers[balancer(rng, [server.held for server in servers]) if len(servers) > 1 else 0].take()
    for server in servers:
        server.go_on(hours * HOUR)
    return [server.told() for server in servers]


def _arrivals(peak: float, hours: int, first_hour: int, rng: np.random.Generator) -> Iterator[float]:
    for n in range(hours):
        rate = day(first_hour + n, peak)
        for at in np.sort(rng.uniform(n * HOUR, (n + 1) * HOUR, rng.poisson(rate * HOUR))):
            yield float(at)
