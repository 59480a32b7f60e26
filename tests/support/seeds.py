"""How many cases a property test draws."""

from __future__ import annotations

from hypothesis import settings


def examples(full: int) -> int:
    """For `max_examples`: `full` where cases are drawn anew, at most 20 in `make test`."""
    return min(full, 20) if settings.default and settings.default.derandomize else full
