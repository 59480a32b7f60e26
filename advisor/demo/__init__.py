"""Simulated fleets: physically consistent signals through the real store. `fleets.toml` has nodes and work,
`training` and `serving` what work asks of the hardware, `writer` what a node shows of that, `rollup` its statistics."""

from .simulator import MINUTES_SECONDS, SimulationReport, plan_fleet, simulate

__all__ = ["MINUTES_SECONDS", "SimulationReport", "plan_fleet", "simulate"]
