"""The charts of a report as small PNGs, and in words for whoever does not see them. No outside text is drawn.

Their ground is transparent and their ink a grey of middle lightness: it keeps 4.2:1 on white and on a dark page alike.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ...core import formatting as words
from ...core.advice_types import Advice
from ..aggregates import NOT_OBSERVED, FabricSum, fabric_sums
from ..document import Chart
from ..pages.sections import FABRIC, KINDS, MONEY, kinds_words, ordered_kinds

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


def charts_of(advice: Advice, team: str | None) -> dict[str, Chart]:
    """The charts that say something about an advice, by name. Other figures of a team are few: sentences tell them."""
    whole = team is None
    spend = [(part, value, _PARTS[part]) for part, value in words.money_parts(advice.summary.reconciliation)]
    drawn = {
        KINDS: _kinds_chart(ordered_kinds(advice)),
        FABRIC: _fabric_chart(fabric_sums(advice)) if whole else None,
        MONEY: _bar(spend, MONEY, "Cost breakdown") if whole else None,
    }
    return {name: chart for name, chart in drawn.items() if chart is not None}


def _kinds_chart(kinds: Mapping[str, float]) -> Chart | None:
    """GPU-hours by kind. None: there are not two kinds to compare."""
    top = max(kinds.values(), default=0.0)
    rows = [(kind, hours) for kind, hours in kinds.items() if hours > top / 1000][:_KINDS_MAX]
    if len(rows) < 2:
        return None
    row, head, left, room = 32, 4, 122, _WIDTH - 122 - 54
    ink = _Drawing(head + row * len(rows))
    for place, (kind, hours) in enumerate(rows):
        y = head + row * place
        ink.box(left, y + 4, room * hours / top, 16, _NOW if kind != NOT_OBSERVED else _GREY)
        ink.word(left - 8, y + 13, kind, align="right")
        ink.word(left + room * hours / top + 6, y + 12, words.hours(hours, "").strip())
    return ink.chart(KINDS, kinds_words(kinds))


def _fabric_chart(fabrics: Sequence[FabricSum]) -> Chart | None:
    """What was paid for the fabrics, by whether they carried anything. None: no price is known, or all did the same."""
    priced = [f for f in fabrics if f.cost_usd is not None]
    paid, silent, unseen = (
        sum(getattr(f, part) or 0.0 for f in priced) for part in ("cost_usd", "silent_usd", "unseen_usd")
    )
    used = paid - silent - unseen
    parts = [("in use", used, _NOW), ("no traffic", silent, _WASTE), ("not observed", unseen, _GREY)]
    return _bar(parts, FABRIC, "Fabric cost")


def _bar(parts: Sequence[tuple[str, float, str]], name: str, title: str) -> Chart | None:
    """One bar of parts with their dollars and colours. None: there are not two of them to compare."""
    total = sum(value for _, value, _ in parts)
    shown = [part for part in parts if part[1] > 0.005 * total]
    if total <= 0 or len(shown) < 2:
        return None
    head = 8 + 18 * -(-len(shown) // _LEGEND)
    ink, left = _Drawing(head + 28), 0.0
    ink.legend([(part, color) for part, _, color in shown])
    for _, value, color in parts:
        ink.box(left, head, _WIDTH * value / total, 24, color)
        left += _WIDTH * value / total
    told = "; ".join(f"{part} {words.usd(value)} ({words.percent(value / total)})" for part, value, _ in parts if value)
    return ink.chart(name, f"{title}: {told} (total {words.usd(total)}).")


class _Drawing:
    """A chart as wide as all of them, in CSS pixels from its upper left."""

    def __init__(self, height: int) -> None:
        self._height = height
        self._figure = Figure(figsize=(_WIDTH / 96, height / 96), dpi=2 * 96)
        self._axes = self._figure.add_axes((0, 0, 1, 1), xlim=(0, _WIDTH), ylim=(height, 0))
        self._axes.set_axis_off()

    def box(self, x: float, y: float, width: float, height: float, color: str) -> None:
        self._axes.add_patch(Rectangle((x, y), width, height, color=color, linewidth=0))

    def word(self, x: float, y: float, text: str, align: str = "left") -> None:
        """A word that begins, or with `align` "right" ends, at `x`, and has its middle at `y`."""
        self._axes.text(x, y, text, ha=align, va="center", fontsize=9, color=_INK, parse_math=False)

    def legend(self, entries: Sequence[tuple[str, str]]) -> None:
        for place, (name, color) in enumerate(entries):
            x, y = _WIDTH / _LEGEND * (place % _LEGEND), 18 * (place // _LEGEND)
            self.box(x, y + 4, 10, 10, color)
            self.word(x + 15, y + 9, name)

    def chart(self, name: str, alt: str) -> Chart:
        out = io.BytesIO()
        # Without the version of what drew it, the same chart has the same bytes.
        self._figure.savefig(out, format="png", transparent=True, metadata={"Software": None})
        return Chart(name, out.getvalue(), alt, _WIDTH, self._height)
