"""The ways out, cash apart from capacity, and the decisions on them."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import Advice, Configuration, Recommendation
from ...advisor.views import coverage
from ...advisor.views.move_words import action_words
from ..cell_text import line, lines
from ..content.whatif_text import NOTICED
from ..state import Loaded
from ..widgets.columns import Column
from ..widgets.movement import Scroll
from ..widgets.side_by_side import Pair, SideBySide
from ..widgets.table import ItemTable
from .base_page import Page, TextWanted, WhatIfWanted, WorkloadWanted
from .dialogs.decision_dialog import Verb

Row = tuple[str, Recommendation]


class DecisionWanted(Message):
    """Somebody decides on a recommendation. `what`: it in words."""

    def __init__(self, act: Verb, id_: str, what: str) -> None:
        super().__init__()
        self.act: Verb = act
        self.id, self.what = id_, what


class Moves(Page):
    NAME, LABEL = "moves", "Ways out"
    ABOUT: ClassVar[str] = (
        "What could be done, best first. Above: what saves cash, now or from a date. Below: what frees GPUs or saves "
        "energy, and what gains nothing today. a accepts, z snoozes, d dismisses with a reason, as 'skuwise ledger' "
        "does; sums follow at the next reading. o opens the workload, i asks what if of it, enter tells all about the "
        "way out."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "decide('accepted')", "Accept"),
        Binding("z", "decide('snoozed')", "Snooze"),
        Binding("d", "decide('dismissed')", "Dismiss"),
        Binding("i", "what_if", "What if"),
        Binding("o", "workload", "Workload", show=False),
    ]

    def compose_data(self) -> ComposeResult:
        with Container(id="ways"):
            with Vertical(id="lists"):
                with Vertical(classes="panel fills") as panel:
                    panel.border_title = "Cash"
                    yield ItemTable(_CASH, empty="No cash savings available now.", identity=_id, id="cash")
                with Vertical(classes="panel fills") as panel:
                    panel.border_title = "Capacity, energy and what gains nothing today"
                    yield ItemTable(_OTHER, empty="Nothing else is proposed.", identity=_id, id="capacity")
            with Scroll(classes="panel", id="told") as panel:
                panel.border_title = "Before and after"
                yield Static(id="way", classes="said")
                yield SideBySide()
                yield Static(id="reasons", classes="said")

    def on_mount(self) -> None:
        self.query_one("#cash").focus()

    @property
    def subject(self) -> str | None:
        row = self._chosen()
        return row[1].id if row is not None else None

    def set_data(self, loaded: Loaded) -> None:
        rows = [(_about(loaded.advice, r), r) for r in loaded.advice.recommendations]
        cash = [row for row in rows if saves_cash(row[1])]
        summary = loaded.advice.summary
        self.query_one("#cash", ItemTable).set_data(
            cash, coverage.not_judged_short(summary) if summary.nothing_judged else "No cash savings available now."
        )
        self.query_one("#capacity", ItemTable).set_data([row for row in rows if not saves_cash(row[1])])
        if not cash and rows:
            self.query_one("#capacity").focus()
        self._tell()

    def _chosen(self) -> Row | None:
        table = self.focused if isinstance(self.focused, ItemTable) else self.query_one("#cash", ItemTable)
        return table.item

    def on_item_table_moved(self) -> None:
        self._tell()

    def on_descendant_focus(self) -> None:
        self._tell()

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        self.post_message(TextWanted(event.item[1].id))

    def action_workload(self) -> None:
        row = self._chosen()
        if row is not None and row[1].workload:
            self.post_message(WorkloadWanted(row[1].workload))

    def action_what_if(self) -> None:
        row = self._chosen()
        if row is not None and row[1].workload:
            self.post_message(WhatIfWanted(row[1].workload, row[1].target.node_sku))
        elif row is not None:
            self.notify("This is about nodes that no workload holds: there is nothing to predict.")

    def action_decide(self, act: Verb) -> None:
        row = self._chosen()
        if row is not None:
            name, r = row
            self.post_message(DecisionWanted(act, r.id, f"{name}: {action_words(r)}, {words.target_words(r)}"))

    def _tell(self) -> None:
        row, loaded = self._chosen(), self._loaded
        way, reasons = self.query_one("#way", Static), self.query_one("#reasons", Static)
        beside = self.query_one(SideBySide)
        if row is None or loaded is None:
            way.update("")
            reasons.update("")
            beside.set_data(("", ""), ())
            return
        name, r = row
        way.update(line(f"{name}: {action_words(r)}, {words.target_words(r)}", "bold"))
        beside.set_data(("today", "then"), recommendation_pairs(loaded.advice, r))
        reasons.update(_reasons(loaded.advice, r))


def recommendation_pairs(advice: Advice, r: Recommendation) -> tuple[Pair, ...]:
    """Before and after, as far as a recommendation says."""
    prices = {p.sku: p for p in advice.prices if p.id in r.prices}

    def price(c: Configuration) -> str:
        known = prices.get(c.node_sku or "")
        return words.usd(known.usd_per_hour) if known is not None else words.NONE

    def gpus(c: Configuration) -> str:
        return f"{c.gpu_count} x {c.gpu_sku or 'unknown'}" if c.gpu_count else "none"

    def node(c: Configuration) -> str:
        return (c.node_sku or "").rpartition("/")[2] or words.NONE

    ratio, saving = r.time_ratio, r.saving_usd_per_month
    pairs = [
        Pair("node", node(r.source), node(r.target)),
        Pair("GPUs", gpus(r.source), gpus(r.target)),
        Pair("a node-hour", price(r.source), price(r.target)),
    ]
    if ratio is not None:
        pairs.append(Pair("time", "x1.00", f"x{ratio.p50:.2f}", "$warning" if ratio.p50 > NOTICED else ""))
        pairs.append(Pair("p10 to p90", "", f"x{ratio.p10:.2f} to x{ratio.p90:.2f}"))
    if saving is not None:
        when = f" from {r.available_from}" if r.available_from else ""
        pairs.append(Pair("cash a month", "", f"{words.usd(saving.p50)}{when}", "$success" if saving.p50 > 0 else ""))
        pairs.append(Pair("p10 to p90", "", f"{words.usd(saving.p10)} to {words.usd(saving.p90)}"))
    if r.freed_gpu_hours_per_month > 0:
        pairs.append(Pair("freed a month", "", words.hours(r.freed_gpu_hours_per_month, "GPU-h")))
    if r.energy_saving_kwh_per_month is not None:
        pairs.append(Pair("energy a month", "", f"-{words.energy_words(r)}"))
    return (*pairs, Pair("risk", "", r.risk))


def _reasons(advice: Advice, r: Recommendation) -> Content:
    prices = [p for p in advice.prices if p.id in r.prices]
    return lines(
        Content(""),
        line(r.text),
        *(line(f"Blocked: {one}", "$warning") for one in r.blocked_by),
        *([line(f"It {r.break_even}.")] if r.break_even else []),
        *(line(f"{one}") for one in r.levers),
        *(line(f"Wrong if: {one}") for one in r.would_change_if),
        *([line(f"Decided: {words.decision_words(r.decision)}", "bold")] if r.decision else []),
        *(line(f"{p.sku}, {p.region}: {words.price_words(p)}", "$foreground-muted") for p in prices),
        line(f"id {r.id}; b shows the queries behind it", "$foreground-muted"),
    )


def saves_cash(r: Recommendation) -> bool:
    """Whether it claims dollars, now or from a date."""
    saving = r.saving_usd_per_month
    return r.realisation in ("cash-now", "cash-at") and saving is not None and saving.p50 > 0


def _id(row: Row) -> str:
    return row[1].id


def _about(advice: Advice, r: Recommendation) -> str:
    """The workload's name, or its nodes'."""
    name = next((w.name for w in advice.workloads if w.id == r.workload), "")
    nodes = (words.listed(f.nodes) for f in advice.findings if f.id in r.findings and f.nodes)
    return name or next(nodes, "") or "the fleet"


def _standing(row: Row) -> str:
    r = row[1]
    if r.decision is not None:
        return r.decision.state
    return "blocked" if r.blocked_by else f"from {r.available_from}" if r.available_from else r.realisation


def _saving(row: Row) -> float | None:
    saving = row[1].saving_usd_per_month
    return saving.p50 if saving is not None else None


_WHAT = Column("of", 12, lambda row: row[0], grows=True)
_WAY = Column("way out", 20, lambda row: action_words(row[1]))
_RISK = Column("risk", 9, lambda row: row[1].risk)
_STANDING = Column("standing", 14, _standing)
_TO = Column("to", 28, lambda row: words.target_words(row[1]))
_TIME = Column("predicted time", 32, lambda row: words.time_words(row[1].time_ratio))
_CASH = (
    _WHAT,
    Column("a month", 10, lambda row: words.usd(_saving(row)), _saving, right=True, falling=True),
    _WAY, _STANDING, _RISK, _TO, _TIME,
)  # fmt: skip
_OTHER = (
    _WHAT,
    Column("frees/month", 11, lambda row: words.freed_words(row[1], "h"),
           lambda row: row[1].freed_gpu_hours_per_month, right=True, falling=True),
    _WAY, _STANDING, _RISK, _TO, _TIME,
)  # fmt: skip
