"""Energy spent on a clock that the work does not need: memory-bound serving, and compute that a cap slows little."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ....rules.models import load_power_model
from ....rules.policy.thresholds import WasteRule
from ...core.coded_text import CodedText, coded
from ...core.formatting import usd
from ...core.worth import HOURS_PER_MONTH
from ..fleet import Fleet, as_percent, watts
from ..groups import Group
from ..predict.clock_model import ClockMove, best_cap, lower_clock, power_at_work
from ..pricing import PriceBook
from ..rule import Verdict, Why, WorkloadRule

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
