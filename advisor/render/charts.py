"""The charts of a report as small PNGs, and in words for whoever does not see them. No outside text is drawn.

Their ground is transparent and their ink a grey of middle lightness: it keeps 4.2:1 on white and on a dark page alike,
so that a mail client may turn the colours around it as it likes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from .. import words
from ..model import Reconciliation
from ..report.page import Chart
from ..report.story import Change, Story
from ..report.sums import FabricSum
from ..report.telling import FABRIC, KINDS, MONEY

_INK = "#7b7b7b"
# Blue and vermilion of the Okabe-Ito palette, which colour-blind readers can tell apart; each keeps 3:1 on white and on
# dark, and so does the grey.
_NOW, _WASTE, _GREY = "#0072b2", "#d55e00", "#8a9099"
_PARTS = {
    "workloads": _NOW, "shared": "#5b8fd6", "allocated but idle": _WASTE, "unallocated": "#b8860b",
    "drained": "#a569a0", "not observed": _GREY,
}  # fmt: skip
# CSS px, of a phone's width so that the words stay legible there; device pixels to one of them, for screens enlarge it.
_WIDTH, _ROW, _DENSITY = 420, 32, 2.5
_DPI = 96
_LEGEND_COLUMNS = 3
_KINDS_MAX = 8


def charts_of(story: Story) -> dict[str, Chart]:
    """The charts that say something about a story, by name. Where the fleet's money went is the fleet's business."""
    whole = story.team is None
    drawn = {
        KINDS: kinds_chart(story.hours_by_kind, KINDS),
        FABRIC: fabric_chart(story.fabrics, FABRIC),
        MONEY: money_chart(story.advice.summary.reconciliation, MONEY) if whole else None,
    }
    return {name: chart for name, chart in drawn.items() if chart is not None}


def kinds_chart(kinds: Mapping[str, Change], name: str) -> Chart | None:
    """GPU-hours by kind, this week over the week before. None: there is nothing to show."""
    top = max((max(change.now or 0.0, change.before or 0.0) for change in kinds.values()), default=0.0)
    if top <= 0:
        return None
    worth = {
        kind: change for kind, change in kinds.items() if max(change.now or 0.0, change.before or 0.0) > top / 1000
    }
    rows = list(worth.items())[:_KINDS_MAX]
    compared = any(change.before is not None for _, change in rows)
    height = _ROW * len(rows) + (26 if compared else 2)
    figure, axes = _blank(height)
    for place, (_, change) in enumerate(rows):
        now = change.now or 0.0
        axes.barh(place - (0.14 if compared else 0), now, height=0.34 if compared else 0.5, color=_NOW)
        axes.text(
            now + top * 0.012,
            place - (0.14 if compared else 0),
            words.hours(now, ""),
            va="center",
            color=_INK,
            fontsize=8,
        )
        if change.before is not None:
            axes.barh(place + 0.22, change.before, height=0.2, color=_GREY)
    axes.set_yticks(range(len(rows)), [kind for kind, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, top * 1.18)
    axes.tick_params(axis="y", length=0, labelcolor=_INK, labelsize=8)
    axes.set_xticks([])
    if compared:
        _legend(figure, [("this week", _NOW), ("week before", _GREY)])
    figure.subplots_adjust(left=0.25, right=0.99, top=1 - 24 / height if compared else 1, bottom=0.01)
    told = "; ".join(
        f"{kind} {words.hours(c.now, '').strip()}"
        + (f", was {words.hours(c.before, '').strip()}" if c.before is not None else "")
        for kind, c in rows
    )
    return Chart(name, _png(figure), f"GPU-hours by kind: {told}.", _WIDTH, height)


def money_chart(money: Reconciliation, name: str) -> Chart | None:
    """Where every dollar went, as one bar. None: no price is known, or nothing was spent."""
    parts = [(part, value, _PARTS[part]) for part, value in words.money_parts(money)]
    return _bar(parts, name, "Where the money went", priced=False)


def fabric_chart(fabrics: Sequence[FabricSum], name: str) -> Chart | None:
    """What was paid for the fabrics, by whether they carried anything. None: no price is known, or there is none."""
    priced = [f for f in fabrics if f.cost_usd is not None]
    paid, silent, unseen = (
        sum(getattr(f, part) or 0.0 for f in priced) for part in ("cost_usd", "silent_usd", "unseen_usd")
    )
    parts = [("in use", paid - silent - unseen, _NOW), ("carried nothing", silent, _WASTE), ("not seen", unseen, _GREY)]
    return _bar([p for p in parts if p[1] > 0.005 * paid], name, "What was paid for the fabrics", priced=True)


def _bar(parts: Sequence[tuple[str, float, str]], name: str, title: str, *, priced: bool) -> Chart | None:
    """One bar of parts with their dollars and colours; None: it holds nothing. `priced`: the legend names dollars."""
    total = sum(value for _, value, _ in parts)
    if total <= 0:
        return None
    lines = -(-len(parts) // _LEGEND_COLUMNS)
    height = 36 + 16 * lines
    figure, axes = _blank(height)
    left = 0.0
    for _, value, color in parts:
        axes.barh(0, value, left=left, height=1, color=color)
        left += value
    axes.set_xlim(0, left)
    axes.set_ylim(-0.5, 0.5)
    axes.set_xticks([])
    axes.set_yticks([])
    _legend(figure, [(f"{part} {words.usd(value)}" if priced else part, color) for part, value, color in parts])
    figure.subplots_adjust(left=0.005, right=0.995, top=1 - (8 + 16 * lines) / height, bottom=0.05)
    told = "; ".join(f"{part} {words.usd(value)} ({words.percent(value / total)})" for part, value, _ in parts)
    return Chart(name, _png(figure), f"{title}: {told}; together {words.usd(total)}.", _WIDTH, height)


def _blank(height: int) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(_WIDTH / _DPI, height / _DPI), dpi=_DPI * _DENSITY)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.patch.set_alpha(0)
    figure.patch.set_alpha(0)
    return figure, axes


def _legend(figure: Figure, entries: Sequence[tuple[str, str]]) -> None:
    """A line of words with their colours, along the top."""
    handles = [Rectangle((0, 0), 1, 1, color=color) for _, color in entries]
    figure.legend(
        handles, [name.replace("$", r"\$") for name, _ in entries], loc="upper left", bbox_to_anchor=(0, 1),
        ncols=min(len(entries), _LEGEND_COLUMNS),
        frameon=False, fontsize=8, labelcolor=_INK, borderaxespad=0.1, handlelength=0.9, handleheight=0.9,
        columnspacing=1.2,
    )  # fmt: skip


def _png(figure: Figure) -> bytes:
    out = io.BytesIO()
    # No date and no version: the same figures give the same bytes.
    figure.savefig(out, format="png", transparent=True, metadata={"Software": None})
    return out.getvalue()
