"""The carriers that settings and routes configure, with the secrets that they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...rules.base.errors import SkuwiseError, UsageError
from ..core.credentials import secret
from ..state.parcel import Channel
from .delivery import Carrier
from .routes import TeamRoute
from .settings import ReportSettings, check_webhook
from .smtp import SmtpCarrier
from .webhook import WebhookCarrier

# Stands for a webhook where a mail has an address: the webhook's own is a secret.
WEBHOOK = "webhook"


def carriers_of(
    settings: ReportSettings, teams: Sequence[TeamRoute], environ: Mapping[str, str]
) -> dict[Channel, Carrier]:
    """A carrier for each channel that they configure. Raises UsageError for a secret that cannot be read."""
    carriers, faults = available_carriers(settings, teams, environ)
    if faults:
        raise faults[0]
    return carriers


def available_carriers(
    settings: ReportSettings, teams: Sequence[TeamRoute], environ: Mapping[str, str]
) -> tuple[dict[Channel, Carrier], tuple[SkuwiseError, ...]]:
    """The same for who sends what can be sent: what is wrong with the others comes second. Nothing is given up for
    a secret that cannot be read."""
    carriers: dict[Channel, Carrier] = {}
    faults: list[SkuwiseError] = []
    if settings.smtp_host or any(team.to for team in teams):
        file = settings.smtp_password_file
        try:
            carriers["mail"] = SmtpCarrier(settings, secret(file, environ, private=True) if file else "")
        except UsageError as error:
            faults.append(error)
    urls: dict[str, str] = {}
    unreadable: set[str] = set()
    for team in teams:
        if not team.webhook_url_file:
            continue
        try:
            url = secret(team.webhook_url_file, environ, private=True)
            urls[team.name] = check_webhook(url, team.webhook_url_file)
        except UsageError as error:
            unreadable.add(team.name)
            faults.append(error)
    # Also where there is none any more: it gives up what still waits for one.
    carriers["webhook"] = WebhookCarrier(
        urls, timeout_seconds=settings.smtp_timeout_seconds, proxy=settings.webhook_proxy, unreadable=unreadable
    )
    return carriers, tuple(faults)
