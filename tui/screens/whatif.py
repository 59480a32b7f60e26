"""What if: one workload on another node, another count, a slice, a clock, a price; the answer stands beside today."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import Recommendation
from ...advisor.core.verdict_types import WorkloadVerdict
from ...advisor.show.titles import recommendation_title
from ...rules.base.errors import UsageError
from ...rules.base.sanitize import clean
from ..cell_text import fit, line
from ..content.whatif_text import answer_words, cost_change, knob_words, whatif_pairs
from ..state import Loaded, State
from ..widgets.panel import panel, put
from ..widgets.rows import SideBySide
from ..widgets.table import Column, ItemTable, SearchTable
from .base_page import Page, WorkWanted
from .dialogs.input_dialog import InputDialog
from .dialogs.picker import Picker
from .recommendations import DecisionWanted
from .workloads import workload_table

if TYPE_CHECKING:
    from ...advisor.recommend.whatif import WhatIfChoice, WhatIfResult
    from ...advisor.show.series.whatif_session import Workbench

_NAME_MAX = 40
_CLOCK_STEP, _CLOCK_LOWEST = 5, 50  # percent; below half the clock nothing is known


class WhatIf(Page):
    NAME, LABEL, BEGIN = "whatif", "What if", "ItemTable"
    ABOUT: ClassVar[str] = (
        "One workload on other hardware or with other settings. Select a node in the table (the first line is "
        "today's), then the number of GPUs, a MIG slice, the clock or a price. The prediction uses the model of "
        "the recommendations and the telemetry of the findings' window. Nothing is changed or saved. Press a to "
        "accept the recommendation that proposes this change, if there is one."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "workload", "Workload"),
        Binding("plus,equals_sign", "count(1)", "More GPUs", key_display="+"),
        Binding("minus", "count(-1)", "Fewer GPUs", key_display="-"),
        Binding("m", "slice(1)", "Slice"),
        Binding("M", "slice(-1)", "Previous slice", show=False),
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
        self._asked_by_menu, self._from = id_ is None, None  # the workload that another page was left on
        self._subject = Content("")
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
                search=_target_text,
                identity=lambda o: o.choice.node or "",
                id="nodes",
            )
            yield panel("Nodes", SearchTable(table, "nodes"), id="targets", classes="fills")
            sides = SideBySide(id="sides"), Static(classes="prose")
            yield panel("Today and after", *sides, id="then", classes="fills", scrolls=True)

    def update_state(self, state: State) -> None:
        """The page of the menu follows the workload that the cursor was on."""
        if state.workload is not None and self._asked_by_menu and state.workload != self._from:
            self._from = self._workload = state.workload
            self._node = self._choice = None
            if self._loaded is not None and self._loaded is state.loaded:
                self._ask_about(state.workload)
        super().update_state(state)

    def set_data(self, loaded: Loaded) -> None:
        wanted = self._workload if loaded.workload(self._workload) is not None else None
        id_ = wanted or _first(loaded)
        if id_ is None:
            self.query_one("#subject", Static).update(line("No workloads in this window."))
            return
        self._ask_about(id_)

    def _ask_about(self, id_: str) -> None:
        loaded = self._loaded
        w = loaded.workload(id_) if loaded is not None else None
        if loaded is None or w is None:
            self.query_one("#subject", Static).update(line("This workload is not in the data.", "$warning"))
            return
        self._workload = id_
        name = fit(w.name, min(cell_len(clean(w.name)), _NAME_MAX))
        gpus = f"{len(w.gpus)} x {w.gpu_sku or 'unknown GPU'}"
        self._subject = Content.assemble(
            Content.styled(name, "bold"), f"  {w.kind.label}, {w.bottleneck.label}, {gpus}"
        )
        put(self.query_one("#subject", Static), self._subject)

        work = WorkWanted("bench", lambda loader, tell: loader.bench(loaded, id_, tell), self.set_session)
        self.post_message(work)

    def narrate(self, slot: str, text: str) -> None:
        """Say what is being done before the question can be asked."""
        if slot == "bench":
            self.query_one("#knobs", Static).update(line(f"{text} ...", "$warning"))

    def set_session(self, bench: Workbench | None) -> None:
        """Take the workload laid out; None: nothing is known of it in the findings' window."""
        if not self.is_attached:  # it was left before the bench was there
            return
        if bench is None:
            self.query_one("#knobs", Static).update(
                line("No data for this workload in the findings' window, so no prediction is possible.", "$warning")
            )
            return
        from ...advisor.recommend.whatif import WhatIfChoice  # noqa: PLC0415 - it needs numpy: not at the start

        same = self._bench is not None and self._bench.workload == bench.workload
        self._bench = bench
        self.query_one("#knobs", Static).update("")
        group = bench.base.group
        if len(group.now) > 1:
            told = f"  {len(group.now)} replicas, {group.gpu_count} GPUs in total"
            self.query_one("#subject", Static).update(Content.assemble(self._subject, told))
        kept = self._choice if same and self._choice is not None else WhatIfChoice(self._node)
        self.query_one(SearchTable).set_data([bench.ask(WhatIfChoice()), *bench.targets])
        self._choice = kept
        if kept.node is None or not self.query_one(ItemTable).stand_on(kept.node):
            self._choose(kept)

    def show(self, outcome: WhatIfResult) -> None:
        """Take the answer to the newest choice."""
        bench = self._bench
        if not self.is_attached or bench is None:
            return
        self._outcome = outcome
        put(self.query_one("#knobs", Static), knob_words(bench, outcome))
        self.query_one("#sides", SideBySide).set_data(("today", "after"), whatif_pairs(bench, outcome))
        put(self.query_one("#then > .prose", Static), answer_words(outcome, self._proposed(outcome)))

    def on_item_table_moved(self, event: ItemTable.Moved) -> None:
        if self._choice is not None:
            self._choose(replace(self._choice, node=event.item.choice.node))

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        event.stop()
        self.query_one("#then").focus()

    def _choose(self, choice: WhatIfChoice) -> None:
        """Have it reckoned off the event loop; of choices made meanwhile the newest counts."""
        bench = self._bench
        self._choice = choice
        if bench is not None:
            self.post_message(WorkWanted("whatif", lambda _loader, _tell: bench.ask(choice), self.show))

    def action_count(self, by: int) -> None:
        if self._choice is not None and self._bench is not None:
            then = self._outcome.then if self._outcome is not None else None
            now = self._choice.gpus or (then.gpus if then is not None else self._bench.base.gpus)
            step = max(self._bench.base.unit, 1)
            self._choose(replace(self._choice, gpus=max(now + by * step, step)))

    def action_slice(self, by: int) -> None:
        if self._choice is not None and self._bench is not None:
            names = (None, *self._bench.profiles)
            at = names.index(self._choice.profile) if self._choice.profile in names else 0
            self._choose(replace(self._choice, profile=names[(at + by) % len(names)]))

    def action_clock(self, by: int) -> None:
        if self._choice is not None:
            percent = round(self._choice.clock_share * 100) + by * _CLOCK_STEP
            self._choose(replace(self._choice, clock_share=min(max(percent, _CLOCK_LOWEST), 100) / 100))

    def action_price(self) -> None:
        choice = self._choice
        if choice is None:
            return

        def taken(answer: tuple[float | None] | None) -> None:
            if answer is not None and self._choice is not None:
                self._choose(replace(self._choice, usd_per_hour=answer[0]))

        told = "" if choice.usd_per_hour is None else f"{choice.usd_per_hour:g}"
        hint = "US dollars per node-hour; empty: the catalog's price"
        self.app.push_screen(InputDialog("Price of this node", hint, price_of, told), taken)

    def action_forget(self) -> None:
        """All but the node as it is."""
        if self._choice is not None:
            self._choose(type(self._choice)(self._choice.node))

    def action_workload(self) -> None:
        loaded = self._loaded
        if loaded is None:
            return

        def chosen(w: WorkloadVerdict | None) -> None:
            if w is not None:
                self._node = self._choice = None
                self._ask_about(w.id)

        choosing = Picker("Select a workload", workload_table("choosing"), loaded.advice.workloads, "workloads")
        self.app.push_screen(choosing, chosen)

    def action_accept(self) -> None:
        r = self._proposed(self._outcome) if self._outcome is not None else None
        if r is not None:
            what = recommendation_title(r, self._loaded.advice) if self._loaded is not None else r.id
            self.post_message(DecisionWanted("accepted", r.id, what))
        elif self._outcome is not None:
            self.notify("No recommendation proposes this change, so there is nothing to accept.", severity="warning")

    def _proposed(self, outcome: WhatIfResult) -> Recommendation | None:
        """The recommendation that is this change."""
        if self._loaded is None or self._bench is None:
            return None
        ids = {w.id for w in self._bench.base.group.workloads}
        ways = self._loaded.advice.recommendations
        return next((r for r in ways if r.workload in ids and outcome.is_that(r)), None)


