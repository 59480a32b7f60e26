"""Labelled fleets for evaluation and fitting: more scenarios over the core of `skuwise.advisor.demo`.

`fleet` here is every scene together, larger than the `fleet` of `skuwise simulate`.
"""

from .scenarios.catalog import SCENARIOS, SimulationReport, plan, plan_fleet, simulate

__all__ = ["SCENARIOS", "SimulationReport", "plan", "plan_fleet", "simulate"]
