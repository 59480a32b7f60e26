"""Reads ``rest.yaml``: by which levels a row of telemetry is work, a trace of work, or rest."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from .thresholds import load_thresholds

FILE = "rest.yaml"


@dataclass(frozen=True, slots=True)
class RestRules:
    """Each number in the unit of its name, ratios 0..1; `rules/rest.yaml` has the reasons and the sources."""

    work_engine_min: float
    work_dram_min: float
    trace_engine_min: float
    trace_engine_max: float
    trace_dram_min: float
    trace_dram_max: float
    trace_tensor_min: float
    noise_times: float
    kernel_min: float
    power_margin: float
    fault_power_share_min: float
    fault_minutes: float
    steady_power_ratio: float
    steady_power_watts: float
    rest_of_work_held: float
    rest_of_work: float
    unknown_rest_watts_max: float
    memory_held_min: float


def load_rest_rules(rules_dir: Path | None = None) -> RestRules:
    """The thresholds that ship, with those of a site's folder over them. Raises RulesError with file and line."""
    thresholds = load_thresholds(FILE, rules_dir)
    return RestRules(**{field.name: thresholds[field.name].value for field in fields(RestRules)})
