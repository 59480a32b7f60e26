"""How figures are written for people: every number with its unit, every dollar with its source and date."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from ...rules.base.sanitize import clean
from ...rules.catalog.types import NodeSku, Price
from .advice_types import Decision, Evidence, Interval, Recommendation, Reconciliation, Summary
from .timestamps import day
from .verdict_types import INFERRED, Latency, LatencyFigures, Owner, Scheduled, WorkloadVerdict

NONE = "-"
MARKET = "Other providers, for comparison only"
NO_MARKET = "No cheaper provider in the catalog."
# Codes of the notes that say which nodes have no price, and what to write to get dollars.
PRICE_NOTES = frozenset({"prices-missing", "prices-and-skus-missing"})
_DATE = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-[0-9]{2}")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
LISTED = 4  # names in one sentence; the rest is counted


def usd(value: float | None, per: str = "") -> str:
    """Dollars; cents only below 100."""
    if value is None or not math.isfinite(value):
        return "unknown"
    sign = "-" if value < 0 else ""
    return f"{sign}${abs(value):,.2f}{per}" if 0 < abs(value) < 100 else f"{sign}${abs(value):,.0f}{per}"


def hours(value: float | None, unit: str = "GPU-hours") -> str:
    if value is None or not math.isfinite(value):
        return "unknown"
    if 0 < abs(value) < 1:
        return f"{value:.3f} {unit}"
    return f"{value:,.1f} {unit}" if abs(value) < 100 else f"{value:,.0f} {unit}"


def bare_hours(value: float | None) -> str:
    """GPU-hours where the unit stands above."""
    return hours(value, "").strip()


def figure(value: float | str | None) -> str:
    """A measured value, to four digits, never in powers of ten: what is tiny is written out."""
    if value is None or isinstance(value, str):
        return value or NONE
    if 0 < abs(value) < 1e-4:
        return f"{value:.6f}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"


def percent(value: float | None) -> str:
    """Whole percents: what it says is an estimate."""
    return "unknown" if value is None or not math.isfinite(value) else f"{value * 100:.0f} %"


def time_words(ratio: Interval | None) -> str:
    """A predicted time ratio, as a person would read it."""
    if ratio is None:
        return NONE
    spread = f"x{ratio.p50:.2f} ({ratio.p10:.2f} to {ratio.p90:.2f})"
    if abs(ratio.p50 - 1) < 0.005 and ratio.p90 - ratio.p10 < 0.05:
        return "same time (x1.00)"
    return f"{spread}, {'slower' if ratio.p50 > 1 else 'faster'}"


def saving_words(saving: Interval | None, freed: float, realisation: str) -> str:
    """What a recommendation brings: cash a month, or GPU-hours freed."""
    if saving is not None:
        if saving.p90 <= 0:
            return f"none: costs {usd(-saving.p50)} a month more" if saving.p50 < 0 else "nothing"
        return f"{usd(saving.p50)} a month{spread(saving)}, {realisation}"
    return f"{hours(freed)} a month, {realisation}" if freed > 0 else "no cash, no GPU-hours"


def energy_words(r: Recommendation) -> str:
    """Energy a month that a recommendation saves, with its interval where there is one."""
    kwh = r.energy_saving_kwh_per_month
    if kwh is None:
        return NONE
    apart = round(kwh.p10) != round(kwh.p90)
    return f"{kwh.p50:,.0f} kWh" + (f" ({kwh.p10:,.0f} to {kwh.p90:,.0f})" if apart else "")


def _basis(price: Price) -> str:
    return "list price" if price.basis == "list" else f"{clean(price.basis)} price"


def price_words(price: Price) -> str:
    """``$98.32 per node-hour at list price, 2026-09-19 (source)``; a team's price says its own basis."""
    basis = f"at {_basis(price)}" if price.basis == "list" else _basis(price)
    until = f", committed until {clean(price.committed_until)}" if price.committed_until else ""
    assumed = ", region assumed" if price.region_assumed else ""
    when = f"{clean(price.as_of)}{until}{assumed}"
    return f"{usd(price.usd_per_hour)} per node-hour {basis}, {when} ({clean(price.source)})"


