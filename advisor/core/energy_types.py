"""Energy as the advice tells it. Joules of telemetry are kilowatt-hours here; None is not measured, and never 0."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from ...rules.base.typed import Amount

EnergyBasis = Literal["counter", "power", "both"]
EnergyPhase = Literal["training", "evaluation", "prefill", "decode", "inference", "interactive", "idle", "not-told"]
PHASES: tuple[EnergyPhase, ...] = get_args(EnergyPhase)
EnergyFigure = Literal["usd_per_kwh", "pue", "co2_grams_per_kwh"]


@dataclass(frozen=True, slots=True)
class Energy:
    """What some GPUs drew, at the GPUs: fans, CPUs, power supplies and cooling are not in it.

    `kwh`: of the `measured_gpu_hours`; None: nothing was measured. `counted_kwh`: of it what energy counters told; the
    rest is power times time. `unmeasured_gpu_hours`: hours of the same GPUs of which no energy is known: not observed,
    or observed without power. `idle_kwh`: drawn while the GPU was at rest. `usd`, `co2_kg`: what it comes to by the
    site's [energy] settings, with its PUE; None: the site gave no such figure. `usd` is in no other dollar of the
    advice: the price of a rented node holds its power.
    """

    kwh: Amount | None
    counted_kwh: Amount | None
    measured_gpu_hours: Amount
    unmeasured_gpu_hours: Amount
    idle_kwh: Amount | None
    usd: Amount | None = field(default=None, kw_only=True)
    co2_kg: Amount | None = field(default=None, kw_only=True)
    basis: EnergyBasis | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class PhaseEnergy:
    """Energy and spend of one phase. `cost_usd`: what the GPU-hours cost at their nodes' prices (None: a price is
    unknown); `usd`: what the energy costs by the [energy] settings."""

    phase: EnergyPhase
    gpu_hours: Amount
    kwh: Amount | None
    cost_usd: Amount | None
    usd: Amount | None = None
    co2_kg: Amount | None = None


@dataclass(frozen=True, slots=True)
class WorkloadEnergy(Energy):
    """Of one workload, in the moments that were its alone; an instance has its part of its GPU's.

    `busy_gpu_hours`: measured hours that were not idle; `kwh_per_busy_gpu_hour`: the energy in them, by the hour.
    `generated_tokens`, `token_hours`: tokens of the hours (of the clock) in which tokens and energy were both measured;
    `joules_per_token`: all that its GPUs drew in those hours, over them; `tokens_per_second_per_watt`: its inverse.
    None: no engine told tokens.
    """

    busy_gpu_hours: Amount = 0.0
    kwh_per_busy_gpu_hour: Amount | None = None
    generated_tokens: Amount | None = None
    token_hours: Amount | None = None
    joules_per_token: Amount | None = None
    tokens_per_second_per_watt: Amount | None = None
    phases: tuple[PhaseEnergy, ...] = ()


@dataclass(frozen=True, slots=True)
class EnergyByUse:
    """kWh by use, each once; the parts sum to `total`. `unobserved_gpu_hours`: hours of which nothing is known."""

    workloads: Amount
    shared: Amount
    allocated_idle: Amount
    unallocated: Amount
    drained: Amount
    total: Amount
    unobserved_gpu_hours: Amount


@dataclass(frozen=True, slots=True)
class OwnerEnergy(Energy):
    """Of all workloads of one owner. `owner`: the team, else the namespace, account or user; None: nobody is named.
    `joules_per_token`: over its workloads whose engines tell tokens."""

    owner: str | None = None
    generated_tokens: Amount | None = None
    joules_per_token: Amount | None = None


@dataclass(frozen=True, slots=True)
class StatedFigure:
    """One figure of the site's [energy] settings. `value`: fixed; `by_hour_utc`: 24 values, from 00:00 UTC on."""

    name: EnergyFigure
    value: float | None
    by_hour_utc: tuple[float, ...]
    source: str
    as_of: str
    region: str | None = None


@dataclass(frozen=True, slots=True)
class FleetEnergy(Energy):
    """Of a fleet, or of a team's part of it. `idle_held_kwh`, `idle_free_kwh`: at rest while somebody held the GPU, and
    while nobody did. `by_use`: None in a team's part. `figures`: the site's, each with its source."""

    idle_held_kwh: Amount | None = None
    idle_free_kwh: Amount | None = None
    by_use: EnergyByUse | None = None
    phases: tuple[PhaseEnergy, ...] = ()
    owners: tuple[OwnerEnergy, ...] = ()
    generated_tokens: Amount | None = None
    joules_per_token: Amount | None = None
    figures: tuple[StatedFigure, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuEnergy:
    """Of one whole GPU, its instances among it."""

    gpu: str
    kwh: Amount | None
    counted_kwh: Amount | None
    measured_gpu_hours: Amount


@dataclass(frozen=True, slots=True)
class NodeEnergy(Energy):
    """Of one node's GPUs. `mean_watts`, `p95_watts`, `highest_watts`: of all its GPUs at once, over intervals of up to
    `interval_seconds` in which each of them was measured (None: there is none). `rated_watts`: the sum of the GPUs'
    power limits, which the node's other parts are not in; None: one is not known."""

    node: str = ""
    mean_watts: Amount | None = None
    p95_watts: Amount | None = None
    highest_watts: Amount | None = None
    rated_watts: Amount | None = None
    interval_seconds: Amount | None = None
    gpus: tuple[GpuEnergy, ...] = ()
