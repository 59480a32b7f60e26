"""Energy spent on a clock that the work does not need: memory-bound serving, and compute that a cap slows little."""

from __future__ import annotations

from ....rules.models.power_model import load_power_model
from ....rules.policy.thresholds import WasteRule
from ...core.advice_types import Evidence
from ...core.formatting import usd
from ..finding_context import ClockChange, FindingContext
from ..groups import HOURS_PER_MONTH, Group
from ..predict.clock_model import Draw, best_cap, lower_clock, power_at_work
from ..prediction import Refusal
from ..pricing import PriceBook
from ..rule_context import (
    RuleContext,
    RuleDescription,
    RuleResult,
    as_percent,
    busy_share,
    finding_of,
    measured_percentile,
    watts,
)

# How far a change is trusted: by measured runs of the same architecture, by those of others, and clocks by one
# published point of power against clock.
_SURE_SHOWN, _SURE_ELSEWHERE, _SURE_CLOCK = 0.9, 0.7, 0.7


def energy(scope: RuleContext, rule: WasteRule) -> RuleResult:
    """Groups that would do the same work, nearly as fast, for less energy."""
    found: list[FindingContext] = []
    for group in scope.judged:
        if not group.current or group.observed_hours < rule.value("coverage_hours"):
            continue
        change = _change(scope, rule, group)
        if change is None or 1 - change.move.joules_ratio < rule.value("saving_min"):
            continue
        if change.joules_per_month / (HOURS_PER_MONTH * 3600) >= rule.value("watts_min"):
            found.append(_finding(scope, rule, group, change))
    return found, []


def _change(scope: RuleContext, rule: WasteRule, group: Group) -> ClockChange | None:
    memory, compute = busy_share(group, "hbm-bandwidth"), busy_share(group, "compute")
    if max(memory, compute) < rule.value("bound_share_min"):
        return None
    drawn = power_at_work(scope.verdicts, group)
    sku = scope.book.catalog.gpu(group.lead.gpu_sku) if group.lead.gpu_sku else None
    if sku is None or drawn is None:
        return None
    model = load_power_model()
    if memory >= compute:
        use = group.feature("tensor_of_sustained_p95") or measured_percentile(group.use.u_c, 95)
        if use is None or use >= rule.value("u_c_p95_max"):
            return None
        move = lower_clock(
            group.use, group.phase, watts=drawn.watts, idle_watts=drawn.idle_watts, model=model,
            most_loss=rule.value("clock_loss_max"),
        )  # fmt: skip
        return None if isinstance(move, Refusal) else ClockChange(move, None, drawn.hours_per_month)
    if drawn.peak_watts < rule.value("power_share_min") * sku.tdp_watts:
        return None
    found = best_cap(
        sku, Draw(drawn.watts, drawn.idle_watts, sku.tdp_watts, drawn.peak_watts), model,
        most_loss=rule.value("cap_loss_max"), most_loss_p90=rule.value("cap_loss_p90_max"),
    )  # fmt: skip
    return None if isinstance(found, Refusal) else ClockChange(*found, drawn.hours_per_month)


def _finding(scope: RuleContext, rule: WasteRule, group: Group, change: ClockChange) -> FindingContext:
    move = change.move
    saved = change.kwh_per_month
    way = "a lower SM clock" if change.cap_watts is None else f"a power cap of {change.cap_watts:.0f} W"
    finding = finding_of(
        scope, rule, group,
        evidence=(
            Evidence("power_at_work", move.watts_before, None, "watts per GPU"),
            Evidence("power_after", move.watts_after, None, "watts per GPU"),
            Evidence("energy_saved", 1 - move.joules_ratio, rule.value("saving_min"), "ratio of its energy"),
            Evidence("energy_saved_per_month", saved, None, "kWh"),
            Evidence(
                "slowdown_expected", move.loss,
                rule.value("clock_loss_max" if change.cap_watts is None else "cap_loss_max"), "ratio",
            ),
        ),
        gpu_hours=group.gpu_hours,
        cost=_spent(scope, group, change),
        values={"power": watts(move.watts_before), "limit": way, "share": as_percent(1 - move.joules_ratio)},
        sure=group.lead.bottleneck.confidence * (
            _SURE_CLOCK if change.cap_watts is None else _SURE_SHOWN if change.move.shown else _SURE_ELSEWHERE
        ),
        after=f"Savings: {saved:,.0f} kWh/month, {worth_words(scope.book, group, saved)}.",
    )  # fmt: skip
    return FindingContext(finding, group, group.nodes, clock=change)


def worth_words(book: PriceBook, group: Group, kilowatt_hours: float) -> str:
    """The dollar value of so much energy, with the price's source, or why there is none."""
    price = book.power_of(group.nodes[0])
    if price is None:
        return "no dollar value: the price file sets no power price for on-premises nodes"
    value = kilowatt_hours * price.usd_per_kwh
    return f"{usd(value)} at the configured power price ({price.source}, {price.as_of})"


def _spent(scope: RuleContext, group: Group, change: ClockChange) -> float | None:
    """What the energy that was not needed cost in the window; None: no price of power."""
    price = scope.book.power_of(group.nodes[0])
    if price is None:
        return None
    month = change.kwh_per_month * price.usd_per_kwh
    return month * scope.verdicts.window.hours / HOURS_PER_MONTH


RULE = RuleDescription(
    id="energy",
    rank=10,
    fact="clock higher than the work needs",
    judge=energy,
    answered_by={"lower-clock": 1, "power-cap": 1},
    waste="none",
)