def dated(prices: Iterable[Price | None]) -> str:
    """``at list price, 2026-09-19``, for a sentence; the price itself, with its source, is listed beside it."""
    told: dict[str, None] = {}
    for p in prices:
        if p is not None:
            assumed = f", region assumed ({clean(p.region)})" if p.region_assumed else ""
            told[f"at {'' if p.basis == 'list' else 'the '}{_basis(p)}, {clean(p.as_of)}{assumed}"] = None
    return "; ".join(told) or "no price known"


def price_note(prices: Iterable[Price]) -> str:
    """The prices behind the dollars of a text: ``list prices read July to September 2026``."""
    known = list(prices)
    if not known:
        return "no price known"
    bases = sorted({_basis(p) for p in known})
    dates = sorted({clean(p.as_of) for p in known})
    months = [date for date in dates if _DATE.fullmatch(date)]
    when = [_months(months[0], months[-1])] if months else []
    # A catalog read at a commit of its source has no date.
    when += [date for date in dates if date not in months]
    assumed = [p.region_assumed for p in known]
    region = "" if not any(assumed) else ", region assumed" if all(assumed) else ", region assumed for some"
    return f"{', '.join(bases)}{'s' if len(known) > 1 else ''} read {' and '.join(when)}{region}"


def _months(first: str, last: str) -> str:
    """``July to September 2026`` from two ISO dates."""
    (year, month), (last_year, last_month) = ((date[:4], _MONTHS[int(date[5:7]) - 1]) for date in (first, last))
    if (year, month) == (last_year, last_month):
        return f"{month} {year}"
    return f"{month}{'' if year == last_year else f' {year}'} to {last_month} {last_year}"


def has_prices(summary: Summary) -> bool:
    """Whether any dollar is stated; else its costs are told in GPU-hours."""
    return summary.cost_usd is not None


def cost(usd_known: float | None, gpu_hours: float, priced: bool) -> str:
    """One cell of a column of costs: dollars; GPU-hours where no price is known, with their unit unless the column has
    it in its head (not `priced`)."""
    if usd_known is not None:
        return usd(usd_known)
    return hours(gpu_hours) if priced else hours(gpu_hours, "").rstrip()


def counted(number: int, what: str) -> str:
    """``1 GPU``, ``8 GPUs``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


_GPU_FAMILY = re.compile(r"[A-Z]{1,2}[0-9]+[A-Z]?(?=-|$)")


def gpu_name(sku: str | None) -> str:
    """What people call a GPU in a title: ``H100`` of ``H100-SXM5``; names without such a family stay whole."""
    if sku is None:
        return "GPU"
    family = _GPU_FAMILY.match(sku)
    return family.group() if family else sku


def gpus(count: int, sku: str | None, adjective: str = "") -> str:
    """``8 H100s``, ``1 idle L4``."""
    return counted(count, f"{adjective} {gpu_name(sku)}".strip())


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b, c and 5 more``."""
    if len(names) > LISTED:
        return f"{', '.join(names[: LISTED - 1])} and {len(names) - LISTED + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def decision_words(decision: Decision) -> str:
    """``dismissed by ann on 2026-11-02: a warm standby``."""
    until = f" until {day(decision.until)}" if decision.until is not None else ""
    by = f" by {decision.by}" if decision.by else ""
    why = f": {decision.why}" if decision.why else ""
    return f"{decision.state}{until}{by} on {day(decision.since)}{why}"


def fabric_words(node: NodeSku) -> str:
    """``InfiniBand 3200 Gb/s``; the kind alone where the rate is not known."""
    rate = node.fabric.bytes_per_second
    return f"{node.fabric.kind} {rate * 8 / 1e9:g} Gb/s" if rate is not None else node.fabric.kind


def owner_words(owner: Owner) -> str:
    """``team search, user ann``; empty where nothing is known."""
    known = (("team", owner.team), ("user", owner.user), ("account", owner.account), ("namespace", owner.namespace))
    return ", ".join(f"{what} {value}" for what, value in known if value)


