"""The fields of Slurm's accounting: ids, times, states and resources, as sacct(1) writes them.

https://slurm.schedmd.com/sacct.html: "Job Accounting Fields" (JobID, JobIDRaw, State, AllocTRES), ``SLURM_TIME_FORMAT``
in "ENVIRONMENT VARIABLES". What cannot be read is None, never a guess.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Any

from ..base.safe_text import clean_text
from ..jobs.command_line import plain_name

# JobID: 22, 22_7 (task of an array), 22_[1-10%2] (tasks that wait), 22+1 (part of a heterogeneous job), each with
# .batch, .extern, .interactive or a step's number behind it.
_JOB_ID = re.compile(
    r"(?P<job>\d{1,10})(?:_(?:(?P<task>\d{1,10})|\[(?P<waiting>[^\]|\n]{0,400})\]?))?(?:\+(?P<part>\d{1,6}))?"
    r"(?P<step>\.[A-Za-z0-9_+]{1,64})?",
    re.ASCII,
)
_NOTHING = frozenset({"", "unknown", "none", "n/a", "(null)", "invalid", "none assigned"})
_EPOCH = re.compile(r"\d{9,11}(?:\.\d{1,6})?", re.ASCII)
_LOCAL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?P<zone>Z|[+-]\d\d:?\d\d)?", re.ASCII)
_STATE = re.compile(r"(?P<state>[A-Z][A-Z_]{1,31})(?:\+| by \S{1,64})?", re.ASCII)
_ELAPSED = re.compile(r"(?:(\d{1,5})-)?(?:(\d{1,3}):)?(\d{1,2}):(\d{2})", re.ASCII)
_COUNT = re.compile(r"\d{1,12}", re.ASCII)
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([KMGTPE]?)", re.ASCII)
_UNITS = {unit: 1024.0**n for n, unit in enumerate(("", "K", "M", "G", "T", "P", "E"))}
# Slurm began in 2003; the year 2200 is as far as its 32 bits of seconds reach, and more.
_FIRST, _LAST = 1_000_000_000.0, 7_258_118_400.0
_MOST_LIST = 4096
# What is longer is cut before it is looked at, and kept: columns of some sites hold whole command lines.
_MOST_TEXT = 1024
# No cluster has more of anything; beyond, a sum may not fit into a database's integer.
MOST_COUNT = 10**12
# A state of a job that has not begun, or will begin again (sacct(1), "JOB STATE CODES").
NOT_BEGUN = frozenset({"PENDING", "CONFIGURING"})


@dataclass(frozen=True, slots=True)
class JobId:
    """A JobID taken apart. `waiting`: tasks of an array that have not begun; `step`: of a step, not of the job."""

    job: str
    task: str | None = None
    waiting: bool = False
    step: bool = False
    part: str | None = None


def parse_job_id(text: str) -> JobId | None:
    """None for what is no JobID."""
    found = _JOB_ID.fullmatch(text)
    if found is None:
        return None
    return JobId(found["job"], found["task"], found["waiting"] is not None, found["step"] is not None, found["part"])


def parse_text(text: str | None) -> str | None:
    """A name on one line without control characters; None where there is none."""
    cleaned = _cleaned(text[:_MOST_TEXT]) if text else None
    return None if cleaned is None or cleaned.lower() in _NOTHING else cleaned


def parse_name(text: str | None) -> str | None:
    """A job's name: a job may well be called ``none``. Of one that is a command line the program is kept."""
    return (_plain(text[:_MOST_TEXT]) or None) if text else None


@lru_cache(maxsize=16_384)
def _plain(text: str) -> str:
    return plain_name(text)


@lru_cache(maxsize=16_384)  # few users, accounts, partitions and names, on very many lines
def _cleaned(text: str) -> str:
    return clean_text(text)


def parse_node_list(text: str | None) -> str | None:
    """None too where the list is longer than we keep: a part of it would be another list."""
    if not text or text.lower() in _NOTHING or len(text) > _MOST_LIST:
        return None
    return text if text.isascii() and text.isprintable() else None


def parse_job_state(text: str | None) -> str | None:
    """The state without who cancelled it: ``CANCELLED by 1000`` and sacct's cut ``CANCELLED+`` are CANCELLED."""
    found = _STATE.fullmatch(text or "")
    return found["state"] if found else None


def parse_count(text: str | None) -> int | None:
    return int(text) if text and _COUNT.fullmatch(text) else None


