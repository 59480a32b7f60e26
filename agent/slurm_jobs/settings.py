"""Where Slurm's job table comes from: the section ``[slurm]`` of the settings files, then ``SKUWISE_SLURM_*``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from ..base.setting_values import Reader, parse_flag, path_value, seconds_value
from ..config import SYSTEM_FILE
from ..settings_reader import read_section

SECTION = "slurm"
_VERSION = re.compile(r"v0\.0\.\d{1,3}", re.ASCII)


@dataclass(frozen=True, slots=True)
class SlurmImportSettings:
    """`jobs`: the job table that advice joins to jobs, where --jobs names none. `sacct`: the program. `slurmrestd`: its
    address (http on loopback, https, or ``unix:/PATH``), which is asked instead of sacct; `slurmrestd_token_file` holds
    the JWT, `slurmrestd_user` is sent with it; `slurmrestd_version`: of its data, None: found out.

    `cluster`: Slurm's name of this cluster, where the agent's is another. `time_zone`: where sacct wrote times of a
    file (None: this machine's). `scheduled`: whether ``skuwise serve`` brings
    `jobs` up to date every `every_seconds`; runs that ended longer ago than `keep_seconds` leave it.
    """

    jobs: Path | None = None
    sacct: str = "sacct"
    slurmrestd: str = ""
    slurmrestd_token_file: Path | None = None
    slurmrestd_user: str = ""
    slurmrestd_version: str | None = None
    cluster: str | None = None
    time_zone: ZoneInfo | None = None
    scheduled: bool = False
    every_seconds: float = 600.0
    keep_seconds: float = field(default=90 * 86400.0)


def load_slurm_settings(
    environ: Mapping[str, str], *, system_file: Path = SYSTEM_FILE, config_home: Path | None = None
) -> SlurmImportSettings:
    """Every layer over the one before. Raises `UsageError` for an unknown key or a value that cannot be."""
    return SlurmImportSettings(
        **read_section(SECTION, _READERS, environ, system_file=system_file, config_home=config_home)
    )


def parse_zone(value: object, what: str) -> ZoneInfo:
    """A time zone by its name. Raises UsageError for what is none."""
    try:
        return ZoneInfo(_text(value, what))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"Invalid time zone {clean(value)[:80]!r} ({what}).", "Use a name as in Europe/Berlin, or UTC."
        ) from None


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise UsageError(f"{what} must be text.", "Put it in quotes.")
    return value


def _version(value: object, what: str) -> str:
    if not _VERSION.fullmatch(_text(value, what)):
        raise UsageError(f"Invalid data version {clean(value)[:40]!r} ({what}).", "Use one as in v0.0.40.")
    return str(value)


_READERS: Mapping[str, tuple[str, Reader]] = {
    "jobs": ("jobs", path_value), "sacct": ("sacct", _text), "slurmrestd": ("slurmrestd", _text),
    "slurmrestd_token_file": ("slurmrestd_token_file", path_value), "slurmrestd_user": ("slurmrestd_user", _text),
    "slurmrestd_version": ("slurmrestd_version", _version), "time_zone": ("time_zone", parse_zone),
    "cluster": ("cluster", _text),
    "scheduled": ("scheduled", parse_flag), "every": ("every_seconds", seconds_value(60, 86400, "1 min to a day")),
    "keep": ("keep_seconds", seconds_value(86400, 730 * 86400, "1 to 730 days")),
}  # fmt: skip
