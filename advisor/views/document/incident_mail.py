"""A message about one incident as a page: the fact, its evidence, what to do next."""

from __future__ import annotations

from ...core.formatting import LISTED, evidence_words, figure, hours, owner_words, usd
from ...core.incident_types import Incident
from ...core.timestamps import minute, span
from ...incidents.settings import WatchSettings
from .dashboard import NO_DASHBOARD, Dashboard
from .incident_commands import IncidentCommands
from .incident_words import (
    KINDS,
    PREFIXES,
    RESOLUTIONS,
    SUBJECT_MAX,
    Item,
    amount_words,
    dollars,
    gpus_words,
    lasted_seconds,
    limit_words,
    line_words,
    short,
    subject_of,
    what_words,
    where_words,
)
from .model import AsideBlock, Document, Figures, Link, Section, Table, Tile, section

_TEXT_MAX = 600
_EVIDENCE_MAX = 20
_CELL_MAX = 80
_SHORT_EVIDENCE = 6


def incident_document(
    item: Item, settings: WatchSettings, commands: IncidentCommands, dashboard: Dashboard = NO_DASHBOARD
) -> Document:
    """The page about one incident."""
    one = item.incident
    subject = one.sighting.subject
    until = f", last confirmed {minute(one.last_seen_at)}"
    link = dashboard.of(subject.workload_id or "", subject.nodes[0] if subject.nodes else "") or dashboard.page
    return Document(
        title=subject_of(item),
        heading=short(f"{PREFIXES[item.kind]}{line_words(item)}", SUBJECT_MAX),
        window=f"since {minute(one.since)}{until}",
        summary=summary_words(item),
        tiles=_tiles(item),
        link=Link("Dashboard", link) if link else None,
        sections=tuple(
            part
            for part in (
                None if item.ended else _next(one, commands), _details(item), _evidence(one),
                None if item.ended else _control(one, settings, commands),
            )
            if part is not None
        ),
        footer=(f"Written by skuwise watch from telemetry alone. Incident {one.id}. Nothing was stopped or changed.",),
    )  # fmt: skip


def short_lines(item: Item, commands: IncidentCommands) -> tuple[str, ...]:
    """The same in a few lines, for a channel that shows plain text."""
    one = item.incident
    lines = [
        summary_words(item),
        f"Since: {minute(one.since)}; last work: {_last_work(one)}",
        f"{'Total' if item.ended else 'So far'}: {_amounts(one)}",
    ]
    lines += [short(evidence_words(e), 2 * _CELL_MAX) for e in one.sighting.evidence[:_SHORT_EVIDENCE]]
    if not item.ended:
        lines.append(f"Next: {short(one.sighting.do_next.text, _TEXT_MAX)}")
        workload = one.sighting.subject.workload_id
        lines.append(f"Details: {commands.job(workload) if workload is not None else commands.show(one.id)}")
        lines += [f"Acknowledge: {commands.acknowledge(one.id)}", f"Snooze: {commands.snooze(one.id)}"]
    return tuple(lines)


def summary_words(item: Item) -> str:
    """The finding in a sentence; of what ended, how."""
    one = item.incident
    text = short(one.sighting.text.text, _TEXT_MAX)
    if not item.ended or one.resolved_at is None:
        return text
    how = f": {RESOLUTIONS[one.resolution]}" if one.resolution is not None else ""
    return f"Resolved at {minute(one.resolved_at)}{how}. The incident was: {text}"


def _amounts(one: Incident) -> str:
    """``16.8 GPU-hours, $51 ($24.40/hour; source of the price)``."""
    parts = [hours(one.gpu_hours)]
    if one.cost_usd is not None:
        parts.append(dollars(one.cost_usd) + _price(one))
    else:
        parts.append("cost unknown: no price")
    return ", ".join(parts)


def _price(one: Incident) -> str:
    rate = f"{usd(one.sighting.usd_per_hour)}/hour" if one.sighting.usd_per_hour is not None else ""
    source = short(one.sighting.price_source, 120) if one.sighting.price_source else "price source unknown"
    return f" ({'; '.join(part for part in (rate, source) if part)})"


def _last_work(one: Incident) -> str:
    last = one.sighting.last_work
    return "none in the data that was read" if last is None else minute(last)


