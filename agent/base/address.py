"""Addresses to listen on, as people write them."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import quoted

_LOOPBACK = "127.0.0.1"
_PORT = re.compile(r"[0-9]{1,5}")
# A host's name (RFC 1123; underscores are met with), and the zone of an IPv6 address (RFC 6874).
_NAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(?:\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?"
)
_ZONE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


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
    if not colon:
        host = _LOOPBACK
    elif host.startswith("[") and host.endswith("]"):
        host = host[1:-1] if _is_ipv6(host[1:-1]) else ""
    elif not _is_name(host):
        host = ""
    if not host or not _PORT.fullmatch(port) or int(port) > 65535:
        raise UsageError(
            f"{quoted(text)} is not an address to listen on.",
            "Write HOST:PORT, or a bare PORT for this machine alone; every interface is 0.0.0.0:PORT.",
        )
    return Address(host, int(port))


def _is_ipv6(host: str) -> bool:
    address, percent, zone = host.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return not percent or _ZONE.fullmatch(zone) is not None


def _is_name(host: str) -> bool:
    """A name that may be known later, or an IPv4 address; what ends in a number can only be an address."""
    if _NAME.fullmatch(host) is None:
        return False
    if not host.rstrip(".").rpartition(".")[2].isdigit():
        return True
    try:
        socket.inet_aton(host)
    except OSError:
        return False
    return True
