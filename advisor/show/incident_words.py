"""Incidents in words: one table for what happened and how it ended, for mails, lists, screens and alerts alike.

`short` cuts and cleans names for a mail; lists and screens clean what they print.
"""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ...agent.base.safe_text import clean_text
from ...rules.base.output import columns
from ...rules.base.sanitize import clean
from ..core import formatting as words
from ..core.advice_json import plain
from ..core.advice_types import Severity
from ..core.incident_types import Incident, Resolution, Subject
from ..core.timestamps import minute, span

# opened, reminded, resolved: as the event. over: opened and ended before anybody was informed.
ItemKind = Literal["opened", "reminded", "resolved", "over"]
BRAND = "[skuwise]"
SUBJECT_MAX = 150
NAME_MAX = 40
_TITLE_NAME_MAX = 80
_LABEL_WIDTH = 12
_SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low")
# By code, else by kind. Those with a capital are not about GPUs: they stand without their number.
_PHRASES: Mapping[str, str] = {
    "held-idle": "held but idle", "no-process": "allocated without a process", "never-worked": "held and never used",
    "stopped": "held by stopped work", "collectives-spin": "hung in collectives",
    "telemetry-dead": "No telemetry", "gpu-missing": "missing", "counters-stuck": "GPU counters stuck",
    "source-stale": "No new data from the source",
    "fault-clock": "throttled by a fault", "clock-stuck-low": "stuck at a low clock",
    "fabric-silent": "without fabric traffic", "port-down": "Fabric port down",
}  # fmt: skip
_RESOLUTIONS: Mapping[Resolution, str] = {
    "works-again": "works again", "released": "GPUs released", "data-back": "data available again",
    "cleared": "no longer detected",
}  # fmt: skip
PREFIXES: Mapping[ItemKind, str] = {
    "opened": "", "reminded": "Reminder: ", "resolved": "Resolved: ", "over": "Ended: ",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """What one recipient is informed of one incident."""

    incident: Incident
    kind: ItemKind

    @property
    def ended(self) -> bool:
        return self.kind in ("resolved", "over")


def short(name: str, most: int = NAME_MAX) -> str:
    """A name from outside for a mail: one line, without invisible characters, cut."""
    return clean_text(name, most)


def urgency(one: Incident) -> tuple[bool, int, float, float, str]:
    """Incidents sort by it as people read them: resolved ones last; by severity, dollars, then GPU-hours."""
    severity = _SEVERITIES.index(one.sighting.severity)
    return (one.resolved_at is not None, severity, -(one.cost_usd or 0.0), -one.gpu_hours, one.id)


def by_urgency(incidents: Iterable[Incident]) -> list[Incident]:
    return sorted(incidents, key=urgency)


def gpus_words(subject: Subject) -> str:
    """``8 H100s``; of MIG instances the part of a GPU that they are: ``0.43 H100``."""
    count, sku = subject.gpu_count, short(subject.gpu_sku) if subject.gpu_sku else None
    if abs(count - round(count)) < 1e-6:
        return words.gpus(round(count), sku)
    return f"{count:.2g} {words.gpu_name(sku)}"


def phrase_words(one: Incident) -> str:
    """What happened: ``8 H100s held but idle``, ``No telemetry``."""
    found = one.sighting
    phrase = _PHRASES.get(found.code) or _PHRASES[found.kind]
    if phrase[0].isupper():
        return phrase
    return f"{gpus_words(found.subject) if found.subject.gpu_count > 0 else 'GPU'} {phrase}"


def title(one: Incident) -> str:
    """``train-7: 8 H100s held but idle``. It holds names from outside."""
    name, phrase = one.sighting.subject.name, phrase_words(one)
    if len(name) > _TITLE_NAME_MAX:
        name = f"{name[: _TITLE_NAME_MAX - 1]}…"
    return f"{name}: {words.clause(phrase)}"


def lasted_words(one: Incident) -> str:
    """From its beginning to the last pass that confirmed it: ``2.1 h``."""
    return span(max(one.last_seen_at - one.since, 0.0))


def end_words(item: Item) -> str:
    """``, GPUs released``; empty for what goes on."""
    resolution = item.incident.resolution
    return f", {_RESOLUTIONS[resolution]}" if item.ended and resolution is not None else ""


def where_words(subject: Subject) -> str:
    """``gpu-009``, ``gpu-009 and 5 more nodes``; empty where no node is named."""
    names = [short(node) for node in subject.nodes]
    if len(names) > words.LISTED:
        return f"{names[0]} and {len(names) - 1} more nodes"
    return ", ".join(names)


def owner_name(subject: Subject) -> str:
    """The nearest name of whom to ask: user, namespace, account or team; empty: unknown."""
    owner = subject.owner
    return next((short(one) for one in (owner.user, owner.namespace, owner.account, owner.team) if one), "")


def who_words(subject: Subject) -> str:
    """``alice, job 4711``; ``owner unknown`` for a workload without one; empty where it is about none."""
    if subject.workload_id is None:
        return owner_name(subject)
    is_job = subject.job_id and subject.scheduler == "slurm"
    holder = f"job {short(subject.job_id or '')}" if is_job else short(subject.name)
    return f"{owner_name(subject) or 'owner unknown'}, {holder}"


def dollars(value: float) -> str:
    """Dollars so far; cents below 10 alone: it is an estimate that grows."""
    return f"${value:,.0f}" if 10 <= value < math.inf else words.usd(value)


def amount_words(one: Incident) -> str:
    """Dollars; GPU-hours where the price is unknown; empty where it holds no GPU."""
    if one.cost_usd is not None:
        return dollars(one.cost_usd)
    return words.hours(one.gpu_hours) if one.gpu_hours > 0 else ""


def line_words(item: Item) -> str:
    """One line: ``8 H100s held but idle for 2.1 h on gpu-009 (alice, job 4711): $51 so far``."""
    one = item.incident
    where, who, amount = where_words(one.sighting.subject), who_words(one.sighting.subject), amount_words(one)
    line = f"{phrase_words(one)} for {lasted_words(one)}{f' on {where}' if where else ''}{f' ({who})' if who else ''}"
    return line + end_words(item) + (f": {amount}{'' if item.ended else ' so far'}" if amount else "")


def summary_words(item: Item) -> str:
    """The finding in a sentence; of what ended, how."""
    one = item.incident
    text = short(one.sighting.text.text, 600)
    if not item.ended or one.resolved_at is None:
        return text
    return f"Resolved at {minute(one.resolved_at)}{end_words(item).replace(',', ':', 1)}. The incident was: {text}"


def state_word(one: Incident, now: float) -> str:
    """Its state in a word or two, for a narrow column."""
    if one.resolved_at is None and one.acknowledged_at is None and one.silent_since is not None:
        return "no data"
    snoozed = one.state == "open" and one.snoozed_until is not None and one.snoozed_until > now
    return "snoozed" if snoozed else one.state


def state_words(one: Incident, now: float) -> str:
    """``open``, ``acknowledged by ann``, ``snoozed until ...``, ``resolved: GPUs released``."""
    if one.resolved_at is not None:
        return f"resolved: {_RESOLUTIONS[one.resolution]}" if one.resolution is not None else "resolved"
    silent = ", no data" if one.silent_since is not None else ""
    if one.acknowledged_at is not None:
        return f"acknowledged by {one.acknowledged_by}{silent}" if one.acknowledged_by else f"acknowledged{silent}"
    if one.snoozed_until is not None and one.snoozed_until > now:
        return f"snoozed until {minute(one.snoozed_until)}{silent}"
    return f"open{silent}"


def owner_words(one: Incident) -> str:
    """``team search, user ann``, or that it is unknown."""
    return words.owner_words(one.sighting.subject.owner) or "owner unknown"


def cost_words(one: Incident) -> str:
    """``$51 so far, $24.40 an hour, at list price, 2026-09-19 (azure.com)``."""
    if one.cost_usd is None:
        return "unknown: no price for these GPUs"
    rate, source = one.sighting.usd_per_hour, one.sighting.price_source
    each = f", {words.usd(rate)} an hour" if rate is not None else ""
    so_far = "" if one.resolved_at is not None else " so far"
    return f"{words.usd(one.cost_usd)}{so_far}{each}" + (f", {source}" if source else "")


def command_of(one: Incident) -> str:
    """The command that shows more of it; SOURCE stands for the options of the source."""
    subject = one.sighting.subject
    if one.sighting.kind == "telemetry-dead":
        return "skuwise doctor SOURCE"
    if subject.workload_id is not None:
        return f"skuwise job {shlex.quote(clean(subject.workload_id))} SOURCE"
    return f"skuwise explain {shlex.quote(clean((subject.nodes or (subject.name,))[0]))} SOURCE"


def details(one: Incident, now: float) -> list[tuple[str, str]]:
    """What is known of an incident, as labels and texts; a label stands before the first of its lines. Texts hold what
    came from outside."""
    found, subject = one.sighting, one.sighting.subject
    gpus = f"{subject.gpu_count:.3g} x {subject.gpu_sku or 'unknown GPU'}" if subject.gpu_count else ""
    held = ", ".join(part for part in (gpus, f"on {words.listed(subject.nodes)}" if subject.nodes else "") if part)
    job = f" job {subject.job_id}" if subject.job_id and subject.scheduler == "slurm" else ""
    lines = [
        ("incident", title(one)), ("state", f"{state_words(one, now)}; severity {found.severity}"),
        ("finding", found.text.text), *(("evidence", words.evidence_words(e)) for e in found.evidence),
        ("do next", found.do_next.text), ("subject", ", ".join(part for part in (subject.name + job, held) if part)),
        ("owner", owner_words(one)), ("since", minute(one.since)),
        ("last work", minute(found.last_work) if found.last_work is not None else "none within the data"),
        ("GPU-hours", f"{words.hours(one.gpu_hours)} observed so far"), ("cost", cost_words(one)),
        ("more", command_of(one)), ("id", one.id),
    ]  # fmt: skip
    by = f" by {one.acknowledged_by}" if one.acknowledged_by else ""
    silent, taken, over = one.silent_since, one.acknowledged_at, one.resolved_at
    history = (
        f"opened {minute(one.opened_at)}",
        f"no data since {minute(silent)}; it counts no hours" if silent is not None else "",
        f"{words.counted(one.reminders, 'reminder')} created" if one.reminders else "",
        f"back after it was resolved: {words.counted(one.reopenings, 'time')}" if one.reopenings else "",
        f"acknowledged{by} {minute(taken)}" if taken is not None else "",
        f"{state_words(one, now)}, {minute(over)}" if over is not None else "",
    )
    lines += [("history", text) for text in history if text]
    return [("" if n and lines[n - 1][0] == label else label, text) for n, (label, text) in enumerate(lines)]


def as_text(one: Incident, now: float, width: int) -> str:
    """One incident in full."""
    indent = " " * _LABEL_WIDTH
    lines = (
        textwrap.fill(clean(text), width, initial_indent=f"{label:<{_LABEL_WIDTH}}", subsequent_indent=indent)
        for label, text in details(one, now)
    )
    return "\n".join(lines) + "\n"


def as_table(incidents: Sequence[Incident], resolved: int, now: float) -> str:
    """The incidents as a person reads them, with what their dollars rest on. `resolved`: how many are not listed."""
    more = f"{words.counted(resolved, 'resolved incident')} not listed; --all lists them.\n" if resolved else ""
    if not incidents:
        return f"No open incidents.\n{more}"
    rows = [
        (one.id, one.sighting.severity, state_words(one, now), title(one), owner_words(one), minute(one.since),
         words.hours(one.gpu_hours, "").strip(), words.usd(one.cost_usd) if one.cost_usd is not None else words.NONE)
        for one in by_urgency(incidents)
    ]  # fmt: skip
    heads = ("ID", "severity", "state", "incident", "owner", "since", "GPU-hours", "cost")
    prices = price_words(incidents)
    based = f"{clean(prices)}\n" if prices else ""
    return f"{columns(heads, rows, right=(6, 7))}\n\n{based}{more}".rstrip("\n") + "\n"


def price_words(incidents: Iterable[Incident], most: int = 3) -> str:
    """What the dollars of several rest on; empty where none has any."""
    price_sources = {incident.sighting.price_source for incident in incidents if incident.cost_usd is not None}
    sources = [short(source, 120) for source in sorted(filter(None, price_sources))]
    more = f" and {len(sources) - most} more" if len(sources) > most else ""
    return f"Cost: {'; '.join(sources[:most])}{more}." if sources else ""


def as_dict(one: Incident, now: float) -> dict[str, object]:
    """An incident as the values of JSON: times in RFC 3339, UTC; unknown is null."""
    snoozed = one.resolved_at is None and one.snoozed_until is not None and one.snoozed_until > now
    more = {"title": title(one), "snoozed": snoozed, "command": command_of(one)}
    return {"id": one.id, **more, **plain(one.sighting), **plain(one)}
