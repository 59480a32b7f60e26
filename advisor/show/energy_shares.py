"""Energy in words: every figure with its unit and how it was measured, every dollar with its source and date."""

from __future__ import annotations

import math

from ...rules.base.sanitize import clean
from ..core import formatting as words
from ..core.energy_types import Energy, FleetEnergy, NodeEnergy, StatedFigure, WorkloadEnergy

_NOT_SET = "{}: not configured. Set {} in [energy] of skuwise.toml."
APART = "The cost of power is not included in any other sum: the price of a rented node includes its power."
_UNITS = {"usd_per_kwh": "per kWh", "co2_grams_per_kwh": "g of CO2 per kWh"}


def kwh(value: float | None, unit: str = " kWh") -> str:
    """``1,234 kWh``; ``unknown`` where nothing was measured."""
    if value is None or not math.isfinite(value):
        return "unknown"
    digits = 0 if abs(value) >= 100 or value == 0 else 1 if abs(value) >= 1 else 2
    return f"{value:,.{digits}f}{unit}"


def kg(value: float | None, unit: str = " kg") -> str:
    return kwh(value, unit)


def watts(value: float | None, unit: str = " W") -> str:
    return "unknown" if value is None else f"{value:,.0f}{unit}"


def small(value: float | None) -> str:
    """A figure to three digits; a dash where it is unknown."""
    return words.NONE if value is None else f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _measured_by(e: Energy) -> str:
    share = (e.counted_kwh or 0.0) / (e.kwh or 1.0) * 100
    return {
        "counter": "by the GPUs' energy counters",
        "power": "power times time (no energy counter available)",
        "both": f"{share:.0f} % by the GPUs' energy counters, the rest power times time",
    }.get(e.basis or "", "not measured")


def _coverage(e: Energy) -> str:
    """In how many of the GPU-hours it was measured; empty where in all."""
    hours = e.measured_gpu_hours + e.unmeasured_gpu_hours
    if e.unmeasured_gpu_hours < 0.0005 * hours:
        return ""
    share = e.measured_gpu_hours / hours
    measured = f"{min(share * 100, 99.9):.1f} %" if share > 0.99 else words.percent(share)
    return f"measured in {measured} of {words.hours(hours)}"


def drawn_words(e: Energy, whose: str) -> str:
    """How much was drawn, how it was measured, and what is not included."""
    if e.kwh is None:
        return f"Energy of {whose}: unknown. No energy counter and no power reading is available."
    measured = "; ".join(filter(None, (_measured_by(e), _coverage(e))))
    return (
        f"{whose[:1].upper()}{whose[1:]} drew {kwh(e.kwh)}, {measured}. Fans, CPUs, power supplies and cooling are not "
        "included."
    )


def idle_words(e: FleetEnergy) -> str:
    """The energy drawn at rest; empty where nothing was measured."""
    if not e.kwh or e.idle_kwh is None:
        return ""
    rest = f"At rest: {kwh(e.idle_kwh)} ({words.percent(e.idle_kwh / e.kwh)})"
    if e.idle_free_kwh is None:
        return f"{rest}, while its workloads held the GPUs."
    return f"{rest}: {kwh(e.idle_held_kwh)} on held GPUs, {kwh(e.idle_free_kwh)} on free GPUs."


def token_words(e: FleetEnergy) -> str:
    """Joules per token; empty where no engine reports tokens."""
    if e.joules_per_token is None or e.generated_tokens is None:
        return ""
    per_watt = f", {small(1 / e.joules_per_token)} tokens per second per watt" if e.joules_per_token > 0 else ""
    over = f"{e.generated_tokens:,.0f} tokens of the hours in which both were measured"
    return f"{small(e.joules_per_token)} J per generated token{per_watt}, over {over}."


def money_words(e: FleetEnergy) -> tuple[str, ...]:
    """The cost and CO2 by the site's figures, each with its source; or what to configure."""
    if e.kwh is None:
        return ()
    names = {figure.name for figure in e.figures}
    if not names & _UNITS.keys():
        return (_NOT_SET.format("Cost and CO2 of energy", "usd_per_kwh and co2_grams_per_kwh"),)
    parts = [f"{words.usd(e.usd)} of power"] if e.usd is not None else []
    parts += [f"{kg(e.co2_kg)} of CO2"] if e.co2_kg is not None else []
    sentences = (
        f"{' and '.join(parts)}, by the site's figures: {'; '.join(map(figure_words, e.figures))}." if parts else "",
        "" if "pue" in names else "No PUE is set: cooling and losses are not included.",
        "" if "usd_per_kwh" in names else _NOT_SET.format("Cost of energy", "usd_per_kwh"),
        "" if "co2_grams_per_kwh" in names else _NOT_SET.format("CO2 of energy", "co2_grams_per_kwh"),
        APART if e.usd is not None else "",
    )
    return tuple(filter(None, sentences))


def figure_words(f: StatedFigure) -> str:
    """``$0.085 per kWh, 2026-11-01 (utility bill, October)``; of hourly figures the lowest and highest."""
    sign = "$" if f.name == "usd_per_kwh" else ""
    values = [f.value] if f.value is not None else [min(f.by_hour_utc), max(f.by_hour_utc)]
    value = " to ".join(f"{sign}{number:,.4g}" for number in values)
    value = f"PUE {value}" if f.name == "pue" else f"{value} {_UNITS[f.name]}"
    hourly = "" if f.value is not None else " by the hour, UTC"
    region = f" in {clean(f.region)}" if f.region else ""
    return f"{value}{hourly}{region}, {clean(f.as_of)} ({clean(f.source)})"


def workload_words(e: WorkloadEnergy) -> str:
    """The energy of a workload in one line."""
    if e.kwh is None:
        return "Energy: not measured."
    parts = [f"Energy: {kwh(e.kwh)}, {_measured_by(e)}", _coverage(e)]
    parts.append(f"{kwh(e.idle_kwh)} at rest" if e.idle_kwh else "")
    if e.joules_per_token is not None and e.tokens_per_second_per_watt is not None:
        parts.append(f"{small(e.joules_per_token)} J per generated token")
        parts.append(f"{small(e.tokens_per_second_per_watt)} tokens per second per watt")
    elif e.kwh_per_busy_gpu_hour is not None:
        parts.append(f"{small(e.kwh_per_busy_gpu_hour)} kWh per busy GPU-hour")
    parts.append(f"{words.usd(e.usd)} of power" if e.usd is not None else "")
    parts.append(f"{kg(e.co2_kg)} of CO2" if e.co2_kg is not None else "")
    return f"{'; '.join(filter(None, parts))}."


def node_words(e: NodeEnergy) -> str:
    """The energy of a node in one line, and its power against the limits of its GPUs."""
    if e.kwh is None:
        return "energy not measured"
    by = {"counter": "by counter", "power": "power x time", "both": "counter and power x time"}
    energy = f"{kwh(e.kwh)}, {by.get(e.basis or '', 'not measured')}"
    if e.mean_watts is None:
        return energy
    load = load_of(e)
    share = f", {words.percent(load)} of {watts(e.rated_watts)}" if load is not None else ""
    return f"{energy}; GPUs together {watts(e.mean_watts)}, 95th percentile {watts(e.p95_watts)}{share}"


def load_of(e: NodeEnergy) -> float | None:
    """The 95th percentile of a node's GPU power over their limits; None: unknown."""
    return e.p95_watts / e.rated_watts if e.p95_watts is not None and e.rated_watts else None
