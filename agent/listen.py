"""Addresses to listen on, as people write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..rules.errors import UsageError
from ..rules.plain import quoted

_LOOPBACK = "127.0.0.1"
_PORT = re.compile(r"[0-9]{1,5}")


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
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not host or not _PORT.fullmatch(port) or int(port) > 65535:
        raise UsageError(
            f"{quoted(text)} is not an address to listen on.",
            "Write HOST:PORT, or a bare PORT for this machine alone; every interface is 0.0.0.0:PORT.",
        )
    return Address(host, int(port))