def _tiles(item: Item) -> tuple[Tile, ...]:
    one = item.incident
    subject = one.sighting.subject
    lasted = Tile("Lasted" if item.ended else "Duration", span(lasted_seconds(one)), f"since {minute(one.since)}")
    if subject.gpu_count <= 0:
        return (lasted, Tile("Where", where_words(subject) or short(subject.name)))
    cost = amount_words(one) if one.cost_usd is not None else "unknown"
    source = _price(one).strip(" ()") if one.cost_usd is not None else "no price for this node"
    suffix = "" if item.ended else " so far"
    return (
        lasted, Tile("GPUs", gpus_words(subject), where_words(subject)),
        Tile(f"GPU-hours{suffix}", hours(one.gpu_hours, "").rstrip()), Tile(f"Cost{suffix}", cost, source),
    )  # fmt: skip


def _next(one: Incident, commands: IncidentCommands) -> Section:
    subject = one.sighting.subject
    if subject.workload_id is not None:
        details = AsideBlock(f"Details of the workload{commands.where}:", commands.job(subject.workload_id))
    else:
        details = AsideBlock(f"The incident as it is now{commands.where}:", commands.show(one.id))
    return section("Next step", short(one.sighting.do_next.text, _TEXT_MAX), details)


def _details(item: Item) -> Section:
    one = item.incident
    subject = one.sighting.subject
    names = [short(node) for node in subject.nodes]
    nodes = ", ".join(names[: LISTED * 2]) + (f" and {len(names) - LISTED * 2} more" if len(names) > LISTED * 2 else "")
    rows = [
        ("What", what_words(one)), ("Kind", f"{KINDS[one.sighting.kind]} ({one.sighting.code})"),
        ("Severity", one.sighting.severity), ("Owner", short(owner_words(subject.owner), 120) or "unknown"),
        ("Workload", short(subject.name) if subject.workload_id is not None else ""),
        ("Job", short(subject.job_id) if subject.job_id else ""), ("Pod", short(subject.pod) if subject.pod else ""),
        ("Held by", subject.holder or ""), ("Nodes", nodes), ("Since", minute(one.since)),
        ("Last work", _last_work(one) if one.sighting.kind in ("held-idle", "stopped") else ""),
        ("No data since", minute(one.silent_since) if one.silent_since is not None and not item.ended else ""),
        ("Acknowledged by", short(one.acknowledged_by) if one.acknowledged_by else ""),
        ("Resolved", minute(one.resolved_at) if one.resolved_at is not None else ""),
        ("Total" if item.ended else "So far", _amounts(one) if one.gpu_hours > 0 or one.cost_usd is not None else ""),
    ]  # fmt: skip
    return section("Incident", Figures(tuple((name, value) for name, value in rows if value)))


def _rows(one: Incident) -> list[tuple[str, str, str, str]]:
    return [
        (
            short(e.metric, _CELL_MAX), short(figure(e.value), _CELL_MAX),
            short(figure(e.threshold), _CELL_MAX) if e.threshold is not None else "-", short(e.unit, _CELL_MAX),
        )
        for e in one.sighting.evidence[:_EVIDENCE_MAX]
    ]  # fmt: skip


def _evidence(one: Incident) -> Section | None:
    rows = _rows(one)
    if not rows:
        return None
    return section("Evidence", Table(("Metric", "Value", "Threshold", "Unit"), tuple(rows), right=(1, 2)))


def _control(one: Incident, settings: WatchSettings, commands: IncidentCommands) -> Section:
    remind = f"Reminders are sent every {limit_words(settings.remind_every_seconds)} until the incident ends."
    return section(
        "Acknowledge, snooze or change the limit",
        remind,
        AsideBlock(f"Acknowledge, no reminders{commands.where}:", commands.acknowledge(one.id)),
        AsideBlock(f"Pause reminders for a day{commands.where}:", commands.snooze(one.id)),
        AsideBlock(setting_words(one, settings)),
    )


def setting_words(one: Incident, settings: WatchSettings) -> str:
    """Which setting decides when such an incident opens."""
    holder = one.sighting.subject.holder
    if one.sighting.kind == "held-idle" and holder is not None:
        limit = limit_words(settings.limit_seconds(holder))
        return f"The limit for this kind of holder is {limit}: {holder}_limit in section [watch] of skuwise.toml."
    return "Thresholds: rules/watch.yaml; site rules override them."
