"""A share of one core for work that others cause: spent as it is used, earned as time passes."""

from __future__ import annotations


class CpuBudget:
    """Earns `share` (of one core, 0..1) and keeps at most `reserve_seconds` of CPU time, which it begins with.

    Work is never cut off under way, so the budget can be overdrawn, but by no more than would be earned in
    `longest_wait_seconds`. All times are the caller's, from one monotonic clock.
    """

    __slots__ = ("_at", "_least", "_left", "_reserve", "_share")

    def __init__(self, share: float, reserve_seconds: float, longest_wait_seconds: float, now: float) -> None:
        self._share = share
        self._reserve = self._left = reserve_seconds
        self._least = -longest_wait_seconds * share
        self._at = now

    def spend(self, cpu_seconds: float, now: float) -> None:
        """Take off what was used."""
        self._earn(now)
        self._left = max(self._least, self._left - cpu_seconds)

    def wait_seconds(self, now: float, wanted_seconds: float = 0.0) -> float:
        """How long until there is something to spend again; 0 while there is.

        Once there is nothing, `wanted_seconds` of CPU time are waited for: waking up costs as well.
        """
        self._earn(now)
        return 0.0 if self._left > 0 else max(0.0, wanted_seconds - self._left) / self._share

    def _earn(self, now: float) -> None:
        self._left = min(self._reserve, self._left + max(0.0, now - self._at) * self._share)
        self._at = now
