"""The charts of a report as small PNGs, and in words for whoever does not see them. No outside text is drawn.

Their ground is transparent and their ink a grey of middle lightness: it keeps 4.2:1 on white and on a dark page alike,
so that a mail client may turn the colours around it as it likes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core import formatting as words
from ..core.advice_types import Reconciliation
from ..views.aggregates import NOT_OBSERVED, FabricSum
from ..views.document.model import Chart
from ..views.document.report_content import FABRIC, KINDS, MONEY, Change, Story
from ..views.document.sections import kinds_words
from .ink import Ink, Words

_INK = "#7b7b7b"
# Blue and vermilion of the Okabe-Ito palette, which colour-blind readers can tell apart; each keeps 3:1 on white and on
# dark, and so does the grey.
_NOW, _WASTE, _GREY = "#0072b2", "#d55e00", "#8a9099"
_PARTS = {
    "workloads": _NOW, "shared": "#5b8fd6", "allocated but idle": _WASTE, "unallocated": "#b8860b",
    "drained": "#a569a0", "not observed": _GREY,
}  # fmt: skip
_WIDTH = 420  # CSS px, near a phone's width, so that the words stay legible there
_KINDS_MAX = 8
_LEGEND = 3  # entries in a line


def charts_of(story: Story, lettering: Words) -> dict[str, Chart]:
    """The charts that say something about a story, by name. A team's other figures are few, and stand in sentences.
    `lettering`: kept from one story to the next, for most words are in all of them."""
    whole = story.team is None
    drawn = {
        KINDS: kinds_chart(story.hours_by_kind, lettering),
        FABRIC: fabric_chart(story.fabrics, lettering) if whole else None,
        MONEY: money_chart(story.advice.summary.reconciliation, lettering) if whole else None,
    }
    return {name: chart for name, chart in drawn.items() if chart is not None}


def kinds_chart(kinds: Mapping[str, Change], lettering: Words) -> Chart | None:
    """GPU-hours by kind, this week over the week before. None: there are not two kinds to compare."""
    top = max((max(change.now or 0.0, change.before or 0.0) for change in kinds.values()), default=0.0)
    rows = [(kind, c) for kind, c in kinds.items() if max(c.now or 0.0, c.before or 0.0) > top / 1000][:_KINDS_MAX]
    if len(rows) < 2:
        return None
    compared = any(change.before is not None for _, change in rows)
    row, head, left, room = 32, 26 if compared else 4, 122, _WIDTH - 122 - 54
    ink = _Drawing(head + row * len(rows), lettering)
    if compared:
        ink.legend([("this week", _NOW), ("last week", _GREY)])
    for place, (kind, change) in enumerate(rows):
        y, now = head + row * place, change.now or 0.0
        thick = 12 if change.before is not None else 16
        ink.box(left, y + 4, room * now / top, thick, _NOW if kind != NOT_OBSERVED else _GREY)
        if change.before is not None:
            ink.box(left, y + 17, room * change.before / top, 6, _GREY)
        ink.word(left - 8, y + 13, kind, align="right")
        ink.word(left + room * now / top + 6, y + 4 + thick / 2, words.hours(now, "").strip())
    return ink.chart(KINDS, kinds_words(kinds))


def money_chart(money: Reconciliation, lettering: Words) -> Chart | None:
    """The cost breakdown as one bar. None: no price is known, or there is one part only."""
    parts = [(part, value, _PARTS[part]) for part, value in words.money_parts(money)]
    return _bar(parts, MONEY, "Cost breakdown", lettering)


def fabric_chart(fabrics: Sequence[FabricSum], lettering: Words) -> Chart | None:
    """What was paid for the fabrics, by whether they carried anything. None: no price is known, or all did the same."""
    priced = [f for f in fabrics if f.cost_usd is not None]
    paid, silent, unseen = (
        sum(getattr(f, part) or 0.0 for f in priced) for part in ("cost_usd", "silent_usd", "unseen_usd")
    )
    used = paid - silent - unseen
    parts = [("in use", used, _NOW), ("no traffic", silent, _WASTE), ("not observed", unseen, _GREY)]
    return _bar(parts, FABRIC, "Fabric cost", lettering)


def _bar(parts: Sequence[tuple[str, float, str]], name: str, title: str, lettering: Words) -> Chart | None:
    """One bar of parts with their dollars and colours. None: there are not two of them to compare."""
    total = sum(value for _, value, _ in parts)
    shown = [part for part in parts if part[1] > 0.005 * total]
    if total <= 0 or len(shown) < 2:
        return None
    head = 8 + 18 * -(-len(shown) // _LEGEND)
    ink, left = _Drawing(head + 28, lettering), 0.0
    ink.legend([(part, color) for part, _, color in shown])
    for _, value, color in parts:
        ink.box(left, head, _WIDTH * value / total, 24, color)
        left += _WIDTH * value / total
    told = "; ".join(f"{part} {words.usd(value)} ({words.percent(value / total)})" for part, value, _ in parts if value)
    return ink.chart(name, f"{title}: {told} (total {words.usd(total)}).")


class _Drawing:
    """A chart as wide as all of them, in CSS pixels from its upper left."""

    def __init__(self, height: int, lettering: Words) -> None:
        self._height = height
        self._ink = Ink(_WIDTH, height, _INK, lettering)
        self.box, self.word = self._ink.box, self._ink.word

    def legend(self, entries: Sequence[tuple[str, str]]) -> None:
        for place, (name, color) in enumerate(entries):
            x, y = _WIDTH / _LEGEND * (place % _LEGEND), 18 * (place // _LEGEND)
            self.box(x, y + 4, 10, 10, color)
            self.word(x + 15, y + 9, name)

    def chart(self, name: str, alt: str) -> Chart:
        return Chart(name, self._ink.png(), alt, _WIDTH, self._height)
