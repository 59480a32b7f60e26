"""Spans of some devices that belong together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .spans import Span


@dataclass(slots=True)
class Group:
    """Spans of some devices that belong together."""

    spans: list[Span]

    @property
    def rows(self) -> list[int]:
        return [one.row for one in self.spans]

    @property
    def start(self) -> float:
        return float(np.median([one.start for one in self.spans]))

    @property
    def end(self) -> float:
        return float(np.median([one.end for one in self.spans]))

    @property
    def open_start(self) -> bool:
        return any(one.open_start for one in self.spans)

    @property
    def open_end(self) -> bool:
        return any(one.open_end for one in self.spans)

    @property
    def cells(self) -> tuple[int, int]:
        """The cells that all of its spans hold, as a range."""
        return max(one.first for one in self.spans), min(one.last for one in self.spans) + 1

    @property
    def level(self) -> float:
        levels = [one.level for one in self.spans if not np.isnan(one.level)]
        return float(np.median(levels)) if levels else float("nan")

    @property
    def start_within(self) -> float:
        """Seconds by which the start may be wrong; likewise the end."""
        return max(one.start_within for one in self.spans)

    @property
    def end_within(self) -> float:
        return max(one.end_within for one in self.spans)
