"""Simulated fleets with physically consistent signals, written through the real store.

`fleets.toml` says which nodes there are, what runs on them and what is drawn; `training` and `serving` are what
workloads ask of the hardware; `counters` is what a node shows of that; `rollup` and `writer` put it into the store.
"""

from .simulator import MINUTES_SECONDS, SCENARIOS, SimulationReport, plan_fleet, simulate

__all__ = ["MINUTES_SECONDS", "SCENARIOS", "SimulationReport", "plan_fleet", "simulate"]