def parse_moments(text: str | None, zone: tzinfo | None) -> tuple[float, ...]:
    """A moment as Unix seconds: two where the local clock showed it twice, none where nothing is told.

    `zone`: where sacct ran; None: this machine's. ISO with an offset and seconds since 1970 need none.
    """
    text = (text or "").strip()
    if _EPOCH.fullmatch(text):
        return _plausible(float(text))
    found = _LOCAL.fullmatch(text)
    if found is None:
        return ()
    if found["zone"]:
        try:
            return _plausible(datetime.fromisoformat(text).timestamp())
        except (ValueError, OverflowError):
            return ()
    minutes, seconds = int(text[15:16]), int(text[17:19])
    return tuple(begin + 60.0 * minutes + seconds for begin in _ten_minutes(text[:15], zone)) if seconds < 60 else ()


@lru_cache(maxsize=65_536)
def _ten_minutes(text: str, zone: tzinfo | None) -> tuple[float, ...]:
    """The beginning of ten minutes of local time (``2026-09-21T12:3``), no part of which a clock's change cuts."""
    try:
        said = datetime.fromisoformat(f"{text}0:00")
        both = {_seconds(said.replace(fold=fold), zone) for fold in (0, 1)}
    except (ValueError, OverflowError, OSError):
        return ()
    return tuple(one for moment in sorted(both) for one in _plausible(moment))


def _seconds(said: datetime, zone: tzinfo | None) -> float:
    return (said.astimezone(UTC) if zone is None else said.replace(tzinfo=zone)).timestamp()


def _plausible(moment: float) -> tuple[float, ...]:
    return (moment,) if _FIRST <= moment <= _LAST else ()


def parse_span(
    start: str | None, end: str | None, elapsed: str | None, zone: tzinfo | None
) -> tuple[float | None, float | None]:
    """Start and end. In the hour that the clocks show twice, the pair that `elapsed` fits decides; without it, the
    first of the two."""
    starts, ends = parse_moments(start, zone), parse_moments(end, zone)
    if not starts or not ends:
        return starts[0] if starts else None, ends[0] if ends else None
    told = parse_elapsed(elapsed)
    if told is None or len(starts) == len(ends) == 1:
        return starts[0], ends[0]
    return min(((a, b) for a in starts for b in ends), key=lambda span: abs(span[1] - span[0] - told))


def parse_elapsed(text: str | None) -> float | None:
    """``[DD-[HH:]]MM:SS`` or seconds."""
    text = text or ""
    if _COUNT.fullmatch(text):
        return float(text)
    found = _ELAPSED.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * 86400.0 + hours * 3600.0 + minutes * 60.0 + seconds


@dataclass(frozen=True, slots=True)
class Resources:
    """What a job was given, or asked for. None: not told."""

    gpus: int | None = None
    cpus: int | None = None
    mem_bytes: float | None = None


def parse_tres(*texts: str | None) -> Resources:
    """``billing=8,cpu=8,gres/gpu=4,gres/gpu:h100=4,mem=32G,node=1``; what one text does not tell, the next may.

    Of typed GPUs alone the sum counts. GPUs that nobody names are none, where anything is named. A text that is longer
    than we keep tells nothing: a part of it would be other resources.
    """
    return _tres(tuple(text if text and len(text) <= _MOST_LIST else None for text in texts))


@lru_cache(maxsize=16_384)
def _tres(texts: tuple[str | None, ...]) -> Resources:
    tables = (dict(part.split("=", 1) for part in (text or "").split(",") if "=" in part) for text in texts)
    return first_resources(*(resources_of(parts) for parts in tables if parts))


def first_resources(*told: Resources) -> Resources:
    """Of each resource what the first tells that tells any."""

    def first(name: str) -> Any:  # noqa: ANN401 - each field's own type
        return next((value for one in told if (value := getattr(one, name)) is not None), None)

    return Resources(first("gpus"), first("cpus"), first("mem_bytes"))


def resources_of(parts: Mapping[str, str]) -> Resources:
    """The resources among what TRES are called (``gres/gpu``) and how many there are."""
    whole = parse_count(parts.get("gres/gpu"))
    typed = [parse_count(count) for name, count in parts.items() if name.startswith("gres/gpu:")]
    unread = (whole is None and "gres/gpu" in parts) or None in typed
    gpus = whole if whole is not None else None if unread else sum(n for n in typed if n is not None)
    return Resources(gpus, parse_count(parts.get("cpu")), parse_size(parts.get("mem")))


def parse_size(text: str | None) -> float | None:
    """``32G`` in bytes (1024-based); a bare number is megabytes, as Slurm counts memory. 0 tells nothing."""
    found = _SIZE.fullmatch(text or "")
    if found is None:
        return None
    size = float(found[1]) * _UNITS[found[2] or "M"]
    return size if 0 < size < math.inf else None
