"""How the watch runs: the section ``[watch]`` of the settings files, then ``SKUWISE_WATCH_*``.

What is read, whom mail goes to and by which server are those of ``[report]``; here stands what only the watch needs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, get_args
from zoneinfo import ZoneInfo

from msgspec import Meta

from ...agent.config import load_section
from ...rules.base.errors import UsageError
from ..core.incident_types import HolderKind

_HOUR, _DAY = 3600.0, 86400.0
_UTC = ZoneInfo("UTC")
# Without a user and a password: there is a file for a token.
_ADDRESS = re.compile(r"https?://([\w.-]+|\[[\da-fA-F:]+\])(:\d+)?(/[\w./~-]*)?", re.ASCII)
_HOURS = re.compile(r"([01]?\d|2[0-3])-([01]?\d|2[0-3])", re.ASCII)
# How long a holder may leave GPUs unused.
_Limit = Annotated[float, Meta(ge=600, le=_DAY)]


def _quiet(value: object, what: str) -> tuple[int, int]:
    match = _HOURS.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[1] == match[2]:
        raise UsageError(f"{what} is not a span of hours.", 'Write "22-7", the first and the last hour of the pause.')
    return int(match[1]), int(match[2])


def _address(value: object, what: str) -> str:
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        raise UsageError(f"{what} is not the address of an Alertmanager.", 'Write "http://127.0.0.1:9093".')
    return value.rstrip("/")


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """`every_seconds`: between two passes. `*_limit_seconds`: how long a holder of that kind may hold GPUs without
    using them. `remind_every_seconds`: between reminders of an open incident. `resolve_after_seconds`: for so long it
    must not be seen before it is over, and within so long it opens again as the same one. `quiet_hours`: begin and end
    hour, local to `time_zone`, in which nothing is sent but high severity; None: none. `send`: whether anything is
    sent; False: it prints what it would send. `alertmanager_url`: of an Alertmanager with API v2; empty: none;
    `alertmanager_token_file`: the file with a bearer token."""

    every_seconds: Annotated[float, Meta(ge=60, le=_HOUR)] = 300.0
    job_limit_seconds: _Limit = 2 * _HOUR
    notebook_limit_seconds: _Limit = 4 * _HOUR
    service_limit_seconds: _Limit = 12 * _HOUR
    process_limit_seconds: _Limit = 4 * _HOUR
    allocation_limit_seconds: _Limit = 0.5 * _HOUR
    remind_every_seconds: Annotated[float, Meta(ge=_HOUR, le=30 * _DAY)] = _DAY
    resolve_after_seconds: Annotated[float, Meta(ge=60, le=_DAY)] = 600.0
    quiet_hours: tuple[int, int] | None = field(default=None, metadata={"parse": _quiet})
    time_zone: ZoneInfo = _UTC
    send: bool = False
    alertmanager_url: str = field(default="", metadata={"parse": _address})
    alertmanager_token_file: str = ""

    def limit_seconds(self, holder: HolderKind) -> float:
        """How long this kind of holder may hold GPUs without using them."""
        return float(getattr(self, f"{holder}_limit_seconds"))

    @property
    def longest_limit_seconds(self) -> float:
        return max(map(self.limit_seconds, get_args(HolderKind)))


def load_watch_settings(environ: Mapping[str, str], **files: Path) -> WatchSettings:
    """Every layer over the one before; `files` as of `load_section`. Raises UsageError for what cannot be."""
    return load_section(WatchSettings, "watch", environ, **files)
