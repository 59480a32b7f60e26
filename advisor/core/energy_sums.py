"""Sums of energy: over workloads and owners. What is not known of any part stays unknown; of some, it is told
by the hours that were not measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .energy_types import PHASES, Energy, EnergyBasis, OwnerEnergy, PhaseEnergy, WorkloadEnergy
from .totals import added
from .verdict_types import Owner, WorkloadVerdict

JOULES_PER_KWH = 3.6e6
# A share of the energy too small to name a second source for it.
_ALL = 1e-3


def basis_of(kwh: float | None, counted_kwh: float | None) -> EnergyBasis | None:
    """How most of some energy is known; None: nothing was measured."""
    if kwh is None or kwh <= 0:
        return None
    share = (counted_kwh or 0.0) / kwh
    return "counter" if share >= 1 - _ALL else "power" if share <= _ALL else "both"


def figures_of(parts: Sequence[Energy]) -> dict[str, Any]:
    """The sums of the figures that all energy has: the fields of `Energy`, by name."""
    kwh, counted = total(p.kwh for p in parts), total(p.counted_kwh for p in parts)
    return dict(  # noqa: C408
        kwh=kwh,
        counted_kwh=counted,
        measured_gpu_hours=added(p.measured_gpu_hours for p in parts),
        unmeasured_gpu_hours=added(p.unmeasured_gpu_hours for p in parts),
        idle_kwh=total(p.idle_kwh for p in parts),
        usd=total(p.usd for p in parts),
        co2_kg=total(p.co2_kg for p in parts),
        basis=basis_of(kwh, counted),
    )


def total(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return added(known) if known else None


def phases_together(parts: Iterable[Sequence[PhaseEnergy]]) -> tuple[PhaseEnergy, ...]:
    """Phases of the same name as one, in their order. A cost that is not known of one part is not known of the sum."""
    found: dict[str, list[PhaseEnergy]] = {}
    for part in parts:
        for one in part:
            found.setdefault(one.phase, []).append(one)
    return tuple(
        PhaseEnergy(
            name, added(one.gpu_hours for one in own), total(one.kwh for one in own),
            None if any(one.cost_usd is None for one in own) else added(one.cost_usd or 0.0 for one in own),
            total(one.usd for one in own), total(one.co2_kg for one in own),
        )
        for name in PHASES
        if (own := found.get(name))
    )  # fmt: skip


def joules_a_token(parts: Iterable[WorkloadEnergy]) -> tuple[float | None, float | None]:
    """Tokens and joules a token over workloads whose engines tell; None: none does."""
    told = [part for part in parts if part.generated_tokens and part.joules_per_token is not None]
    tokens = added(one.generated_tokens or 0.0 for one in told)
    if tokens <= 0:
        return None, None
    return tokens, added((one.joules_per_token or 0.0) * (one.generated_tokens or 0.0) for one in told) / tokens


def owner_name(owner: Owner) -> str | None:
    """Whose energy it is: the team, else the namespace, account or user; None: nobody is named."""
    return owner.team or owner.namespace or owner.account or owner.user


def owners_of(
    workloads: Iterable[WorkloadVerdict], whose: Callable[[WorkloadVerdict], str | None] = lambda w: owner_name(w.owner)
) -> tuple[OwnerEnergy, ...]:
    """Energy by owner, the most first; workloads without any figure of it left out."""
    found: dict[str | None, list[WorkloadEnergy]] = {}
    for w in workloads:
        if w.energy is not None:
            found.setdefault(whose(w), []).append(w.energy)
    rows: list[OwnerEnergy] = []
    for owner, parts in found.items():
        tokens, joules = joules_a_token(parts)
        rows.append(OwnerEnergy(**figures_of(parts), owner=owner, generated_tokens=tokens, joules_per_token=joules))
    return tuple(sorted(rows, key=lambda one: (-(one.kwh or 0.0), one.owner or "")))
