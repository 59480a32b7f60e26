"""One pass of notifying: each recipient's message is queued once, what is due is sent, Alertmanager is updated.

Messages are queued and their events settled in one transaction. In quiet hours only high severity is sent; when they
end, each recipient gets one digest. Alertmanager receives the state at all times: it has mute times itself. A recipient
that the routes name from today on gets the next reminder of what was opened before, and an end only after that.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from urllib.parse import urlsplit

from sqlite_utils import Database

from ...agent.base.safe_text import clean_text
from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.sanitize import clean
from ..core.advice_types import Severity
from ..core.formatting import counted, evidence_words
from ..core.http_session import UnansweredError, post, secret
from ..core.incident_types import Incident, IncidentEvent, Subject
from ..core.timestamps import minute, rfc3339
from ..show.incident_words import Item, ItemKind, line_words, summary_words, where_words
from ..show.pages.incident import details_command
from ..show.reader_links import NO_COMMANDS, ReaderCommands, ReaderLinks
from ..state.deliveries import Message, Told, queue, told, waiting
from ..state.file import State
from ..state.incidents import current, mark, untold
from ..watch.settings import WatchSettings
from .letters import incident_letter, message_to
from .routes import Recipient, ReportSettings, Routes, checked_url
from .sending import Clocks, Tally, carriers_of, send_due

# An open alert that is not sent again ends after so many passes: the watch itself is down.
PASSES = 3
RESOLVED_SECONDS = 3600.0  # for so long an ended one is sent again: Alertmanager may have been down
LABEL_MAX, ANNOTATION_MAX = 100, 800
# As Prometheus' alerting rules usually name severities.
SEVERITIES: Mapping[Severity, str] = {"high": "critical", "medium": "warning", "low": "info"}
_EVIDENCE_MAX = 6
_POST_SECONDS = 30.0
# Alertmanager's receivers write values as they are into Slack's markup and into HTML.
_PLAIN = str.maketrans({"<": "‹", ">": "›"})

Alert = Mapping[str, object]


def alerts_of(
    incidents: Sequence[Incident],
    now: float,
    settings: WatchSettings,
    links: ReaderLinks,
    team_of: Callable[[Subject], str | None],
) -> list[Alert]:
    """The open ones, and those that ended within the last hour. `now`: Unix seconds; `team_of`: the team that the
    routes give."""
    alerts: list[Alert] = []
    for incident in incidents:
        resolved_at, sighting, subject = incident.resolved_at, incident.sighting, incident.sighting.subject
        if resolved_at is not None and resolved_at <= now - RESOLVED_SECONDS:
            continue
        team, owner, commands = team_of(subject), subject.owner, links.commands
        starts = min(incident.since, incident.opened_at, now)
        ends = now + PASSES * settings.every_seconds if resolved_at is None else min(resolved_at, now)
        item = Item(incident, "resolved" if resolved_at is not None else "opened")
        # Each label names one thing; what is unknown, or several, is left out.
        labels = {
            "alertname": "Skuwise" + "".join(word.capitalize() for word in sighting.kind.split("-")),
            "severity": SEVERITIES[sighting.severity], "incident": incident.id, "kind": sighting.kind,
            "subject": subject.key, "workload": subject.name if subject.workload_id is not None else None,
            "job_id": subject.job_id, "pod": subject.pod, "holder": subject.holder, "team": team or owner.team,
            "namespace": owner.namespace, "user": owner.user, "account": owner.account,
            "node": subject.nodes[0] if len(subject.nodes) == 1 else None, "gpu_sku": subject.gpu_sku,
        }  # fmt: skip
        evidence = "; ".join(evidence_words(e) for e in sighting.evidence[:_EVIDENCE_MAX])
        annotations = {
            "summary": line_words(item), "description": f"{summary_words(item)} {evidence}".strip(),
            "next": sighting.do_next.text, "command": details_command(incident, commands),
            "acknowledge": commands.stored("incidents acknowledge", incident.id), "code": sighting.code,
            "nodes": where_words(subject), "price": sighting.price_source, "acknowledged_by": incident.acknowledged_by,
            "snoozed_until": minute(incident.snoozed_until) if incident.snoozed_until is not None else None,
        }  # fmt: skip
        alert: dict[str, object] = {"startsAt": rfc3339(starts), "endsAt": rfc3339(max(ends, starts + 1.0))}
        alert |= {"labels": _cleaned(labels, LABEL_MAX), "annotations": _cleaned(annotations, ANNOTATION_MAX)}
        page = links.of_window(team or "", starts, max(starts, min(ends, now)))
        url = page.link(subject.workload_id or "", subject.nodes[0] if subject.nodes else "") or page.link()
        alerts.append({**alert, "generatorURL": url} if url else alert)
    return alerts


def _cleaned(values: Mapping[str, str | None], most: int) -> dict[str, str]:
    """Without markup and control characters, at most `most` characters each; what is empty is left out."""
    plain = {name: clean_text(value, most).translate(_PLAIN) for name, value in values.items() if value is not None}
    return {name: value for name, value in plain.items() if value}


def post_alerts(url: str, token_file: str, environ: Mapping[str, str], alerts: Sequence[Alert]) -> None:
    """Hand over all alerts (github.com/prometheus/alertmanager, api/v2/openapi.yaml: a list of any length). Raises
    SkuwiseError; the next pass sends all of them again. `url`: the base address; `token_file`: of a bearer token,
    empty: none."""
    target = f"{checked_url(url, 'watch.alertmanager_url').rstrip('/')}/api/v2/alerts"
    headers = {"Authorization": f"Bearer {secret(token_file, environ, private=True)}"} if token_file else {}
    try:
        status, words = post(target, json.dumps(alerts).encode("ascii"), headers, _POST_SECONDS)
    except UnansweredError as error:
        what = f"cannot be reached: {error}"
    else:
        if 200 <= status < 300:
            return
        what = f"refused the alerts ({status}{f': {words}' if words else ''})"
        if 300 <= status < 400:
            what = f"redirected the request ({status}); redirects are not followed"
    name = urlsplit(url).netloc.rpartition("@")[2]
    remedy = "The next pass tries again. Check watch.alertmanager_url."
    raise SkuwiseError(f"The Alertmanager {name} {what}.", remedy)


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
    tally, faults, watch = Tally(0, 0, (), ()), list[SkuwiseError](), run.watch
    teams = (*run.routes.teams, run.routes.fleet)
    try:
        if not watch.send:
            _print_once(run)
        elif any(team.recipients for team in teams):
            _queue(run)
            carriers, unusable = carriers_of(run.report, teams, run.environ)
            rate, seconds = run.report.mails_per_minute, min(watch.every_seconds / 2, _MOST_SECONDS)
            limits = {"mails_per_minute": rate, "batch_prefix": BATCH, "most_seconds": seconds}
            with run.state.alone("Another sender", wait_seconds=_WAIT_SECONDS):
                tally = send_due(run.state, carriers, run.clocks, say=run.say, **limits)
            faults += (*unusable, *tally.down)
        elif not watch.alertmanager_url:
            faults.append(UsageError("No recipients configured.", "Set administrators in [report] or in the routes."))
    except SkuwiseError as error:
        faults.append(error)
    if watch.send and watch.alertmanager_url:
        try:
            with run.state.reading() as db:
                posted = alerts_of(current(db), run.now, watch, run.links, run.routes.team_of)
            post_alerts(watch.alertmanager_url, watch.alertmanager_token_file, run.environ, posted)
        except SkuwiseError as error:
            faults.append(error)
    return replace(tally, down=tuple(faults))


def _queue(run: NotifyRun) -> None:
    now, messages = run.now, list[Message]()
    with run.state.reading() as db:
        events, informed = _ready(db, run)
        notices, held = notices_of(
            events, run.recipients, informed, {message.to for message in waiting(db, now, BATCH)}
        )
    for to, (items, keys) in notices.items():
        letter = incident_letter(items, to.team, now, run.watch, run.links)
        # A mail about one incident follows the one about its beginning.
        opening = informed.get(f"{items[0].incident.id}/0", ()) if len(items) == 1 else ()
        first = next((mail.message_id for mail in opening if (mail.channel, mail.recipient) == to[1:]), "")
        digest = hashlib.sha256("\0".join([*to, *sorted(keys)]).encode("utf-8", "backslashreplace")).hexdigest()
        batch = BATCH + digest[:32]
        messages.append(message_to(to, letter, batch, run.routes, now, items=keys, in_reply_to=first))
    with run.state.writing() as db:
        queue(db, messages, now)
        mark(db, "settled", [event for event, _ in events if key_of(event) not in held])
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
        unprinted, alerts = {key_of(event) for event, _ in untold(db, unprinted=True)}, len(current(db))
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
        mark(db, "printed", [event for event, _ in fresh])
        mark(db, "settled", [event for event, i in events if i.resolved_at is not None and i.id not in informed_ids])


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
    events that have to wait for a recipient. `informed`: event -> who was informed of it. `busy`: (team, channel,
    address) of recipients of an earlier message that is not sent yet: no other is queued meanwhile."""
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
