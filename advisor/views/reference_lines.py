"""What the lines of a history are held against: what the GPU sustains or holds, and the thresholds of the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...rules.catalog.types import GpuSku
from ...rules.policy.thresholds import WasteRule
from ..core.frame import Frame
from ..core.verdict_types import WorkloadVerdict
from ..recommend.rules import RULES


@dataclass(frozen=True, slots=True)
class Level:
    """A value that lines named `of` are held against, in their unit."""

    of: str
    name: str
    value: float


def levels_of(
    frame: Frame, workload: WorkloadVerdict, sku: GpuSku | None, rules: Mapping[str, WasteRule]
) -> tuple[Level, ...]:
    """The levels of a workload. `sku`: the catalog's entry of its GPUs; None: only what needs none is told. A figure
    that nobody published has no level.
    """
    own = {name: rule.of(workload.owner) for name, rule in rules.items()}
    found: list[Level] = []
    if sku is not None:
        shares = (("tensor active", sku.achieved.bf16_gemm), ("DRAM active", sku.achieved.mem))
        found += [Level(of, f"{of.split()[0]} sustained", 100 * eta) for of, eta in shares if eta]
        if sku.nvlink_bytes_per_second:
            found += _of_rules("NVLink sent", own, sku.nvlink_bytes_per_second * 1e-9)
        gib = sku.mem_bytes / 1024**3
        found += [
            Level("memory used", "all of its memory", gib),
            *_of_rules("memory used", own, gib),
            Level("power", "rated power", sku.tdp_watts),
        ]
    rate = _line_rate(frame, workload)
    if rate is not None:
        found += _of_rules("fabric sent", own, rate * 1e-9)
    power, over = workload.features.get("power_watts"), workload.features.get("power_over_idle")
    if power and over:
        found.append(Level("power", "idle power", power / over))
    return tuple(found)


def _of_rules(of: str, rules: Mapping[str, WasteRule], whole: float) -> list[Level]:
    """The thresholds of waste rules for one line. `whole`: what the GPU or the node has of it, in the line's unit."""
    lines = [(rules[one.id], one.line) for one in RULES if one.line is not None and one.line[0] == of]
    shares = [(words, rule.value(threshold)) for rule, (_, threshold, words) in lines]
    return [Level(of, f"{words} {share:.0%}", share * whole) for words, share in shares]


def _line_rate(frame: Frame, workload: WorkloadVerdict) -> float | None:
    """Of one compute port of its nodes, bytes per second one way; None: there is none, or they differ."""
    rows = frame.fabric
    if rows.empty or "line_rate_bytes_per_second" not in rows:
        return None
    ports = rows[rows["node"].isin(workload.nodes) & (rows["role"] == "compute")]
    rates = ports["line_rate_bytes_per_second"].dropna().unique()
    return float(rates[0]) if len(rates) == 1 and rates[0] > 0 else None
