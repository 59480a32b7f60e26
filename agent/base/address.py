"""Addresses as people write them: to listen on, and of metrics pages (plain http, no secrets in them)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

from ...rules.base.errors import SkuwiseError, UsageError
from ...rules.base.sanitize import quoted

_LOOPBACK = "127.0.0.1"
# A host's name (RFC 1123; underscores are met with), whose last part is no number: that would be an address.
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z)(?:{_LABEL}\.)*(?!\d+\.?\Z){_LABEL}\.?")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str) -> Address:
    """``HOST:PORT``, ``[IPV6]:PORT`` or a bare ``PORT`` (loopback). Raises `UsageError` for anything else."""
    host, colon, port = text.strip().rpartition(":")
    try:
        if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
            raise ValueError
        if not colon:
            return Address(_LOOPBACK, int(port))
        if re.fullmatch(r"\[[!-~]+\]", host):
            host = host[1:-1]
            IPv6Address(host)
        elif not _NAME.fullmatch(host):
            IPv4Address(host)
        return Address(host, int(port))
    except ValueError:
        raise UsageError(
            f"{quoted(text)} is not an address to listen on.",
            "Write HOST:PORT, or a bare PORT for this machine alone; every interface is 0.0.0.0:PORT.",
        ) from None


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
        odd = any(ord(c) <= 32 or ord(c) > 126 for c in url)
        if parts.scheme != "http" or not parts.hostname or parts.username or parts.password or odd:
            raise ValueError
    except ValueError:
        text = "The address of a page must be http://HOST:PORT/PATH, without a user name."
        raise PageError("bad-url", text, "Fix it in the settings.") from None
    return parts.hostname, port, (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
