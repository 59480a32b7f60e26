"""What the page of metrics tells of, as plain values: the newest advice, the incidents, and how the watch runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.advice_types import Advice
from ..core.incident_types import Incident


@dataclass(frozen=True, slots=True)
class WatchStanding:
    """The passes of the watch since this program began. `last_end`: Unix time, by our clock, when the newest successful
    pass ended; None: none has. `duration_seconds`: of the newest pass; None: none has ended."""

    passes: int = 0
    failures: int = 0
    last_end: float | None = None
    duration_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SiteState:
    """`advice` None: there is none, or it cannot be read. `incidents` None: unknown, which is not "none is open".
    `advice_readable`, `incidents_readable`: whether the newest look at the file succeeded; None: there is no file."""

    advice: Advice | None = None
    advice_readable: bool | None = None
    incidents: Sequence[Incident] | None = None
    incidents_readable: bool | None = None
    watch: WatchStanding | None = None


@dataclass(frozen=True, slots=True)
class PageLimits:
    """`series_max`: of workloads, findings or incidents, the worst first; the rest is one series. `stale_seconds`: what
    is said of workloads and findings is dropped once their advice is older."""

    series_max: int = 500
    stale_seconds: float = 86400.0
