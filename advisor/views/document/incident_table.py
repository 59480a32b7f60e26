"""Incidents for people and programs: a table, one incident in full, and plain values for JSON."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from ....rules.base.sanitize import clean
from ....rules.base.text_table import columns
from ...core import formatting as words
from ...core.advice_types import Severity
from ...core.coded_text import CodedText
from ...core.incident_types import Incident, IncidentKind, Resolution
from ...core.timestamps import minute, rfc3339

_LABEL_WIDTH = 12
_NAME_MAX = 80
_RANKS: Mapping[Severity, int] = {"high": 0, "medium": 1, "low": 2}
_KINDS: Mapping[IncidentKind, str] = {
    "held-idle": "held but idle", "stopped": "stopped working", "telemetry-dead": "no telemetry",
    "fault-clock": "at a reduced clock", "fabric-silent": "without fabric traffic",
}  # fmt: skip
_RESOLUTIONS: Mapping[Resolution, str] = {
    "works-again": "working again", "released": "GPUs released", "data-back": "data available again",
    "cleared": "no longer detected",
}  # fmt: skip


def by_urgency(incidents: Iterable[Incident]) -> list[Incident]:
    """Resolved ones last; the highest severity first, then the highest cost."""
    return sorted(
        incidents,
        key=lambda one: (one.resolved_at is not None, _RANKS[one.sighting.severity], -(one.cost_usd or 0.0),
                         -one.gpu_hours, one.id),
    )  # fmt: skip


def title(one: Incident) -> str:
    """``train-7: 8 H100s held but idle``. It holds names from outside."""
    subject, kind = one.sighting.subject, _KINDS[one.sighting.kind]
    name = subject.name if len(subject.name) <= _NAME_MAX else f"{subject.name[: _NAME_MAX - 1]}…"
    if subject.gpu_count <= 0 or one.sighting.kind == "telemetry-dead":
        return f"{name}: {kind}"
    count, sku = subject.gpu_count, subject.gpu_sku
    whole = abs(count - round(count)) < 1e-6  # of MIG instances the part of a GPU that they are: 0.14 A100
    gpus = words.gpus(round(count), sku) if whole else f"{count:.2g} {words.gpu_name(sku)}"
    return f"{name}: {gpus} {kind}"


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


def command_of(one: Incident) -> str:
    """The command that shows more of it; SOURCE stands for the options of the source."""
    subject = one.sighting.subject
    if one.sighting.kind == "telemetry-dead":
        return "skuwise doctor SOURCE"
    if subject.workload_id is not None:
        return f"skuwise job {shlex.quote(clean(subject.workload_id))} SOURCE"
    return f"skuwise explain {shlex.quote(clean((subject.nodes or (subject.name,))[0]))} SOURCE"


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
    prices = sorted({one.sighting.price_source or "" for one in incidents if one.cost_usd is not None} - {""})
    based = f"Cost: {'; '.join(clean(price) for price in prices)}.\n" if prices else ""
    return f"{columns(heads, rows, right=(6, 7))}\n\n{based}{more}".rstrip("\n") + "\n"


def as_text(one: Incident, now: float, width: int) -> str:
    """One incident in full."""
    lines = details(one, now)
    return "\n".join(_labelled(label, text, width) for label, text in lines) + "\n"


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
        ("GPU-hours", f"{words.hours(one.gpu_hours)} observed so far"), ("cost", _cost(one)),
        ("more", command_of(one)), ("id", one.id),
        ("history", f"opened {minute(one.opened_at)}"),
    ]  # fmt: skip
    silent, taken, over = one.silent_since, one.acknowledged_at, one.resolved_at
    lines += [("history", f"no data since {minute(silent)}; it counts no hours")] if silent is not None else []
    lines += [("history", f"{words.counted(one.reminders, 'reminder')} created")] if one.reminders else []
    lines += [("history", f"back after it was resolved: {words.counted(one.reopenings, 'time')}")] * bool(
        one.reopenings
    )
    by = f" by {one.acknowledged_by}" if one.acknowledged_by else ""
    lines += [("history", f"acknowledged{by} {minute(taken)}")] if taken is not None else []
    lines += [("history", f"{state_words(one, now)}, {minute(over)}")] if over is not None else []
    return [("" if n and lines[n - 1][0] == label else label, text) for n, (label, text) in enumerate(lines)]


def _cost(one: Incident) -> str:
    if one.cost_usd is None:
        return "unknown: no price for these GPUs"
    rate, source = one.sighting.usd_per_hour, one.sighting.price_source
    each = f", {words.usd(rate)} an hour" if rate is not None else ""
    return f"{words.usd(one.cost_usd)} so far{each}" + (f", {source}" if source else "")


def _labelled(label: str, text: str, width: int) -> str:
    indent = " " * _LABEL_WIDTH
    return textwrap.fill(clean(text), width, initial_indent=f"{label:<{_LABEL_WIDTH}}", subsequent_indent=indent)


def as_dict(one: Incident, now: float) -> dict[str, object]:
    """An incident as the values of JSON: times in RFC 3339, UTC; unknown is null."""
    found, subject, owner = one.sighting, one.sighting.subject, one.sighting.subject.owner
    return {
        "id": one.id, "state": one.state, "kind": found.kind, "code": found.code, "severity": found.severity,
        "title": title(one), "text": _coded(found.text), "do_next": _coded(found.do_next),
        "subject": {
            "key": subject.key, "name": subject.name, "nodes": list(subject.nodes), "gpus": list(subject.gpus),
            "gpu_count": _finite(subject.gpu_count), "gpu_sku": subject.gpu_sku, "node_sku": subject.node_sku,
            "workload": subject.workload_id, "series": subject.series_id, "holder": subject.holder,
            "scheduler": subject.scheduler, "job_id": subject.job_id, "pod": subject.pod,
            "owner": {"team": owner.team, "user": owner.user, "account": owner.account, "namespace": owner.namespace},
        },
        "since": rfc3339(one.since), "last_work": _moment(found.last_work), "gpu_hours": _finite(one.gpu_hours),
        "cost_usd": _finite(one.cost_usd), "usd_per_hour": _finite(found.usd_per_hour),
        "price_source": found.price_source,
        "evidence": [
            {"metric": e.metric, "value": _plain(e.value), "threshold": _plain(e.threshold), "unit": e.unit}
            for e in found.evidence
        ],
        "opened_at": rfc3339(one.opened_at), "updated_at": rfc3339(one.updated_at),
        "last_seen_at": rfc3339(one.last_seen_at), "silent_since": _moment(one.silent_since),
        "acknowledged_at": _moment(one.acknowledged_at), "acknowledged_by": one.acknowledged_by,
        "snoozed_until": _moment(one.snoozed_until),
        "snoozed": one.resolved_at is None and one.snoozed_until is not None and one.snoozed_until > now,
        "resolved_at": _moment(one.resolved_at), "resolution": one.resolution, "reminders": one.reminders,
        "reopenings": one.reopenings, "command": command_of(one),
    }  # fmt: skip


def _coded(text: CodedText) -> dict[str, object]:
    fields = {name: _plain(value) for name, value in text.fields.items()}
    return {"code": text.code, "fields": fields, "text": text.text}


def _moment(at: float | None) -> str | None:
    return rfc3339(at) if at is not None else None


def _plain(value: object) -> object:
    return _finite(value) if isinstance(value, float) else value


def _finite(value: float | None) -> float | None:
    return round(value, 6) if value is not None and math.isfinite(value) else None
