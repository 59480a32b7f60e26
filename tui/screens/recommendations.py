"""The recommendations, what each changes, and the decisions on them."""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import Advice, Configuration, Interval, Recommendation
from ...advisor.show import coverage
from ...advisor.show.pages.plan import node_type
from ...advisor.show.titles import Row, left_out_words, recommendation_rows
from ..cell_text import line
from ..state import Look
from ..widgets.figures import Pair, explained, show_pairs
from ..widgets.frame import Drawn, Verb, panel
from ..widgets.table import Column, ItemTable, quantity
from .base_page import Page

_SLOWER = 1.005  # a time ratio above it is shown as slower


class Recommendations(Page):
    NAME, LABEL = "recommendations", "Recommendations"
    IDS = attrgetter("recommendation.id", "recommendation.workload")
    SHOWS_EARLIER = True
    ABOUT: ClassVar[str] = (
        "What to change, in the order of 'skuwise advise': cash first. Freed GPU-hours are capacity, in no sum of "
        "dollars. Press u to show what is decided, blocked or below the minimum gain. Decisions go to the ledger."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "decide('accepted')", "Accept"),
        Binding("z", "decide('snoozed')", "Snooze"),
        Binding("d", "decide('dismissed')", "Dismiss"),
        Binding("i", "what_if", "What if"),
        Binding("u", "unfold", "All / with savings", show=False),
    ]
    _unfolded = False

    def compose_data(self) -> ComposeResult:
        with Container(id="proposed"):
            rows = ItemTable(_COLUMNS, empty=_NONE, identity=lambda row: row.recommendation.id, id="list")
            yield panel("Recommendations", rows, Static(id="folded"), id="listed", classes="fills")
            yield panel("Before and after", Drawn(id="pairs"), Drawn(id="explained"), id="chosen", scrolls=True)

    def set_data(self, look: Look) -> None:
        rows, summary = recommendation_rows(look.advice), look.advice.summary
        shown, left_out = [row for row in rows if self._unfolded or not row.left_out], left_out_words(rows)
        empty = f"Waste is {coverage.not_judged(summary)}." if summary.nothing_judged else _NONE
        self.query_one(ItemTable).set_data(shown, empty)
        self.query_one("#folded").display = bool(left_out)
        self.write("#folded", line(f"{left_out} u {'hides' if self._unfolded else 'shows'} them.", "$foreground-muted"))
        self.on_item_table_moved()

    def on_item_table_moved(self) -> None:
        row, look = self.selected, self._taken
        self.query_one("#chosen").set_class(row is None, "-none")
        if row is not None and look is not None:
            show_pairs(self.query_one("#pairs", Drawn), recommendation_pairs(look.advice, row.recommendation))
            self.query_one("#explained", Drawn).set_data(explained(look.advice, row.recommendation))

    def on_item_table_opened(self) -> None:
        self.want("details", self.subject)

    def action_unfold(self) -> None:
        self._unfolded = not self._unfolded
        if self._taken is not None:
            self.set_data(self._taken)

    def action_what_if(self) -> None:
        if self.workload:
            self.want("whatif", self.workload, self.selected.recommendation.target.node_sku)
        elif self.selected is not None:
            self.notify("No workload uses these nodes, so there is nothing to predict.")

    def action_decide(self, verb: Verb) -> None:
        if self.selected is not None:
            self.want("decision", verb, self.subject, self.selected.title)


def recommendation_pairs(advice: Advice, r: Recommendation) -> tuple[Pair, ...]:
    """Before and after, as far as a recommendation has them."""
    prices, saving = (
        {p.sku: words.usd(p.usd_per_hour) for p in advice.prices if p.id in r.prices},
        r.saving_usd_per_month,
    )

    def pair(name: str, text: Callable[[Configuration], str]) -> Pair:
        return Pair(name, text(r.source), text(r.target))

    pairs = [
        pair("node", lambda side: node_type(side.node_sku, words.NONE)),
        pair("GPUs", lambda side: f"{side.gpu_count} x {side.gpu_sku or 'unknown'}" if side.gpu_count else "none"),
        pair("price/node-hour", lambda side: prices.get(side.node_sku or "", words.NONE)),
        *(time_pairs(r.time_ratio) if r.time_ratio is not None else ()),
    ]
    if saving is not None:
        when = f" from {r.available_from}" if r.available_from else ""
        pairs.append(Pair("saves/month", "", f"{words.usd(saving.p50)}{when}", "$success" if saving.p50 > 0 else ""))
        if words.spread(saving):
            pairs.append(Pair("p10 to p90", "", f"{words.usd(saving.p10)} to {words.usd(saving.p90)}"))
    if r.freed_gpu_hours_per_month > 0:
        pairs.append(Pair("frees/month", "", words.hours(r.freed_gpu_hours_per_month, "GPU-h")))
    if r.energy_saving_kwh_per_month is not None:
        pairs.append(Pair("energy/month", "", f"-{words.energy_words(r)}"))
    return (*pairs, Pair("risk", "", r.risk))


def time_pairs(ratio: Interval) -> list[Pair]:
    """The time relative to today's, and its interval."""
    style = "$warning" if ratio.p50 > _SLOWER else ""
    return [
        Pair("time", "x1.00", f"x{ratio.p50:.2f}", style),
        Pair("p10 to p90", "", f"x{ratio.p10:.2f} to x{ratio.p90:.2f}"),
    ]


def _status(row: Row) -> str:
    r = row.recommendation
    when = f"from {r.available_from}" if r.available_from else _STATUS[r.realisation]
    return r.decision.state if r.decision is not None else "blocked" if r.blocked_by else when


_STATUS = {"cash-now": "cash now", "cash-at": "cash later", "capacity-freed": "capacity", "energy": "energy"}
_NONE = "No recommendations: no change saves cash, GPU-hours or energy now."
_gpu_hours = partial(words.hours, unit="GPU-h")
_COLUMNS = (
    Column("recommendation", 40, lambda row: row.title, grows=True, middle=True),
    quantity("saves/month", 11, lambda row: (usd := row.recommendation.saving_usd_per_month) and usd.p50, words.usd),
    quantity("frees/month", 11, lambda row: row.recommendation.freed_gpu_hours_per_month or None, _gpu_hours),
    Column("risk", 8, lambda row: row.recommendation.risk),
    Column("id", 10, lambda row: row.id),
    Column("status", 10, _status),
    quantity("time", 5, lambda row: (ratio := row.recommendation.time_ratio) and ratio.p50, "x{:.2f}".format),
)
