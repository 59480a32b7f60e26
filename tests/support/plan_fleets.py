"""Random fleets to be planned: pools of nodes with islands, MIG, tenants and commitments; services with replicas,
sessions, instances, jobs; changes; what is held, full, rented, or beyond its limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from skuwise.advisor.core.coded_text import CodedText
from skuwise.advisor.plan.problem import FOREVER, GOALS, Goal, PlanNode, PlanOption, PlanSeries, PlanUnit, Problem
from skuwise.advisor.recommend.predict.mig_model import fits

NOW = 1_790_000_000.0
HELD = CodedText("drained", "drained")
FIXED = CodedText("fixed", "it may not move")
PROFILES = ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (7, 8))


@dataclass
class _Free:
    """What a node has left while the fleet is drawn."""

    gpus: int
    cpu: float
    memory: float
    islands: list[int]
    owner: str | None = None
    mig: list[list[tuple[int, int]]] = field(default_factory=list)


@dataclass
class _Draw:
    rng: np.random.Generator
    tenants: bool
    nodes: list[PlanNode]
    free: dict[str, _Free]
    # Shares: of series that are jobs, of MIG, of units that are linked, of demand at the mean.
    full: float
    mig_pools: set[str]
    crowded: bool

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)


def random_problem(
    seed: int,
    *,
    nodes: int = 20,
    series: int = 30,
    pools: int = 3,
    goal: Goal = "cash",
    hours: int = 168,
    max_moves: int | None = None,
) -> Problem:
    """A fleet as it could be, also the rare: demand above all, nodes beyond their limits, needs and exclusions."""
    rng = np.random.default_rng(seed)
    gpus = [int(rng.choice([4, 8, 8, 8])) for _ in range(pools)]
    price = rng.uniform(5, 90, pools)
    tenants = bool(rng.random() < 0.3)
    made = _nodes(rng, nodes, gpus, price)
    free = {
        n.name: _Free(
            n.gpus, n.cpu_cores if n.cpu_cores is not None else 1e9,
            n.host_mem_bytes if n.host_mem_bytes is not None else 1e18, list(n.islands or (n.gpus,)),
        )
        for n in made
    }  # fmt: skip
    mig_pools = {n.pool for n in made if n.mig}
    full = float(rng.choice([0.5, 1.0, 1.0, 2.0]))
    draw = _Draw(rng, tenants, made, free, full, mig_pools, bool(rng.random() < 0.15))
    found: list[PlanSeries] = []
    options: list[PlanOption] = []
    for i in range(round(series * full)):
        pool = f"p{int(rng.integers(pools))}"
        home = [n for n in made if n.pool == pool]
        if not home:
            continue
        if draw.chance(0.15):
            found.append(_job(draw, i, pool, home[0].gpus, hours))
            if draw.chance(0.2):
                options.append(_job_option(draw, i, found[-1], gpus))
            continue
        own = _service(draw, i, pool, home, hours)
        if own is not None:
            elsewhere = [n for n in made if n.pool != pool]
            if elsewhere and draw.chance(0.1):
                own = _elsewhere(draw, own, elsewhere[int(rng.integers(len(elsewhere)))])
            found.append(own)
            options += _options(draw, i, own, pools)
    options = _coupled(rng, options)
    if rng.random() < 0.1:
        found = [replace(s, demand=s.demand * 4) for s in found]
    if rng.random() < 0.2:
        made = [_beyond(rng, n) for n in made]
    rented = [
        PlanNode(f"rent-{p}-{k}", f"p{p}", f"gpu{p}", f"sku{p}", gpus[p], float(price[p]),
                 cpu_cores=gpus[p] * 8.0, host_mem_bytes=gpus[p] * 100e9, gpu_mem_bytes=80e9, rented=True,
                 mig=f"p{p}" in mig_pools)
        for p in range(pools) for k in range(2)
    ]  # fmt: skip
    fixed = {n.name: 1 for n in made if free[n.name].gpus > 0 and rng.random() < 0.05}
    if tenants:
        made = [
            replace(n, tenants=frozenset({owner})) if (owner := free[n.name].owner) and draw.chance(0.7) else n
            for n in made
        ]
    counts = Counter(n.pool for n in made)
    reserve = {f"p{p}": gpus[p] if counts[f"p{p}"] > 2 and draw.chance(0.7) else 0 for p in range(pools)}
    return Problem(
        (*made, *rented), tuple(found), tuple(options), goal, NOW, reserve=reserve, tenants_apart=tenants,
        max_moves=max_moves, move_usd=50.0, fixed_gpus=fixed,
        closed=frozenset(n.name for n in made if tenants and draw.chance(0.1)),
    )  # fmt: skip


def small_problem(seed: int) -> Problem:
    """A fleet of 4 to 14 nodes with any goal, sometimes with few moves allowed."""
    rng = np.random.default_rng([seed, 1])
    nodes = int(rng.integers(4, 15))
    return random_problem(
        seed, nodes=nodes, series=int(rng.integers(nodes // 2, nodes * 2)), pools=int(rng.integers(1, 4)),
        goal=GOALS[int(rng.integers(4))], hours=48, max_moves=int(rng.integers(0, 6)) if rng.random() < 0.3 else None,
    )  # fmt: skip


def _nodes(rng: np.random.Generator, count: int, gpus: Sequence[int], price: np.ndarray) -> list[PlanNode]:
    islands = [((g // 2, g // 2), (g - 3, 3), ())[int(rng.choice(3, p=[0.3, 0.1, 0.6]))] for g in gpus]
    mig = [bool(rng.random() < 0.4) for _ in gpus]
    made = []
    for i in range(count):
        pool = int(rng.integers(len(gpus)))
        bound = rng.choice(4, p=[0.6, 0.2, 0.1, 0.1])
        made.append(
            PlanNode(
                f"n{i:03d}", f"p{pool}", f"gpu{pool}", f"sku{pool}", gpus[pool],
                None if rng.random() < 0.05 else float(price[pool]),
                bound_until=(None, NOW + float(rng.uniform(1, 500)) * 86400, FOREVER, NOW - 86400)[bound],
                cpu_cores=float(gpus[pool] * 8) if rng.random() < 0.8 else None,
                host_mem_bytes=gpus[pool] * 100e9 if rng.random() < 0.8 else None,
                gpu_mem_bytes=(80e9, 80e9, 80e9, 40e9, None)[int(rng.integers(5))],
                held=HELD if rng.random() < 0.04 else None,
                idle_watts=float(gpus[pool] * 70) if rng.random() < 0.9 else None,
                islands=islands[pool], mig=mig[pool],
            )
        )  # fmt: skip
    return made


def _beyond(rng: np.random.Generator, n: PlanNode) -> PlanNode:
    """A node that what was put on it may be too much for."""
    if rng.random() < 0.7:
        return n
    return (
        replace(n, cpu_cores=float(n.gpus)),
        replace(n, host_mem_bytes=n.gpus * 20e9),
        replace(n, islands=(2,) * (n.gpus // 2)),
        replace(n, gpus=max(n.gpus - 2, 1), islands=()),
        replace(n, tenants=frozenset({"t0"})),
        replace(n, gpu_mem_bytes=16e9),
        replace(n, mig=False),
    )[int(rng.integers(7))]


def _job(draw: _Draw, i: int, pool: str, size: int, hours: int) -> PlanSeries:
    peak = int(draw.rng.integers(1, 9))
    held = np.where(draw.rng.random(hours) < 0.3, float(peak), 0.0)
    team = f"t{int(draw.rng.integers(4))}"
    return PlanSeries(
        f"s{i}", f"job{i}", team, pool, "training", True, (), held, np.floor(held / size), tenant=team
    )  # fmt: skip


def _job_option(draw: _Draw, i: int, job: PlanSeries, gpus: Sequence[int]) -> PlanOption:
    """Fewer GPUs where it is, or other nodes: of each as a whole all its GPUs, fewer, or none."""
    to = int(draw.rng.integers(len(gpus)))
    if draw.chance(0.3):
        return PlanOption(f"r{i}j", job.id, "fewer-gpus", job.pool, 0, 0, "low", 0.5, node_gpus=gpus[int(job.pool[1:])])
    node_gpus = (gpus[to], gpus[to] - 1, 0)[int(draw.rng.integers(3))]
    return PlanOption(f"r{i}j", job.id, "move-sku", f"p{to}", 1, gpus[to], "low", 0.8, node_gpus=node_gpus)


def _put(draw: _Draw, n: PlanNode, size: int, cpu: float, memory: float, linked: bool, mig, team: str) -> bool:
    """Whether it fits; it is there then."""
    free = draw.free[n.name]
    if draw.tenants and free.owner not in (None, team):
        return False
    if (not draw.crowded or draw.chance(0.7)) and (free.cpu < cpu or free.memory < memory):
        return False
    if mig is not None:
        shared = next((gpu for gpu in free.mig if fits([*gpu, mig])), None)
        if shared is None:
            if free.gpus < 1:
                return False
            free.gpus -= 1
            free.mig.append(shared := [])
        shared.append(mig)
    else:
        island = next((k for k, room in enumerate(free.islands) if room >= size), None)
        if free.gpus < size or (linked and island is None):
            return False
        free.gpus -= size
        if linked and island is not None:
            free.islands[island] -= size
    free.cpu -= cpu
    free.memory -= memory
    free.owner = team
    return True


def _service(draw: _Draw, i: int, pool: str, home: Sequence[PlanNode], hours: int) -> PlanSeries | None:
    rng = draw.rng
    team = f"t{int(rng.integers(4))}"
    size = int(rng.choice([1, 1, 1, 2, 3, 4, 8], p=[0.2, 0.2, 0.2, 0.15, 0.05, 0.1, 0.1]))
    mig = PROFILES[int(rng.integers(len(PROFILES)))] if pool in draw.mig_pools and draw.chance(0.4) else None
    linked = mig is None and draw.chance(0.4)
    known = float(rng.integers(5, 75)) * 1e9 if draw.chance(0.5) else None
    if known is not None and mig is not None:
        known = known * mig[1] / 8
    units: list[PlanUnit] = []
    per: Counter[str] = Counter()
    for k in range(int(rng.integers(1, 7))):
        cpu, memory = round(float(rng.uniform(0, 6 * size)), 1), float(rng.integers(0, 80)) * size * 1e9
        if mig is not None:
            cpu, memory = 1.5, 10e9
        gpus = None
        for at in rng.permutation(len(home))[:5]:
            n = home[int(at)]
            if _put(draw, n, size, cpu, memory, linked, mig, team):
                gpus = {n.name: size if mig is None else 1}
                per[n.name] += 1
                break
        if gpus is None:
            break
        fixed = FIXED if draw.chance(0.1) else None
        units.append(
            PlanUnit(
                f"s{i}u{k}", f"s{i}", gpus, cpu, memory, fixed, gpu_mem_bytes_each=known, linked=linked, mig=mig,
                pinned=fixed is not None and draw.chance(0.3),
            )
        )  # fmt: skip
    if not units:
        return None
    total = sum(u.gpu_count for u in units)
    demand = np.clip(rng.normal(0.4, 0.2, hours), 0, 1.3) * total
    most = max(per.values()) if not draw.crowded else 1
    return PlanSeries(
        f"s{i}", f"svc{i}", team, pool, "online-inference", False, tuple(units), demand, np.zeros(hours),
        tenant=team, apart=most,
    )  # fmt: skip


def _elsewhere(draw: _Draw, own: PlanSeries, at: PlanNode) -> PlanSeries:
    """The series with one more unit, in another pool, if there is room."""
    if own.units[0].mig is not None or not _put(draw, at, 1, 1.0, 1e9, False, None, own.tenant):
        return own
    unit = PlanUnit(f"{own.id}x", own.id, {at.name: 1}, 1.0, 1e9, FIXED, pinned=draw.chance(0.3))
    return replace(own, units=(*own.units, unit), spread=True)


def _options(draw: _Draw, i: int, own: PlanSeries, pools: int) -> list[PlanOption]:
    rng, made = draw.rng, []
    first = own.units[0]
    if own.spread:
        release = PlanOption(f"r{i}b", own.id, "release", None, 0, 0, "low", keeps_units=False)
        return [release] if draw.chance(0.5) else []
    if draw.chance(0.3) and len(own.units) > 1:
        keep = int(rng.integers(1, len(own.units)))
        made.append(PlanOption(f"r{i}a", own.id, "reduce-gpus", own.pool, keep, first.gpu_count, "low"))
    if draw.chance(0.15):
        made.append(PlanOption(f"r{i}b", own.id, "release", None, 0, 0, "low", keeps_units=False))
    if draw.chance(0.2):
        made.append(
            PlanOption(
                f"r{i}c", own.id, "move-sku", f"p{int(rng.integers(pools))}", int(rng.integers(1, 4)),
                int(min(max(first.gpu_count, 1), 4)), "low", 0.8, False, cpu_cores_each=1.0, host_mem_bytes_each=10e9,
                energy_kwh_per_month=float(rng.normal(50, 50)), linked=draw.chance(0.3),
                gpu_mem_bytes_each=60e9 if draw.chance(0.3) else None,
            )
        )  # fmt: skip
    if own.pool in draw.mig_pools and first.gpu_count == 1 and draw.chance(0.4):
        made.append(
            PlanOption(
                f"r{i}d", own.id, "to-mig", own.pool, len(own.units), 0, "low", keeps_units=False,
                mig=PROFILES[int(rng.integers(4))],
            )
        )  # fmt: skip
    return made


def _coupled(rng: np.random.Generator, options: list[PlanOption]) -> list[PlanOption]:
    found = []
    for o in options:
        other = options[int(rng.integers(len(options)))]
        if other.series == o.series or rng.random() >= 0.1:
            found.append(o)
        elif rng.random() < 0.5:
            found.append(replace(o, excludes=frozenset({other.id})))
        else:
            found.append(replace(o, needs=frozenset({other.id})))
    return found
