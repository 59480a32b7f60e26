"""The waste of a window over time: one band of bars a rule, all on one scale and one time axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget

from ...advisor.core import formatting as words
from ...advisor.core.timestamps import minute
from ...advisor.show.series.waste_history import RuleWaste, WasteHistory
from ..cell_text import fit, lines, spark
from .exportable import Sheet

_NAMED, _MOST_BANDS, _TALLEST = 20, 5, 6
_LEAST = 2  # lines of a band: its name, and its total below
_TICK, _DAY_TICK = 12, 8  # cells of a time and of a day, with some room
_DAYS_FROM = 3 * 24  # hours from which on days are enough


class WasteChart(Widget):
    """`set_data` gives it a history, or a sentence in its place."""

    DEFAULT_CSS = "WasteChart { height: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._history: WasteHistory | None = None
        self._empty = ""

    def set_data(self, history: WasteHistory | None, empty: str) -> None:
        """`empty`: what to show where there is no waste to draw."""
        self._history, self._empty = history, empty
        self.refresh()

    def sheet(self, title: str) -> Sheet:
        rules = self._history.rules if self._history is not None else ()
        return Sheet(
            title, ("rule", "wasted in the window"), lambda: [(rule.rule, self._amount(rule)) for rule in rules]
        )

    def _amount(self, one: RuleWaste) -> str:
        priced = self._history is not None and self._history.priced
        return words.usd(one.total) if priced else words.hours(one.total, "GPU-h")

    def render(self) -> Content:
        history, room = self._history, self.size.width - _NAMED - 1
        if history is None or not history.rules or room < _TICK:
            return Content.styled(self._empty, "$foreground-muted")
        shown = bands(history.rules, max((self.size.height - 1) // _LEAST, 1))
        tall = min(max((self.size.height - 1) // len(shown), 1), _TALLEST)
        drawn = [per_cell(one.values, room) for one in shown]
        hours, width = drawn[0][0], len(drawn[0][1])
        times = max(room // width, 1)  # cells for each value
        top = max(max(cells) for _, cells in drawn)
        told: list[Content] = []
        for one, (_, cells) in zip(shown, drawn, strict=True):
            wide = [value if value > 0 else None for value in cells for _ in range(times)]
            names = (
                [one.rule, self._amount(one), *[""] * tall][:tall] if tall > 1 else [f"{one.rule} {self._amount(one)}"]
            )
            high = tall - 1 if tall > _LEAST else tall  # a line apart, where there is room
            drawn_bars = [*[""] * (tall - high), *spark(wide, top, width * times, high)]
            for name, bars in zip(names, drawn_bars, strict=True):
                told.append(Content.assemble(fit(name, _NAMED), " ", Content.styled(bars, "$warning")))
        return lines(*told, Content.styled(self._axis(history, hours, width, times, top), "$foreground-muted"))

    def _axis(self, history: WasteHistory, hours: int, width: int, times: int, top: float) -> str:
        """The days below the bars, and at the left what the tallest bar is worth."""
        most = words.usd(top, "/day") if history.priced else words.hours(top, "GPU-h/day")
        by_day = hours * width >= _DAYS_FROM
        step = max(_DAY_TICK if by_day else _TICK, width * times // 6)
        told, at = "", 0
        while at + step - 1 <= width * times:
            told = told.ljust(at) + minute(history.start + at // times * hours * 3600)[5 : 10 if by_day else 16]
            at += step
        return fit(f"max {most}", _NAMED) + " " + told


def bands(rules: tuple[RuleWaste, ...], most: int) -> tuple[RuleWaste, ...]:
    """The largest, and the rest as one."""
    most = min(most, _MOST_BANDS)
    if len(rules) <= most:
        return rules
    rest = rules[most - 1 :]
    values = tuple(sum(parts) for parts in zip(*(one.values for one in rest), strict=True))
    return (*rules[: most - 1], RuleWaste(f"{len(rest)} other rules", sum(one.total for one in rest), values))


def per_cell(values: Sequence[float], width: int) -> tuple[int, tuple[float, ...]]:
    """So many whole hours to a cell that all fit `width` cells, and each cell's sum for a day: what 24 such hours
    would waste."""
    hours = max(math.ceil(len(values) / max(width, 1)), 1)
    parts = [values[at : at + hours] for at in range(0, len(values), hours)]
    return hours, tuple(sum(part) / len(part) * 24 for part in parts)
