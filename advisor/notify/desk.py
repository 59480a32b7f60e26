"""Who is informed of incidents, and by what: settings, routes, outbox and clocks in one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from ..core.incident_types import Incident, IncidentEvent
from ..state.outbox import Outbox, default_outbox
from ..state.parcel import Channel
from ..views.document.dashboard import Dashboard
from ..views.document.reader_commands import NO_COMMANDS, IncidentCommands, ReaderCommands
from ..watch.settings import WatchSettings
from .alertmanager import check_alertmanager
from .carriers import WEBHOOK
from .delivery import Clocks
from .incident_letters import Writing
from .routes import Routes, TeamRoute, load_routes
from .settings import ReportSettings, load_mail_settings

_FLEET = TeamRoute("", ())
# What the administrators learn of whatever team's it is: nobody but them can do anything about it.
_PLATFORM = frozenset({"telemetry-dead", "fault-clock"})


class Incidents(Protocol):
    """The file of incidents, as far as notifying needs it (advisor/incidents/store.py)."""

    def current(self) -> Sequence[Incident]: ...
    def untold(self) -> Sequence[tuple[IncidentEvent, Incident]]: ...
    def told(self, event: IncidentEvent) -> frozenset[str]: ...
    def note_queued(self, batch: str, events: Sequence[IncidentEvent], recipient: str, now: float) -> None: ...
    def settle(self, events: Sequence[IncidentEvent]) -> None: ...


@dataclass(frozen=True, slots=True)
class Recipient:
    """One address of a team, or its webhook. `team` empty: the administrators. `address`: as in the outbox."""

    team: str
    channel: Channel
    address: str

    @property
    def key(self) -> str:
        """As the file of incidents names it. An address that two teams share is one recipient."""
        return f"{self.channel}:{self.address if self.channel == 'mail' else self.team}"


@dataclass(frozen=True)
class Desk:
    """`report`: servers and addresses; `watch`: what is sent, and when; `say`: prints a line of progress; `commands`:
    how readers run skuwise on the telemetry that is watched."""

    routes: Routes
    report: ReportSettings
    watch: WatchSettings
    outbox: Outbox
    clocks: Clocks
    say: Callable[[str], None]
    environ: Mapping[str, str] = field(default_factory=dict)
    commands: ReaderCommands = NO_COMMANDS

    @property
    def fleet(self) -> TeamRoute:
        """The administrators, as the report has them."""
        to = self.routes.administrators or self.report.administrators
        return replace(_FLEET, to=to, webhook_url_file=self.report.webhook_url_file)

    @property
    def teams(self) -> tuple[TeamRoute, ...]:
        """Every team that may be informed, the administrators last: a platform matter reaches its team first."""
        return (*self.routes.teams, self.fleet)

    @property
    def list_unsubscribe(self) -> str:
        """As the report has it: what the settings contain, or the first administrator."""
        to = self.fleet.to
        return self.report.list_unsubscribe or (f"mailto:{to[0]}?subject=unsubscribe" if to else "")

    @property
    def writing(self) -> Writing:
        return Writing(
            self.watch, IncidentCommands(self.commands, self.watch.state), Dashboard(self.report.dashboard_url)
        )

    def team_of(self, incident: Incident) -> str | None:
        """The team whose an incident is; None: no team's."""
        subject = incident.sighting.subject
        return self.routes.whose_owner(subject.owner, subject.nodes, subject.gpu_sku, subject.node_sku)

    def recipients(self, incident: Incident) -> tuple[Recipient, ...]:
        """Whom an incident concerns: its team; the administrators where it has none, and for what only they can fix."""
        name = self.team_of(incident)
        platform = name is None or incident.sighting.kind in _PLATFORM
        teams = (one for one in self.teams if one.name == name or (platform and one.name == ""))
        return tuple(recipient for team in teams for recipient in recipients_of(team))


def recipients_of(team: TeamRoute) -> tuple[Recipient, ...]:
    """Every address of a team, and its webhook."""
    mails = tuple(Recipient(team.name, "mail", address) for address in team.to)
    return (*mails, Recipient(team.name, "webhook", WEBHOOK)) if team.webhook_url_file else mails


def desk_of(
    environ: Mapping[str, str],
    watch: WatchSettings,
    clocks: Clocks,
    say: Callable[[str], None],
    *,
    teams: Path | None = None,
    commands: ReaderCommands = NO_COMMANDS,
) -> Desk:
    """The desk that the settings configure. `teams`: a routes file in place of report.teams. Raises UsageError for
    settings, routes or an address of an Alertmanager that cannot be used."""
    report = load_mail_settings(environ)
    file = teams or report.teams
    routes = load_routes(file) if file is not None else Routes()
    if watch.alertmanager_url:
        check_alertmanager(watch.alertmanager_url)
    outbox = Outbox(report.outbox or default_outbox(environ))
    return Desk(routes, report, watch, outbox, clocks, say, environ, commands)
