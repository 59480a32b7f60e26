"""Too much of a GPU, or too many of them: a count above the demand, memory that stays free, and a clock that the work
does not need (memory-bound serving, and compute that a cap slows little)."""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ....rules.models import load_power_model
from ....rules.policy.labels import ON_DEMAND_KINDS, TRAINING_KINDS
from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Finding
from ...core.coded_text import CodedText, coded
from ...core.formatting import usd
from ...core.worth import HOURS_PER_MONTH
from ..constraints import room_bytes
from ..fleet import SIZING_RULE, WEAK, Fleet, as_percent, watts
from ..groups import Group
from ..predict.clock_model import ClockMove, best_cap, lower_clock, power_at_work
from ..prediction import NORM, USE_NAMES, demand, engine, not_measured
from ..pricing import PriceBook
from ..progress import hours
from ..rule import AT_CAPACITY, MIN_SHARE, Verdict, Why, WorkloadRule, is_job, kind_chance, seen_at_work, seen_too_short

# Share of the rows above a rule's level that its own percentile leaves room for, and as much again.
_ABOVE_SHARE = 0.02
_LIMITS = ("compute", "hbm-bandwidth", "mixed", "nvlink", "network", "pcie")
_LINKS = (("NVLink", "u_n"), ("the network", "u_i"), ("PCIe", "u_p"))


class TooManyGpus(WorkloadRule):
    """Work of which no resource is used much at any time, and whose demand fewer GPUs would carry. Training keeps its
    count, and so does work on one GPU: both are out of its scope."""

    id = SIZING_RULE
    fact = "more GPUs than the load needs"
    answered_by = {"reduce-gpus": 1, "mig-slice": 1, "move-sku": 5}
    waste = "surplus"
    needs_coverage = True
    contradicted_by = AT_CAPACITY

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        return (g for g in super().scope(fleet) if g.kind not in TRAINING_KINDS and (g.gpu_count > 1 or not g.nodes))

    def refuted(self, fleet: Fleet, group: Group, finding: Finding) -> str | None:
        """Rows with a limit and a use above what the finding calls the most, or a phase of training."""
        most = next(e.threshold for e in finding.evidence if e.metric == "use_p99")
        rows = fleet.verdicts.used(w.id for w in group.workloads)
        seconds, used = rows.floats("seconds"), np.fmax.reduce([rows.floats(name) for name in USE_NAMES])
        above = (used >= most) & np.isin(rows["bottleneck"].astype(str), _LIMITS)
        if float(seconds[above].sum()) > _ABOVE_SHARE * float(seconds.sum()):
            return "uses-more-at-times"
        trains = any(p.kind in TRAINING_KINDS for w in group.now for p in w.phases)
        return "phase-of-training" if trains else None

    def judge(self, fleet: Fleet, group: Group, limits: WasteRule) -> Verdict:
        asked, use = group.demand_p95, group.use
        if asked is None:
            lacking = not_measured(use, "u_c", "u_m")
            return lacking or coded("demand-unknown", "its demand is unknown")
        # Of what the SKU sustains, from the merged bins where they are known: they see seconds that a mean hides.
        peaks = (
            ("compute", group.feature("tensor_of_sustained_p99") or group.use_percentile("u_c", 99)),
            ("memory bandwidth", group.feature("hbm_of_sustained_p99") or group.use_percentile("u_m", 99)),
            *((name, group.use_percentile(use_, 99)) for name, use_ in _LINKS),
        )
        label, top = max(((name, value) for name, value in peaks if value is not None), key=lambda peak: peak[1])
        if top >= limits.value("u_p99_max"):
            return None
        needed, load = _needed(fleet, group, asked, limits.value("headroom"))
        # Replicas that come and go with the load are few when it is low: what was held on average is no surplus.
        there = hours(group.workloads)
        held = group.gpu_hours / there if there > 0 else float(group.gpu_count)
        few = group.gpu_count if held >= (1 - MIN_SHARE) * group.gpu_count else (1 - MIN_SHARE) * held
        if needed >= few:
            # NVLink that was not measured is taken to be as busy as the engine, and keeps a replica whole.
            blind = group.gpus_per_replica > 1 and bool(use.lacking("u_n")) and group.may_use_nvlink
            return Why.NVLINK_NOT_MEASURED if blind else None
        # Work of unknown kind keeps its count where it may well be training.
        trains = kind_chance(group, *TRAINING_KINDS) if group.kind == "unknown" else 0.0
        if trains > limits.value("training_chance_max"):
            return Why.KIND_UNKNOWN
        surplus = group.gpu_hours * (1 - needed / min(held, group.gpu_count))
        return self.found(
            fleet, group,
            evidence=(
                ("use_p99", top, "u_p99_max", "ratio of what the SKU sustains"),
                ("demand_p95", asked, "headroom", "ratio of what the SKU sustains"),
                ("gpus_held", float(group.gpu_count), float(needed), "GPUs"),
            ),
            gpu_hours=surplus, cost=fleet.cost(surplus, group.nodes),
            values={
                "gpu_hours": f"{group.gpu_hours:,.0f}", "u_max": as_percent(top), "u_label": label,
                "count_needed": needed, "headroom": as_percent(load),
            },
            # Rows are hours: minutes of a peak hide in them.
            sure=0.9 * (group.lead.kind.confidence if group.kind != "unknown" else 1 - trains),
        )  # fmt: skip


