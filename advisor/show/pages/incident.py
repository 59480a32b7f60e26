"""A message about incidents as a page: of one the fact, the next step, its evidence and how to acknowledge it; of
several the worst by name, the rest counted by kind and owner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ...core.formatting import NONE, bare_hours, counted, usd
from ...core.incident_types import Incident
from ...core.timestamps import minute, span
from ...watch.settings import WatchSettings
from .. import incident_words as say
from ..dashboard import NO_DASHBOARD, Dashboard
from ..document import AsideBlock, Document, Figures, Link, Section, Table, Tile, section
from ..incident_words import Item, ItemKind, short
from ..reader_commands import ReaderCommands

_VALUE_MAX, _TEXT_MAX = 240, 600
_NAMED = 20  # incidents by name in one message
_COUNTED = 30  # rows of the rest
# Prefix of a line, heading and word of a count, in the order of a message.
_KINDS: dict[ItemKind, tuple[str, str, str]] = {
    "opened": ("", "New", "new"),
    "reminded": ("Reminder: ", "Still open", "still open"),
    "resolved": ("Resolved: ", "Resolved", "resolved"),
    "over": ("Ended: ", "Began and ended before this message", "ended"),
}
_FOOTER = ("Written by skuwise watch from telemetry alone. Nothing was stopped or changed.",)


def incident_document(
    items: Sequence[Item],
    now: float,
    settings: WatchSettings,
    commands: ReaderCommands,
    dashboard: Dashboard = NO_DASHBOARD,
) -> Document:
    """The page about one incident, or about several. `now`: Unix seconds."""
    if len(items) > 1:
        return _digest(items, now, commands, dashboard)
    item, incident, subject = items[0], items[0].incident, items[0].incident.sighting.subject
    line = f"{_KINDS[item.kind][0]}{say.line_words(item)}"
    link = dashboard.link(subject.workload_id or "", subject.nodes[0] if subject.nodes else "") or dashboard.link()
    # What stands elsewhere on the page is left out.
    elsewhere = ("incident", "finding", "do next", "more", "since", "GPU-hours", "cost")
    facts = [("kind", f"{incident.sighting.kind} ({short(incident.sighting.code)})")]
    for label, text in say.details(incident, now):
        if label not in elsewhere:
            facts.append((label, short(text, _VALUE_MAX)))
    shown = [(label if n == 0 or facts[n - 1][0] != label else "", text) for n, (label, text) in enumerate(facts)]
    next_step = section(
        "Next step",
        short(incident.sighting.do_next.text, _TEXT_MAX),
        AsideBlock(f"Details{commands.where}:", details_command(incident, commands)),
    )
    control = section(
        "Acknowledge, snooze or change the limit",
        f"Reminders are sent every {_limit(settings.remind_every_seconds)} until the incident ends.",
        AsideBlock(f"Acknowledge, no reminders{commands.where}:", _acknowledge(incident, commands)),
        AsideBlock(f"Pause reminders for a day{commands.where}:", _snooze(incident, commands)),
        AsideBlock(_setting_words(incident, settings)),
    )
    details = section("Incident", Figures(tuple(shown)))
    return Document(
        title=short(f"{say.BRAND} {line}", say.SUBJECT_MAX),
        heading=short(line, say.SUBJECT_MAX),
        window=f"since {minute(incident.since)}, last confirmed {minute(incident.last_seen_at)}",
        summary=say.summary_words(item),
        tiles=_tiles(item),
        link=Link("Dashboard", link) if link else None,
        sections=(details,) if item.ended else (next_step, details, control),
        footer=_FOOTER,
    )


def _acknowledge(incident: Incident, commands: ReaderCommands) -> str:
    return commands.stored("incidents acknowledge", incident.id)


def _snooze(incident: Incident, commands: ReaderCommands) -> str:
    return commands.stored("incidents snooze", incident.id, "--until", "1d")


def details_command(incident: Incident, commands: ReaderCommands) -> str:
    """The card of its workload; without one, the incident in full."""
    workload = incident.sighting.subject.workload_id
    return commands.job(workload) if workload is not None else commands.stored("incidents show", incident.id)


def _tiles(item: Item) -> tuple[Tile, ...]:
    incident, subject = item.incident, item.incident.sighting.subject
    name, suffix = ("Lasted", "") if item.ended else ("Duration", " so far")
    lasted = Tile(name, say.lasted_words(incident), f"since {minute(incident.since)}")
    if subject.gpu_count <= 0:
        return (lasted, Tile("Where", say.where_words(subject) or short(subject.name)))
    is_priced = incident.cost_usd is not None
    cost, _, basis = say.cost_words(incident).partition(", " if is_priced else ": ")
    return (
        lasted,
        Tile("GPUs", say.gpus_words(subject), say.where_words(subject)),
        Tile(f"GPU-hours{suffix}", bare_hours(incident.gpu_hours)),
        Tile(f"Cost{suffix}", say.amount_words(incident) if is_priced else cost, short(basis, _VALUE_MAX)),
    )


def _limit(seconds: float) -> str:
    """A length of time from the settings: ``2 h``."""
    return span(seconds).replace(".0 ", " ")


def _setting_words(incident: Incident, settings: WatchSettings) -> str:
    """Which setting decides when such an incident opens."""
    holder = incident.sighting.subject.holder
    if incident.sighting.kind == "held-idle" and holder is not None:
        limit = _limit(settings.limit_seconds(holder))
        return f"The limit for this kind of holder is {limit}: {holder}_limit in section [watch] of skuwise.toml."
    return "Thresholds: rules/watch.yaml; site rules override them."


def _digest(items: Sequence[Item], now: float, commands: ReaderCommands, dashboard: Dashboard) -> Document:
    named, rest = _cut(items)
    kinds: dict[ItemKind, int] = {kind: sum(item.kind == kind for item in items) for kind in _KINDS}
    counts = ", ".join(f"{count:,} {_KINDS[kind][2]}" for kind, count in kinds.items() if count)
    amount, gpu_hours = _sums(item.incident for item in items)
    total = ", ".join(filter(None, (amount, f"{gpu_hours} GPU-hours")))
    title = f"{len(items):,} incidents ({counts}): {total} so far"
    first = next((item.incident for item in named if not item.ended), None)
    return Document(
        title=f"{say.BRAND} {title}",
        heading=title,
        window=minute(now),
        summary=_worst(named),
        tiles=_digest_tiles(items),
        link=Link("Dashboard", dashboard.link()) if dashboard.template else None,
        sections=(
            *(_named(kind, [i for i in named if i.kind == kind], count) for kind, count in kinds.items() if count),
            *((_rest([item.incident for item in rest]),) if rest else ()),
            section(
                "Commands",
                AsideBlock(f"All incidents{commands.where}:", commands.stored("incidents list")),
                AsideBlock("Acknowledge one, no reminders:", _acknowledge(first, commands)) if first else None,
                AsideBlock("Pause reminders for a day:", _snooze(first, commands)) if first else None,
                say.price_words(item.incident for item in named),
            ),
        ),
        footer=_FOOTER,
    )


def _cut(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    ordered = sorted(items, key=lambda item: say.urgency(item.incident))
    return ordered[:_NAMED], ordered[_NAMED:]


def _worst(named: Sequence[Item]) -> str:
    return f"Worst: {say.line_words(named[0])}."


def _sums(incidents: Iterable[Incident]) -> tuple[str, str]:
    """Dollars, empty where no price is known, and GPU-hours of several incidents."""
    gpu_hours, cost_usds = 0.0, []
    for incident in incidents:
        gpu_hours += incident.gpu_hours
        cost_usds += [incident.cost_usd] if incident.cost_usd is not None else []
    return say.dollars(sum(cost_usds)) if cost_usds else "", bare_hours(gpu_hours)


def _digest_tiles(items: Sequence[Item]) -> tuple[Tile, ...]:
    sightings = [item.incident.sighting for item in items if not item.ended]
    rates = [sighting.usd_per_hour for sighting in sightings if sighting.usd_per_hour is not None]
    gpus, unpriced = sum(sighting.subject.gpu_count for sighting in sightings), len(sightings) - len(rates)
    note = f"{counted(unpriced, 'incident')} without a price" if unpriced else ""
    return (
        Tile("GPUs affected now", f"{gpus:,.3g}" if gpus < 1000 else f"{gpus:,.0f}"),
        Tile("Cost rate now", usd(sum(rates), "/hour") if rates else "unknown", note),
    )


def _named(kind: ItemKind, named: Sequence[Item], total: int) -> Section:
    """Those of one kind in a table: three columns, which a phone has room for."""
    rows = tuple((say.event_words(i), say.amount_words(i.incident) or NONE, i.incident.id) for i in named)
    more = f"{total - len(rows):,} more are counted below." if total > len(rows) else ""
    cost = "total cost" if kind in ("resolved", "over") else "cost so far"
    table = Table(("incident", cost, "id"), rows, right=(1,), more=more)
    return section(f"{_KINDS[kind][1]} ({total:,})", table if rows else more)


def _rest(rest: Sequence[Incident]) -> Section:
    groups: dict[tuple[str, str], list[Incident]] = defaultdict(list)
    for incident in rest:
        groups[incident.sighting.kind, say.owner_name(incident.sighting.subject) or NONE].append(incident)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    rows = []
    for (kind, owner), group in ordered[:_COUNTED]:
        amount, gpu_hours = _sums(group)
        rows.append((kind, owner, f"{len(group):,}", gpu_hours, amount or NONE))
    left = ordered[_COUNTED:]
    more = f"{sum(len(group) for _, group in left):,} more of {counted(len(left), 'other owner')}." if left else ""
    heads = ("kind", "owner", "incidents", "GPU-hours", "cost so far")
    return section(f"{len(rest):,} more", Table(heads, tuple(rows), right=(2, 3, 4), more=more))
