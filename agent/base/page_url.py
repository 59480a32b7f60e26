"""The address of a metrics page: plain http, no secrets in it."""

from __future__ import annotations

from urllib.parse import urlsplit

from ...rules.base.errors import SkuwiseError


class PageError(SkuwiseError):
    """A page that cannot be used. `reason` is an absence's stable code."""

    def __init__(self, reason: str, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.reason = reason


def split_url(url: str) -> tuple[str, int, str]:
    """Host, port and path of a page's address. Raises PageError (``bad-url``) for what is not plain http."""
    try:
        parts = urlsplit(url)
        port = parts.port or 80
    except ValueError:
        raise PageError("bad-url", "The address of the page cannot be read.", "Fix it in the settings.") from None
    odd = any(ord(c) <= 32 or ord(c) > 126 for c in url)
    if parts.scheme != "http" or not parts.hostname or parts.username or parts.password or odd:
        raise PageError(
            "bad-url",
            "The address of a page must be http://HOST:PORT/PATH, without a user name.",
            "Fix it in the settings.",
        )
    return parts.hostname, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
