"""One pass of notifying: events are queued for each recipient once, the outbox is emptied, Alertmanager is updated.

What is queued is on the disk before the file of incidents notes it, with the keys of its events. So a pass that is
killed anywhere in between queues nothing twice and loses nothing: the next one asks both files.

Quiet hours: who is informed now, and what waits until they end.

When they end, each recipient gets one digest. What began and ended within them is one line of it: nobody can act on it
any more, but its GPU-hours are spent, and a mail by itself where there is nothing else. Alertmanager receives the state
at all times: it has mute times of its own.

Which recipient is informed of what in one pass: events by recipient, at most one item an incident. Pure.

A recipient that the routes name from today on is not sent what was opened before. It reads of an incident that is still
open by the next reminder, and of its end only after that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.sanitize import clean
from ..core.formatting import counted
from ..core.incident_types import Incident, IncidentEvent
from ..state.outbox import Queued
from ..state.parcel import WATCH, Channel, Parcel
from ..views.document.incident_words import Item, ItemKind
from ..watch.settings import WatchSettings
from .alertmanager import Alertmanager
from .alerts import alerts_of
from .carriers import available_carriers
from .delivery import Tally, send_waiting
from .desk import Desk, Incidents, Recipient, recipients_of
from .incident_letters import letter_of, webhook_json
from .letter import Letter
from .mime import NOBODY, Envelope, compose, message_id

Untold = Sequence[tuple[IncidentEvent, Incident]]


@dataclass(frozen=True, slots=True)
class Batch:
    """One message: to recipients of one team and channel, about the same events."""

    team: str
    channel: Channel
    recipients: tuple[Recipient, ...]
    items: tuple[Item, ...]
    events: tuple[IncidentEvent, ...]

    @property
    def name(self) -> str:
        """The same for the same events and recipients, whenever it is made."""
        what = [self.team, self.channel, *sorted(one.key for one in self.recipients), *sorted(map(key_of, self.events))]
        return WATCH + hashlib.sha256("\0".join(what).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def key_of(event: IncidentEvent) -> str:
    """As the outbox names an event."""
    return f"{event.incident_id}/{event.number}"


def opening_key(incident_id: str) -> str:
    return f"{incident_id}/0"


def batches_of(
    untold: Untold,
    recipients: Callable[[Incident], Sequence[Recipient]],
    told: Mapping[str, set[str]],
    knows: Callable[[Incident, Recipient], bool],
    busy: Callable[[Recipient], bool],
) -> tuple[tuple[Batch, ...], frozenset[str]]:
    """The messages of a pass, and the keys of events that have to wait for a recipient.

    `told`: event -> the recipients for whom it was queued. `knows`: whether a recipient was ever informed that an
    incident is open. `busy`: an earlier message has yet to reach the recipient, so that no other is queued meanwhile.
    """
    by_incident: dict[str, tuple[Incident, list[IncidentEvent]]] = {}
    for event, incident in untold:
        by_incident.setdefault(incident.id, (incident, []))[1].append(event)
    found: dict[Recipient, list[tuple[Item, tuple[IncidentEvent, ...]]]] = {}
    taken: set[tuple[str, str]] = set()  # an address of two teams is informed once
    waiting: set[str] = set()
    for incident, events in by_incident.values():
        for recipient in recipients(incident):
            if (incident.id, recipient.key) in taken:
                continue
            new = tuple(event for event in events if recipient.key not in told.get(key_of(event), ()))
            kind = _kind(incident, new, lambda one=incident, to=recipient: knows(one, to))
            if kind is None:
                continue
            taken.add((incident.id, recipient.key))
            if busy(recipient):
                waiting.update(map(key_of, new))
            else:
                found.setdefault(recipient, []).append((Item(incident, kind), new))
    return tuple(_merged(found.items())), frozenset(waiting)


def _kind(incident: Incident, new: Sequence[IncidentEvent], knows: Callable[[], bool]) -> ItemKind | None:
    """What is new to one recipient; None: nothing. As the incident is now, not as each event found it."""
    kinds = {event.kind for event in new}
    if incident.resolved_at is None:
        # An end of what came back is no end.
        return "opened" if "opened" in kinds else "reminded" if "reminded" in kinds else None
    if "opened" in kinds:
        return "over"
    return "resolved" if "resolved" in kinds and knows() else None


def _merged(found: Iterable[tuple[Recipient, list[tuple[Item, tuple[IncidentEvent, ...]]]]]) -> Iterable[Batch]:
    """One batch for the addresses of a team that are informed of the same."""
    same: dict[tuple[str, Channel, tuple[tuple[str, str], ...], tuple[str, ...]], list[Recipient]] = {}
    contents: dict[object, tuple[tuple[Item, ...], tuple[IncidentEvent, ...]]] = {}
    for recipient, pairs in found:
        items = tuple(item for item, _ in pairs)
        events = tuple(event for _, each in pairs for event in each)
        what = (
            recipient.team, recipient.channel, tuple((item.incident.id, item.kind) for item in items),
            tuple(map(key_of, events)),
        )  # fmt: skip
        same.setdefault(what, []).append(recipient)
        contents[what] = (items, events)
    for what, recipients in same.items():
        items, events = contents[what]
        yield Batch(what[0], what[1], tuple(recipients), items, events)


def is_quiet(settings: WatchSettings, now: float) -> bool:
    """Whether `now` (Unix seconds) lies within the quiet hours, by the local clock. They may cross midnight; where the
    clock is set back, an hour that happens twice is quiet twice."""
    if settings.quiet_hours is None:
        return False
    begin, end = settings.quiet_hours
    hour = datetime.fromtimestamp(now, settings.time_zone).hour
    return begin <= hour < end if begin < end else hour >= begin or hour < end


def waits(incident: Incident, settings: WatchSettings, now: float) -> bool:
    """Whether its events wait until the quiet hours are over: all but those of high severity, as it is now."""
    return incident.sighting.severity != "high" and is_quiet(settings, now)


# A pass sends for half of the time to the next one at most, and the report's sender waits for no longer.
_MOST_SECONDS = 120.0
# Stands for a recipient in the file of incidents: a dry run printed the event.
DRY_RUN = "dry-run"


@dataclass(frozen=True, slots=True)
class Told:
    """What a pass did. `queued`: messages; `sent`, `waiting`, `refused`: recipients, as `Tally` has them; `alerts`:
    handed to Alertmanager; `quiet`: incidents that wait for the end of the quiet hours; `faults`: what failed, each a
    sentence and a remedy. All that failed is tried again by the next pass, except for refused recipients."""

    queued: int = 0
    sent: int = 0
    waiting: int = 0
    refused: tuple[str, ...] = ()
    alerts: int = 0
    quiet: int = 0
    faults: tuple[SkuwiseError, ...] = ()

    @property
    def failed(self) -> bool:
        return bool(self.faults or self.refused)


def dispatch(store: Incidents, desk: Desk) -> Told:
    """Inform all whom untold events concern. Raises nothing that is a SkuwiseError: `Told.faults` has it."""
    if not desk.watch.send:
        return _dry_run(store, desk)
    faults: list[SkuwiseError] = []
    queued, quiet, tally, alerts = 0, 0, None, 0
    try:
        queued, quiet, tally, found = _mails(store, desk)
        faults += found
    except SkuwiseError as error:
        faults.append(error)
    if desk.watch.alertmanager_url:
        try:
            alerts = _alerts(store, desk)
        except SkuwiseError as error:
            faults.append(error)
    if tally is None:
        return Told(queued, alerts=alerts, quiet=quiet, faults=tuple(faults))
    return Told(queued, tally.sent, tally.waiting, tally.refused, alerts, quiet, tuple(faults))


def _mails(store: Incidents, desk: Desk) -> tuple[int, int, Tally | None, Sequence[SkuwiseError]]:
    """Queue, then send. Gives messages queued, incidents in quiet hours, what was sent, and what failed."""
    untold, quiet = _eligible(store.untold(), desk)
    if not any(recipients_of(team) for team in desk.teams):
        fault = UsageError("No recipients configured.", "Set administrators in [report] or in the routes file.")
        return 0, quiet, None, () if desk.watch.alertmanager_url else (fault,)
    with desk.outbox.sending():
        queued = _queue(store, desk, untold)
        carriers, faults = available_carriers(desk.report, desk.teams, desk.environ)
        tally = send_waiting(
            desk.outbox, carriers, clock=desk.clocks.now, sleep=desk.clocks.sleep,
            mails_per_minute=desk.report.mails_per_minute, say=desk.say, batch=WATCH,
            most_seconds=min(desk.watch.every_seconds / 2, _MOST_SECONDS),
        )  # fmt: skip
    return queued, quiet, tally, (*faults, *tally.down)


def _eligible(untold: Untold, desk: Desk) -> tuple[Untold, int]:
    """The events that are not held by quiet hours, and the number of incidents that are."""
    now = desk.clocks.now().wall_seconds
    held = {incident.id for _, incident in untold if waits(incident, desk.watch, now)}
    return [pair for pair in untold if pair[1].id not in held], len(held)


def _queue(store: Incidents, desk: Desk, untold: Untold) -> int:
    """Write the messages of a pass to the outbox, then to the file of incidents. Gives their number."""
    if not untold:
        return 0
    keys = [key for event, incident in untold for key in (key_of(event), opening_key(incident.id))]
    known = desk.outbox.about(keys)
    told = {key_of(event): set(store.told(event)) for event, _ in untold}
    _catch_up(store, desk, untold, known, told)
    busy = desk.outbox.waiting_for(WATCH)
    batches, waiting = batches_of(
        untold, desk.recipients, told,
        lambda incident, to: _knows(store, incident, to, known),
        lambda to: (to.team, to.channel, to.address) in busy,
    )  # fmt: skip
    letters: dict[object, Letter] = {}
    for batch in batches:
        now = desk.clocks.now().wall_seconds
        desk.outbox.queue(_parcel(batch, desk, now, known, letters), now)
        for to in batch.recipients:
            store.note_queued(batch.name, batch.events, to.key, now)
    unaddressed = {incident.id for _, incident in untold if not desk.recipients(incident)}
    if unaddressed:
        desk.say(f"No recipient for {counted(len(unaddressed), 'incident')}: set administrators in [report].")
    store.settle([event for event, _ in untold if key_of(event) not in waiting])
    return len(batches)


def _catch_up(
    store: Incidents, desk: Desk, untold: Untold, known: Mapping[str, Sequence[Queued]], told: Mapping[str, set[str]]
) -> None:
    """Note what a killed pass had queued and not noted."""
    now = desk.clocks.now().wall_seconds
    missed: dict[tuple[str, str], list[IncidentEvent]] = {}
    for event, _ in untold:
        for delivery in known.get(key_of(event), ()):
            to = Recipient(delivery.team, delivery.channel, delivery.recipient).key
            if to not in told[key_of(event)]:
                told[key_of(event)].add(to)
                missed.setdefault((delivery.batch, to), []).append(event)
    for (batch, to), events in missed.items():
        store.note_queued(batch, events, to, now)


def _knows(store: Incidents, incident: Incident, to: Recipient, known: Mapping[str, Sequence[Queued]]) -> bool:
    """Whether a recipient was informed that an incident is open: of its beginning, or by a reminder."""
    if any(one.channel == to.channel and one.recipient == to.address and one.team == to.team
           for one in known.get(opening_key(incident.id), ())):  # fmt: skip
        return True
    events = [IncidentEvent(incident.id, "opened", 0, incident.opened_at)]
    events += [IncidentEvent(incident.id, "reminded", n + 1, incident.opened_at) for n in range(incident.reminders)]
    return any(to.key in store.told(event) for event in events)


def _parcel(
    batch: Batch, desk: Desk, now: float, known: Mapping[str, Sequence[Queued]], letters: dict[object, Letter]
) -> Parcel:
    sender = desk.report.sender or NOBODY
    id_ = message_id(batch.name, batch.team, sender)
    same = (batch.team, batch.events)
    letter = letters[same] = letters.get(same) or letter_of(batch.items, batch.team, now, desk.writing)
    to = tuple(one.address for one in batch.recipients)
    if batch.channel == "webhook":
        content = webhook_json(batch.items, letter.subject, desk.writing)
    else:
        envelope = Envelope(sender, to, desk.list_unsubscribe)
        content = compose(letter, envelope, message_id=id_, date=now, in_reply_to=_opening(batch, known))
    about = tuple(map(key_of, batch.events))
    return Parcel(batch.name, batch.team, batch.channel, id_, letter.subject, content, to, about)


def _opening(batch: Batch, known: Mapping[str, Sequence[Queued]]) -> str:
    """The id of the mail in which the recipients read of the one incident first; empty: a digest, or it is new."""
    if len(batch.items) != 1 or batch.items[0].kind in ("opened", "over"):
        return ""
    to = {one.address for one in batch.recipients}
    earlier = known.get(opening_key(batch.items[0].incident.id), ())
    ids = (one.message_id for one in earlier if one.channel == "mail" and one.recipient in to)
    return next(ids, "")


def _alerts(store: Incidents, desk: Desk) -> int:
    """Hand Alertmanager the state of all incidents. Raises SkuwiseError."""
    watch = desk.watch
    manager = Alertmanager(watch.alertmanager_url, watch.alertmanager_token_file, desk.environ)
    return manager.post(alerts_of(store.current(), desk.clocks.now().wall_seconds, desk.writing, desk.team_of))


def _dry_run(store: Incidents, desk: Desk) -> Told:
    """Print once what a pass would send to whom. Nothing is settled that a later pass may have to send; what began
    and ended meanwhile is."""
    try:
        untold, quiet = _eligible(store.untold(), desk)
        told = {key_of(event): set(store.told(event)) for event, _ in untold}
        fresh = [pair for pair in untold if DRY_RUN not in told[key_of(pair[0])]]
        batches, _ = batches_of(
            fresh, desk.recipients, told, lambda one, to: _knows(store, one, to, {}), lambda _: False
        )
        for batch in batches:
            where = ", ".join(to.address for to in batch.recipients) if batch.channel == "mail" else "webhook"
            subject = letter_of(batch.items, batch.team, desk.clocks.now().wall_seconds, desk.writing).subject
            desk.say(f"would be sent to {clean(batch.team or 'the administrators')} ({clean(where)}): {clean(subject)}")
        if fresh:
            if desk.watch.alertmanager_url:
                desk.say(
                    f"would update {counted(len(store.current()), 'alert')} in {clean(desk.watch.alertmanager_url)}"
                )
            desk.say("Dry run, nothing was sent. To send: set send = true in section [watch] of skuwise.toml.")
            store.note_queued(DRY_RUN, [event for event, _ in fresh], DRY_RUN, desk.clocks.now().wall_seconds)
        store.settle(_nobody_needs(untold, told))
    except SkuwiseError as error:
        return Told(faults=(error,))
    return Told(quiet=quiet)


def _nobody_needs(untold: Untold, told: Mapping[str, set[str]]) -> list[IncidentEvent]:
    """The events of incidents that began and ended in dry runs: no recipient has read of them."""
    began = {event.incident_id for event, one in untold if event.kind == "opened" and one.resolved_at is not None}
    began -= {event.incident_id for event, _ in untold if told[key_of(event)] - {DRY_RUN}}
    ended = {event.incident_id for event, _ in untold if event.kind == "resolved"}
    return [event for event, _ in untold if event.incident_id in began & ended]
