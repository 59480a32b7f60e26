"""Energy in the advice, and its sums. Energy is in kWh, at the GPUs: without fans, CPUs, power supplies and cooling.

None is not measured, and never 0. `usd` and `co2_kg` follow the site's [energy] settings with its PUE (None: not set);
`usd` is in no other sum, because the price of a rented node includes its power.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ...rules.base.typed import Amount
from .scalars import added

EnergyBasis = Literal["counter", "power", "both"]
EnergyPhase = Literal["training", "evaluation", "prefill", "decode", "inference", "interactive", "idle", "not-told"]
PHASES: tuple[EnergyPhase, ...] = get_args(EnergyPhase)
JOULES_PER_KWH = 3.6e6
_NEGLIGIBLE = 1e-3  # a share of the energy too small to name a second source for it


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy of some GPUs."""

    kwh: Amount | None  # in the measured hours
    counted_kwh: Amount | None  # the part read from energy counters; the rest is power times time
    measured_gpu_hours: Amount
    unmeasured_gpu_hours: Amount  # hours not observed, or observed without power
    idle_kwh: Amount | None
    usd: Amount | None = field(default=None, kw_only=True)
    co2_kg: Amount | None = field(default=None, kw_only=True)
    basis: EnergyBasis | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class PhaseEnergy:
    """Energy and spend of one phase. `cost_usd`: of its GPU-hours at node prices; None where a price is unknown."""

    phase: EnergyPhase
    gpu_hours: Amount
    kwh: Amount | None
    cost_usd: Amount | None
    usd: Amount | None = None
    co2_kg: Amount | None = None


@dataclass(frozen=True, slots=True)
class WorkloadEnergy(Energy):
    """Energy of one workload while it held its GPUs alone. Tokens are None where no engine reports them."""

    busy_gpu_hours: Amount = 0.0  # measured hours that were not idle
    kwh_per_busy_gpu_hour: Amount | None = None
    generated_tokens: Amount | None = None  # in the hours in which tokens and energy were both measured
    token_hours: Amount | None = None  # these hours, wall clock
    joules_per_token: Amount | None = None  # all energy of its GPUs in these hours over the tokens
    tokens_per_second_per_watt: Amount | None = None  # the inverse
    phases: tuple[PhaseEnergy, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnerEnergy(Energy):
    """Energy of all workloads of one owner (None: unknown). `joules_per_token`: where engines report tokens."""

    owner: str | None = None
    generated_tokens: Amount | None = None
    joules_per_token: Amount | None = None


@dataclass(frozen=True, slots=True)
class StatedFigure:
    """One figure of the site's [energy] settings: `value` if fixed, else `by_hour_utc`, 24 values from 00:00 UTC."""

    name: str  # usd_per_kwh, pue or co2_grams_per_kwh
    value: float | None
    by_hour_utc: tuple[float, ...]
    source: str
    as_of: str
    region: str | None = None


@dataclass(frozen=True, slots=True)
class FleetEnergy(Energy):
    """Energy of a fleet or of a team's part of it."""

    idle_held_kwh: Amount | None = None  # idle while the GPU was held
    idle_free_kwh: Amount | None = None
    # kWh of workloads, shared, allocated_idle, unallocated and drained, their total, and the unobserved_gpu_hours; None
    # in a team's part.
    by_use: Mapping[str, Amount] | None = None
    phases: tuple[PhaseEnergy, ...] = ()
    owners: tuple[OwnerEnergy, ...] = ()
    generated_tokens: Amount | None = None
    joules_per_token: Amount | None = None
    figures: tuple[StatedFigure, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuEnergy:
    """Energy of one whole GPU, its instances included."""

    gpu: str
    kwh: Amount | None
    counted_kwh: Amount | None
    measured_gpu_hours: Amount


@dataclass(frozen=True, slots=True)
class NodeEnergy(Energy):
    """Energy and power of one node's GPUs."""

    node: str = ""
    mean_watts: Amount | None = None  # of all its GPUs at once; None: never all measured in the same interval
    p95_watts: Amount | None = None
    highest_watts: Amount | None = None
    rated_watts: Amount | None = None  # sum of the GPUs' power limits; None: one is unknown
    interval_seconds: Amount | None = None  # longest interval of these powers
    gpus: tuple[GpuEnergy, ...] = ()


def basis_of(kwh: float | None, counted_kwh: float | None) -> EnergyBasis | None:
    """The source of most of the energy; None: nothing was measured."""
    if kwh is None or kwh <= 0:
        return None
    share = (counted_kwh or 0.0) / kwh
    return "counter" if share >= 1 - _NEGLIGIBLE else "power" if share <= _NEGLIGIBLE else "both"


def total(values: Iterable[float | None]) -> float | None:
    """The sum of the known values; None where there are none."""
    present = [value for value in values if value is not None]
    return added(present) if present else None


def figures_of(parts: Sequence[Energy]) -> dict[str, Any]:
    """The fields of `Energy`, summed."""
    hours = {n: added(getattr(p, n) for p in parts) for n in ("measured_gpu_hours", "unmeasured_gpu_hours")}
    sums = {n: total(getattr(p, n) for p in parts) for n in ("kwh", "counted_kwh", "idle_kwh", "usd", "co2_kg")}
    return {**sums, **hours, "basis": basis_of(sums["kwh"], sums["counted_kwh"])}


def tokens_of(parts: Iterable[WorkloadEnergy]) -> dict[str, Any]:
    """Tokens and joules per token of the workloads whose engines report tokens; None: none does."""
    pairs = [(p.generated_tokens, p.joules_per_token) for p in parts]
    measured = [(tokens, joules) for tokens, joules in pairs if tokens and joules is not None]
    tokens = added(tokens for tokens, _ in measured)
    joules = added(n * joules for n, joules in measured) / tokens if tokens > 0 else None
    return {"generated_tokens": tokens if tokens > 0 else None, "joules_per_token": joules}


def sums_of_workloads(workloads: Iterable[tuple[str | None, WorkloadEnergy | None]]) -> dict[str, Any]:
    """The fields of `FleetEnergy` that are sums over workloads: tokens, phases in their order (a cost unknown in one
    part is unknown in the sum), and owners, the most energy first. `workloads`: owner and energy of each; those without
    energy are left out."""
    every = [(owner, energy) for owner, energy in workloads if energy is not None]
    owners, phases = list[OwnerEnergy](), list[PhaseEnergy]()
    for owner in dict.fromkeys(owner for owner, _ in every):
        parts = [energy for name, energy in every if name == owner]
        owners.append(OwnerEnergy(**figures_of(parts), **tokens_of(parts), owner=owner))
    for phase in PHASES:
        if same := [part for _, energy in every for part in energy.phases if part.phase == phase]:
            cost = None if any(p.cost_usd is None for p in same) else total(p.cost_usd for p in same)
            kwh, usd, co2_kg = (total(getattr(p, name) for p in same) for name in ("kwh", "usd", "co2_kg"))
            phases.append(PhaseEnergy(phase, added(p.gpu_hours for p in same), kwh, cost, usd, co2_kg))
    owners.sort(key=lambda row: (-(row.kwh or 0.0), row.owner or ""))
    return {"phases": tuple(phases), "owners": tuple(owners), **tokens_of(energy for _, energy in every)}
