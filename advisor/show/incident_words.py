"""Incidents in words: one table for what happened and how it ended, for mails, lists, screens and alerts alike.

`short` cuts and cleans names for a mail; lists and screens clean what they print.
"""

import math
import re
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from ...agent.base.safe_text import clean_text
from ...rules.base.output import columns
from ...rules.base.sanitize import clean
from ..core import formatting as words
from ..core.advice_json import plain
from ..core.advice_types import Severity
from ..core.incident_types import Incident, Resolution, Subject
from ..core.timestamps import minute, span

# over: opened and ended before anybody was informed.
ItemKind = Literal["opened", "reminded", "resolved", "over"]
BRAND = "[skuwise]"
SUBJECT_MAX = 150
NAME_MAX = 40
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
_RESOLUTIONS: Mapping[Resolution | None, str] = {
    "works-again": "works again", "released": "GPUs released", "data-back": "data available again",
    "cleared": "no longer detected", None: "",
}  # fmt: skip


class Item(NamedTuple):
    """What one recipient is informed of one incident."""

    incident: Incident
    kind: ItemKind

    @property
    def ended(self) -> bool:
        return self.kind in ("resolved", "over")


def short(name: str, most: int = NAME_MAX) -> str:
    """A name from outside for a mail: one line, without invisible characters, cut."""
    return clean_text(name, most)


def urgency(incident: Incident) -> tuple[bool, int, float, float, str]:
    """Incidents sort by it as people read them: resolved ones last; by severity, dollars, then GPU-hours."""
    severity, is_over = _SEVERITIES.index(incident.sighting.severity), incident.resolved_at is not None
    return is_over, severity, -(incident.cost_usd or 0.0), -incident.gpu_hours, incident.id


def gpus_words(subject: Subject) -> str:
    """``8 H100s``; of MIG instances the part of a GPU that they are: ``0.43 H100``."""
    count, sku = subject.gpu_count, short(subject.gpu_sku) if subject.gpu_sku else None
    if abs(count - round(count)) < 1e-6:
        return words.gpus(round(count), sku)
    return f"{count:.2g} {words.gpu_name(sku)}"


def phrase_words(incident: Incident) -> str:
    """What happened: ``8 H100s held but idle``, ``No telemetry``."""
    sighting = incident.sighting
    phrase = _PHRASES.get(sighting.code) or _PHRASES[sighting.kind]
    if phrase[0].isupper():
        return phrase
    return f"{gpus_words(sighting.subject) if sighting.subject.gpu_count > 0 else 'GPU'} {phrase}"


def title(incident: Incident) -> str:
    """``train-7: 8 H100s held but idle``. It holds names from outside."""
    name = incident.sighting.subject.name
    return f"{name if len(name) <= 80 else f'{name[:79]}…'}: {words.clause(phrase_words(incident))}"


def where_words(subject: Subject) -> str:
    """``gpu-009``, ``gpu-009 and 5 more nodes``; empty where no node is named."""
    names = [short(node) for node in subject.nodes]
    return f"{names[0]} and {len(names) - 1} more nodes" if len(names) > words.LISTED else ", ".join(names)


def owner_name(subject: Subject) -> str:
    """The nearest name of whom to ask: user, namespace, account or team; empty: unknown."""
    owner = subject.owner
    return next(map(short, filter(None, (owner.user, owner.namespace, owner.account, owner.team))), "")


def dollars(value: float) -> str:
    """Dollars so far; cents below 10 alone: it is an estimate that grows."""
    return f"${value:,.0f}" if 10 <= value < math.inf else words.usd(value)


def amount_words(incident: Incident) -> str:
    """Dollars; GPU-hours where the price is unknown; empty where it holds no GPU."""
    if incident.cost_usd is not None:
        return dollars(incident.cost_usd)
    return words.hours(incident.gpu_hours) if incident.gpu_hours > 0 else ""


