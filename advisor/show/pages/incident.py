"""A message about incidents as a page: of one the fact, the one thing to do, its evidence and how to be left alone; of
several the worst by name, the rest counted by kind and owner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...core.formatting import NONE, counted, evidence_words, hours, usd
from ...core.incident_types import Incident
from ...core.timestamps import minute, span
from ...watch.settings import WatchSettings
from .. import incident_words as say
from ..dashboard import NO_DASHBOARD, Dashboard
from ..document import AsideBlock, Document, Figures, Link, Section, Table, Tile, section
from ..incident_words import Item, ItemKind, short
from ..reader_commands import ReaderCommands

_VALUE_MAX = 240
_EVIDENCE_SHOWN = 6  # in a webhook's text
NAMED = 20  # incidents by name in one message
_COUNTED = 30  # rows of the rest
_ORDER: tuple[ItemKind, ...] = ("opened", "reminded", "resolved", "over")
_TITLES: dict[ItemKind, str] = {
    "opened": "New", "reminded": "Still open", "resolved": "Resolved", "over": "Began and ended before this message",
}  # fmt: skip
_COUNTS: dict[ItemKind, str] = {"opened": "new", "reminded": "still open", "resolved": "resolved", "over": "ended"}
_FOOTER = "Written by skuwise watch from telemetry alone. Nothing was stopped or changed."


def incident_document(
    items: Sequence[Item],
    now: float,
    settings: WatchSettings,
    commands: ReaderCommands,
    dashboard: Dashboard = NO_DASHBOARD,
) -> Document:
    """The page about one incident, or about several. `now`: Unix seconds."""
    return (
        _one(items[0], now, settings, commands, dashboard)
        if len(items) == 1
        else _digest(items, now, commands, dashboard)
    )


def incident_lines(items: Sequence[Item], commands: ReaderCommands) -> tuple[str, ...]:
    """The same in a few lines, for a channel that shows plain text; what may be cut comes last."""
    if len(items) > 1:
        named, rest = _cut(items)
        lines = [_worst(items), f"All incidents: {commands.incidents()}"]
        if rest:
            lines.insert(1, f"{len(rest):,} more are counted in the mail.")
        for kind in _ORDER:
            of_kind = [f"- {say.line_words(one)} [{one.incident.id}]" for one in named if one.kind == kind]
            lines += [f"{_TITLES[kind]}:", *of_kind] if of_kind else []
        return tuple(lines)
    item, one = items[0], items[0].incident
    lines = [
        say.summary_words(item),
        f"Since: {minute(one.since)}",
        f"Cost: {hours(one.gpu_hours)}, {say.cost_words(one)}",
    ]
    lines += [short(evidence_words(e), _VALUE_MAX) for e in one.sighting.evidence[:_EVIDENCE_SHOWN]]
    if not item.ended:
        lines += [f"Next: {short(one.sighting.do_next.text, 600)}", f"Details: {_more(one, commands)}"]
        lines += [f"Acknowledge: {commands.acknowledge(one.id)}", f"Snooze: {commands.snooze(one.id)}"]
    return tuple(lines)


def _one(item: Item, now: float, settings: WatchSettings, commands: ReaderCommands, dashboard: Dashboard) -> Document:
    one, subject = item.incident, item.incident.sighting.subject
    line = f"{say.PREFIXES[item.kind]}{say.line_words(item)}"
    link = dashboard.of(subject.workload_id or "", subject.nodes[0] if subject.nodes else "") or dashboard.page
    # What stands elsewhere on the page is left out.
    elsewhere = ("incident", "finding", "do next", "more", "since", "GPU-hours", "cost")
    shown, label = [], ""
    for name, text in say.details(one, now):
        label = name or label
        if label not in elsewhere:
            shown.append((name, short(text, _VALUE_MAX)))
    facts = section("Incident", Figures((("kind", f"{one.sighting.kind} ({short(one.sighting.code)})"), *shown)))
    still = () if item.ended else (
        section(
            "Next step",
            short(one.sighting.do_next.text, 600),
            AsideBlock(f"Details{commands.where}:", _more(one, commands)),
        ),
    )  # fmt: skip
    control = () if item.ended else (
        section(
            "Acknowledge, snooze or change the limit",
            f"Reminders are sent every {_limit(settings.remind_every_seconds)} until the incident ends.",
            AsideBlock(f"Acknowledge, no reminders{commands.where}:", commands.acknowledge(one.id)),
            AsideBlock(f"Pause reminders for a day{commands.where}:", commands.snooze(one.id)),
            AsideBlock(setting_words(one, settings)),
        ),
    )  # fmt: skip
    return Document(
        title=short(f"{say.BRAND} {line}", say.SUBJECT_MAX),
        heading=short(line, say.SUBJECT_MAX),
        window=f"since {minute(one.since)}, last confirmed {minute(one.last_seen_at)}",
        summary=say.summary_words(item),
        tiles=_tiles(item),
        link=Link("Dashboard", link) if link else None,
        sections=(*still, facts, *control),
        footer=(_FOOTER,),
    )


def _more(one: Incident, commands: ReaderCommands) -> str:
    workload = one.sighting.subject.workload_id
    return commands.job(workload) if workload is not None else commands.show(one.id)


def _tiles(item: Item) -> tuple[Tile, ...]:
    one, subject = item.incident, item.incident.sighting.subject
    lasted = Tile("Lasted" if item.ended else "Duration", say.lasted_words(one), f"since {minute(one.since)}")
    if subject.gpu_count <= 0:
        return (lasted, Tile("Where", say.where_words(subject) or short(subject.name)))
    suffix = "" if item.ended else " so far"
    cost, _, basis = say.cost_words(one).partition(", " if one.cost_usd is not None else ": ")
    return (
        lasted, Tile("GPUs", say.gpus_words(subject), say.where_words(subject)),
        Tile(f"GPU-hours{suffix}", hours(one.gpu_hours, "").rstrip()),
        Tile(f"Cost{suffix}", say.amount_words(one) if one.cost_usd is not None else cost, short(basis, _VALUE_MAX)),
    )  # fmt: skip


def _limit(seconds: float) -> str:
    """A length of time that somebody set: ``2 h``."""
    return span(seconds).replace(".0 ", " ")


def setting_words(one: Incident, settings: WatchSettings) -> str:
    """Which setting decides when such an incident opens."""
    holder = one.sighting.subject.holder
    if one.sighting.kind == "held-idle" and holder is not None:
        limit = _limit(settings.limit_seconds(holder))
        return f"The limit for this kind of holder is {limit}: {holder}_limit in section [watch] of skuwise.toml."
    return "Thresholds: rules/watch.yaml; site rules override them."


def _digest(items: Sequence[Item], now: float, commands: ReaderCommands, dashboard: Dashboard) -> Document:
    named, rest = _cut(items)
    kinds: list[tuple[ItemKind, int]] = [(kind, sum(one.kind == kind for one in items)) for kind in _ORDER]
    counts = ", ".join(f"{count:,} {_COUNTS[kind]}" for kind, count in kinds if count)
    cost_usds = [one.incident.cost_usd for one in items if one.incident.cost_usd is not None]
    gpu_hours = hours(sum(one.incident.gpu_hours for one in items))
    total = f"{say.dollars(sum(cost_usds))}, {gpu_hours}" if cost_usds else gpu_hours
    title = f"{len(items):,} incidents ({counts}): {total} so far"
    still = [one.incident for one in named if not one.ended][:1]
    return Document(
        title=f"{say.BRAND} {title}",
        heading=title,
        window=minute(now),
        summary=_worst(items),
        tiles=_digest_tiles(items),
        link=Link("Dashboard", dashboard.page) if dashboard.page else None,
        sections=(
            *(_named(kind, [one for one in named if one.kind == kind], count) for kind, count in kinds if count),
            *((_rest(rest),) if rest else ()),
            section(
                "Commands",
                AsideBlock(f"All incidents{commands.where}:", commands.incidents()),
                *(AsideBlock("Acknowledge one, no reminders:", commands.acknowledge(one.id)) for one in still),
                *(AsideBlock("Pause reminders for a day:", commands.snooze(one.id)) for one in still),
                say.price_words(item.incident for item in named),
            ),
        ),
        footer=(_FOOTER,),
    )


def _cut(items: Sequence[Item]) -> tuple[list[Item], list[Item]]:
    ordered = sorted(items, key=lambda item: say.urgency(item.incident))
    return ordered[:NAMED], ordered[NAMED:]


def _worst(items: Sequence[Item]) -> str:
    return f"Worst: {say.line_words(min(items, key=lambda item: say.urgency(item.incident)))}."


def _digest_tiles(items: Sequence[Item]) -> tuple[Tile, ...]:
    still = [item.incident.sighting for item in items if not item.ended]
    usd_per_hours = [one.usd_per_hour for one in still if one.usd_per_hour is not None]
    gpus, unpriced = sum(one.subject.gpu_count for one in still), len(still) - len(usd_per_hours)
    note = f"{counted(unpriced, 'incident')} without a price" if unpriced else ""
    return (
        Tile("GPUs affected now", f"{gpus:,.3g}" if gpus < 1000 else f"{gpus:,.0f}"),
        Tile("Cost rate now", usd(sum(usd_per_hours), "/hour") if usd_per_hours else "unknown", note),
    )


def _named(kind: ItemKind, named: Sequence[Item], total: int) -> Section:
    """Those of one kind in a table: three columns, which a phone has room for."""
    rows = []
    for item in named:
        one, subject = item.incident, item.incident.sighting.subject
        where, who = say.where_words(subject), say.who_words(subject)
        what = (
            f"{say.phrase_words(one)} for {say.lasted_words(one)}{say.end_words(item)}{f' on {where}' if where else ''}"
        )
        rows.append((what + (f" ({who})" if who else ""), say.amount_words(one) or NONE, one.id))
    more = f"{total - len(rows):,} more are counted below." if total > len(rows) else ""
    cost = "total cost" if kind in ("resolved", "over") else "cost so far"
    table = Table(("incident", cost, "id"), tuple(rows), right=(1,), more=more)
    return section(f"{_TITLES[kind]} ({total:,})", table if rows else more)


def _rest(rest: Sequence[Item]) -> Section:
    groups: dict[tuple[str, str], list[Incident]] = defaultdict(list)
    for item in rest:
        sighting = item.incident.sighting
        groups[sighting.kind, say.owner_name(sighting.subject) or NONE].append(item.incident)
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    rows = []
    for (kind, owner), each in ordered[:_COUNTED]:
        cost_usds = [one.cost_usd for one in each if one.cost_usd is not None]
        held = hours(sum(one.gpu_hours for one in each), "").rstrip()
        rows.append((kind, owner, f"{len(each):,}", held, say.dollars(sum(cost_usds)) if cost_usds else NONE))
    left = ordered[_COUNTED:]
    more = f"{sum(len(each) for _, each in left):,} more of {counted(len(left), 'other owner')}." if left else ""
    heads = ("kind", "owner", "incidents", "GPU-hours", "cost so far")
    return section(f"{len(rest):,} more", Table(heads, tuple(rows), right=(2, 3, 4), more=more))
