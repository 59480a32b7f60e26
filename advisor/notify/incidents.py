"""One pass of notifying: each recipient's message is queued once, what is due is sent, Alertmanager is updated.

The messages are queued and their events settled in one transaction, so a pass that is killed anywhere queues nothing
twice and loses nothing.

In quiet hours only high severity is sent. When they end, each recipient gets one digest; what began and ended within
them is one line of it. Alertmanager receives the state at all times: it has mute times itself. A recipient that the
routes name from today on is not sent what was opened before: it gets the next reminder, and an end only after that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.sanitize import clean
from ..core.formatting import counted
from ..core.incident_types import Incident, IncidentEvent
from ..show.incident_words import Item, ItemKind
from ..show.reader_links import NO_COMMANDS, ReaderCommands, ReaderLinks
from ..state.deliveries import Message, Told, queue, told, waiting
from ..state.file import State
from ..state.incidents import current, mark_printed, settle, untold
from ..watch.settings import WatchSettings
from .alertmanager import alerts_of, post_alerts
from .letters import Letter, incident_letter
from .mime import message_to
from .routes import Recipient, Routes
from .sending import Clocks, Tally, carriers_of, send_due
from .settings import ReportSettings

if TYPE_CHECKING:
    from sqlite_utils import Database

BATCH = "watch-"  # how the batches of the watch begin
# What the administrators receive, whichever team it concerns: only they can fix it.
_PLATFORM = frozenset({"telemetry-dead", "fault-clock"})
# A pass sends for half of the time to the next one at most, and the report's sender is waited for this long.
_MOST_SECONDS, _WAIT_SECONDS = 120.0, 30.0

Events = Sequence[tuple[IncidentEvent, Incident]]


@dataclass(frozen=True)
class NotifyRun:
    """What a pass works with. `routes`: of `routes_of`; `report`: servers; `watch`: what is sent, and when; `say`
    prints progress; `commands`: how readers run skuwise on the telemetry that is watched."""

    routes: Routes
    report: ReportSettings
    watch: WatchSettings
    state: State
    clocks: Clocks
    say: Callable[[str], None]
    environ: Mapping[str, str] = field(default_factory=dict)
    commands: ReaderCommands = NO_COMMANDS

    @property
    def now(self) -> float:
        return self.clocks.now().wall_seconds

    @property
    def links(self) -> ReaderLinks:
        return ReaderLinks(self.commands, self.report.dashboard_url)

    def recipients(self, incident: Incident) -> tuple[Recipient, ...]:
        """Its team, and after it the administrators where it has none, or only they can fix it."""
        name = self.routes.team_of(incident.sighting.subject)
        platform = name is None or incident.sighting.kind in _PLATFORM
        teams = [team for team in self.routes.teams if team.name == name] + [self.routes.fleet] * platform
        return tuple(recipient for team in teams for recipient in team.recipients)


def notify(run: NotifyRun) -> Tally:
    """Inform everyone whom untold events concern. Raises nothing that is a SkuwiseError: `Tally.down` has all that
    failed, and the next pass tries it again."""
    tally, faults = Tally(0, 0, (), ()), list[SkuwiseError]()
    teams = (*run.routes.teams, run.routes.fleet)
    try:
        if not run.watch.send:
            _print_once(run)
        elif any(team.recipients for team in teams):
            _queue(run)
            carriers, unusable = carriers_of(run.report, teams, run.environ)
            faults += unusable
            with run.state.alone("Another sender", wait_seconds=_WAIT_SECONDS):
                tally = send_due(
                    run.state, carriers, run.clocks, mails_per_minute=run.report.mails_per_minute, say=run.say,
                    batch_prefix=BATCH, most_seconds=min(run.watch.every_seconds / 2, _MOST_SECONDS),
                )  # fmt: skip
            faults += tally.down
        elif not run.watch.alertmanager_url:
            faults.append(UsageError("No recipients configured.", "Set administrators in [report] or in the routes."))
    except SkuwiseError as error:
        faults.append(error)
    if run.watch.send and run.watch.alertmanager_url:
        try:
            with run.state.reading() as db:
                posted = alerts_of(current(db), run.now, run.watch, run.links, run.routes.team_of)
            post_alerts(run.watch.alertmanager_url, run.watch.alertmanager_token_file, run.environ, posted)
        except SkuwiseError as error:
            faults.append(error)
    return replace(tally, down=tuple(faults))


def _queue(run: NotifyRun) -> None:
    """Queue the messages of a pass and settle their events."""
    now = run.now
    with run.state.reading() as db:
        events, informed = _ready(db, run)
        notices, held = notices_of(events, run.recipients, informed, waiting(db, BATCH))
    letters: dict[object, Letter] = {}  # the addresses of a team read the same
    messages: list[Message] = []
    for to, (items, keys) in notices.items():
        same = (to.team, tuple((item.incident.id, item.kind) for item in items))
        letter = letters[same] = letters.get(same) or incident_letter(items, to.team, now, run.watch, run.links)
        # A mail about one incident follows the one about its beginning.
        opening = informed.get(f"{items[0].incident.id}/0", ()) if len(items) == 1 else ()
        first = next((mail.message_id for mail in opening if (mail.channel, mail.recipient) == to[1:]), "")
        digest = hashlib.sha256("\0".join([*to, *sorted(keys)]).encode("utf-8", "backslashreplace")).hexdigest()
        batch = BATCH + digest[:32]
        messages.append(message_to(to, letter, batch, run.routes, now, items=keys, in_reply_to=first))
    with run.state.writing() as db:
        queue(db, messages, now)
        settle(db, [event for event, _ in events if key_of(event) not in held])
    unaddressed = {incident.id for _, incident in events if not run.recipients(incident)}
    if unaddressed:
        run.say(f"No recipient for {counted(len(unaddressed), 'incident')}: set administrators in [report].")


def _ready(db: Database, run: NotifyRun) -> tuple[Events, Mapping[str, Sequence[Told]]]:
    """The unsent events that quiet hours do not hold, and who was informed of them, and of the beginnings and reminders
    of their incidents."""
    events = [(event, incident) for event, incident in untold(db) if not is_held(incident, run.watch, run.now)]
    earlier = {f"{incident.id}/{number}" for _, incident in events for number in range(incident.reminders + 1)}
    return events, told(db, sorted(earlier | {key_of(event) for event, _ in events}))


def _print_once(run: NotifyRun) -> None:
    """The dry run: print what a pass would send to whom. Only events of incidents that are over and that no message
    was about are settled: a later pass has to send the rest."""
    with run.state.reading() as db:
        events, informed = _ready(db, run)
        unprinted = {key_of(event) for event, _ in untold(db, unprinted=True)}
        alerts = len(current(db))
    fresh = [(event, incident) for event, incident in events if key_of(event) in unprinted]
    for to, (items, _) in notices_of(fresh, run.recipients, informed, frozenset())[0].items():
        subject = incident_letter(items, to.team, run.now, run.watch, run.links).subject
        run.say(clean(f"would be sent to {to.team or 'the fleet'} ({to.channel}, {to.address}): {subject}"))
    if fresh and run.watch.alertmanager_url:
        run.say(f"would update {counted(alerts, 'alert')} in {clean(run.watch.alertmanager_url)}")
    if fresh:
        run.say("Dry run, nothing was sent. To send: set send = true in section [watch] of skuwise.toml.")
    informed_ids = {key.rpartition("/")[0] for key in informed}
    with run.state.writing() as db:
        mark_printed(db, [event for event, _ in fresh])
        settle(db, [event for event, i in events if i.resolved_at is not None and i.id not in informed_ids])


def key_of(event: IncidentEvent) -> str:
    """The name of an event among the items of deliveries."""
    return f"{event.incident_id}/{event.number}"


def notices_of(
    events: Events,
    recipients: Callable[[Incident], Sequence[Recipient]],
    informed: Mapping[str, Sequence[Told]],
    busy: Set[tuple[str, str, str]],
) -> tuple[dict[Recipient, tuple[list[Item], list[str]]], set[str]]:
    """What each recipient is informed of: at most one item an incident, and the keys of its events; and the keys of
    events that have to wait for a recipient.

    `informed`: event -> who was informed of it. `busy`: (team, channel, address) of recipients of an earlier
    message that is not sent yet: no other is queued meanwhile.
    """
    had = {key: {Recipient(m.team, m.channel, m.recipient).key for m in sent} for key, sent in informed.items()}
    incidents: dict[str, tuple[Incident, list[IncidentEvent]]] = {}
    for event, incident in events:
        incidents.setdefault(incident.id, (incident, []))[1].append(event)
    notices: dict[Recipient, tuple[list[Item], list[str]]] = {}
    held: set[str] = set()
    for incident, its_events in incidents.values():
        receivers: set[str] = set()
        for to in recipients(incident):
            new = [event for event in its_events if to.key not in had.get(key_of(event), ())]
            knows = any(to.key in had.get(f"{incident.id}/{n}", ()) for n in range(incident.reminders + 1))
            kind = _kind(incident, {event.kind for event in new}, knows)
            if kind is None or to.key in receivers:  # an address of two teams is informed once
                continue
            receivers.add(to.key)
            if to in busy:
                held.update(map(key_of, new))
            else:
                items, keys = notices.setdefault(to, ([], []))
                items.append(Item(incident, kind))
                keys += map(key_of, new)
    return notices, held


def _kind(incident: Incident, new: Set[str], knows: bool) -> ItemKind | None:
    """What is new to one recipient; None: nothing. As the incident is now, not as each event found it."""
    if incident.resolved_at is None:  # an end of what came back is no end
        return "opened" if "opened" in new else "reminded" if "reminded" in new else None
    if "opened" in new:
        return "over"
    return "resolved" if "resolved" in new and knows else None


def is_held(incident: Incident, settings: WatchSettings, now: float) -> bool:
    """Whether its events wait until the quiet hours are over: all but those of high severity, as it is now.

    The hours are of the local clock and may cross midnight; an hour that happens twice is quiet twice.
    """
    if settings.quiet_hours is None or incident.sighting.severity == "high":
        return False
    begin, end = settings.quiet_hours
    hour = datetime.fromtimestamp(now, settings.time_zone).hour
    return begin <= hour < end if begin < end else hour >= begin or hour < end
