"""A plan carried out on a fleet as it truly is: replicas go where its steps say, nodes that it gives back are closed.

What the plan predicts is not looked at: what a service's replicas then have to do follows from its demand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from skuwise.advisor.core.advice_types import Recommendation
from skuwise.advisor.plan.result import Plan, PlanStep

from .world import (
    Machine,
    Replica,
    Service,
    World,
    cluster_of,
    gpu_of,
    job_series,
    service_series,
    session_series,
)

# Share of a GPU's memory that work can have.
MEM_SHARE = 0.95


@dataclass(frozen=True)
class Executed:
    """`faults`: what of the plan could not be carried out as it was written, in sentences."""

    world: World
    faults: tuple[str, ...]


def execute(world: World, plan: Plan, recommendations: Mapping[str, Recommendation]) -> Executed:
    return _Run(world, plan, recommendations).done()


class _Run:
    def __init__(self, world: World, plan: Plan, recommendations: Mapping[str, Recommendation]) -> None:
        self.plan, self.recommendations = plan, recommendations
        self.faults: list[str] = []
        self.names = {m.name: m.name for m in world.machines}
        machines = list(world.machines)
        counts: dict[str, int] = {}
        for new in plan.rented:
            if new.node_sku is None:
                self.faults.append(f"a node to rent without a SKU: {new.name}")
                continue
            prefix = f"rent-{new.node_sku.rpartition('/')[2].replace('.', '').replace('_', '').lower()}"
            counts[prefix] = counts.get(prefix, 0) + 1
            self.names[new.name] = f"{prefix}-{counts[prefix]:02d}"
            machines.append(Machine(self.names[new.name], new.node_sku))
        # The simulator numbers nodes of one prefix in their order.
        returned = frozenset(r.node for r in plan.returned)
        self.world = replace(world, machines=tuple(machines), closed=returned)

    def done(self) -> Executed:
        for step in sorted(self.plan.steps, key=lambda s: s.number):
            self._step(step)
            # A staged step says itself that there is no room for a moment.
            if step.staging is None:
                self._room(f"after step {step.number}")
        held = self.world.held()
        for name in sorted(self.world.closed):
            if held[name]:
                self.faults.append(f"{name} is given back, and {held[name]} of its GPUs are held")
        return Executed(self.world, tuple(dict.fromkeys(self.faults)))

    def _room(self, when: str) -> None:
        for name, count in self.world.held().items():
            if count > self.world.gpus_of(name):
                self.faults.append(f"{name} has {count} GPUs held of {self.world.gpus_of(name)} {when}")

    def _step(self, step: PlanStep) -> None:
        if step.series is None:
            return  # nodes are rented
        series = step.series.split("/")[0]
        w = self.world
        services = [s for s in w.services if service_series(s, cluster_of(s.sku)) == series]
        sessions = [s for s in w.sessions if session_series(s, cluster_of(w.sku(s.node))) == series]
        jobs = [s for s in w.jobs if job_series(s, cluster_of(s.pool)) == series]
        if services:
            (s,) = services
            changed = self._service(s, step)
            kept = tuple(changed if o is s else o for o in w.services)
            self.world = replace(w, services=tuple(o for o in kept if o is not None))
        elif sessions:
            self._sessions(step, {s.key for s in sessions})
        elif jobs:
            self._jobs(step, {s.key for s in jobs})
        else:
            self.faults.append(f"step {step.number} is about {step.name}, which is not there")

    def _service(self, s: Service, step: PlanStep) -> Service | None:
        replicas = list(s.replicas)
        moved: set[int] = set()
        for m in step.moves:
            end = self.names.get(m.end) if m.end is not None else None
            if m.end is not None and end is None:
                self.faults.append(f"step {step.number} moves to {m.end}, which is not there")
                continue
            if m.start is None:
                assert end is not None
                number = max((r.number for r in (*s.replicas, *replicas)), default=0) + 1
                replicas.append(Replica(number, end, m.gpus))
                moved.add(number)
                continue
            own = [r for r in replicas if r.node == self.names.get(m.start) and r.number not in moved]
            if not own:
                self.faults.append(f"step {step.number} moves a replica of {step.name} from {m.start}: none is there")
                continue
            replicas.remove(own[0])
            if end is not None:
                replicas.append(replace(own[0], node=end))
                moved.add(own[0].number)
        if step.action == "release":
            return None if not replicas else self._kept(s, step, replicas)
        return self._kept(s, step, replicas)

    def _kept(self, s: Service, step: PlanStep, replicas: list[Replica]) -> Service | None:
        if not replicas:
            self.faults.append(f"step {step.number} leaves no replica of {step.name}")
            return None
        for r in replicas:
            gpu = gpu_of(self.world.sku(r.node))
            if s.mem_bytes / r.gpus > MEM_SHARE * gpu.sku.mem_bytes:
                self.faults.append(
                    f"step {step.number}: a replica of {step.name} needs {s.mem_bytes / r.gpus / 1e9:.0f} GB a GPU on "
                    f"{r.gpus} {gpu.sku.name} (before: {s.gpus_first} GPUs of {s.sku})"
                )
        return replace(s, replicas=tuple(sorted(replicas, key=lambda r: r.number)))

    def _sessions(self, step: PlanStep, keys: set[str]) -> None:
        sessions = list(self.world.sessions)
        done: set[str] = set()
        alike = next(s for s in sessions if s.key in keys)
        for m in step.moves:
            if m.start is None:
                assert m.end is not None
                started = replace(
                    alike, key=f"{alike.key}-{step.number}-{len(done)}", node=self.names[m.end], gpus=m.gpus
                )
                sessions.append(started)
                done.add(started.key)
                continue
            own = [s for s in sessions if s.key in keys and s.node == self.names.get(m.start) and s.key not in done]
            if not own:
                self.faults.append(f"step {step.number} moves {step.name} from {m.start}: none is there")
                continue
            sessions.remove(own[0])
            done.add(own[0].key)
            if m.end is not None:
                sessions.append(replace(own[0], node=self.names[m.end]))
        self.world = replace(self.world, sessions=tuple(sorted(sessions, key=lambda s: s.key)))

    def _jobs(self, step: PlanStep, keys: set[str]) -> None:
        r = self.recommendations.get(step.recommendation or "")
        if r is None or r.action != "move-sku" or r.target.node_sku is None:
            self.faults.append(f"step {step.number}: {step.action} of the jobs {step.name} is not simulated")
            return
        target = r.target.node_sku
        there = gpu_of(target)

        def moved(s):
            here = gpu_of(s.pool)
            rates = ("sustained_bandwidth", "sustained_bandwidth") if s.what == "batch" else ("sustained_flops",) * 2
            longer = getattr(here, rates[0]) / getattr(there, rates[1]) if here.sku is not there.sku else 1.0
            return replace(s, pool=target, longer=s.longer * longer)

        self.world = replace(self.world, jobs=tuple(moved(s) if s.key in keys else s for s in self.world.jobs))
