"""What if: one workload on another node, count, slice, clock or price; the answer beside today."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import Recommendation
from ...advisor.show.pages import energy
from ...advisor.show.pages.plan import node_type
from ...advisor.show.pages.story import price_line
from ...advisor.show.titles import Titles
from ...rules.base.errors import UsageError
from ..cell_text import fit_middle, line, lines
from ..state import Loaded
from ..widgets.figures import Pair, show_pairs
from ..widgets.frame import Drawn, InputDialog, panel
from ..widgets.table import Column, ItemTable, SearchTable, number, quantity
from .base_page import Page, WorkWanted
from .recommendations import time_pairs

if TYPE_CHECKING:
    from ...advisor.recommend.whatif import Side, WhatIfChoice, WhatIfResult
    from ...advisor.show.series.whatif_session import Workbench

_NAME_MAX = 40
_CLOCK_STEP, _CLOCK_LOWEST = 5, 50  # percent; the clock model ends at half the clock


class WhatIf(Page):
    NAME, LABEL = "whatif", "What if"
    ABOUT: ClassVar[str] = (
        "One workload (i on another page chooses it) on other hardware or with other settings, by the model of the "
        "recommendations. The first node is today's. Press a to accept the recommendation that proposes this."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus,equals_sign", "count(1)", "More GPUs", key_display="+"),
        Binding("minus", "count(-1)", "Fewer GPUs", key_display="-"),
        Binding("m", "slice", "Slice"),
        Binding("less_than_sign,comma", "clock(-1)", "Lower clock", key_display="<", show=False),
        Binding("greater_than_sign,full_stop", "clock(1)", "Higher clock", key_display=">", show=False),
        Binding("p", "price", "Price"),
        Binding("x", "forget", "Reset"),
        Binding("a", "accept", "Accept"),
    ]

    def __init__(self, id_: str | None = None, node: str | None = None) -> None:
        """`id_`: the workload, None: the one with the first recommendation. `node`: the node to begin with."""
        super().__init__(id_)
        self._node = node
        self._bench: Workbench | None = None
        self._choice: WhatIfChoice | None = None
        self._outcome: WhatIfResult | None = None

    def compose_data(self) -> ComposeResult:
        yield Static(id="subject", classes="prose")
        yield Static(id="knobs", classes="prose")
        with Container(id="asked"):
            table = ItemTable(
                TARGET_COLUMNS,
                empty="Calculating ...",
                search=lambda o: f"{o.choice.node or 'today'}\n{o.then.gpu if o.then is not None else ''}",
                identity=lambda o: o.choice.node or "",
                id="nodes",
            )
            yield panel("Nodes", SearchTable(table, "nodes"), id="targets", classes="fills")
            sides = Drawn(id="sides"), Static(classes="prose")
            yield panel("Today and after", *sides, id="then", classes="fills", scrolls=True)

    def set_data(self, loaded: Loaded) -> None:
        """Ask about the workload, or else the one with the first recommendation."""
        recommended = (r.workload for r in loaded.advice.recommendations)
        ids = (self._workload, *recommended, *(w.id for w in loaded.advice.workloads))
        w = next((w for id_ in ids if id_ and (w := loaded.workload(id_)) is not None), None)
        if w is None:
            self.write("#subject", line("No workloads in this window."))
            return
        self._workload = id_ = w.id
        about = f"  {w.kind.label}, {w.bottleneck.label}, {len(w.gpus)} x {w.gpu_sku or 'unknown GPU'}"
        self.write("#subject", Content.assemble(line(fit_middle(w.name, _NAME_MAX).rstrip(), "bold"), line(about)))
        self.post_message(WorkWanted("bench", lambda loader, tell: loader.bench(loaded, id_, tell), self.set_session))

    def set_session(self, bench: Workbench | None) -> None:
        """Take the workbench of the workload; None: the findings' window has no data of it."""
        if not self.is_attached:  # it was left meanwhile
            return
        if bench is None:
            self.write("#knobs", line("No data for this workload in the findings' window: no prediction.", "$warning"))
            return
        from ...advisor.recommend.whatif import WhatIfChoice  # noqa: PLC0415 - it needs numpy: not at the start

        same = self._bench is not None and self._bench.workload == bench.workload
        choice = self._choice if same and self._choice is not None else WhatIfChoice(self._node)
        self._bench = bench
        self.write("#knobs")
        self.query_one(SearchTable).set_data([bench.ask(WhatIfChoice()), *bench.targets])
        self._choice = choice
        if choice.node is None or not self.query_one(ItemTable).stand_on(choice.node):
            self._ask()

    def show(self, outcome: WhatIfResult) -> None:
        """Take the answer to the newest choice."""
        if self.is_attached and self._bench is not None:
            self._outcome = outcome
            self.write("#knobs", knob_words(self._bench, outcome))
            show_pairs(self.query_one("#sides", Drawn), whatif_pairs(self._bench, outcome))
            self.write("#then > .prose", answer_words(outcome, self._proposed(outcome)))

    def _ask(self, **changes: object) -> None:
        bench, choice = self._bench, self._choice
        if bench is not None and choice is not None:
            self._choice = changed = replace(choice, **changes)  # type: ignore[arg-type] - fields of the choice
            self.post_message(WorkWanted("whatif", lambda *_: bench.ask(changed), self.show))

    def on_item_table_moved(self, event: ItemTable.Moved) -> None:
        self._ask(node=event.item.choice.node)

    def on_item_table_opened(self) -> None:
        self.query_one("#then").focus()

    def action_count(self, by: int) -> None:
        if self._choice is not None and self._bench is not None:
            then, base = self._outcome.then if self._outcome is not None else None, self._bench.base
            now, step = self._choice.gpus or (then.gpus if then is not None else base.gpus), max(base.unit, 1)
            self._ask(gpus=max(now + by * step, step))

    def action_slice(self) -> None:
        if self._choice is not None and self._bench is not None:
            names = (None, *self._bench.profiles)
            self._ask(profile=names[(names.index(self._choice.profile) + 1) % len(names)])

    def action_clock(self, by: int) -> None:
        if self._choice is not None:
            percent = round(self._choice.clock_share * 100) + by * _CLOCK_STEP
            self._ask(clock_share=min(max(percent, _CLOCK_LOWEST), 100) / 100)

    def action_price(self) -> None:
        if self._choice is not None:
            usd = self._choice.usd_per_hour
            hint = "US dollars per node-hour; empty: the catalog's price"
            dialog = InputDialog("Price of this node", hint, price_of, "" if usd is None else f"{usd:g}")
            self.app.push_screen(dialog, lambda price: price and self._ask(usd_per_hour=price[0]))

    def action_forget(self) -> None:
        """Reset everything but the node."""
        if self._choice is not None:
            self._choice = type(self._choice)(self._choice.node)
            self._ask()

    def action_accept(self) -> None:
        r = self._proposed(self._outcome) if self._outcome is not None else None
        if r is not None and self._loaded is not None:
            self.want("decision", "accepted", r.id, Titles(self._loaded.advice).of(r))
        elif self._outcome is not None:
            self.notify("No recommendation proposes this change, so there is nothing to accept.", severity="warning")

    def _proposed(self, outcome: WhatIfResult) -> Recommendation | None:
        ids = {w.id for w in self._bench.base.group.workloads} if self._bench is not None else set[str]()
        moves = self._loaded.advice.recommendations if self._loaded is not None else ()
        return next((r for r in moves if r.workload in ids and outcome.is_that(r)), None)


