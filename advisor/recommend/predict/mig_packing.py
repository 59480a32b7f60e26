"""How MIG instances of half-empty GPUs pack onto fewer of them, so that whole GPUs of a node fall free.

Instances do not move by themselves: whoever holds one starts again on the instance that is made for it elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...classify.types import MigInstance

# Memory slices at which a profile may begin (NVIDIA's MIG user guide, placements of A100 and H100), by its compute and
# memory slices. A profile that is not here is placed nowhere.
_PLACES: Mapping[tuple[int, int], tuple[int, ...]] = {
    (1, 1): (0, 1, 2, 3, 4, 5, 6), (1, 2): (0, 2, 4, 6), (2, 2): (0, 2, 4), (3, 4): (0, 4), (4, 4): (0,), (7, 8): (0,),
}  # fmt: skip
_COMPUTE = 7
# As for waste: more than a day, so that one night does not decide.
COVERAGE_HOURS = 30.0


@dataclass(frozen=True)
class Packing:
    """`kept`: GPUs that hold instances afterwards; `freed`: GPUs that fall free; `moved`: instances that start anew."""

    kept: tuple[str, ...]
    freed: tuple[str, ...]
    moved: tuple[MigInstance, ...]


def fits(profiles: Sequence[tuple[int, int]]) -> bool:
    """Whether one GPU can hold instances of so many compute and memory slices at once."""
    if sum(compute for compute, _ in profiles) > _COMPUTE:
        return False
    return _placed(sorted(profiles, key=lambda one: -one[1]), 0)


def _placed(profiles: Sequence[tuple[int, int]], taken: int) -> bool:
    if not profiles:
        return True
    first, rest = profiles[0], profiles[1:]
    for start in _PLACES.get(first, ()):
        mask = ((1 << first[1]) - 1) << start
        if not mask & taken and _placed(rest, taken | mask):
            return True
    return False


def pack(instances: Sequence[MigInstance]) -> Packing | None:
    """The emptiest GPUs emptied onto the others. None where a held instance's slices are not known."""
    held: dict[str, list[MigInstance]] = {}
    for one in instances:
        if one.held:
            if one.compute is None or one.memory is None:
                return None
            held.setdefault(one.parent_uuid, []).append(one)
    order = sorted(held, key=lambda gpu: (sum(one.compute or 0 for one in held[gpu]), gpu))
    keep = {gpu: list(own) for gpu, own in held.items()}
    freed: list[str] = []
    moved: list[MigInstance] = []
    touched: set[str] = set()
    for gpu in order:
        if gpu in touched:
            continue
        trial = {other: list(own) for other, own in keep.items() if other != gpu}
        places: list[str] = []
        for one in sorted(keep[gpu], key=lambda part: (-(part.memory or 0), part.gpu_uuid)):
            there = next((o for o in reversed(order) if o in trial and fits(_slices([*trial[o], one]))), None)
            if there is None:
                break
            trial[there].append(one)
            places.append(there)
        if len(places) == len(keep[gpu]):
            moved += keep[gpu]
            touched |= set(places)
            freed.append(gpu)
            keep = trial
    return Packing(tuple(keep), tuple(freed), tuple(moved))


def _slices(instances: Sequence[MigInstance]) -> list[tuple[int, int]]:
    return [(one.compute or 0, one.memory or 0) for one in instances]
