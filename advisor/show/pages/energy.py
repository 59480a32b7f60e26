"""Energy in words and tables: every figure with its unit and how it was measured, every dollar with its source."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....rules.base.sanitize import clean
from ...core import formatting as words
from ...core.advice_types import Advice
from ...core.energy_types import (
    Energy,
    FleetEnergy,
    NodeEnergy,
    PhaseEnergy,
    StatedFigure,
    WorkloadEnergy,
    figures_of,
    tokens_of,
)
from ...core.verdict_types import WorkloadVerdict
from ..coverage import share_words
from ..document import AsideBlock, Section, Table, section
from ..titles import runs_words

APART = "The cost of power is not included in any other sum: the price of a rented node includes its power."
_LIMITS = (
    "Limits: the sum of the power limits of a node's GPUs, without the rest of the node. The 95th percentile "
    "covers intervals of up to an hour in which every GPU of the node was measured."
)
_NOT_SET = "{}: not configured. Set {} in [energy] of skuwise.toml."
_UNITS = {"usd_per_kwh": "per kWh", "co2_grams_per_kwh": "g of CO2 per kWh"}
_USES = ("workloads", "shared", "allocated_idle", "unallocated", "drained")
_PHASES = {"inference": "inference, phase unknown", "not-told": "phase unknown"}


def energy_section(advice: Advice, team: str | None = None) -> Section:
    """The energy of a fleet, or of a `team` without uses, owners and nodes; empty where it is unknown."""
    e = advice.summary.energy
    if e is None:
        return section("Energy")
    owners = [(owner.owner or "unknown owner", owner) for owner in e.owners]
    nodes = sorted(advice.node_energy, key=lambda n: (-(_load(n) or 0.0), n.node))
    is_fleet, is_owned = team is None, any(owner.owner for owner in e.owners)
    return section(
        "Energy", drawn_words(e, "the GPUs" if is_fleet else "the team's workloads"), idle_words(e), token_words(e),
        *money_words(e), _uses(e) if is_fleet else None,
        _table("phase", _PHASE, [(_PHASES.get(p.phase, p.phase), p) for p in e.phases]),
        _table("owner", _OWNER, owners) if is_fleet and is_owned else None,
        _table("workload", _WORKLOAD, _workloads(advice)),
        _table("node", _NODE, [(n.node, n) for n in nodes]) if is_fleet else None,
        AsideBlock(_LIMITS) if is_fleet and any(n.rated_watts for n in nodes) else None,
    )  # fmt: skip


_COLUMNS: Mapping[str, Callable[[Any], str]] = {
    "GPU-hours": lambda e: words.bare_hours(e.gpu_hours if isinstance(e, PhaseEnergy) else e.measured_gpu_hours),
    "kWh": lambda e: kwh(e.kwh, ""), "at rest": lambda e: kwh(e.idle_kwh, ""), "spend": lambda e: words.usd(e.cost_usd),
    "kWh per GPU-hour": lambda e: small(_ratio(e.kwh, e.measured_gpu_hours)),
    "kWh per busy GPU-hour": lambda e: small(e.kwh_per_busy_gpu_hour),
    "J per token": lambda e: small(e.joules_per_token),
    "tokens/s per W": lambda e: small(_ratio(1.0, e.joules_per_token)), "power cost": lambda e: words.usd(e.usd),
    "kg CO2": lambda e: kwh(e.co2_kg, ""), "mean W": lambda e: watts(e.mean_watts, ""),
    "95th percentile W": lambda e: watts(e.p95_watts, ""), "limits W": lambda e: watts(e.rated_watts, ""),
    "of the limits": lambda e: words.percent(_load(e)),
}  # fmt: skip
_TOKENS = ("J per token", "tokens/s per W", "power cost", "kg CO2")
_PHASE = ("GPU-hours", "kWh", "spend", "power cost", "kg CO2")
_WORKLOAD = ("kWh", "at rest", "kWh per busy GPU-hour", *_TOKENS)
_OWNER = ("GPU-hours", "kWh", "at rest", "kWh per GPU-hour", *_TOKENS)
_NODE = ("kWh", "at rest", "mean W", "95th percentile W", "limits W", "of the limits")


def _table(first: str, heads: Sequence[str], records: Sequence[tuple[str, object]]) -> Table:
    columns = {head: [_COLUMNS[head](record) for _, record in records] for head in heads}
    columns = {head: cells for head, cells in columns.items() if not {*cells} <= {"unknown", words.NONE}}
    rows = tuple(zip((name for name, _ in records), *columns.values(), strict=True))
    return Table((first, *columns), rows, tuple(range(1, 1 + len(columns))))


def _uses(e: FleetEnergy) -> Table | None:
    u = e.by_use
    if u is None or u["total"] <= 0:
        return None
    parts = {name.replace("_", " but "): u[name] for name in _USES}
    rows = [(name, kwh(value, ""), words.percent(value / u["total"])) for name, value in parts.items() if value]
    rows.append(("total", kwh(u["total"], ""), ""))
    if u["unobserved_gpu_hours"] > 0:
        rows.append(("not observed", "unknown", words.hours(u["unobserved_gpu_hours"])))
    return Table(("energy breakdown", "kWh", "share"), tuple(rows), (1, 2))


def _workloads(advice: Advice) -> list[tuple[str, WorkloadEnergy]]:
    runs: dict[tuple[str, str], list[WorkloadVerdict]] = {}
    for w in advice.workloads:
        if w.energy is not None:
            runs.setdefault((w.series_id, w.name), []).append(w)
    sums = []
    for (_, name), same in runs.items():
        parts = [w.energy for w in same if w.energy is not None]
        hours = sum(p.busy_gpu_hours for p in parts)
        busy = sum((p.kwh_per_busy_gpu_hour or 0.0) * p.busy_gpu_hours for p in parts)
        per_hour, joules = _ratio(busy, hours), tokens_of(parts)["joules_per_token"]
        energy = WorkloadEnergy(**figures_of(parts), kwh_per_busy_gpu_hour=per_hour, joules_per_token=joules)
        sums.append((f"{name}{runs_words(same)}", energy))
    return sorted(sums, key=lambda named: (-(named[1].kwh or 0.0), named[0]))


def _ratio(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


def kwh(value: float | None, unit: str = " kWh") -> str:
    """``1,234 kWh``; ``unknown`` where nothing was measured."""
    if value is None or not math.isfinite(value):
        return "unknown"
    digits = 0 if abs(value) >= 100 or value == 0 else 1 if abs(value) >= 1 else 2
    return f"{value:,.{digits}f}{unit}"


def watts(value: float | None, unit: str = " W") -> str:
    return "unknown" if value is None else f"{value:,.0f}{unit}"


def small(value: float | None) -> str:
    """A figure to three digits; a dash where it is unknown."""
    return words.NONE if value is None else f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def _measured(e: Energy) -> str:
    share = (e.counted_kwh or 0.0) / (e.kwh or 1.0)
    how = {
        "counter": "by the GPUs' energy counters",
        "power": "power times time (no energy counter available)",
        "both": f"{words.percent(share)} by the GPUs' energy counters, the rest power times time",
    }.get(e.basis or "", "not measured")
    hours = e.measured_gpu_hours + e.unmeasured_gpu_hours
    if e.unmeasured_gpu_hours < 0.0005 * hours:
        return how
    return f"{how}; measured in {share_words(e.measured_gpu_hours / hours)} of {words.hours(hours)}"


def drawn_words(e: Energy, whose: str) -> str:
    """How much was drawn, how it was measured, and what is not included."""
    if e.kwh is None:
        return f"Energy of {whose}: unknown. No energy counter and no power reading is available."
    rest = "Fans, CPUs, power supplies and cooling are not included."
    return f"{whose[:1].upper()}{whose[1:]} drew {kwh(e.kwh)}, {_measured(e)}. {rest}"


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
    rate = f"{small(_ratio(1.0, e.joules_per_token))} tokens per second per watt"
    tokens = f"{e.generated_tokens:,.0f} tokens of the hours in which both were measured"
    return f"{small(e.joules_per_token)} J per generated token, {rate}, over {tokens}."


def money_words(e: FleetEnergy) -> tuple[str, ...]:
    """The cost and CO2 by the site's figures, each with its source; or what to configure. Some may be empty."""
    if e.kwh is None:
        return ()
    names = {figure.name for figure in e.figures}
    if not names & _UNITS.keys():
        return (_NOT_SET.format("Cost and CO2 of energy", "usd_per_kwh and co2_grams_per_kwh"),)
    figures = "; ".join(map(_stated, e.figures))
    return (
        f"{' and '.join(parts)}, by the site's figures: {figures}." if (parts := _amounts(e)) else "",
        "" if "pue" in names else "No PUE is set: cooling and losses are not included.",
        "" if "usd_per_kwh" in names else _NOT_SET.format("Cost of energy", "usd_per_kwh"),
        "" if "co2_grams_per_kwh" in names else _NOT_SET.format("CO2 of energy", "co2_grams_per_kwh"),
        APART if e.usd is not None else "",
    )