def price_of(text: str) -> tuple[float | None]:
    """A price that somebody typed, in a tuple of one; None in it: the known one. Raises UsageError for what is none."""
    bare = text.replace("$", "").replace(",", "").strip()
    if not bare:
        return (None,)
    try:
        value = float(bare)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise UsageError(f"Invalid price {text!r}.", "Use US dollars per node-hour, such as 98.32.")
    return (value,)


def _first(loaded: Loaded) -> str | None:
    """The workload with the first recommendation; else the largest."""
    workloads = (r.workload for r in loaded.advice.recommendations if r.workload)
    return next(workloads, None) or next((w.id for w in loaded.advice.workloads), None)


def _target_text(o: WhatIfResult) -> str:
    then = o.then
    return "\n".join((o.choice.node or "today", then.gpu or "" if then is not None else ""))


def _saving(o: WhatIfResult) -> float | None:
    """What is open to be had, cash a month."""
    return o.saving_usd_per_month.p50 if o.open and o.saving_usd_per_month is not None else None


def _standing(o: WhatIfResult) -> str:
    """The saving, or in a word why none is claimed; the answer beside it says more."""
    if o.open:
        return words.NONE if o.saving_usd_per_month is None else words.usd(o.saving_usd_per_month.p50)
    return "blocked" if o.blocked_by else "unknown"


def _gpus(o: WhatIfResult) -> str:
    return f"{o.then.gpus:3} x {o.then.gpu}" if o.then is not None else words.NONE


TARGET_COLUMNS = (
    Column("node", 18, lambda o: o.choice.node or "today", grows=True, middle=True),
    Column("saves/month", 11, _standing, _saving, right=True, falling=True),
    Column("time", 5, lambda o: f"x{o.time_ratio.p50:.2f}" if o.time_ratio else words.NONE,
           lambda o: o.time_ratio.p50 if o.time_ratio else None, right=True),
    Column("costs/month", 11, lambda o: words.usd(o.then.usd_per_month if o.then else None),
           lambda o: o.then.usd_per_month if o.then else None, right=True),
    Column("GPUs", 15, _gpus, lambda o: o.then.gpus if o.then else None),
    Column("difference", 11, cost_change, right=True),
)  # fmt: skip
