"""Who arrives where: replicas of one kind each, or (to bound what any layout can reach) all of one size together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from .kinds import Kind
from .problem import Slices
from .rooms import Rooms


@dataclass(frozen=True, eq=False)
class Carrier:
    """Replicas that arrive at `nodes`. `cpu`, `memory`: what each needs at least, in tenths of a core and of a GB."""

    kinds: tuple[Kind, ...]
    nodes: tuple[str, ...]
    gpus: int
    cpu: int
    memory: int
    linked: bool
    mig: Slices | None
    tenant: str

    @property
    def most(self) -> int:
        """Replicas that one node may take at most, whatever is decided."""
        return sum(min(kind.count, kind.most) for kind in self.kinds)


def all_kinds(rooms: Rooms) -> list[Kind]:
    return [kind for own in rooms.kinds.values() for kind in own] + list(rooms.new.values())


def by_kind(rooms: Rooms) -> list[Carrier]:
    return [_carrier(rooms, [kind]) for kind in all_kinds(rooms)]


def by_size(rooms: Rooms) -> list[Carrier]:
    """Kinds that nodes tell apart only by CPU and host memory, together: of these the least that any of them needs.
    Instances of one series are by themselves: what packs them is mostly how few of them one node may hold."""
    found: dict[tuple, list[Kind]] = defaultdict(list)
    for kind in all_kinds(rooms):
        tenant = kind.series.tenant if rooms.problem.tenants_apart else ""
        nodes = tuple(n.name for n in rooms.problem.pools.get(kind.pool, ()) if rooms.may(kind, n))
        alone = kind.series.id if kind.mig is not None and kind.count > 1 else ""
        found[kind.gpus, kind.linked and kind.gpus > 1, kind.mig, tenant, alone, nodes].append(kind)
    return [_carrier(rooms, own) for own in found.values()]


def _carrier(rooms: Rooms, kinds: Sequence[Kind]) -> Carrier:
    first = kinds[0]
    nodes = rooms.problem.pools.get(first.pool, ())
    return Carrier(
        tuple(kinds),
        tuple(n.name for n in nodes if rooms.may(first, n)),
        first.gpus,
        min(kind.cpu for kind in kinds),
        min(kind.memory for kind in kinds),
        first.linked,
        first.mig,
        first.series.tenant,
    )
