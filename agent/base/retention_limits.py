"""How long the database keeps what, and how large it may grow."""

from __future__ import annotations

from dataclasses import dataclass

_HOUR, _DAY = 3600.0, 86400.0
# The least that a person may ask for: rollups need the whole hour before, verdicts at least some days.
MIN_RAW_SECONDS = 2 * _HOUR
MIN_MINUTES_SECONDS = _DAY
MIN_HOURS_SECONDS = _DAY
MIN_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Ages in seconds, sizes in bytes (the database and its log together). 512 MB hold 90 days of a node of eight GPUs;
    where two years of hours need more, raw samples go first, down to a quarter of their age, then the oldest
    minutes."""

    raw_seconds: float = 48 * _HOUR
    minutes_seconds: float = 90 * _DAY
    hours_seconds: float = 730 * _DAY
    max_bytes: int = 512_000_000
    # What grows with events, not with time, has its own limit: the oldest beyond it go first.
    max_uses: int = 200_000
    max_absences: int = 50_000
    max_events: int = 50_000
    max_slurm_jobs: int = 200_000

    @property
    def log_bytes(self) -> int:
        """How large the write-ahead log may grow while a reader holds it; beyond it, ticks wait in memory."""
        return min(self.max_bytes // 4, max(8_000_000, self.max_bytes // 16))

    @property
    def file_bytes(self) -> int:
        """How large the database file itself may be after retention: the rest is the log's, and what one run of
        retention to the next adds."""
        return max(1, self.max_bytes - self.log_bytes - self.max_bytes // 64)
