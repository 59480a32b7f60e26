"""Texts with a line for each value: bars of shares, sparklines of measures, two things side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from textual.content import Content

from ...advisor.core.formatting import figure, hours, percent
from ...advisor.show.document import Table
from ...advisor.show.writers.text import document_text
from ..cell_text import bar, fit, fit_apart, line, spark
from .frame import Drawing, Drawn

if TYPE_CHECKING:
    from ...advisor.core.advice_types import Advice, Finding, Recommendation
    from ...advisor.core.verdict_types import WorkloadVerdict
    from ...advisor.show.document import Document
    from ...advisor.show.series.device_series import DeviceGauge

_NAME_MAX = 20
_GAUGE_NAME, _GAUGE_VALUE = 16, 18  # cells beside a sparkline
_hours = partial(hours, unit="h")


def document_drawing(document: Document) -> Drawing:
    """Return a document as the command line writes it."""

    def draw(width: int) -> list[Content]:
        return [line(part) for part in document_text(document, width=width).strip("\n").split("\n")]

    return draw


def explained(advice: Advice, subject: Finding | Recommendation | WorkloadVerdict, *, verbose: bool = False) -> Drawing:
    """Return what ``skuwise explain`` prints."""
    from ...advisor.show.pages.explain import explain_page  # noqa: PLC0415 - it needs numpy: not at the start

    return document_drawing(explain_page(advice, subject, verbose=verbose))


def show_bars(
    place: Drawn, quantities: Iterable[tuple[str, float]], words: Callable[[float | None], str] = _hours
) -> None:
    """Show quantities with their names and shares of the sum. `words` writes a value with its unit."""
    pairs = list(quantities)
    whole = sum(value for _, value in pairs)
    shares = [value / whole if whole > 0 else 0.0 for _, value in pairs]
    named = min(max((len(name) for name, _ in pairs), default=0), _NAME_MAX)
    rows = tuple((name, words(value), percent(share)) for (name, value), share in zip(pairs, shares, strict=True))

    def draw(width: int) -> list[Content]:
        drawn = []
        for name, share, (_, value, part) in zip(fit_apart([row[0] for row in rows], named), shares, rows, strict=True):
            bars = Content.styled(bar(share, max(width - named - 21, 0)), "$primary")
            drawn.append(Content.assemble(name, " ", bars, " ", fit(value, 12, right=True), fit(part, 6, right=True)))
        return drawn

    place.set_data(draw, Table(("name", "value", "share"), rows))


def show_sparklines(place: Drawn, gauges: Sequence[DeviceGauge]) -> None:
    """Show measures over time: name, sparkline, last value with its unit.

    Textual's own sparkline scales from the smallest value and cannot leave a gap: 84 to 85 % would fill its height, and
    a missing value would be zero.
    """

    def draw(width: int) -> list[Content]:
        drawn: list[Content] = []
        for gauge in gauges:
            of = f" of {short(gauge.top)}" if gauge.top is not None and gauge.unit != "%" else ""
            value = f"{short(gauge.last)} {gauge.unit}{of}" if gauge.last is not None else "not measured"
            bars = spark(gauge.values, top_of(gauge), width - _GAUGE_NAME - _GAUGE_VALUE - 2)
            name = fit(gauge.name, _GAUGE_NAME)
            drawn.append(Content.assemble(name, " ", Content.styled(bars, "$primary"), " ", fit(value, _GAUGE_VALUE)))
        return drawn

    place.set_data(draw)


def top_of(gauge: DeviceGauge) -> float:
    """Return the end of a scale: what the device can do, or else the largest value."""
    return gauge.top or max((value for value in gauge.values if value is not None), default=0.0) or 1.0


def short(value: float) -> str:
    """A value to three digits: it changes every second."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return figure(float(f"{value:.3g}")) if abs(value) >= 1 else f"{value:.2f}".rstrip("0").rstrip(".") or "0"


class Pair(NamedTuple):
    """A value today and after a change. `style`: of the second value, where it says something by itself."""

    name: str
    first: str
    second: str
    style: str = ""


def show_pairs(place: Drawn, pairs: Sequence[Pair]) -> None:
    """Show today and after side by side, line by line. A second value that equals the first is muted."""
    named = min(max((len(pair.name) for pair in pairs), default=0), _NAME_MAX - 2)

    def draw(width: int) -> list[Content]:
        each = max((width - named - 4) // 2, 1)
        heads = "  ".join((fit("", named), fit("today", each), fit("after", each)))
        drawn = [Content.styled(heads, "bold $primary")] if pairs else []
        for pair in pairs:
            first, second = fit_apart((pair.first, pair.second), each)
            style = pair.style or ("$foreground-muted" if pair.first == pair.second else "bold")
            name = Content.styled(fit(pair.name, named), "$foreground-muted")
            drawn.append(Content.assemble(name, "  ", first, "  ", Content.styled(second, style)))
        return drawn

    place.set_data(draw, Table(("", "today", "after"), tuple(pair[:3] for pair in pairs)))