def price_of(text: str) -> tuple[float | None]:
    """A typed price, in a tuple of one; None in it: the catalog's. Raises UsageError for anything else."""
    bare = text.replace("$", "").replace(",", "").strip()
    if bare and not re.fullmatch(r"\d{1,6}(\.\d*)?", bare, re.ASCII):
        raise UsageError(f"Invalid price {text!r}.", "Use US dollars per node-hour, such as 98.32.")
    return (float(bare) if bare else None,)


def whatif_pairs(bench: Workbench, o: WhatIfResult) -> tuple[Pair, ...]:
    """Today beside the choice; nothing where there is no prediction."""
    today, then = o.today, o.then
    if then is None:
        return ()

    def pair(name: str, text: Callable[[Side], str]) -> Pair:
        return Pair(name, text(today), text(then))

    def price(side: Side) -> str:
        return f"{words.usd(side.price.usd_per_hour)} {side.price.region}" if side.price else "unknown"

    pairs = [
        pair("node", lambda side: f"{side.nodes} x {node_type(side.node, 'unknown')}"),
        pair("GPUs", lambda side: f"{side.gpus} x {side.gpu or 'unknown'}"),
        pair("price/node-hour", price),
        pair("cost/month", lambda side: words.usd(side.usd_per_month)),
        *(time_pairs(o.time_ratio) if o.time_ratio is not None else ()),
    ]
    if today.load is not None:
        pairs.append(pair(f"load, max {words.percent(bench.base.headroom)}", lambda side: words.percent(side.load)))
    if today.watts is not None:
        pairs.append(pair("W per busy GPU", lambda side: energy.watts(side.watts)))
    return tuple(pairs)


