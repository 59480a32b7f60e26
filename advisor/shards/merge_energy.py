"""Energy of several shards as one. No node stands in two shards, so no joule does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from ..core.energy_sums import figures_of, joules_a_token, owners_of, phases_together, total
from ..core.energy_types import EnergyByUse, FleetEnergy, WorkloadEnergy
from ..core.totals import added
from ..core.verdict_types import WorkloadVerdict


def workload_energy(parts: Sequence[WorkloadEnergy | None]) -> WorkloadEnergy | None:
    """Of a workload of which each shard saw other GPUs; None where one shard does not tell (an earlier version).

    What one shard's GPUs drew for the tokens that another counted is not known: joules a token stand only where all
    shards that saw the workload tell both.
    """
    told = [one for one in parts if one is not None]
    if not told or len(told) < len(parts):
        return None
    figures: dict[str, Any] = {**figures_of(told)}
    hours = added(one.busy_gpu_hours for one in told)
    busy = total(
        None if one.kwh_per_busy_gpu_hour is None else one.kwh_per_busy_gpu_hour * one.busy_gpu_hours for one in told
    )
    tokens, joules = joules_a_token(told) if all(one.generated_tokens for one in told) else (None, None)
    return WorkloadEnergy(
        **figures,
        busy_gpu_hours=hours,
        kwh_per_busy_gpu_hour=busy / hours if busy is not None and hours > 0 else None,
        generated_tokens=tokens,
        token_hours=None if tokens is None else added(one.token_hours or 0.0 for one in told),
        joules_per_token=joules,
        tokens_per_second_per_watt=1 / joules if joules else None,
        phases=phases_together(one.phases for one in told),
    )


def fleet_energy(parts: Sequence[FleetEnergy | None], workloads: Sequence[WorkloadVerdict]) -> FleetEnergy | None:
    """Of the fleet; None where one shard does not tell. `workloads`: of all shards, joined."""
    told = [one for one in parts if one is not None]
    if not told or len(told) < len(parts):
        return None
    figures: dict[str, Any] = {**figures_of(told)}
    own = [w.energy for w in workloads if w.energy is not None]
    tokens, joules = joules_a_token(own)
    return FleetEnergy(
        **figures,
        idle_held_kwh=total(one.idle_held_kwh for one in told),
        idle_free_kwh=total(one.idle_free_kwh for one in told),
        by_use=_by_use([one.by_use for one in told if one.by_use is not None]),
        phases=phases_together(one.phases for one in told),
        owners=owners_of(workloads),
        generated_tokens=tokens,
        joules_per_token=joules,
        figures=tuple(sorted({f for one in told for f in one.figures}, key=repr)),
    )


def _by_use(parts: Sequence[EnergyByUse]) -> EnergyByUse | None:
    if not parts:
        return None
    return EnergyByUse(*(added(column) for column in zip(*map(astuple, parts), strict=True)))
