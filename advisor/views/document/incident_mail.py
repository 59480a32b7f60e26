"""A message about incidents as a page: of one the fact, its evidence and what to do next; of several the worst by name,
the rest counted by kind and owner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...core.formatting import LISTED, NONE, counted, evidence_words, figure, hours, owner_words, usd
from ...core.incident_types import Incident
from ...core.timestamps import minute, span
from ...watch.settings import WatchSettings
from .dashboard import NO_DASHBOARD, Dashboard
from .incident_words import (
    BRAND,
    KINDS,
    PREFIXES,
    RESOLUTIONS,
    SUBJECT_MAX,
    Item,
    ItemKind,
    amount_words,
    dollars,
    end_words,
    gpus_words,
    lasted_seconds,
    limit_words,
    line_words,
    owner_name,
    rank,
    short,
    subject_of,
    total_words,
    what_words,
    where_words,
    who_words,
)  # fmt: skip
from .model import AsideBlock, Document, Figures, Link, Section, Table, Tile, section
from .reader_commands import IncidentCommands

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
    cost = "cost unknown: no price" if one.cost_usd is None else dollars(one.cost_usd) + _price(one)
    return f"{hours(one.gpu_hours)}, {cost}"


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
    source = _price(one).removeprefix(" (").removesuffix(")") if one.cost_usd is not None else "no price for this node"
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


def _evidence(one: Incident) -> Section | None:
    rows = tuple(
        (
            short(e.metric, _CELL_MAX), short(figure(e.value), _CELL_MAX),
            short(figure(e.threshold), _CELL_MAX) if e.threshold is not None else "-", short(e.unit, _CELL_MAX),
        )
        for e in one.sighting.evidence[:_EVIDENCE_MAX]
    )  # fmt: skip
    return section("Evidence", Table(("Metric", "Value", "Threshold", "Unit"), rows, right=(1, 2))) if rows else None


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


NAMED = 20  # incidents by name in one message
_COUNTED = 30  # rows of the rest
_PRICES = 3
_ORDER: tuple[ItemKind, ...] = ("opened", "reminded", "resolved", "over")
_TITLES: dict[ItemKind, str] = {
    "opened": "New", "reminded": "Still open", "resolved": "Resolved", "over": "Began and ended before this message",
}  # fmt: skip
_COUNTS: dict[ItemKind, str] = {"opened": "new", "reminded": "still open", "resolved": "resolved", "over": "ended"}


def digest_document(
    items: Sequence[Item], now: float, commands: IncidentCommands, dashboard: Dashboard = NO_DASHBOARD
) -> Document:
    """The page about several incidents. `now`: Unix seconds."""
    named, rest = _cut(items)
    counts = [f"{n:,} {_COUNTS[kind]}" for kind in _ORDER if (n := sum(one.kind == kind for one in items))]
    title = f"{len(items):,} incidents ({', '.join(counts)}): {total_words(items)} so far"
    sections = [
        _section(kind, [one for one in named if one.kind == kind], sum(one.kind == kind for one in items))
        for kind in _ORDER
        if any(one.kind == kind for one in items)
    ]
    if rest:
        sections.append(_rest(rest))
    sections.append(_commands(named, commands))
    return Document(
        title=f"{BRAND} {title}",
        heading=title,
        window=minute(now),
        summary=_summary(items),
        tiles=_digest_tiles(items),
        link=Link("Dashboard", dashboard.page) if dashboard.page else None,
        sections=tuple(sections),
        footer=("Written by skuwise watch from telemetry alone. Nothing was stopped or changed.",),
    )


def digest_lines(items: Sequence[Item], commands: IncidentCommands) -> tuple[str, ...]:
    """The same in a few lines, for a channel that shows plain text."""
    named, rest = _cut(items)
    lines = [_summary(items)]
    for kind in _ORDER:
        of_kind = [one for one in named if one.kind == kind]
        if of_kind:
            lines += [f"{_TITLES[kind]}:", *(f"- {line_words(one)} [{one.incident.id}]" for one in of_kind)]
    # Last comes what may be cut.
    head = [f"{len(rest):,} more are counted in the mail." if rest else "", f"All incidents: {commands.list()}"]
    return (lines[0], *(one for one in head if one), *lines[1:])


def _cut(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    ordered = sorted(items, key=rank)
    return ordered[:NAMED], ordered[NAMED:]


def _summary(items: Sequence[Item]) -> str:
    return f"Worst: {line_words(min(items, key=rank))}."


def _digest_tiles(items: Sequence[Item]) -> tuple[Tile, ...]:
    still = [one for one in items if not one.ended]
    rates = [one.incident.sighting.usd_per_hour for one in still]
    known = [rate for rate in rates if rate is not None]
    gpus = sum(one.incident.sighting.subject.gpu_count for one in still)
    unpriced = len(rates) - len(known)
    note = f"{counted(unpriced, 'incident')} without a price" if unpriced else ""
    return (
        Tile("Open", f"{len(still):,}"), Tile("Ended", f"{len(items) - len(still):,}"),
        Tile("GPUs affected now", f"{gpus:,.3g}" if gpus < 1000 else f"{gpus:,.0f}"),
        Tile("Cost rate now", usd(sum(known), "/hour") if known else "unknown", note if still else ""),
    )  # fmt: skip


def _section(kind: ItemKind, named: Sequence[Item], total: int) -> Section:
    rows = tuple(
        (
            what_words(one) + end_words(item),
            where_words(subject) or NONE,
            who_words(subject) or NONE,
            amount_words(one) or NONE,
            one.id,
        )
        for item, one, subject in ((item, item.incident, item.incident.sighting.subject) for item in named)
    )
    more = f"{total - len(rows):,} more are counted below." if total > len(rows) else ""
    cost = "Total cost" if kind in ("resolved", "over") else "Cost so far"
    table = Table(("Incident", "Node", "Owner", cost, "ID"), rows, right=(3,), more=more)
    return section(f"{_TITLES[kind]} ({total:,})", table if rows else more)


def _rest(rest: Sequence[Item]) -> Section:
    groups: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for one in rest:
        sighting = one.incident.sighting
        groups[KINDS[sighting.kind], owner_name(sighting.subject) or NONE].append(one)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    rows = []
    for (kind, owner), each in ordered[:_COUNTED]:
        known = [one.incident.cost_usd for one in each if one.incident.cost_usd is not None]
        held = hours(sum(one.incident.gpu_hours for one in each), "").rstrip()
        rows.append((kind, owner, f"{len(each):,}", held, dollars(sum(known)) if known else NONE))
    left = ordered[_COUNTED:]
    more = f"{sum(len(each) for _, each in left):,} more of {counted(len(left), 'other owner')}." if left else ""
    heads = ("Kind", "Owner", "Incidents", "GPU-hours", "Cost so far")
    return section(f"{len(rest):,} more", Table(heads, tuple(rows), right=(2, 3, 4), more=more))


def _commands(named: Sequence[Item], commands: IncidentCommands) -> Section:
    still = next((one.incident for one in named if not one.ended), None)
    return section(
        "Commands",
        AsideBlock(f"All incidents{commands.where}:", commands.list()),
        AsideBlock("Acknowledge one, no reminders:", commands.acknowledge(still.id)) if still is not None else None,
        AsideBlock("Pause reminders for a day:", commands.snooze(still.id)) if still is not None else None,
        _prices(named),
    )


def _prices(named: Sequence[Item]) -> str:
    """Where the dollars of the named incidents are from."""
    sources = sorted({short(one, 120) for item in named if (one := item.incident.sighting.price_source) is not None})
    more = f" and {len(sources) - _PRICES} more" if len(sources) > _PRICES else ""
    return f"Prices: {'; '.join(sources[:_PRICES])}{more}." if sources else ""