def _amounts(e: Energy) -> list[str]:
    co2 = [f"{kwh(e.co2_kg, ' kg')} of CO2"] if e.co2_kg is not None else []
    return co2 if e.usd is None else [f"{words.usd(e.usd)} of power", *co2]


def _stated(f: StatedFigure) -> str:
    sign = "$" if f.name == "usd_per_kwh" else ""
    values = [f.value] if f.value is not None else [min(f.by_hour_utc), max(f.by_hour_utc)]
    value = " to ".join(f"{sign}{number:,.4g}" for number in values)
    value = f"PUE {value}" if f.name == "pue" else f"{value} {_UNITS[f.name]}"
    hourly = "" if f.value is not None else " by the hour, UTC"
    region = f" in {clean(f.region)}" if f.region else ""
    return f"{value}{hourly}{region}, {clean(f.as_of)} ({clean(f.source)})"


def node_words(e: NodeEnergy) -> str:
    """The energy of a node in one line, and its power against the limits of its GPUs."""
    if e.kwh is None:
        return "energy not measured"
    share = f", {words.percent(_load(e))} of {watts(e.rated_watts)}" if _load(e) is not None else ""
    power = f"GPUs together {watts(e.mean_watts)}, 95th percentile {watts(e.p95_watts)}{share}"
    return f"{kwh(e.kwh)}, {_measured(e)}{f'; {power}' if e.mean_watts is not None else ''}"


def _load(e: NodeEnergy) -> float | None:
    return _ratio(e.p95_watts, e.rated_watts)