def _needed(fleet: Fleet, group: Group, demand_p95: float, headroom: float) -> tuple[int, float]:
    """GPUs that carry it, and the load that they reach: in whole replicas, or with fewer in each (divided by a whole
    number) where its memory fits. Each then computes and reads more and exchanges the same."""
    # Whole units, two at least where users wait. Sessions belong to different users: none replaces another.
    held, unit, use = group.gpu_count, group.unit, group.use
    floor = min(2, held // unit) if group.kind in ON_DEMAND_KINDS else 1
    whole = max(math.ceil(round(held * demand_p95 / headroom / unit, 9)), floor, 1) * unit
    whole = held if group.kind == "interactive" else whole
    best = whole, demand_p95 * held / whole
    size, replicas, sku = group.gpus_per_replica, len(group.now), fleet.gpu_of(group)
    # Replicas of different sizes are no plan.
    if size < 2 or held != size * replicas or sku is None or group.mem_needed_max is None:
        return best
    nothing = np.zeros(len(use.g))
    busy = demand(replace(use, u_n=nothing, u_p=np.nan_to_num(use.u_p), u_i=use.of("u_i")))
    link = np.where(np.isfinite(use.of("u_n")), use.of("u_n"), engine(use))
    by_memory = math.ceil(size * group.mem_needed_max * sku.mem_bytes / max(room_bytes(sku.mem_bytes), 1.0))
    for each in (n for n in range(max(by_memory, 1), size) if not size % n):
        loads = ((busy * size / each) ** NORM + (link if each > 1 else nothing) ** NORM) ** (1 / NORM)
        load = float(np.nanpercentile(loads, 95))
        if load <= headroom:
            return (each * replicas, load) if each * replicas < whole else best
    return best


# Memory that was never taken means the same for all kinds of work but an engine's pool, which its level shows.
_SURE_OF_ANY = 0.8


class MemoryUnused(WorkloadRule):
    """Work that never took half of its GPUs' memory: what it took bounds what it needs from above. An engine that fills
    whatever it finds says nothing of its need, and is out of its scope."""

    id = "memory-unused"
    fact = "GPU memory mostly unused"
    answered_by = {"mig-slice": 2, "move-sku": WEAK}
    contradicted_by = AT_CAPACITY | {"shape-memory-pool"}
    line = ("memory used", "mem_max", "memory unused up to")

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        return (group for group in super().scope(fleet) if not group.preallocates)

    def judge(self, fleet: Fleet, group: Group, limits: WasteRule) -> Verdict:
        if (most := group.mem_needed_max) is None:
            return Why.MEMORY_NOT_MEASURED
        if most >= limits.value("mem_max"):
            return None
        # An interactive session works in short spells; that is not probing.
        if group.kind != "interactive" and not seen_at_work(group, limits):
            return Why.ON_STANDBY
        # A service may be asked for more on another day; a job has shown in its own hours what it takes.
        floor = limits.value("job_hours" if is_job(group) else "coverage_hours")
        if group.observed_hours < floor:
            return seen_too_short(floor)
        sku = fleet.gpu_of(group)
        size = None if sku is None else sku.mem_bytes
        return self.found(
            fleet, group,
            evidence=(
                ("mem_used_max", most, "mem_max", "ratio of the GPU's memory"),
                ("mem_total", None if size is None else float(size), None, "bytes"),
                ("hours_observed", group.observed_hours, floor, "hours"),
            ),
            gpu_hours=group.gpu_hours,
            values={"mem_used": as_percent(most), "mem_gb": None if size is None else f"{most * size / 1e9:.0f}"},
            sure=max(group.lead.kind.confidence, _SURE_OF_ANY),
            after="Memory has no separate price; see the recommendations for the savings of a smaller GPU or a slice.",
        )  # fmt: skip


# How far a change is trusted: by measured runs of the same architecture, of others, and clocks by one point.
_SURE_SHOWN, _SURE_ELSEWHERE, _SURE_CLOCK = 0.9, 0.7, 0.7


class Energy(WorkloadRule):
    """Work that would do the same, nearly as fast, for less energy. Its scope: work that is there now."""

    id = "energy"
    fact = "clock higher than the work needs"
    answered_by = {"lower-clock": 1, "power-cap": 1}
    needs_coverage = True

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        return (group for group in super().scope(fleet) if group.current)

    def judge(self, fleet: Fleet, group: Group, limits: WasteRule) -> Verdict:
        move = _move(fleet, limits, group)
        if move is None or isinstance(move, CodedText):
            return move
        saved, capped = move.kwh_per_month, move.cap_watts is not None
        share, mean_watts = 1 - move.joules_ratio, saved / HOURS_PER_MONTH * 1000
        if share < limits.value("saving_min") or mean_watts < limits.value("watts_min"):
            return None
        if group.kind == "unknown":  # whether users wait for it is unknown
            return Why.KIND_UNKNOWN
        price = fleet.book.power_of(group.nodes[0])
        in_window = fleet.hours_of(group) / HOURS_PER_MONTH
        trusted = _SURE_CLOCK if not capped else _SURE_SHOWN if move.shown else _SURE_ELSEWHERE
        return self.found(
            fleet, group,
            evidence=(
                ("power_at_work", move.watts_before, None, "watts per GPU"),
                ("power_after", move.watts_after, None, "watts per GPU"),
                ("energy_saved", share, "saving_min", "ratio of its energy"),
                ("energy_saved_per_month", saved, None, "kWh"),
                ("slowdown_expected", move.loss, "cap_loss_max" if capped else "clock_loss_max", "ratio"),
            ),
            gpu_hours=group.gpu_hours, cost=None if price is None else saved * price.usd_per_kwh * in_window,
            values={
                "power": watts(move.watts_before), "share": as_percent(share),
                "limit": f"a power cap of {move.cap_watts:.0f} W" if capped else "a lower SM clock",
            },
            sure=group.lead.bottleneck.confidence * trusted,
            after=f"Savings: {saved:,.0f} kWh/month, {worth_words(fleet.book, group, saved)}.",
            clock=move,
        )  # fmt: skip


def _move(fleet: Fleet, limits: WasteRule, group: Group) -> ClockMove | CodedText | None:
    memory, compute = group.busy_share("hbm-bandwidth"), group.busy_share("compute")
    least, use = limits.value("bound_share_min"), group.compute_p95
    if max(memory, compute) < least:
        return Why.BOTTLENECK_UNKNOWN if max(memory, compute) + group.busy_share("unknown") >= least else None
    if memory >= compute and use is not None and use >= limits.value("u_c_p95_max"):
        return None
    drawn = power_at_work(fleet.verdicts, group, fleet.hours_of(group))
    sku, model = fleet.gpu_of(group), load_power_model()
    if sku is None:
        return Why.GPU_UNKNOWN
    if drawn is None:
        return coded("power-not-measured", "what its GPUs draw at work was not measured")
    if memory >= compute:
        if use is None:
            return Why.COMPUTE_NOT_MEASURED
        return lower_clock(group.use, group.phase, drawn, model, most_loss=limits.value("clock_loss_max"))
    if (drawn.peak_watts or 0.0) < limits.value("power_share_min") * sku.tdp_watts:
        return None
    loss, loss_p90 = limits.value("cap_loss_max"), limits.value("cap_loss_p90_max")
    return best_cap(sku, replace(drawn, limit_watts=sku.tdp_watts), model, most_loss=loss, most_loss_p90=loss_p90)


def worth_words(book: PriceBook, group: Group, kilowatt_hours: float) -> str:
    """The dollar value of so much energy, with the price's source, or why there is none."""
    if (price := book.power_of(group.nodes[0])) is None:
        return "no dollar value: the price file sets no power price for on-premises nodes"
    value = kilowatt_hours * price.usd_per_kwh
    return f"{usd(value)} at the configured power price ({price.source}, {price.as_of})"
