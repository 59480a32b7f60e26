"""What part of a GPU a MIG instance is.

A GPU has seven compute slices and eight memory slices, and a profile takes some of each (NVIDIA's MIG user guide): the
larger of the two parts is what nobody else can have. Where instances divide a GPU wholly their parts add up to 1 or a
little more (3g.40gb has half of the memory and three sevenths of the compute), so they are scaled down to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .types import MEMORY_SLICES, GpuSku

COMPUTE_SLICES = 7
_PROFILE = re.compile(r"(?:[1-7]c\.)?([1-7])g\.([0-9]{1,4})gb(?:\+.*)?")
# Memory slices by compute slices where the memory of the GPU is not known; 1g exists with one and with two.
_MEMORY = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices of an instance: of seven for compute, of eight for memory."""

    compute: int
    memory: int

    @property
    def share(self) -> float:
        """The part of the GPU that nobody else can have."""
        return max(self.compute / COMPUTE_SLICES, self.memory / MEMORY_SLICES)


def slices_of(profile: str | None, sku: GpuSku | None) -> Slices | None:
    """The slices of a profile as drivers write it (``3g.40gb``); None where it is not one."""
    if profile is None:
        return None
    for mig_profile in sku.mig_profiles if sku is not None else ():
        if mig_profile.name(sku.mem_bytes) == profile:  # type: ignore[union-attr]
            return Slices(mig_profile.compute_slices, mig_profile.memory_slices)
    match = _PROFILE.fullmatch(profile)
    if match is None or int(match.group(1)) not in _MEMORY:
        return None
    compute = int(match.group(1))
    memory = _MEMORY[compute]
    if sku is not None and sku.mem_bytes > 0:
        # Names round the memory of an instance up or down by one.
        part = float(match.group(2)) * 1024**3 / (sku.mem_bytes / MEMORY_SLICES)
        memory = min(max(round(part), 1), MEMORY_SLICES)
    return Slices(compute, memory)


def shares(slices: Sequence[Slices | None]) -> list[float]:
    """The part of its GPU that each of the instances is that are there at once; together at most 1. An instance of
    which nothing is known has an equal share of what the others leave."""
    known = [slice_.share if slice_ is not None else 0.0 for slice_ in slices]
    unknown = sum(one is None for one in slices)
    total = sum(known)
    if total > 1:
        known, total = [one / total for one in known], 1.0
    rest = (1.0 - total) / unknown if unknown else 0.0
    return [part if one is not None else rest for one, part in zip(slices, known, strict=True)]
