"""Simulated fleets with physically consistent signals, written through the real store.

`scenarios` says which nodes there are and what runs on them; `training`, `serving` and `held_idle` are what workloads
ask of the hardware; `counters` is what a node shows of that; `rollup` and `writer` put it into the store.
"""

from __future__ import annotations

from .scenarios import SCENARIOS
from .simulator import MINUTES_SECONDS, SimulationReport, plan_fleet, simulate

__all__ = ["MINUTES_SECONDS", "SCENARIOS", "SimulationReport", "plan_fleet", "simulate"]
