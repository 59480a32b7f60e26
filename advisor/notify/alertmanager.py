"""An Alertmanager, by its API v2: it takes the state of alerts, again with each pass, and notifies whom it likes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from urllib.parse import urlsplit

import requests
import urllib3

from ...agent.base.safe_text import clean_text
from ...rules.base.errors import SkuwiseError, UsageError
from ..core.credentials import secret
from ..core.http_session import CONNECT_SECONDS, DeadlineAdapter, QuietSession, is_late
from ..core.loopback import is_loopback

# https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml: POST /alerts takes a list of any length. An
# alert of ours has 2 kB at most.
CHUNK = 500
_TIMEOUT_SECONDS = 10.0
# All chunks together: what is not sent within a pass is sent with the next.
_ALL_SECONDS = 30.0
_MAX_ANSWER = 200


class AlertmanagerError(SkuwiseError):
    """It did not take all alerts. The next pass sends all of them again."""


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


class Alertmanager:
    """`url`: its base address; `token_file`: of a bearer token, empty: none; `timeout_seconds`: of one request, from
    connecting to the end of the answer. Raises UsageError for an address or token that cannot be used."""

    def __init__(
        self, url: str, token_file: str, environ: Mapping[str, str], *, timeout_seconds: float = _TIMEOUT_SECONDS,
        since_boot: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._url = f"{check_alertmanager(url)}/api/v2/alerts"
        self._name = urlsplit(url).netloc
        self._timeout = timeout_seconds
        self._since_boot = since_boot
        self._headers = {"User-Agent": "skuwise", "Content-Type": "application/json"}
        if token_file:
            self._headers["Authorization"] = f"Bearer {secret(token_file, environ, private=True)}"

    def post(self, alerts: Sequence[Mapping[str, object]]) -> int:
        """Hand over all of them, in chunks; gives their count. Raises AlertmanagerError at the first that fails."""
        began, sent = self._since_boot(), 0
        adapter, session = DeadlineAdapter(), QuietSession()
        adapter.serve(session)
        session.headers.update(self._headers)
        with session:
            for begin in range(0, len(alerts), CHUNK):
                left = _ALL_SECONDS - (self._since_boot() - began)
                if left <= 0:
                    raise self._fault(f"is too slow: {sent} of {len(alerts)} alerts sent")
                part = alerts[begin : begin + CHUNK]
                self._post(adapter, session, json.dumps(part).encode("ascii"), min(self._timeout, left))
                sent += len(part)
        return sent

    def _post(self, adapter: DeadlineAdapter, session: QuietSession, content: bytes, seconds: float) -> None:
        with adapter.within(seconds) as deadline:
            try:
                with session.post(
                    self._url, data=content, timeout=(min(CONNECT_SECONDS, seconds), seconds), allow_redirects=False,
                    stream=True,
                ) as answer:  # fmt: skip
                    status = answer.status_code
                    words = answer.raw.read(_MAX_ANSWER, decode_content=False) if status >= 300 else b""
            except (
                requests.RequestException, urllib3.exceptions.HTTPError, HTTPException, OSError, ValueError
            ) as error:  # fmt: skip
                raise self._fault(_why(error, late=is_late(error, deadline))) from None
            if deadline.over:
                raise self._fault("did not answer in time")
        if 300 <= status < 400:
            raise self._fault(f"redirected the request ({status}); redirects are not followed")
        if not 200 <= status < 300:
            shown = clean_text(words, _MAX_ANSWER)
            raise self._fault(f"refused the alerts ({status}{f': {shown}' if shown else ''})")

    def _fault(self, what: str) -> AlertmanagerError:
        return AlertmanagerError(
            f"The Alertmanager {self._name} {what}.", "The next pass tries again. Check watch.alertmanager_url."
        )


def _why(error: Exception, *, late: bool) -> str:
    if late:
        return "did not answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        return "has a certificate that is not accepted"
    return f"cannot be reached ({type(error).__name__})"
