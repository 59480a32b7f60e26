"""The ways out, cash apart from capacity, and the decisions on them."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.message import Message
from textual.widgets import Static

from ...advisor import words
from ...advisor.model import Advice, Recommendation
from ..cells import line, lines
from ..state import Loaded
from ..widgets.table import Column, ItemTable
from .asking import Verb
from .page import Page, TextWanted, WhatIfWanted, WorkloadWanted

Row = tuple[str, Recommendation]


class DecisionWanted(Message):
    """Somebody decides on a recommendation. `what`: it in words."""

    def __init__(self, act: Verb, id_: str, what: str) -> None:
        super().__init__()
        self.act: Verb = act
        self.id, self.what = id_, what


class Moves(Page):
    NAME = "moves"
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
                    yield ItemTable(_CASH, empty="Nothing saves cash.", identity=_id, id="cash")
                with Vertical(classes="panel fills") as panel:
                    panel.border_title = "Capacity, energy and what gains nothing today"
                    yield ItemTable(_OTHER, empty="Nothing else is proposed.", identity=_id, id="capacity")
            with VerticalScroll(classes="panel", id="told") as panel:
                panel.border_title = "This way out"
                yield Static(classes="said")

    def on_mount(self) -> None:
        self.query_one("#cash").focus()

    def put(self, loaded: Loaded) -> None:
        rows = [(_about(loaded.advice, r), r) for r in loaded.advice.recommendations]
        cash = [row for row in rows if saves_cash(row[1])]
        self.query_one("#cash", ItemTable).put(cash)
        self.query_one("#capacity", ItemTable).put([row for row in rows if not saves_cash(row[1])])
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

    def action_decide(self, act: Verb) -> None:
        row = self._chosen()
        if row is not None:
            name, r = row
            self.post_message(DecisionWanted(act, r.id, f"{name}: {words.action_words(r)}, {words.target_words(r)}"))

    def _tell(self) -> None:
        said = self.query_one("#told > .said", Static)
        row = self._chosen()
        if row is None:
            said.update("")
            return
        name, r = row
        saving = words.saving_words(r.saving_usd_per_month, r.freed_gpu_hours_per_month, r.realisation)
        said.update(
            lines(
                line(f"{name}: {words.action_words(r)}, {words.target_words(r)}", "bold"),
                line(f"now: {r.source.gpu_count} x {r.source.gpu_sku or 'unknown GPU'}, "
                     f"{r.source.node_sku or 'node SKU not known'}"),
                line(f"comes to: {saving}"),
                line(f"predicted time: {words.time_words(r.time_ratio)}; risk {r.risk}; id {r.id}"),
                line(r.text),
                *(line(f"Blocked: {one}", "$warning") for one in r.blocked_by),
                *(line(f"Wrong if: {one}") for one in r.would_change_if),
                *([line(f"Decided: {words.decision_words(r.decision)}", "bold")] if r.decision else []),
            )
        )  # fmt: skip


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


_WHAT = Column("of", 16, lambda row: row[0], grows=True)
_WAY = Column("way out", 19, lambda row: words.action_words(row[1]))
_RISK = Column("risk", 9, lambda row: row[1].risk)
_STANDING = Column("standing", 14, _standing)
_TO = Column("to", 28, lambda row: words.target_words(row[1]))
_TIME = Column("predicted time", 32, lambda row: words.time_words(row[1].time_ratio))
_CASH = (
    _WHAT, _WAY,
    Column("a month", 10, lambda row: words.usd(_saving(row)), _saving, right=True, falling=True),
    _STANDING, _RISK, _TO, _TIME,
)  # fmt: skip
_OTHER = (
    _WHAT, _WAY,
    Column("frees a month", 13, lambda row: words.hours(row[1].freed_gpu_hours_per_month, "h"),
           lambda row: row[1].freed_gpu_hours_per_month, right=True, falling=True),
    _STANDING, _RISK, _TO, _TIME,
)  # fmt: skip