def lasted_words(incident: Incident) -> str:
    """From its beginning to the last pass that confirmed it: ``2.1 h``."""
    return span(max(incident.last_seen_at - incident.since, 0.0))


def line_words(item: Item) -> str:
    """One line: ``8 H100s held but idle for 2.1 h on gpu-009 (alice, job 4711): $51 so far``."""
    amount = amount_words(item.incident)
    return event_words(item) + (f": {amount}{'' if item.ended else ' so far'}" if amount else "")


def event_words(item: Item) -> str:
    """``8 H100s held but idle for 2.1 h on gpu-009 (alice, job 4711), GPUs released``."""
    incident, subject = item.incident, item.incident.sighting.subject
    where, who = where_words(subject), owner_name(subject)
    if subject.workload_id is not None:
        job = subject.job_id if subject.scheduler == "slurm" else None
        who = f"{who or 'owner unknown'}, {f'job {short(job)}' if job else short(subject.name)}"
    parts = (f" on {where}" if where else "", f" ({who})" if who else "")
    end = item.ended and _RESOLUTIONS[incident.resolution]
    return f"{phrase_words(incident)} for {lasted_words(incident)}{''.join(parts)}{f', {end}' if end else ''}"


def summary_words(item: Item) -> str:
    """The finding in a sentence; of what ended, how."""
    incident, text = item.incident, short(item.incident.sighting.text.text, 600)
    if not item.ended or incident.resolved_at is None:
        return text
    end = _RESOLUTIONS[incident.resolution]
    return f"Resolved at {minute(incident.resolved_at)}{f': {end}' if end else ''}. The incident was: {text}"


def state_word(incident: Incident, now: float) -> str:
    """Its state in a word or two, for a narrow column."""
    state = state_words(incident, now)
    return "no data" if state.endswith("no data") else re.split(r"[ :]", state)[0]


def state_words(incident: Incident, now: float) -> str:
    """``open``, ``acknowledged by ann``, ``snoozed until ...``, ``resolved: GPUs released``."""
    if incident.resolved_at is not None:
        return f"resolved: {_RESOLUTIONS[incident.resolution]}".removesuffix(": ")
    state = "open"
    if incident.acknowledged_at is not None:
        state = f"acknowledged by {incident.acknowledged_by}" if incident.acknowledged_by else "acknowledged"
    elif incident.snoozed_until is not None and incident.snoozed_until > now:
        state = f"snoozed until {minute(incident.snoozed_until)}"
    return f"{state}, no data" if incident.silent_since is not None else state


def owner_words(incident: Incident) -> str:
    """``team search, user ann``, or that it is unknown."""
    return words.owner_words(incident.sighting.subject.owner) or "owner unknown"


def cost_words(incident: Incident) -> str:
    """``$51 so far, $24.40 an hour, at list price, 2026-09-19 (azure.com)``."""
    if incident.cost_usd is None:
        return "unknown: no price for these GPUs"
    rate, source = incident.sighting.usd_per_hour, incident.sighting.price_source
    each = f", {words.usd(rate)} an hour" if rate is not None else ""
    so_far = "" if incident.resolved_at is not None else " so far"
    return f"{words.usd(incident.cost_usd)}{so_far}{each}" + (f", {source}" if source else "")


def command_of(incident: Incident) -> str:
    """The command that shows more of it; SOURCE stands for the options of the source."""
    subject = incident.sighting.subject
    if incident.sighting.kind == "telemetry-dead":
        return "skuwise doctor SOURCE"
    name = subject.workload_id or (subject.nodes[0] if subject.nodes else subject.name)
    return f"skuwise {'job' if subject.workload_id else 'explain'} {shlex.quote(clean(name))} SOURCE"


