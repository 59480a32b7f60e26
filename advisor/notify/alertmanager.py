"""Incidents as alerts, and an Alertmanager by its API v2: it takes the state of all alerts, again with each pass.

Labels, which name an alert, stay the same from pass to pass; only where the severity changes, the alert under the old
one runs out after three passes. That somebody acknowledged or snoozed an incident is an annotation, which may change:
Alertmanager's own silences decide whom it notifies.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from ...agent.base.safe_text import clean_text
from ...rules.base.errors import SkuwiseError, UsageError
from ..core.advice_types import Severity
from ..core.credentials import is_loopback, secret
from ..core.formatting import evidence_words
from ..core.http_session import UnansweredError, post
from ..core.incident_types import Incident, Subject
from ..core.timestamps import minute, rfc3339
from ..show.incident_words import Item, line_words, summary_words, where_words
from ..show.pages.incident import details_command
from ..show.reader_links import ReaderLinks
from ..watch.settings import WatchSettings

# An open alert that is not sent again ends after so many passes: the watch itself is down.
PASSES = 3
RESOLVED_SECONDS = 3600.0  # for so long an ended one is sent again: Alertmanager may have been down
LABEL_MAX, ANNOTATION_MAX = 100, 800
# As Prometheus' alerting rules usually name severities.
SEVERITIES: Mapping[Severity, str] = {"high": "critical", "medium": "warning", "low": "info"}
_EVIDENCE_MAX = 6
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
            "next": sighting.do_next.text,
            "command": details_command(incident, commands),
            "acknowledge": commands.stored("incidents acknowledge", incident.id), "code": sighting.code,
            "nodes": where_words(subject), "price": sighting.price_source, "acknowledged_by": incident.acknowledged_by,
            "snoozed_until": minute(incident.snoozed_until) if incident.snoozed_until is not None else None,
        }  # fmt: skip
        alert: dict[str, object] = {
            "labels": _cleaned(labels, LABEL_MAX), "annotations": _cleaned(annotations, ANNOTATION_MAX),
            "startsAt": rfc3339(starts), "endsAt": rfc3339(max(ends, starts + 1.0)),
        }  # fmt: skip
        page = links.of_window(team or "", starts, max(starts, min(ends, now)))
        url = page.link(subject.workload_id or "", subject.nodes[0] if subject.nodes else "") or page.link()
        alerts.append({**alert, "generatorURL": url} if url else alert)
    return alerts


def _cleaned(values: Mapping[str, str | None], most: int) -> dict[str, str]:
    """Without markup and control characters, at most `most` characters each; what is empty is left out."""
    plain = {name: clean_text(value, most).translate(_PLAIN) for name, value in values.items() if value is not None}
    return {name: value for name, value in plain.items() if value}


# https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml: POST /alerts takes a list of any length. An
# alert of ours has 2 kB at most.
CHUNK = 500
_TIMEOUT_SECONDS = 10.0
# All chunks together: what is not sent within a pass is sent with the next.
_ALL_SECONDS = 30.0


def check_alertmanager(url: str) -> str:
    """The address of an Alertmanager, https or loopback. Raises UsageError."""
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise UsageError(
            "watch.alertmanager_url has a query or a fragment.", "Use its base address: https://alerts.example.org."
        )
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise UsageError(
            f"watch.alertmanager_url is not encrypted, and {parts.hostname} is another machine.",
            "Alerts name users and cost: use an https address, or a proxy on this machine.",
        )
    return url.rstrip("/")


def post_alerts(url: str, token_file: str, environ: Mapping[str, str], alerts: Sequence[Mapping[str, object]]) -> None:
    """Hand over all alerts, in chunks. Raises SkuwiseError at the first chunk that fails: the next pass sends all of
    them again. UsageError: an address or a token that cannot be used.

    `url`: the base address; `token_file`: of a bearer token, empty: none.
    """
    target = f"{check_alertmanager(url)}/api/v2/alerts"
    headers = {"Authorization": f"Bearer {secret(token_file, environ, private=True)}"} if token_file else {}
    until = time.monotonic() + _ALL_SECONDS
    for begin in range(0, len(alerts), CHUNK):
        seconds = min(_TIMEOUT_SECONDS, until - time.monotonic())
        what = f"is too slow: {begin} of {len(alerts)} alerts sent"
        if seconds > 0:
            content = json.dumps(alerts[begin : begin + CHUNK]).encode("ascii")
            try:
                status, words = post(target, content, headers, seconds)
            except UnansweredError as error:
                what = f"cannot be reached: {error}"
            else:
                if 200 <= status < 300:
                    continue
                what = f"refused the alerts ({status}{f': {words}' if words else ''})"
                if 300 <= status < 400:
                    what = f"redirected the request ({status}); redirects are not followed"
        name = urlsplit(url).netloc.rpartition("@")[2]
        raise SkuwiseError(
            f"The Alertmanager {name} {what}.", "The next pass tries again. Check watch.alertmanager_url."
        )
