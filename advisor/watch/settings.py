"""How the watch runs: the section ``[watch]`` of the settings files, then ``SKUWISE_WATCH_*``.

What is read, whom mail goes to and by which server are those of ``[report]``; here stands what only the watch needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

from msgspec import Meta

from ...agent.config import SYSTEM_FILE, load_section
from ...rules.base.errors import UsageError
from ..core.recent import HolderKind

SECTION = "watch"
_HOUR, _DAY = 3600.0, 86400.0
_UTC = ZoneInfo("UTC")
_HOURS = re.compile(r"([01]?\d|2[0-3])-([01]?\d|2[0-3])", re.ASCII)


# How long a holder may leave GPUs unused.
_Limit = Annotated[float, Meta(ge=600, le=_DAY)]


def _quiet(value: object, what: str) -> tuple[int, int]:
    match = _HOURS.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[1] == match[2]:
        raise UsageError(f"{what} is not a span of hours.", 'Write "22-7", the first and the last hour of the pause.')
    return int(match[1]), int(match[2])


def _address(value: object, what: str) -> str:
    from urllib.parse import urlsplit  # noqa: PLC0415

    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        named = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
    except ValueError:
        named = False
    if not named or not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise UsageError(f"{what} is not the address of an Alertmanager.", 'Write "http://127.0.0.1:9093".')
    return value.rstrip("/")


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """`every_seconds`: between two passes. `*_limit_seconds`: how long a holder of that kind may hold GPUs without
    using them. `remind_every_seconds`: between reminders of an open incident. `resolve_after_seconds`: for so long it
    must not be seen before it is over, and within so long it opens again as the same one. `quiet_hours`: begin and end
    hour, local to `time_zone`, in which nothing is sent but high severity; None: none. `send`: whether anything is
    sent; False: it prints what it would send. `state`: the file of incidents; None: ``incidents.db`` beside the
    ledger. `alertmanager_url`: of an Alertmanager with API v2; empty: none; `alertmanager_token_file`: the file with a
    bearer token."""

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
    state: Path | None = None
    alertmanager_url: str = field(default="", metadata={"parse": _address})
    alertmanager_token_file: str = ""

    def limit_seconds(self, holder: HolderKind) -> float:
        """How long this kind of holder may hold GPUs without using them."""
        limits: Mapping[HolderKind, float] = {
            "job": self.job_limit_seconds, "notebook": self.notebook_limit_seconds,
            "service": self.service_limit_seconds, "process": self.process_limit_seconds,
            "allocation": self.allocation_limit_seconds,
        }  # fmt: skip
        return limits[holder]

    @property
    def longest_limit_seconds(self) -> float:
        return max(
            self.job_limit_seconds, self.notebook_limit_seconds, self.service_limit_seconds,
            self.process_limit_seconds, self.allocation_limit_seconds,
        )  # fmt: skip


def load_watch_settings(
    environ: Mapping[str, str], *, system_file: Path = SYSTEM_FILE, config_home: Path | None = None
) -> WatchSettings:
    """Every layer over the one before. Raises `UsageError` for an unknown key or a value that cannot be."""
    return load_section(WatchSettings, SECTION, environ, system_file=system_file, config_home=config_home)
