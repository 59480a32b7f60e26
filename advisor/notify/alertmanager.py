"""An Alertmanager, by its API v2: it takes the state of alerts, again with each pass, and notifies whom it likes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from ...rules.base.errors import SkuwiseError, UsageError
from ..core.credentials import secret
from ..core.http_session import UnansweredError, post
from ..core.loopback import is_loopback

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


def post_alerts(
    url: str,
    token_file: str,
    environ: Mapping[str, str],
    alerts: Sequence[Mapping[str, object]],
    *,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> None:
    """Hand over all alerts, in chunks. Raises SkuwiseError at the first chunk that fails: the next pass sends all of
    them again. UsageError: an address or a token that cannot be used.

    `url`: the base address; `token_file`: of a bearer token, empty: none; `timeout_seconds`: of one request.
    """
    target = f"{check_alertmanager(url)}/api/v2/alerts"
    headers = {"Authorization": f"Bearer {secret(token_file, environ, private=True)}"} if token_file else {}
    until = time.monotonic() + _ALL_SECONDS
    for begin in range(0, len(alerts), CHUNK):
        seconds = min(timeout_seconds, until - time.monotonic())
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
