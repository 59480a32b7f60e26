"""A message about one incident (fact, next step, evidence, how to acknowledge it), or the worst of several by name."""

from collections.abc import Sequence

from ...core.formatting import NONE, bare_hours, counted, usd
from ...core.incident_types import Incident
from ...core.timestamps import minute, span
from ...watch.settings import WatchSettings
from .. import incident_words as say
from ..document import AsideBlock, Document, Figures, Link, Section, Table, Tile, section
from ..incident_words import Item, ItemKind, short
from ..reader_links import NO_LINKS, ReaderCommands, ReaderLinks

_VALUE_MAX, _TEXT_MAX = 240, 600
_NAMED = 20  # incidents by name in one message
# Prefix of a line, heading and word of a count, in the order of a message.
_KINDS: dict[ItemKind, tuple[str, str, str]] = {
    "opened": ("", "New", "new"),
    "reminded": ("Reminder: ", "Still open", "still open"),
    "resolved": ("Resolved: ", "Resolved", "resolved"),
    "over": ("Ended: ", "Began and ended before this message", "ended"),
}
# Details that are shown elsewhere on the page.
_ELSEWHERE = ("incident", "finding", "do next", "more", "since", "GPU-hours", "cost")
_FOOTER = ("Written by skuwise watch from telemetry alone. Nothing was stopped or changed.",)


def incident_document(
    items: Sequence[Item], now: float, settings: WatchSettings, links: ReaderLinks = NO_LINKS
) -> Document:
    """The page about one incident, or about several. `now`: Unix seconds."""
    if len(items) > 1:
        return _digest(items, now, links)
    item, incident, subject = items[0], items[0].incident, items[0].incident.sighting.subject
    line, where = f"{_KINDS[item.kind][0]}{say.line_words(item)}", links.commands.where
    link = links.link(subject.workload_id or "", subject.nodes[0] if subject.nodes else "") or links.link()
    facts = [("kind", f"{incident.sighting.kind} ({short(incident.sighting.code)})")]
    facts += [(label, short(text, _VALUE_MAX)) for label, text in say.details(incident, now) if label not in _ELSEWHERE]
    shown = [(label if n == 0 or facts[n - 1][0] != label else "", text) for n, (label, text) in enumerate(facts)]
    acknowledge, snooze = _commands(incident, links.commands)
    setting = "Thresholds: rules/watch.yaml; site rules override them."
    if incident.sighting.kind == "held-idle" and (holder := subject.holder) is not None:
        limit = _limit(settings.limit_seconds(holder))
        setting = f"The limit for this kind of holder is {limit}: {holder}_limit in section [watch] of skuwise.toml."
    next_step = section(
        "Next step",
        short(incident.sighting.do_next.text, _TEXT_MAX),
        AsideBlock(f"Details{where}:", details_command(incident, links.commands)),
    )
    control = section(
        "Acknowledge, snooze or change the limit",
        f"Reminders are sent every {_limit(settings.remind_every_seconds)} until the incident ends.",
        AsideBlock(f"Acknowledge, no reminders{where}:", acknowledge),
        AsideBlock(f"Pause reminders for a day{where}:", snooze),
        AsideBlock(setting),
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


def _commands(incident: Incident, commands: ReaderCommands) -> tuple[str, str]:
    acknowledge = commands.stored("incidents acknowledge", incident.id)
    return acknowledge, commands.stored("incidents snooze", incident.id, "--until", "1d")


def details_command(incident: Incident, commands: ReaderCommands) -> str:
    """The card of its workload; without one, the incident in full."""
    workload = incident.sighting.subject.workload_id
    if workload is None:
        return commands.stored("incidents show", incident.id)
    return commands.run("job", workload, options=commands.source)


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
    return span(seconds).replace(".0 ", " ")


def _digest(items: Sequence[Item], now: float, links: ReaderLinks) -> Document:
    where, ordered = links.commands.where, sorted(items, key=lambda item: say.urgency(item.incident))
    named = ordered[:_NAMED]
    kinds: dict[ItemKind, int] = {kind: count for kind in _KINDS if (count := sum(item.kind == kind for item in items))}
    counts = ", ".join(f"{count:,} {_KINDS[kind][2]}" for kind, count in kinds.items())
    costs = [item.incident.cost_usd for item in items if item.incident.cost_usd is not None]
    gpu_hours, amount = sum(item.incident.gpu_hours for item in items), f"{say.dollars(sum(costs))}, " if costs else ""
    title = f"{len(items):,} incidents ({counts}): {amount}{bare_hours(gpu_hours)} GPU-hours so far"
    first = next((_commands(item.incident, links.commands) for item in named if not item.ended), None)
    sightings = [item.incident.sighting for item in items if not item.ended]
    rates = [sighting.usd_per_hour for sighting in sightings if sighting.usd_per_hour is not None]
    gpus, unpriced = sum(sighting.subject.gpu_count for sighting in sightings), len(sightings) - len(rates)
    note = f"{counted(unpriced, 'incident')} without a price" if unpriced else ""
    rate = Tile("Cost rate now", usd(sum(rates), "/hour") if rates else "unknown", note)
    return Document(
        title=f"{say.BRAND} {title}",
        heading=title,
        window=minute(now),
        summary=f"Worst: {say.line_words(named[0])}.",
        tiles=(Tile("GPUs affected now", f"{gpus:,.3g}" if gpus < 1000 else f"{gpus:,.0f}"), rate),
        link=Link("Dashboard", links.link()) if links.dashboard else None,
        sections=(
            *(_named(kind, [item for item in named if item.kind == kind], count) for kind, count in kinds.items()),
            section(
                "Commands",
                AsideBlock(f"All incidents{where}:", links.commands.stored("incidents list")),
                AsideBlock("Acknowledge one, no reminders:", first[0]) if first else None,
                AsideBlock("Pause reminders for a day:", first[1]) if first else None,
                say.price_words(item.incident for item in named),
            ),
        ),
        footer=_FOOTER,
    )


def _named(kind: ItemKind, named: Sequence[Item], total: int) -> Section:
    rows = tuple((say.event_words(i), say.amount_words(i.incident) or NONE, i.incident.id) for i in named)
    more = f"{total - len(rows):,} more, of lower severity or cost." if total > len(rows) else ""
    cost = "total cost" if kind in ("resolved", "over") else "cost so far"
    table = Table(("incident", cost, "id"), rows, right=(1,), more=more)
    return section(f"{_KINDS[kind][1]} ({total:,})", table if rows else more)