def whose_words(w: WorkloadVerdict) -> str:
    """Whose work it is; of work that nobody is named for, whom to ask."""
    if w.basis == INFERRED:
        return f"owner unknown, inferred from activity; ask the users of {listed(w.nodes) or 'its nodes'}"
    return owner_words(w.owner) or "owner unknown"


def scheduled_words(s: Scheduled) -> str:
    """``Slurm job 1234 (array 1200_7), partition gpu, QOS normal, COMPLETED, requeued 2 times``, or ``Kubernetes
    Deployment, image vllm/vllm-openai:v0.11.0``; empty where no scheduler told anything."""
    title = {"slurm": "Slurm", "kubernetes": "Kubernetes", "docker": "Docker"}.get(s.name)
    if title is None:
        return ""
    array = f" (array {s.array_job_id}_{s.array_task_id})" if s.array_job_id and s.array_task_id else ""
    job = f" job {s.job_id}{array}" if s.job_id and s.name == "slurm" else ""
    parts = (
        f"{title}{job}{f' {s.controller_kind}' if s.controller_kind else ''}",
        f"partition {s.partition}" if s.partition else "", f"QOS {s.qos}" if s.qos else "", s.state or "",
        f"requeued {counted(s.restarts, 'time')}" if s.restarts else "", f"image {s.image}" if s.image else "",
    )  # fmt: skip
    told = ", ".join(part for part in parts if part)
    return "" if told == title else told


def money_parts(r: Reconciliation) -> tuple[tuple[str, float], ...]:
    """Where the money went, named; parts of nothing are left out. Empty: no price is known."""
    parts = (
        ("workloads", r.workloads), ("shared", r.shared), ("allocated but idle", r.allocated_idle),
        ("unallocated", r.unallocated), ("drained", r.drained), ("not observed", r.unobserved),
    )  # fmt: skip
    return tuple((name, value) for name, value in parts if value)


def evidence_words(e: Evidence) -> str:
    """``util_p995 0.05 % (threshold 1 %)``."""
    told = f"{e.metric} {figure(e.value)} {e.unit}".rstrip()
    return told if e.threshold is None else told + f" (threshold {figure(e.threshold)} {e.unit}".rstrip() + ")"


def clause(text: str) -> str:
    """A sentence made part of a longer one: no full stop, no capital unless it is an abbreviation or a name."""
    bare = text.strip().rstrip(".")
    return bare[:1].lower() + bare[1:] if bare[1:2].islower() or bare[1:2] == " " else bare


def spread(interval: Interval | None) -> str:
    """`` ($1 to $2)``; nothing where there is no spread to tell."""
    if interval is None or abs(interval.p90 - interval.p10) < 0.005 * max(abs(interval.p50), 1.0):
        return ""
    return f" ({usd(interval.p10)} to {usd(interval.p90)})"


# What is limited or measured, as people call it.
MEASURES: Mapping[str, str] = {"first_token": "time to first token", "output_token": "time per token"}
_BASES: Mapping[str, str] = {
    "site": "set by the site",
    "measured": "measured from its engine",
    "kind": "default for its kind",
}


def seconds_words(seconds: float) -> str:
    """``48 ms``, ``4.8 ms`` or ``2.3 s``."""
    if seconds >= 0.9995:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.00995 else f"{seconds * 1000:.0f} ms"


def latency_words(latency: Latency) -> str:
    """The class, where it comes from and what was measured, in one line."""
    measured = [
        f"{MEASURES[name]} {_figures(figures)}"
        for name, figures in (("first_token", latency.first_token), ("output_token", latency.output_token))
        if figures is not None and figures.p50 is not None
    ]
    label = f"{latency.label}, {_BASES[latency.basis]}" if latency.label else "none, for it keeps none today"
    if not measured:
        return f"{label}; not measured"
    hours = "1 busy hour" if latency.busy_hours == 1 else f"{latency.busy_hours:g} busy hours"
    return f"{label}; over {hours}: {'; '.join(measured)}"


def _figures(figures: LatencyFigures) -> str:
    told = (("p50", figures.p50), ("p90", figures.p90), ("p99", figures.p99))
    return ", ".join(f"{name} {seconds_words(value)}" for name, value in told if value is not None)
