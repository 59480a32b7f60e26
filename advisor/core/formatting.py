"""Figures in texts for people: every number with its unit, every dollar with its source and date."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from ...rules.base.sanitize import clean
from ...rules.catalog.types import NodeSku, Price
from .advice_types import Decision, Evidence, Interval, Recommendation, Reconciliation
from .timestamps import day
from .verdict_types import INFERRED, Latency, Owner, Scheduled, WorkloadVerdict

NONE = "-"
MARKET = "Other providers, for comparison only"
NO_MARKET = "No cheaper provider in the catalog."
# Codes of the notes on nodes without a price.
PRICE_NOTES = frozenset({"prices-missing", "prices-and-skus-missing"})
LISTED = 4  # names in one sentence; the rest is counted
MEASURES: Mapping[str, str] = {"first_token": "time to first token", "output_token": "time per token"}
_LATENCY_BASES = {"site": "set by the site", "measured": "measured from its engine", "kind": "default for its kind"}
_DATE = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-[0-9]{2}")
_GPU_FAMILY = re.compile(r"[A-Z]{1,2}[0-9]+[A-Z]?(?=-|$)")


def usd(value: float | None, per: str = "") -> str:
    """Dollars; cents only below 100."""
    if value is None or not math.isfinite(value):
        return "unknown"
    sign = "-" if value < 0 else ""
    return f"{sign}${abs(value):,.{2 if 0 < abs(value) < 100 else 0}f}{per}"


def hours(value: float | None, unit: str = "GPU-hours") -> str:
    if value is None or not math.isfinite(value):
        return "unknown"
    decimals = 3 if 0 < abs(value) < 1 else 1 if abs(value) < 100 else 0
    return f"{value:,.{decimals}f} {unit}".rstrip()


def bare_hours(value: float | None) -> str:
    """GPU-hours below a head with the unit."""
    return hours(value, "")


def figure(value: float | str | None) -> str:
    """A measured value to four digits, without an exponent."""
    if value is None or isinstance(value, str):
        return value or NONE
    if 0 < abs(value) < 1e-4:
        return f"{value:.6f}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"


def percent(value: float | None) -> str:
    """A ratio in whole percents."""
    return "unknown" if value is None or not math.isfinite(value) else f"{value * 100:.0f} %"


def seconds_words(seconds: float) -> str:
    """``48 ms``, ``4.8 ms`` or ``2.3 s``."""
    if seconds >= 0.9995:
        return f"{seconds:.1f} s"
    return f"{seconds * 1000:.{1 if seconds < 0.00995 else 0}f} ms"


def time_words(ratio: Interval | None) -> str:
    """A predicted time ratio: ``x1.20 (1.10 to 1.30), slower``."""
    if ratio is None:
        return NONE
    if abs(ratio.p50 - 1) < 0.005 and ratio.p90 - ratio.p10 < 0.05:
        return "same time (x1.00)"
    direction = "slower" if ratio.p50 > 1 else "faster"
    return f"x{ratio.p50:.2f} ({ratio.p10:.2f} to {ratio.p90:.2f}), {direction}"


def spread(interval: Interval | None) -> str:
    """`` ($1 to $2)``; empty where the ends are equal."""
    if interval is None or abs(interval.p90 - interval.p10) < 0.005 * max(abs(interval.p50), 1.0):
        return ""
    return f" ({usd(interval.p10)} to {usd(interval.p90)})"


def saving_words(saving: Interval | None, freed: float, realisation: str) -> str:
    """The gain of a recommendation: cash a month, or GPU-hours freed."""
    if saving is None:
        return f"{hours(freed)} a month, {realisation}" if freed > 0 else "no cash, no GPU-hours"
    if saving.p90 > 0:
        return f"{usd(saving.p50)} a month{spread(saving)}, {realisation}"
    return f"none: costs {usd(-saving.p50)} a month more" if saving.p50 < 0 else "nothing"


def energy_words(r: Recommendation) -> str:
    """The energy that a recommendation saves a month, with its interval where there is one."""
    kwh = r.energy_saving_kwh_per_month
    if kwh is None:
        return NONE
    apart = round(kwh.p10) != round(kwh.p90)
    return f"{kwh.p50:,.0f} kWh" + (f" ({kwh.p10:,.0f} to {kwh.p90:,.0f})" if apart else "")


def _basis(price: Price) -> str:
    return "list price" if price.basis == "list" else f"{clean(price.basis)} price"


def price_words(price: Price) -> str:
    """``$98.32 per node-hour at list price, 2026-09-19 (source)``; a team's price has its own basis."""
    at = "at " if price.basis == "list" else ""
    until = f", committed until {clean(price.committed_until)}" if price.committed_until else ""
    when = f"{clean(price.as_of)}{until}{', region assumed' if price.region_assumed else ''}"
    return f"{usd(price.usd_per_hour)} per node-hour {at}{_basis(price)}, {when} ({clean(price.source)})"


def dated(prices: Iterable[Price | None]) -> str:
    """``at list price, 2026-09-19``, for a sentence beside a list of the prices themselves."""
    bases: dict[str, None] = {}
    for p in filter(None, prices):
        assumed = f", region assumed ({clean(p.region)})" if p.region_assumed else ""
        bases[f"at {'' if p.basis == 'list' else 'the '}{_basis(p)}, {clean(p.as_of)}{assumed}"] = None
    return "; ".join(bases) or "no price known"


