"""More GPUs than the demand needs: fewer of them would carry it, or a slice of one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ....rules.policy.labels import TRAINING_KINDS
from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Evidence
from ..constraints import room_bytes
from ..finding_context import FindingContext
from ..groups import Group
from ..prediction import NORM, demand
from ..rule_context import (
    MIN_SHARE,
    RuleContext,
    RuleDescription,
    RuleResult,
    as_percent,
    finding_of,
    kind_chance,
    measured_percentile,
)


def too_many_gpus(scope: RuleContext, rule: WasteRule) -> RuleResult:
    """Groups of which no resource is used much at any time, and whose demand fewer GPUs would carry."""
    found: list[FindingContext] = []
    for group in scope.seen:
        asked = group.demand_p95
        if group.kind in TRAINING_KINDS or group.gpu_count < 2 or asked is None:
            continue
        # Work of unknown kind keeps its count where it may well be training.
        if group.kind == "unknown" and kind_chance(group, *TRAINING_KINDS) > rule.value("training_chance_max"):
            continue
        if group.observed_hours < rule.value("coverage_hours"):
            continue
        label, top = peak_use(group)
        needed, load = _needed(scope, group, asked, rule.value("headroom"))
        # Replicas that come and go with the load are few when it is low: what was held on average is no surplus.
        held = _held_on_average(group)
        few = group.gpu_count if held >= (1 - MIN_SHARE) * group.gpu_count else (1 - MIN_SHARE) * held
        if top >= rule.value("u_p99_max") or needed >= few:
            continue
        found.append(_finding(scope, rule, group, label=label, top=top, asked=asked, load=load, needed=needed))
    return found, []


def _needed(scope: RuleContext, group: Group, demand_p95: float, headroom: float) -> tuple[int, float]:
    """GPUs that carry it, and the load that they reach: in whole replicas, or with fewer in each replica where the
    memory that it needs fits on them.

    A replica is divided by a whole number, for a model is spread evenly. On fewer GPUs each has more to compute and to
    read, and no more to exchange (an all-reduce sends 2 (N - 1) / N of its size); of links that were not measured the
    engine's time is the most that they take.
    """
    # Each of several sessions is somebody's: none is given up for another.
    whole = group.gpu_count if group.kind == "interactive" else group.right_size(demand_p95, headroom)
    best = whole, demand_p95 * group.gpu_count / whole
    size = group.gpus_per_replica
    sku = scope.book.catalog.gpu(group.lead.gpu_sku) if group.lead.gpu_sku else None
    # Replicas of different sizes are no plan.
    alike = size > 1 and group.gpu_count == size * group.replicas
    if not alike or sku is None or group.mem_needed_max is None:
        return best
    use = group.use
    nothing, engine = np.zeros(len(use.g)), np.where(np.isfinite(use.g), np.clip(use.g, 0.0, 1.0), 1.0)
    own = demand(replace(use, u_n=nothing, u_p=np.nan_to_num(use.u_p), u_i=use.of("u_i")))
    link = np.where(np.isfinite(use.of("u_n")), use.of("u_n"), engine)
    by_memory = math.ceil(size * group.mem_needed_max * sku.mem_bytes / max(room_bytes(sku.mem_bytes), 1.0))
    for each in range(max(by_memory, 1), size):
        if size % each:
            continue
        loads = ((own * size / each) ** NORM + (link if each > 1 else nothing) ** NORM) ** (1 / NORM)
        load = float(np.nanpercentile(loads, 95))
        if load <= headroom:
            return (each * group.replicas, load) if each * group.replicas < whole else best
    return best


def _held_on_average(group: Group) -> float:
    """GPUs that were held, on average over the time in which any were."""
    seconds, until = 0.0, -math.inf
    for w in sorted(group.workloads, key=lambda one: one.start):
        seconds += max(w.end - max(w.start, until), 0.0)
        until = max(until, w.end)
    return group.gpu_hours * 3600 / seconds if seconds > 0 else float(group.gpu_count)


def peak_use(group: Group) -> tuple[str, float]:
    """The resource that is used most at the 99th percentile, and by how much of what the SKU sustains."""
    # From the merged bins where they are known: they see the seconds that an hour's mean hides.
    peaks = {
        "compute": group.feature("tensor_of_sustained_p99") or measured_percentile(group.use.u_c, 99),
        "memory bandwidth": group.feature("hbm_of_sustained_p99") or measured_percentile(group.use.u_m, 99),
        "NVLink": measured_percentile(group.use.u_n, 99),
        "the network": measured_percentile(group.use.u_i, 99),
        "PCIe": measured_percentile(group.use.u_p, 99),
    }
    known = {name: value for name, value in peaks.items() if value is not None}
    return max(known.items(), key=lambda item: item[1])


def _finding(
    scope: RuleContext, rule: WasteRule, group: Group, *, label: str, top: float, asked: float, load: float, needed: int
) -> FindingContext:
    surplus = group.gpu_hours * (1 - needed / min(_held_on_average(group), group.gpu_count))
    finding = finding_of(
        scope, rule, group,
        evidence=(
            Evidence("use_p99", top, rule.value("u_p99_max"), "ratio of what the SKU sustains"),
            Evidence("demand_p95", asked, rule.value("headroom"), "ratio of what the SKU sustains"),
            Evidence("gpus_held", float(group.gpu_count), float(needed), "GPUs"),
        ),
        gpu_hours=surplus,
        cost=scope.cost(surplus, group.nodes),
        values={
            "gpu_hours": f"{group.gpu_hours:,.0f}", "u_max": as_percent(top), "u_label": label, "count_needed": needed,
            "headroom": as_percent(load),
        },
        # Rows are hours: minutes of a peak hide in them.
        sure=0.9 * (group.lead.kind.confidence if group.kind != "unknown" else 1 - kind_chance(group, *TRAINING_KINDS)),
    )  # fmt: skip
    return FindingContext(finding, group, group.nodes)


RULE = RuleDescription(
    id="too-many-gpus",
    rank=4,
    fact="more GPUs than the load needs",
    judge=too_many_gpus,
    answered_by={"reduce-gpus": 1, "mig-slice": 1, "move-sku": 5},
    waste="surplus",
)
