"""Incidents in the words of a subject, a table's cell or one line. All names are cleaned and cut here."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from ....agent.base.safe_text import clean_text
from ...core.advice_types import Severity
from ...core.formatting import LISTED, counted, hours, usd
from ...core.incident_types import Incident, Resolution, Subject
from ...core.timestamps import span

# opened, reminded, resolved: as the event. over: opened and ended before anybody was informed.
ItemKind = Literal["opened", "reminded", "resolved", "over"]
BRAND = "[skuwise]"
SUBJECT_MAX = 150
_NAME_MAX = 40
PREFIXES: dict[ItemKind, str] = {"opened": "", "reminded": "Reminder: ", "resolved": "Resolved: ", "over": "Ended: "}
RESOLUTIONS: dict[Resolution, str] = {
    "works-again": "works again", "released": "GPUs released", "data-back": "data available again",
    "cleared": "no longer detected",
}  # fmt: skip
KINDS = {
    "held-idle": "GPUs held idle", "stopped": "work stopped", "telemetry-dead": "no telemetry",
    "fault-clock": "clock limited by a fault", "fabric-silent": "no fabric traffic",
}  # fmt: skip
_SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low")


@dataclass(frozen=True, slots=True)
class Item:
    """What one recipient is informed of one incident."""

    incident: Incident
    kind: ItemKind

    @property
    def ended(self) -> bool:
        return self.kind in ("resolved", "over")


def short(name: str, most: int = _NAME_MAX) -> str:
    """A name from outside for a sentence: one line, without invisible characters, cut."""
    return clean_text(name, most)


def rank(item: Item) -> tuple[int, float, float, str]:
    """The order in which people read incidents: by severity, then dollars, then GPU-hours."""
    one = item.incident
    return (_SEVERITIES.index(one.sighting.severity), -(one.cost_usd or 0.0), -one.gpu_hours, one.id)


def gpus_words(subject: Subject) -> str:
    """``8 H100-SXM5``, ``0.43 H100-SXM5`` for MIG instances, ``2 GPUs`` where the SKU is unknown."""
    count = f"{subject.gpu_count:.3g}"
    if subject.gpu_sku is not None:
        return f"{count} {short(subject.gpu_sku)}"
    return counted(round(subject.gpu_count), "GPU") if subject.gpu_count >= 1 else f"{count} GPU"


def lasted_seconds(one: Incident) -> float:
    """From its beginning to the last pass that confirmed it."""
    return max(one.last_seen_at - one.since, 0.0)


def what_words(one: Incident) -> str:
    """What happened, and for how long: ``8 H100-SXM5 held idle for 2.1 h``."""
    subject, lasted = one.sighting.subject, span(lasted_seconds(one))
    gpus = gpus_words(subject) if subject.gpu_count > 0 else "GPU"
    by_code = {
        "no-process": f"{gpus} allocated without a process for {lasted}",
        "never-worked": f"{gpus} held and never used for {lasted}",
        "collectives-spin": f"{gpus} hung in collectives for {lasted}",
        "gpu-missing": f"{gpus} missing for {lasted}",
        "counters-stuck": f"GPU counters stuck for {lasted}",
        "source-stale": f"Telemetry source without new data for {lasted}",
        "clock-stuck-low": f"{gpus} stuck at a low clock for {lasted}",
        "port-down": f"Fabric port down for {lasted}",
    }
    by_kind = {
        "held-idle": f"{gpus} held idle for {lasted}",
        "stopped": f"{gpus} held by work that stopped {lasted} ago",
        "telemetry-dead": f"No telemetry for {lasted}",
        "fault-clock": f"{gpus} throttled by a fault for {lasted}",
        "fabric-silent": f"No fabric traffic for {lasted}",
    }
    return by_code.get(one.sighting.code) or by_kind[one.sighting.kind]


def where_words(subject: Subject) -> str:
    """``gpu-009``, ``gpu-009, gpu-010, gpu-011 and 5 more``; empty where no node is named."""
    names = [short(node) for node in subject.nodes]
    if len(names) > LISTED:
        return f"{names[0]} and {len(names) - 1} more nodes"
    return ", ".join(names)


def holder_words(subject: Subject) -> str:
    """``job 4711``, or the workload's name; empty where it is about no workload."""
    if subject.workload_id is None:
        return ""
    return f"job {short(subject.job_id)}" if subject.job_id and subject.scheduler == "slurm" else short(subject.name)


def owner_name(subject: Subject) -> str:
    """The nearest name of whom to ask: user, namespace, account or team; empty: unknown."""
    owner = subject.owner
    return next((short(one) for one in (owner.user, owner.namespace, owner.account, owner.team) if one), "")


def who_words(subject: Subject) -> str:
    """``alice, job 4711``; ``owner unknown`` for a workload without one; empty where it is about none."""
    if subject.workload_id is None:
        return owner_name(subject)
    return ", ".join(one for one in (owner_name(subject) or "owner unknown", holder_words(subject)) if one)


def dollars(value: float) -> str:
    """Dollars so far; cents below 10 alone: it is an estimate that grows."""
    return f"${value:,.0f}" if 10 <= value < math.inf else usd(value)


def limit_words(seconds: float) -> str:
    """A length of time that somebody set: ``2 h``."""
    return span(seconds).replace(".0 ", " ")


def amount_words(one: Incident) -> str:
    """Dollars; GPU-hours where the price is unknown; empty where it holds no GPU."""
    if one.cost_usd is not None:
        return dollars(one.cost_usd)
    return hours(one.gpu_hours) if one.gpu_hours > 0 else ""


def line_words(item: Item) -> str:
    """One line: ``8 H100-SXM5 held idle for 2.1 h on gpu-009 (alice, job 4711): $51 so far``."""
    one = item.incident
    subject = one.sighting.subject
    where, who, amount = where_words(subject), who_words(subject), amount_words(one)
    line = what_words(one) + (f" on {where}" if where else "") + (f" ({who})" if who else "")
    if item.ended:
        return line + end_words(item) + (f": {amount}" if amount else "")
    return line + (f": {amount} so far" if amount else "")


def end_words(item: Item) -> str:
    """``, GPUs released``; empty for what goes on."""
    resolution = item.incident.resolution
    return f", {RESOLUTIONS[resolution]}" if item.ended and resolution is not None else ""


def subject_of(item: Item) -> str:
    """A mail's subject about one incident."""
    return clean_text(f"{BRAND} {PREFIXES[item.kind]}{line_words(item)}", SUBJECT_MAX)


def total_words(items: Iterable[Item]) -> str:
    """Cost and GPU-hours of several: dollars of those with a price, GPU-hours of all."""
    every = [item.incident for item in items]
    known = [one.cost_usd for one in every if one.cost_usd is not None]
    gpu_hours = hours(sum(one.gpu_hours for one in every))
    return f"{dollars(sum(known))}, {gpu_hours}" if known else gpu_hours
