"""How many GPUs in MIG mode hold a set of instances: by the fullest geometries that the placements allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache

from ..recommend.predict.mig_model import fits
from .problem import Problem, Slices

# Profiles that the placements of `mig_model` know.
PROFILES: tuple[Slices, ...] = ((7, 8), (4, 4), (3, 4), (2, 2), (1, 2), (1, 1))
Counts = tuple[int, ...]


def _fits(counts: Counts) -> bool:
    return fits([profile for profile, count in zip(PROFILES, counts, strict=True) for _ in range(count)])


@cache
def geometries() -> tuple[Counts, ...]:
    """What one GPU can hold at most, as counts of `PROFILES`: whatever else it can hold is part of one of these."""
    valid = {(0,) * len(PROFILES)}
    fresh = set(valid)
    while fresh:
        fresh = {_more(one, i) for one in fresh for i in range(len(PROFILES)) if _fits(_more(one, i))} - valid
        valid |= fresh
    return tuple(sorted(one for one in valid if not any(_more(one, i) in valid for i in range(len(PROFILES)))))


def _more(counts: Counts, index: int) -> Counts:
    return (*counts[:index], counts[index] + 1, *counts[index + 1 :])


def placeable(mig: Slices | None) -> bool:
    return mig in PROFILES


def gpus_for(instances: Mapping[Slices, int]) -> int:
    """The fewest GPUs that hold so many instances of each of `PROFILES`."""
    return _fewest(tuple(instances.get(profile, 0) for profile in PROFILES))


def divided(problem: Problem, places: Mapping[str, str]) -> Counter[str]:
    """Node -> GPUs in MIG mode. `places`: unit -> node."""
    on: dict[str, Counter[Slices]] = {}
    for s in problem.series:
        for u in s.units:
            node = places.get(u.id)
            if u.mig is not None and node is not None and placeable(u.mig):
                on.setdefault(node, Counter())[u.mig] += 1
    return Counter({node: gpus_for(slices) for node, slices in on.items()})


def divided_today(problem: Problem) -> Counter[str]:
    return divided(problem, {u.id: u.node for s in problem.series for u in s.units})


@cache
def _fewest(counts: Counts) -> int:
    if not any(counts):
        return 0
    first = next(i for i, count in enumerate(counts) if count)
    # Some GPU holds an instance of the largest profile: which geometry it has is all there is to try.
    rests = {
        tuple(max(count - there, 0) for count, there in zip(counts, one, strict=True))
        for one in geometries()
        if one[first]
    }
    return 1 + min(_fewest(rest) for rest in rests)
