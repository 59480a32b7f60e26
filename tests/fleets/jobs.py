"""Who works where on machines without labels: jobs in a queue, services, notebooks, and what holds memory for nothing.

Rests on: Philly (Jeon et al., USENIX ATC 2019) and Helios (Hu et al., SC 2021): most jobs ask for one GPU and end
within minutes, durations are lognormal over several orders of magnitude, requests are powers of two, gangs start as a
whole, many jobs fail soon after they began, and users submit many alike at once; Acme (Hu et al., NSDI 2024): few
large jobs hold most GPU time and are restarted after failures; Alibaba's cluster-trace-v2026-GenAI for services. The
queue is first come, first served with backfill, as Slurm's: a GPU that falls free is taken again within a minute,
lowest index first. Sizes, medians and spreads are drawn for each fleet, so that none of them is a constant of the
world.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

Rng = np.random.Generator
Device = tuple[int, int]
"""Number of a node and of a GPU in it."""
HOUR, DAY = 3600, 86400
GPUS = 8
WARM_UP = 18 * HOUR
"""The queue runs for so long before the window begins."""
LEAST = 600.0
"""Jobs of less are not asked for."""
_BACK_TO_BACK = 120.0


@dataclass(frozen=True)
class Job:
    """`start`, `end`: seconds from the beginning of the window; they may lie outside of it. `kind`: "training",
    "batch", "service", "notebook" or "held" (memory without work: nobody is asked to find it). `scenes`: what makes it
    hard to tell from others. `seed`: of its signals; `alike`: of what it shares with those submitted with it."""

    number: int
    kind: str
    devices: tuple[Device, ...]
    start: float
    end: float
    seed: int
    alike: int
    scenes: frozenset[str] = frozenset()

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(node for node, _ in self.devices))


@dataclass(frozen=True)
class _Request:
    at: float
    size: int
    lasts: float
    alike: int
    kind: str
    scenes: frozenset[str]


@dataclass(frozen=True)
class Traffic:
    """What a fleet's users do. `median`, `sigma`: of the durations (lognormal, seconds); `load`: of what the machines
    could do; `sizes`: number of GPUs -> chance."""

    median: float
    sigma: float
    load: float
    sizes: tuple[tuple[int, float], ...]
    together: float
    fails: float


def traffic(rng: Rng) -> Traffic:
    single = rng.uniform(0.4, 0.65)
    rest = rng.dirichlet([3, 4, 5, 2.5, 1.2, 0.6]) * (1 - single)
    return Traffic(
        median=float(np.exp(rng.uniform(np.log(400), np.log(3000)))), sigma=float(rng.uniform(1.2, 2.0)),
        load=float(rng.uniform(0.7, 1.2)), sizes=((1, single), *zip((2, 4, 8, 16, 32, 64), rest, strict=True)),
        together=float(rng.uniform(0.06, 0.2)), fails=float(rng.uniform(0.1, 0.3)),
    )  # fmt: skip


@dataclass
class _Floor:
    """`free`: seconds at which each GPU of a node falls free, inf while it is held."""

    nodes: list[int]
    held: dict[Device, float] = field(default_factory=dict)

    def place(self, size: int, at: float) -> tuple[Device, ...] | None:
        free = {
            node: [(node, g) for g in range(GPUS) if self.held.get((node, g), -np.inf) <= at] for node in self.nodes
        }
        if size <= GPUS:
            fits = [devices for devices in free.values() if len(devices) >= size]
            return tuple(min(fits, key=len)[:size]) if fits else None
        whole = [devices for devices in free.values() if len(devices) == GPUS][: size // GPUS]
        return tuple(one for devices in whole for one in devices) if len(whole) * GPUS == size else None


def queue(rng: Rng, nodes: list[int], seconds: float, how: Traffic) -> list[Job]:
    """The jobs of a queue over `nodes`, from WARM_UP before the window to its end."""
    waiting: list[_Request] = []
    coming = iter(sorted(_requests(rng, len(nodes) * GPUS, seconds, how), key=lambda one: one.at))
    nothing = _Request(np.inf, 1, 1.0, 0, "", frozenset())
    upcoming, floor, ends, jobs = next(coming, nothing), _Floor(nodes), [np.inf], list[Job]()
    now = -float(WARM_UP)
    while now < seconds:
        while upcoming.at <= now:
            waiting.append(upcoming)
            upcoming = next(coming, nothing)
        started = []
        for place, one in enumerate(waiting):
            # Whoever waits for long at the head of the queue is not overtaken any more.
            if place and now - waiting[0].at > 2 * HOUR and not started:
                break
            devices = floor.place(one.size, now)
            if devices is None:
                continue
            start = now + float(rng.uniform(0.5, 4))
            end = start + one.lasts
            # Between two jobs: an epilog, the scheduler's next round.
            for device in devices:
                floor.held[device] = end + float(rng.uniform(1, 4))
            ends.append(end + 5 + float(rng.exponential(12)))
            scenes = one.scenes | ({"several nodes"} if len(devices) > GPUS else frozenset())
            jobs.append(Job(0, one.kind, devices, start, end, int(rng.integers(2**31)), one.alike, scenes))
            started.append(place)
        waiting = [one for place, one in enumerate(waiting) if place not in set(started)]
        ends = [one for one in ends if one > now]
        now = min(upcoming.at, min(ends, default=np.inf), now + HOUR)
    return jobs


def _requests(rng: Rng, gpus: int, seconds: float, how: Traffic) -> Iterator[_Request]:
    sizes, chances = zip(*how.sizes, strict=True)
    chances = np.array(chances) / sum(chances)
    most = 2 ** int(np.log2(gpus))
    tried = np.minimum(rng.choice(sizes, 2000, p=chances), most)
    mean = float(np.mean([size * _lasts(rng, how, int(size)) for size in tried])) * (1 + 3 * how.together)
    now = -float(WARM_UP)
    while now < seconds:
        now += float(rng.exponential(mean * (1 - how.fails) / (gpus * how.load)))
        size, alike = min(int(rng.choice(sizes, p=chances)), most), int(rng.integers(2**31))
        count = int(rng.choice([2, 4, 8])) if rng.random() < how.together and size <= 4 else 1
        lasts = _lasts(rng, how, size)
        for _ in range(count):
            scenes = frozenset({"together"} if count > 1 else ())
            mine = lasts * float(rng.lognormal(0, 0.15)) if count > 1 else lasts
            if rng.random() < how.fails:
                mine = float(min(mine, rng.exponential(400) + 20))
            kind = "batch" if size <= 2 and rng.random() < 0.35 else "training"
            yield _Request(now, size, mine, alike, kind, scenes)


def _lasts(rng: Rng, how: Traffic, size: int) -> float:
    return float(np.clip(rng.lognormal(np.log(how.median), how.sigma) * size**0.25, 15, 4 * DAY))


def services(rng: Rng, node: int, seconds: float) -> Iterator[Job]:
    """Replicas side by side on one node, there before the window and after it; of one model, or of several."""
    gpus, one_model = int(rng.choice([1, 2, 4, 8])), rng.random() < 0.6
    alike = int(rng.integers(2**31))
    for number in range(GPUS // gpus):
        if number and rng.random() < 0.15:
            continue
        devices = tuple((node, number * gpus + g) for g in range(gpus))
        begin = -float(rng.uniform(1, 20)) * DAY if rng.random() < 0.85 else float(rng.uniform(0.05, 0.5) * seconds)
        same = alike if one_model else int(rng.integers(2**31))
        yield Job(0, "service", devices, begin, seconds + DAY, int(rng.integers(2**31)), same, frozenset({"service"}))


def desks(rng: Rng, node: int, seconds: float) -> Iterator[Job]:
    """Notebooks, each on its GPU for some hours or days, and memory that nobody uses."""
    for gpu in range(GPUS):
        now = float(rng.uniform(-10, 4)) * HOUR
        while now < seconds and rng.random() < 0.85:
            lasts = float(np.exp(rng.uniform(np.log(1.0), np.log(30.0)))) * HOUR
            kind, scene = ("notebook", "notebook") if rng.random() < 0.85 else ("held", "held")
            seed, alike = (int(one) for one in rng.integers(2**31, size=2))
            yield Job(0, kind, ((node, gpu),), now, now + lasts, seed, alike, frozenset({scene}))
            now += lasts + float(rng.uniform(0.2, 5)) * HOUR


def work(seed: int, nodes: int, seconds: float) -> list[Job]:
    """All jobs of a fleet that touch its window, numbered by start. One or two nodes serve, one has notebooks."""
    if nodes < 4:
        raise ValueError(f"{nodes} nodes are too few for services, notebooks and a queue: take 4 or more")
    rng = np.random.default_rng([seed, 64])
    serving, sitting = 1 + int(rng.random() < 0.4), 1
    found = list(queue(rng, list(range(nodes - serving - sitting)), seconds, traffic(rng)))
    for node in range(nodes - serving - sitting, nodes - sitting):
        found += services(rng, node, seconds)
    found += desks(rng, nodes - 1, seconds)
    present = sorted((one for one in found if one.end > 0 and one.start < seconds), key=lambda one: one.start)
    marked = _marked(present)
    return [replace(one, number=number) for number, one in enumerate(marked)]


def _marked(jobs: list[Job]) -> Iterator[Job]:
    """With what only the neighbours tell: whether another ran on its GPUs just before or after, or began with it."""
    last: dict[Device, Job] = {}
    close: set[int] = set()
    for one in jobs:
        for device in one.devices:
            before = last.get(device)
            if before is not None and one.start - before.end < _BACK_TO_BACK:
                close |= {id(before), id(one)}
            last[device] = one
    for one in jobs:
        beside = any(
            other is not one and abs(other.start - one.start) < 60 and set(other.nodes) & set(one.nodes)
            for other in jobs
            if abs(other.start - one.start) < 60
        )
        more = ({"back to back"} if id(one) in close else set()) | ({"simultaneous"} if beside else set())
        yield replace(one, scenes=one.scenes | more)