def price_note(prices: Iterable[Price]) -> str:
    """The prices behind the dollars of a text: ``list prices read July to September 2026``."""
    prices = list(prices)
    if not prices:
        return "no price known"
    dates = sorted({clean(p.as_of) for p in prices})
    days = [date.fromisoformat(text) for text in dates if _DATE.fullmatch(text)]
    when = [f"{days[-1]:%B %Y}"] if days else []
    if days and f"{days[0]:%B %Y}" != when[0]:
        when[0] = f"{days[0]:{'%B' if days[0].year == days[-1].year else '%B %Y'}} to {when[0]}"
    # A catalog read at a commit of its source has no date.
    when += [f"at {text}" for text in dates if not _DATE.fullmatch(text)]
    bases = ", ".join(sorted({_basis(p) for p in prices})) + ("s" if len(prices) > 1 else "")
    assumed = [p.region_assumed for p in prices]
    region = "" if not any(assumed) else ", region assumed" if all(assumed) else ", region assumed for some"
    return f"{bases} read {' and '.join(when)}{region}"


def cost(usd_known: float | None, gpu_hours: float, *, priced: bool) -> str:
    """One cell of a column of costs: dollars, else GPU-hours. `priced`: the head of the column has no unit."""
    if usd_known is not None:
        return usd(usd_known)
    return hours(gpu_hours) if priced else bare_hours(gpu_hours)


def counted(number: int, what: str) -> str:
    """``1 GPU``, ``8 GPUs``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def gpu_name(sku: str | None) -> str:
    """The short name of a GPU: ``H100`` of ``H100-SXM5``; names without such a family stay whole."""
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
    """``InfiniBand 3200 Gb/s``; the kind alone where the rate is unknown."""
    rate = node.fabric.bytes_per_second
    return f"{node.fabric.kind} {rate * 8 / 1e9:g} Gb/s" if rate is not None else node.fabric.kind


def owner_words(owner: Owner) -> str:
    """``team search, user ann``; empty where nothing is known."""
    names = (("team", owner.team), ("user", owner.user), ("account", owner.account), ("namespace", owner.namespace))
    return ", ".join(f"{what} {name}" for what, name in names if name)


def whose_words(w: WorkloadVerdict) -> str:
    """The owner of a workload; if unknown, whom to ask."""
    if w.basis == INFERRED:
        return f"owner unknown, inferred from activity; ask the users of {listed(w.nodes) or 'its nodes'}"
    return owner_words(w.owner) or "owner unknown"


def scheduled_words(s: Scheduled) -> str:
    """``Slurm job 1234 (array 1200_7), partition gpu, QOS normal, COMPLETED, requeued 2 times``, or ``Kubernetes
    Deployment, image vllm/vllm-openai:v0.11.0``; empty without details of a scheduler."""
    title = {"slurm": "Slurm", "kubernetes": "Kubernetes", "docker": "Docker"}.get(s.name)
    array = f" (array {s.array_job_id}_{s.array_task_id})" if s.array_job_id and s.array_task_id else ""
    job = f" job {s.job_id}{array}" if s.job_id and s.name == "slurm" else ""
    parts = [
        f"{title}{job}{f' {s.controller_kind}' if s.controller_kind else ''}",
        f"partition {s.partition}" if s.partition else "", f"QOS {s.qos}" if s.qos else "", s.state or "",
        f"requeued {counted(s.restarts, 'time')}" if s.restarts else "", f"image {s.image}" if s.image else "",
    ]  # fmt: skip
    words = ", ".join(filter(None, parts))
    return "" if title is None or words == title else words


def money_parts(r: Reconciliation) -> tuple[tuple[str, float], ...]:
    """Cost by use, named, without zeros; empty without prices."""
    parts = (
        ("workloads", r.workloads), ("shared", r.shared), ("allocated but idle", r.allocated_idle),
        ("unallocated", r.unallocated), ("drained", r.drained), ("not observed", r.unobserved),
    )  # fmt: skip
    return tuple((name, value) for name, value in parts if value)


def evidence_words(e: Evidence) -> str:
    """``util_p995 0.05 % (threshold 1 %)``."""
    words = f"{e.metric} {figure(e.value)} {e.unit}".rstrip()
    return words if e.threshold is None else f"{words} (threshold {f'{figure(e.threshold)} {e.unit}'.rstrip()})"


def clause(text: str) -> str:
    """A sentence as part of a longer one: no full stop, no capital unless it is an abbreviation or a name."""
    bare = text.strip().rstrip(".")
    return bare[:1].lower() + bare[1:] if bare[1:2].islower() or bare[1:2] == " " else bare


def latency_words(latency: Latency) -> str:
    """The class, its basis and the measured percentiles, in one line."""
    label = f"{latency.label}, {_LATENCY_BASES[latency.basis]}" if latency.label else "none, for it keeps none today"
    measured = []
    for name, figures in (("first_token", latency.first_token), ("output_token", latency.output_token)):
        if figures is not None and figures.p50 is not None:
            values = (("p50", figures.p50), ("p90", figures.p90), ("p99", figures.p99))
            percentiles = [f"{share} {seconds_words(value)}" for share, value in values if value is not None]
            measured.append(f"{MEASURES[name]} {', '.join(percentiles)}")
    if not measured:
        return f"{label}; not measured"
    busy = "1 busy hour" if latency.busy_hours == 1 else f"{latency.busy_hours:g} busy hours"
    return f"{label}; over {busy}: {'; '.join(measured)}"