def details(incident: Incident, now: float) -> list[tuple[str, str]]:
    """What is known of an incident, as labels and texts, not cleaned; several texts may have one label."""
    sighting, subject = incident.sighting, incident.sighting.subject
    gpus = f"{subject.gpu_count:.3g} x {subject.gpu_sku or 'unknown GPU'}" if subject.gpu_count else ""
    job = f" job {subject.job_id}" if subject.job_id and subject.scheduler == "slurm" else ""
    held = (subject.name + job, gpus, f"on {words.listed(subject.nodes)}" if subject.nodes else "")
    by = f" by {incident.acknowledged_by}" if incident.acknowledged_by else ""
    silent, taken, over = incident.silent_since, incident.acknowledged_at, incident.resolved_at
    history = (
        f"opened {minute(incident.opened_at)}",
        f"no data since {minute(silent)}; it counts no hours" if silent is not None else "",
        f"{words.counted(incident.reminders, 'reminder')} created" if incident.reminders else "",
        f"back after it was resolved: {words.counted(incident.reopenings, 'time')}" if incident.reopenings else "",
        f"acknowledged{by} {minute(taken)}" if taken is not None else "",
        f"{state_words(incident, now)}, {minute(over)}" if over is not None else "",
    )
    return [
        ("incident", title(incident)), ("state", f"{state_words(incident, now)}; severity {sighting.severity}"),
        ("finding", sighting.text.text), *(("evidence", words.evidence_words(e)) for e in sighting.evidence),
        ("do next", sighting.do_next.text), ("subject", ", ".join(filter(None, held))),
        ("owner", owner_words(incident)), ("since", minute(incident.since)),
        ("last work", minute(sighting.last_work) if sighting.last_work is not None else "none within the data"),
        ("GPU-hours", f"{words.hours(incident.gpu_hours)} observed so far"), ("cost", cost_words(incident)),
        ("more", command_of(incident)), ("id", incident.id), *(("history", text) for text in history if text),
    ]  # fmt: skip


def labelled(lines: Sequence[tuple[str, str]], width: int) -> str:
    """Texts, cleaned and folded behind their labels; a label stands before the first of its texts."""
    shown, before = [], ""
    for label, text in lines:
        initial = f"{'' if label == before else label:<12}"
        shown.append(textwrap.fill(clean(text), width, initial_indent=initial, subsequent_indent=" " * 12))
        before = label
    return "\n".join(shown) + "\n"


def as_table(incidents: Sequence[Incident], resolved: int, now: float) -> str:
    """The incidents as a person reads them, with what their dollars rest on. `resolved`: how many are not listed."""
    more = f"{words.counted(resolved, 'resolved incident')} not listed; --all lists them.\n" if resolved else ""
    if not incidents:
        return f"No open incidents.\n{more}"
    rows = []
    for i in sorted(incidents, key=urgency):
        cost = words.usd(i.cost_usd) if i.cost_usd is not None else words.NONE
        cells = (state_words(i, now), title(i), owner_words(i), minute(i.since), words.bare_hours(i.gpu_hours), cost)
        rows.append((i.id, i.sighting.severity, *cells))
    heads = ("ID", "severity", "state", "incident", "owner", "since", "GPU-hours", "cost")
    notes = "\n".join(filter(None, (clean(price_words(incidents)), more.rstrip())))
    return f"{columns(heads, rows, right=(6, 7))}\n" + (f"\n{notes}\n" if notes else "")


def price_words(incidents: Iterable[Incident], most: int = 3) -> str:
    """What the dollars of several rest on; empty where none has any."""
    price_sources = {incident.sighting.price_source for incident in incidents if incident.cost_usd is not None}
    sources = [short(source, 120) for source in sorted(filter(None, price_sources))]
    more = f" and {len(sources) - most} more" if len(sources) > most else ""
    return f"Cost: {'; '.join(sources[:most])}{more}." if sources else ""


def as_dict(incident: Incident, now: float) -> dict[str, object]:
    """An incident as the values of JSON: times in RFC 3339, UTC; unknown is null."""
    snoozed = incident.resolved_at is None and (incident.snoozed_until or 0.0) > now
    more = {"title": title(incident), "snoozed": snoozed, "command": command_of(incident)}
    return {"id": incident.id, **more, **plain(incident.sighting), **plain(incident)}
