"""The second channel: a short message as Slack-compatible JSON, posted to addresses that are secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..core.http_session import UnansweredError, post
from ..state.deliveries import Message, Reply

_BUSY = (408, 425, 429)


class WebhookCarrier:
    """Posts to the webhook of each team. `urls`: by team, "" being the fleet; None: it cannot be read now.
    `timeout_seconds`: from connecting to the end of the answer; `proxy` empty: none is used."""

    def __init__(self, urls: Mapping[str, str | None], *, timeout_seconds: float, proxy: str = "") -> None:
        self._urls = urls
        self._timeout = timeout_seconds
        self._proxy = proxy

    def ready(self) -> None:
        """Nothing is kept open."""

    def close(self) -> None:
        """Nothing is kept open."""

    def carry(self, message: Message, begin: Callable[[], None]) -> Reply:
        """Post it once. Redirects are not followed: they would carry the message elsewhere."""
        if message.team not in self._urls:
            return Reply("refused", "no webhook is set any more")
        url = self._urls[message.team]
        if url is None:
            return Reply("later", "the file with its webhook cannot be read")
        begin()
        try:
            status, words = post(url, message.content, {}, self._timeout, proxy=self._proxy)
        except UnansweredError as error:
            return Reply("unsure", str(error)) if error.sent else Reply("later", f"not reached: {error}")
        if 200 <= status < 300:
            return Reply("accepted", str(status))
        return Reply("later" if status >= 500 or status in _BUSY else "refused", f"{status} {words}".strip())
