"""The waste rules: what was measured, held against the thresholds of ``rules/waste``, with its cost.

A rule fires on numbers it can show; a telemetry fault, too little data or an unknown kind silences it, with a note.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ...rules.templates import fill
from ...rules.thresholds import WasteRule
from ..model import Evidence, Finding
from ..moments import minute, rfc3339, span
from ..verdicts.facts import BareGpu, NodeFacts, Verdicts
from ..words import dated, usd
from .fabric_waste import FAULT_SHARE, idle_fabric
from .found import Found, called, certainty, graded, node_words, sampling, when_possible
from .groups import AVAILABLE, TRAINING, Group
from .ids import stable_id
from .money import PriceBook

# Idle time below this share of a node's hours is the gap between two jobs, not something to act on.
MIN_IDLE_SHARE = 0.1
# A GPU counts as idle where nearly all of the time that nobody held it was idle: else somebody unseen worked there.
IDLE_OF_UNHELD = 0.9


def find_waste(
    verdicts: Verdicts, groups: Sequence[Group], rules: Mapping[str, WasteRule], book: PriceBook, *, at: float
) -> tuple[tuple[Found, ...], tuple[str, ...]]:
    """Every finding of the window, and the notes that say where no verdict was possible and from when one will be.

    `at`: the moment of the advice, Unix seconds.
    """
    found, notes = idle_fabric(verdicts, groups, rules["idle-fabric"], book, at=at)
    for part, more in (
        _idle(verdicts, rules["idle"], book, at),
        _held_idle(verdicts, groups, rules["held-idle"], book, at),
        _too_many(verdicts, groups, rules["too-many-gpus"], book),
    ):
        found += part
        notes += more
    return tuple(found), tuple(dict.fromkeys(notes))


def _idle(verdicts: Verdicts, rule: WasteRule, book: PriceBook, at: float) -> tuple[list[Found], list[str]]:
    found: list[Found] = []
    notes: list[str] = []
    for node in verdicts.nodes:
        bare = [b for b in verdicts.bare if b.node == node.node]
        faults = sorted({b.telemetry_fault for b in bare if b.telemetry_fault})
        notes += [f"No verdict on idle GPUs of {node.node}: {fault}." for fault in faults]
        idle = [
            b
            for b in bare
            if not b.telemetry_fault
            and b.idle_hours * 60 >= rule.value("minutes")
            and b.idle_hours >= IDLE_OF_UNHELD * b.hours
        ]
        hours = sum(b.idle_hours for b in idle)
        share = hours / (node.gpu_count * node.span_hours) if node.gpu_count and node.span_hours else 0.0
        if not idle or share < MIN_IDLE_SHARE:
            continue
        if node.hours_observed < rule.value("coverage_hours"):
            notes.append(
                f"{node.node} looks idle, but only {span(node.hours_observed * 3600)} of it were observed. "
                + when_possible(node.hours_observed, rule.value("coverage_hours"), verdicts.window, at, node)
            )
            continue
        found.append(_idle_finding(node, idle, hours, share, rule=rule, book=book))
    return found, notes


def _idle_finding(
    node: NodeFacts, idle: Sequence[BareGpu], hours: float, share: float, *, rule: WasteRule, book: PriceBook
) -> Found:
    def mean(values: Sequence[float | None]) -> float | None:
        known = [v for v in values if v is not None]
        return sum(known) / len(known) if known else None

    engine, dram = mean([b.engine_mean for b in idle]), mean([b.dram_mean for b in idle])
    power, floor = mean([b.power_mean_watts for b in idle]), mean([b.idle_power_watts for b in idle])
    rate, price = book.per_gpu_hour(node), book.of(node)
    cost = None if rate is None else rate * hours
    values = {
        "gpu_count": len(idle),
        "gpu_sku": node.gpu_sku or node.gpu_name,
        "node": node.node,
        "nodes": node.node,
        "node_sku": node.node_sku,
        "hours": f"{hours / len(idle):.0f}",
        "gpu_hours": f"{hours:,.0f}",
        "engine": _percent(engine),
        "dram": _percent(dram),
        "power": _watts(power),
        "idle_power": _watts(floor),
        **{name: threshold.value for name, threshold in rule.thresholds.items()},
    }
    measured = sum(v is not None for v in (engine, dram, power)) / 3
    finding = Finding(
        id=stable_id("f", "idle", node.cluster, node.node),
        rule="idle",
        severity=graded(share, rule),
        workload=None,
        node=node.node,
        gpus=tuple(b.gpu_uuid for b in idle),
        evidence=(
            Evidence("engine_active", engine, rule.value("engine_max"), "ratio"),
            Evidence("dram_active", dram, rule.value("dram_max"), "ratio"),
            Evidence(
                "power_over_idle",
                power / floor if power and floor else None,
                rule.value("power_over_idle_max"),
                "ratio",
            ),
            Evidence("idle_hours", hours, rule.value("minutes") / 60, "GPU-hours"),
            Evidence("hours_observed", node.hours_observed, rule.value("coverage_hours"), "hours"),
        ),
        gpu_hours=hours,
        cost_usd=cost,
        price=price.id if price else None,
        confidence=certainty(
            0.95, 0.6 + 0.4 * measured, node.hours_observed / node.span_hours if node.span_hours else 0
        ),
        would_change_if=tuple(fill(w, values) for w in rule.would_change_if),
        text=f"{fill(rule.text, values)} {_cost_words(cost, book, [node])}",
        nodes=(node.node,),
    )
    return Found(finding, None, (node,), tuple(idle))


def _held_idle(
    verdicts: Verdicts, groups: Sequence[Group], rule: WasteRule, book: PriceBook, at: float
) -> tuple[list[Found], list[str]]:
    found: list[Found] = []
    notes: list[str] = []
    idle = verdicts.occupancy[verdicts.occupancy["class"] == "allocated_idle"]
    for group in groups:
        held = _held_hours(verdicts, idle, group)
        if group.fault_share >= FAULT_SHARE:
            notes.append(
                f"No verdict on waste of {group.lead.name}: its signals contradict one another in "
                f"{group.fault_share * 100:.0f} % of the time, a fault of the telemetry."
            )
            continue
        if group.shared or held * 60 < rule.value("minutes") * max(group.gpu_count, 1):
            continue
        share = held / group.gpu_hours if group.gpu_hours else 0.0
        if share < MIN_IDLE_SHARE:
            continue
        least = min(group.nodes, key=lambda n: n.hours_observed, default=None)
        if least is None:
            continue
        if least.hours_observed < rule.value("coverage_hours"):
            notes.append(
                f"{group.lead.name} seems to hold GPUs without using them, in {span(least.hours_observed * 3600)} of "
                f"data. {when_possible(least.hours_observed, rule.value('coverage_hours'), verdicts.window, at, least)}"
            )
            continue
        found.append(_held_finding(verdicts, group, held, share, rule=rule, book=book))
    return found, notes


def _held_hours(verdicts: Verdicts, idle: pd.DataFrame, group: Group) -> float:
    """GPU-hours held without use: all idle ones of what never worked, those at the end of a job that has worked.

    Pauses inside a job belong to it, and a service that waits for requests does its work by waiting. `idle`: the
    rows of occupancy that are allocated and idle.
    """
    idle = idle[idle["workload_id"].isin({w.id for w in group.workloads})]
    if group.kind == "idle":
        return float(idle["gpu_hours"].sum())
    if group.kind in AVAILABLE or group.kind == "unknown":
        return 0.0
    total = 0.0
    for w in group.workloads:
        usage = verdicts.usage_of((w.id,))
        own = float(idle[idle["workload_id"] == w.id]["gpu_hours"].sum())
        total += min(_trailing_idle_hours(usage), own)
    return total


def _trailing_idle_hours(usage: pd.DataFrame) -> float:
    """GPU-hours after the last interval in which any GPU of the workload worked."""
    if usage.empty:
        return 0.0
    last = _last_worked(usage)
    return float(usage["seconds"].sum() if last is None else usage.loc[usage["ts"] > last, "seconds"].sum()) / 3600


def _last_worked(usage: pd.DataFrame) -> float | None:
    """End of the last interval in which any GPU of it worked, Unix seconds; None: in no interval of the window."""
    busy = usage.loc[usage["bottleneck"] != "idle", "ts"]
    return None if busy.empty else float(busy.max())


def _idle_since(verdicts: Verdicts, group: Group) -> float | None:
    """Since when what it holds now has stood idle; None: it never worked in the window, or it holds nothing now."""
    last = _last_worked(verdicts.usage_of({w.id for w in group.now}))
    return last if group.current and last is not None and last < verdicts.window.end else None


def _held_finding(
    verdicts: Verdicts, group: Group, held: float, share: float, *, rule: WasteRule, book: PriceBook
) -> Found:
    usage = verdicts.usage_of({w.id for w in group.workloads})
    rows = usage[usage["bottleneck"] == "idle"]

    def mean(name: str) -> float | None:
        value = rows[name].mean() if len(rows) and name in rows else math.nan
        return float(value) if pd.notna(value) else None

    engine, dram, power, memory = mean("g"), mean("m"), mean("power_watts"), mean("mem_used_ratio")
    floors = [b.idle_power_watts for b in verdicts.bare if b.gpu_sku == group.lead.gpu_sku and b.idle_power_watts]
    floor = float(np.median(floors)) if floors else None
    over = group.feature("power_over_idle") or _over(power, floor)
    floor = power / over if floor is None and power and over else floor
    cost = _cost(held, group.nodes, book)
    values = {
        "workload": called(group),
        "gpu_count": group.gpu_count,
        "gpu_sku": group.lead.gpu_sku,
        "nodes": node_words(group.nodes),
        "node": group.nodes[0].node,
        "gpu_hours": f"{held:,.0f}",
        "sm": _percent(engine),
        "engine": _percent(engine),
        "dram": _percent(dram),
        "power": _watts(power),
        "idle_power": _watts(floor),
        "mem_used": _percent(memory),
        **{name: threshold.value for name, threshold in rule.thresholds.items()},
    }
    since = _idle_since(verdicts, group)
    last = () if since is None else (Evidence("last_worked", rfc3339(since), None, "time (UTC)"),)
    told = "" if since is None else f" It last worked on {minute(since)}."
    price = book.of(group.nodes[0])
    coverage = group.lead.coverage
    finding = Finding(
        id=stable_id("f", "held-idle", group.series_id),
        rule="held-idle",
        severity=graded(share, rule),
        workload=group.lead.id,
        node=group.nodes[0].node if len(group.nodes) == 1 else None,
        gpus=group.gpus,
        evidence=(
            Evidence("engine_active", engine, rule.value("sm_max"), "ratio"),
            Evidence("dram_active", dram, rule.value("dram_max"), "ratio"),
            Evidence("power_over_idle", over, rule.value("power_over_idle_min"), "ratio"),
            Evidence("mem_used", memory, None, "ratio"),
            Evidence("held_idle", held, rule.value("minutes") / 60 * group.gpu_count, "GPU-hours"),
            *last,
        ),
        gpu_hours=held,
        cost_usd=cost,
        price=price.id if price else None,
        confidence=certainty(
            group.lead.kind.confidence if group.kind == "idle" else 0.9, coverage.fraction / 0.9,
            sampling(coverage.resolution_seconds),
        ),
        would_change_if=tuple(fill(w, values) for w in rule.would_change_if),
        text=f"{fill(rule.text, values)}{told} {_cost_words(cost, book, group.nodes)}",
        nodes=tuple(n.node for n in group.nodes),
    )  # fmt: skip
    return Found(finding, group, group.nodes)


def _too_many(
    verdicts: Verdicts, groups: Sequence[Group], rule: WasteRule, book: PriceBook
) -> tuple[list[Found], list[str]]:
    found: list[Found] = []
    for group in groups:
        demand = group.demand_p95
        if group.kind in (*TRAINING, "idle", "unknown") or group.shared or group.gpu_count < 2 or demand is None:
            continue
        if group.fault_share >= FAULT_SHARE:
            continue
        if not any(verdicts.waste_ready.get(w.id, False) for w in group.workloads) or not group.nodes:
            continue
        # From the merged bins where they are known: they see the seconds that an hour's mean hides.
        peaks = {
            "compute": group.feature("u_c_p99") or _p99(group.use.u_c),
            "memory bandwidth": group.feature("u_m_p99") or _p99(group.use.u_m),
            "NVLink": _p99(group.use.u_n),
            "the network": _p99(group.use.u_i),
            "PCIe": _p99(group.use.u_p),
        }
        known = {name: value for name, value in peaks.items() if value is not None}
        label, top = max(known.items(), key=lambda item: item[1])
        needed = right_size(group, demand, rule.value("headroom"))
        if top >= rule.value("u_p99_max") or needed >= group.gpu_count:
            continue
        found.append(_too_many_finding(group, label, top, demand, needed, rule=rule, book=book))
    return found, []


def _too_many_finding(
    group: Group, label: str, top: float, demand: float, needed: int, *, rule: WasteRule, book: PriceBook
) -> Found:
    surplus = group.gpu_hours * (1 - needed / group.gpu_count)
    cost = _cost(surplus, group.nodes, book)
    coverage = group.lead.coverage
    values = {
        "workload": called(group),
        "gpu_count": group.gpu_count,
        "gpu_sku": group.lead.gpu_sku,
        "nodes": node_words(group.nodes),
        "node": group.nodes[0].node,
        "hours": f"{group.gpu_hours / max(group.gpu_count, 1):.0f}",
        "gpu_hours": f"{group.gpu_hours:,.0f}",
        "u_max": _percent(top),
        "u_label": label,
        "count_needed": needed,
        **{name: threshold.value for name, threshold in rule.thresholds.items()},
        "headroom": _percent(demand * group.gpu_count / needed),
    }
    price = book.of(group.nodes[0])
    finding = Finding(
        id=stable_id("f", "too-many-gpus", group.series_id),
        rule="too-many-gpus",
        severity=rule.severity,  # type: ignore[arg-type]
        workload=group.lead.id,
        node=group.nodes[0].node if len(group.nodes) == 1 else None,
        gpus=group.gpus,
        evidence=(
            Evidence("use_p99", top, rule.value("u_p99_max"), "ratio of what the SKU sustains"),
            Evidence("demand_p95", demand, rule.value("headroom"), "ratio of what the SKU sustains"),
            Evidence("gpus_held", float(group.gpu_count), float(needed), "GPUs"),
        ),
        gpu_hours=surplus,
        cost_usd=cost,
        price=price.id if price else None,
        # Rows are hours: minutes of a peak hide in them.
        confidence=certainty(group.lead.kind.confidence, coverage.fraction / 0.9, 0.9),
        would_change_if=tuple(fill(w, values) for w in rule.would_change_if),
        text=f"{fill(rule.text, values)} {_cost_words(cost, book, group.nodes)}",
        nodes=tuple(n.node for n in group.nodes),
    )
    return Found(finding, group, group.nodes)


def right_size(group: Group, demand: float, headroom: float, rho: float = 1.0) -> int:
    """GPUs that carry the 95th percentile of demand at `headroom`, in whole replicas, two at least where people wait.

    `rho`: target time over source time, for GPUs of another kind. GPUs that do not talk to one another count singly.
    """
    unit = unit_of(group)
    needed = math.ceil(round(group.gpu_count * demand * rho / headroom / unit, 9))
    floor = min(2, group.gpu_count // unit) if group.kind in AVAILABLE else 1
    return max(needed, floor, 1) * unit


def unit_of(group: Group) -> int:
    """GPUs that come and go together: a replica where its GPUs talk over NVLink, else one."""
    values = group.use.u_n[np.isfinite(group.use.u_n)]
    # NVLink not measured: a replica of several GPUs is kept whole.
    talks = not values.size or float(np.percentile(values, 95)) >= 0.05
    return max(group.gpus_per_replica, 1) if talks else 1


def _p99(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(np.percentile(finite, 99)) if finite.size else None


def _cost(gpu_hours: float, nodes: Sequence[NodeFacts], book: PriceBook) -> float | None:
    rates = [book.per_gpu_hour(n) for n in nodes]
    known = [r for r in rates if r is not None]
    return gpu_hours * sum(known) / len(known) if known and len(known) == len(rates) else None


def _cost_words(cost: float | None, book: PriceBook, nodes: Sequence[NodeFacts]) -> str:
    price = book.of(nodes[0]) if nodes else None
    if cost is None or price is None:
        return "What that costs is not known, because the price of the node is not."
    return f"That is {usd(cost)} in the window, {dated((price,))}."


def _over(power: float | None, floor: float | None) -> float | None:
    return power / floor if power is not None and floor else None


def _percent(value: float | None) -> str | None:
    return None if value is None else "under 0.1 %" if 0 < value < 0.001 else f"{value * 100:.3g} %"


def _watts(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f} W"