def knob_words(bench: Workbench, o: WhatIfResult) -> Content:
    """The choice beside the node, each part with its keys, and the size of the workload's series."""
    c, group = o.choice, bench.base.group
    needed = o.then.gpus if o.then is not None else bench.base.gpus
    by = "as today" if group.phase == "training" else "by demand"
    knobs = (
        ("GPUs", f"{needed}, {by}" if c.gpus is None else f"{c.gpus}", "- +"), ("slice", c.profile or "none", "m"),
        ("clock", f"{c.clock_share * 100:.0f} %", "< >"),
        ("price", "catalog" if c.usd_per_hour is None else f"{words.usd(c.usd_per_hour)} entered", "p"),
    )  # fmt: skip
    parts: list[Content] = []
    for name, value, keys in knobs:
        parts += [line(f"{name} ", "$foreground-muted"), line(value, "bold"), line(f" {keys}   ", "$primary")]
    replicas = f"{len(group.now)} replicas, {group.gpu_count} GPUs in total" if len(group.now) > 1 else ""
    return Content.assemble(*parts, line(replicas))


def answer_words(o: WhatIfResult, proposed: Recommendation | None) -> Content:
    """The result in cash, what blocks it, what is unknown, and what the dollars rest on."""
    decided = f", {words.decision_words(proposed.decision)}" if proposed and proposed.decision else "; a accepts it"
    freed = words.hours(o.freed_gpu_hours_per_month)
    texts = [_cash(o)] if o.then is not None else []
    texts += [(f"Frees {freed}/month of capacity (not cash)", "")] if o.freed_gpu_hours_per_month > 0 else []
    texts += [(f"Risk of more than 10 % slower: {o.risk}; basis of the time: {o.basis}.", "")] if o.risk else []
    texts += [(f"Blocked: {reason}.", "$warning") for reason in o.blocked_by]
    texts += [(f"Unknown: {missing}.", "$warning") for missing in o.missing]
    texts += [(str(note), "") for note in o.notes]
    texts += [(f"Recommended as {proposed.id}{decided}.", "$success")] if proposed is not None else []
    texts += [(price_line(price), "$foreground-muted") for price in o.prices]
    return lines(Content(""), *(line(*text) for text in texts))


def _cash(o: WhatIfResult) -> tuple[str, str]:
    saving, change, count = o.saving_usd_per_month, _difference(o), o.of_count_usd_per_month
    if saving is None and change:
        return f"No cash savings; the nodes' cost changes by {change}/month", "bold"
    if saving is None or round(saving.p50) == 0:
        return "Same cost", "bold"
    amount, spread, dated = f"{words.usd(abs(saving.p50))}/month", words.spread(saving), words.dated(o.prices)
    if saving.p50 < 0:
        return f"Costs {amount} more{spread}, {dated}", "$error bold"
    when = f" from {o.available_from}" if o.available_from else ""
    part = f"; {words.usd(count)} of it from fewer GPUs of today's SKU" if count else ""
    return f"Saves {amount}{spread} in cash{when}, {dated}{part}", "$success bold"


def _difference(o: WhatIfResult) -> str:
    here, there = o.today.usd_per_month, o.then.usd_per_month if o.then is not None else None
    if here is None or there is None or round(there - here) == 0:
        return ""
    return f"{'+' if there > here else ''}{words.usd(there - here)}"


def _saves(o: WhatIfResult) -> str:
    if not o.open:
        return "blocked" if o.blocked_by else "unknown"
    return words.NONE if o.saving_usd_per_month is None else words.usd(o.saving_usd_per_month.p50)


TARGET_COLUMNS = (
    Column("node", 18, lambda o: node_type(o.choice.node, "today"), grows=True),
    number("saves/month", 11, _saves, lambda o: (usd := o.saving_usd_per_month) and usd.p50 if o.open else None),
    quantity("time", 5, lambda o: o.time_ratio and o.time_ratio.p50, "x{:.2f}".format),
    Column("GPUs", 15, lambda o: f"{o.then.gpus:3} x {o.then.gpu}" if o.then else words.NONE,
           lambda o: o.then.gpus if o.then else None),
    quantity("costs/month", 11, lambda o: o.then and o.then.usd_per_month, words.usd),
    Column("difference", 11, lambda o: _difference(o) or words.NONE, right=True),
    Column("provider", 9, lambda o: (o.choice.node or "").rpartition("/")[0] or words.NONE),
)  # fmt: skip
