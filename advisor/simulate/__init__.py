"""Labelled fleets with physically consistent signals, written through the real store.

`scenarios` says which nodes there are and what runs on them; `training`, `serving` and `holding` are what workloads ask
of the hardware; `signals` is what counters show of that; `rollup` and `writing` put it into the store.
"""

from __future__ import annotations

from .scenarios.catalog import SCENARIOS
from .simulator import SimulationReport, simulate

__all__ = ["SCENARIOS", "SimulationReport", "simulate"]
