"""Where Slurm's job table comes from: the section ``[slurm]`` of the settings files, then ``SKUWISE_SLURM_*``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Meta

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from ..config import SYSTEM_FILE, load_section

_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class SlurmImportSettings:
    """`jobs`: the job table of advice, where --jobs names none. `sacct`: the program. `slurmrestd`: its address (http
    on loopback, https, or ``unix:/PATH``), asked instead; `slurmrestd_token_file` holds the JWT, `slurmrestd_user` is
    sent with it; `slurmrestd_version`: of its data, None: found out. `cluster`: Slurm's name of this cluster, where
    the agent's is another. `time_zone`: where sacct wrote a file (None: this machine's). `scheduled`: whether ``skuwise
    serve`` brings `jobs` up to date every `every_seconds`; what ended longer ago than `keep_seconds` leaves it."""

    jobs: Path | None = None
    sacct: str = "sacct"
    slurmrestd: str = ""
    slurmrestd_token_file: Path | None = None
    slurmrestd_user: str = ""
    slurmrestd_version: Annotated[str, Meta(pattern=r"^v0\.0\.\d{1,3}$")] | None = None
    cluster: str | None = None
    time_zone: ZoneInfo | None = None
    scheduled: bool = False
    every_seconds: Annotated[float, Meta(ge=60, le=_DAY)] = 600.0
    keep_seconds: Annotated[float, Meta(ge=_DAY, le=730 * _DAY)] = 90 * _DAY


def load_slurm_settings(
    environ: Mapping[str, str], *, system_file: Path = SYSTEM_FILE, config_home: Path | None = None
) -> SlurmImportSettings:
    """Every layer over the one before. Raises `UsageError` for an unknown key or a value that cannot be."""
    return load_section(SlurmImportSettings, "slurm", environ, system_file=system_file, config_home=config_home)


def parse_zone(value: object, what: str) -> ZoneInfo:
    """A time zone by its name. Raises UsageError for what is none."""
    try:
        return ZoneInfo(value if isinstance(value, str) else "")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"Invalid time zone {clean(value)[:80]!r} ({what}).", "Use a name as in Europe/Berlin, or UTC."
        ) from None
