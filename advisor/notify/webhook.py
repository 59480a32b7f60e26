"""The second channel: a short report as Slack-compatible JSON, posted to addresses that are secrets."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from http.client import HTTPException

import requests
import urllib3

from ...agent.base.safe_text import clean_text
from ..core.http_session import CONNECT_SECONDS, DeadlineAdapter, QuietSession, is_late
from ..state.parcel import Parcel, Reply
from .letter import Letter

# Slack cuts a message at 40,000 characters and folds it long before; the mail has the whole report.
MAX_CHARACTERS = 3000
_MAX_SUBJECT = 200
_BUSY = (408, 425, 429)
_MAX_ANSWER = 200


def payload(letter: Letter) -> bytes:
    """The subject and the beginning of the plain text, in `MAX_CHARACTERS` at most. Nothing in it is a mention, a link
    or markup."""
    subject = _escaped(clean_text(letter.subject, _MAX_SUBJECT)).replace("*", "")
    lines: list[str] = []
    room = MAX_CHARACTERS - len(subject) - len("**\n```\n...\n```")
    for line in letter.text.splitlines():
        escaped = _escaped(line).replace("```", "'''")
        room -= len(escaped) + 1
        if room < 0:
            lines.append("...")
            break
        lines.append(escaped)
    body = "\n".join(lines)
    return json.dumps({"text": f"*{subject}*\n```\n{body}\n```"}).encode("ascii")


def _escaped(text: str) -> str:
    """The three characters by which Slack begins what is no text (https://docs.slack.dev: formatting text)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class WebhookCarrier:
    """Posts to the webhook of each team. `urls`: by team, "" being the fleet; `timeout_seconds`: from connecting to the
    end of the answer; `proxy` empty: none is used; `unreadable`: teams whose webhook is not available now."""

    def __init__(
        self, urls: Mapping[str, str], *, timeout_seconds: float, proxy: str = "", unreadable: Collection[str] = ()
    ) -> None:
        self._urls = urls
        self._unreadable = frozenset(unreadable)
        self._timeout = timeout_seconds
        self._adapter = DeadlineAdapter()
        self._session = QuietSession()
        self._adapter.serve(self._session)
        self._session.headers.update({"User-Agent": "skuwise", "Content-Type": "application/json"})
        if proxy:
            self._session.proxies = {"http": proxy, "https": proxy}

    def ready(self, parcel: Parcel) -> None:
        """Nothing is kept open."""

    def carry(self, parcel: Parcel) -> Mapping[str, Reply]:
        """Post it once. Redirects are not followed: they would carry the report elsewhere."""
        if parcel.team in self._unreadable:
            return dict.fromkeys(parcel.recipients, Reply("later", "the file with its webhook cannot be read"))
        return dict.fromkeys(parcel.recipients, self._post(self._urls.get(parcel.team), parcel.content))

    def close(self) -> None:
        self._session.close()

    def _post(self, url: str | None, content: bytes) -> Reply:
        if url is None:
            return Reply("refused", "no webhook is set any more")
        with self._adapter.within(self._timeout) as deadline:
            try:
                with self._session.post(
                    url, data=content, timeout=(CONNECT_SECONDS, self._timeout), allow_redirects=False, stream=True
                ) as answer:
                    status = answer.status_code
                    said = answer.raw.read(_MAX_ANSWER, decode_content=False) if status >= 300 else b""
            except (
                requests.RequestException, urllib3.exceptions.HTTPError, HTTPException, OSError, ValueError
            ) as error:  # fmt: skip
                # The exception's own words hold the address.
                why = "no answer in time" if is_late(error, deadline) else type(error).__name__
                return Reply("later", f"not reached: {why}")
            if deadline.over:  # what was said last may have been cut
                return Reply("later", "not reached: no answer in time")
        text = f"{status} {said.decode('utf-8', 'replace')}".strip()
        if 200 <= status < 300:
            return Reply("accepted", text)
        return Reply("later" if status >= 500 or status in _BUSY else "refused", text)
