"""Reads ``watch.yaml``: what the watch must see before it opens an incident."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from .thresholds import load_thresholds

FILE = "watch.yaml"


@dataclass(frozen=True, slots=True)
class WatchRules:
    """Each number in the unit of its name; `rules/watch.yaml` has the reasons and the sources."""

    observed_min: float
    gap_minutes: float
    fresh_minutes: float
    host_bytes_per_second_min: float
    host_times: float
    host_cpu_rise_min: float
    host_time_hours: float
    worked_minutes: float
    stall_minutes: float
    stall_times: float
    blind_stall_minutes: float
    spin_engine_min: float
    spin_tensor_share_max: float
    spin_dram_max: float
    spin_links_share_max: float
    fault_clock_share_max: float
    fault_throttled_min: float
    fault_minutes: float
    fabric_used_min: float
    fabric_silent_max: float
    fabric_minutes: float


def load_watch_rules(rules_dir: Path | None = None) -> WatchRules:
    """The thresholds that ship, with those of a site's folder over them. Raises RulesError with file and line."""
    thresholds = load_thresholds(FILE, rules_dir)
    return WatchRules(**{field.name: thresholds[field.name].value for field in fields(WatchRules)})
