"""A message about several incidents as a page: the worst by name, the rest counted by kind and owner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...core.formatting import NONE, counted, hours, usd
from ...core.timestamps import minute
from .dashboard import NO_DASHBOARD, Dashboard
from .incident_commands import IncidentCommands
from .incident_words import (
    BRAND,
    KINDS,
    Item,
    ItemKind,
    amount_words,
    dollars,
    end_words,
    line_words,
    owner_name,
    rank,
    short,
    total_words,
    what_words,
    where_words,
    who_words,
)
from .model import AsideBlock, Document, Link, Section, Table, Tile, section

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
    title = _title(items)
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
        tiles=_tiles(items),
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


def _title(items: Sequence[Item]) -> str:
    counts = [f"{n:,} {_COUNTS[kind]}" for kind in _ORDER if (n := sum(one.kind == kind for one in items))]
    return f"{len(items):,} incidents ({', '.join(counts)}): {total_words(items)} so far"


def _summary(items: Sequence[Item]) -> str:
    worst = min(items, key=rank)
    return f"Worst: {line_words(worst)}."


def _tiles(items: Sequence[Item]) -> tuple[Tile, ...]:
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
    rows = tuple(
        (kind, owner, f"{len(each):,}", hours(sum(one.incident.gpu_hours for one in each), "").rstrip(), _dollars(each))
        for (kind, owner), each in ordered[:_COUNTED]
    )
    left = ordered[_COUNTED:]
    more = f"{sum(len(each) for _, each in left):,} more of {counted(len(left), 'other owner')}." if left else ""
    heads = ("Kind", "Owner", "Incidents", "GPU-hours", "Cost so far")
    return section(f"{len(rest):,} more", Table(heads, rows, right=(2, 3, 4), more=more))


def _dollars(items: Sequence[Item]) -> str:
    known = [one.incident.cost_usd for one in items if one.incident.cost_usd is not None]
    return dollars(sum(known)) if known else NONE


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
