"""What a recipient is informed of, as a mail and as the JSON of a webhook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...rules.base.sanitize import clean
from ..render.html import mail_html
from ..render.text import mail_text
from ..views.document.dashboard import NO_DASHBOARD, Dashboard
from ..views.document.incident_mail import digest_document, digest_lines, incident_document, short_lines
from ..views.document.incident_words import SUBJECT_MAX, Item
from ..views.document.reader_commands import IncidentCommands
from ..watch.settings import WatchSettings
from .letter import Letter
from .webhook import payload

_NO_COMMANDS = IncidentCommands()


@dataclass(frozen=True, slots=True)
class Writing:
    """What the texts depend on beside the incidents. `dashboard`: its window is that of the message."""

    settings: WatchSettings
    commands: IncidentCommands = _NO_COMMANDS
    dashboard: Dashboard = NO_DASHBOARD


def letter_of(items: Sequence[Item], team: str, now: float, writing: Writing) -> Letter:
    """One incident, or a digest of several. `team` empty: the administrators; `now`: Unix seconds."""
    start = min(item.incident.since for item in items)
    dashboard = replace(writing.dashboard, team=team, start=min(start, now), end=now)
    if len(items) == 1:
        page = incident_document(items[0], writing.settings, writing.commands, dashboard)
    else:
        page = digest_document(items, now, writing.commands, dashboard)
    return Letter(page.title[:SUBJECT_MAX], mail_html(page), mail_text(page))


def webhook_json(items: Sequence[Item], subject: str, writing: Writing) -> bytes:
    """The same for Slack and what understands its JSON."""
    one = len(items) == 1
    lines = short_lines(items[0], writing.commands) if one else digest_lines(items, writing.commands)
    return payload(Letter(subject, "", "\n".join(map(clean, lines))))
