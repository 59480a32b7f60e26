"""Every workload of the window in one table, and the page of one: its explanation and its metrics over time."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.ids import short_id
from ...advisor.core.verdict_types import WorkloadVerdict
from ..data.background_jobs import Tell
from ..data.loaders import Loader
from ..state import Loaded, Look
from ..widgets.figures import TimePlot, explained, show_bars
from ..widgets.frame import Drawn, Scroll, panel
from ..widgets.table import Column, ItemTable, SearchTable, number
from .base_page import Page, WorkWanted

if TYPE_CHECKING:
    from ...advisor.show.series.device_series import WorkloadTimeline

# The plots on one time axis: (id, title, names of the lines, upper end).
_PLOTS = (
    ("use", "Use of the GPUs, %", ("SM active", "tensor active", "DRAM active"), 100.0),
    ("links", "Links, GB/s sent", ("NVLink sent", "fabric sent"), None),
    ("memory", "Memory, GiB a GPU", ("memory used",), None),
    ("power", "Power, W a GPU", ("power",), None),
)
_SHORT = "No history: this window holds only one interval of this workload. A longer window (w) shows more."


class Workloads(Page):
    NAME, LABEL = "workloads", "Workloads"
    IDS = attrgetter("id", "id")
    SHOWS_EARLIER = True
    ABOUT: ClassVar[str] = (
        "Every workload of the window: its kind, its bottleneck, its GPU-hours and its cost. Press / to search names, "
        "ids, owners, nodes, kinds and bottlenecks."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("i", "what_if", "What if")]

    def compose_data(self) -> ComposeResult:
        table = ItemTable(_COLUMNS, empty="No workloads in this window.", search=_search, sorted_by=4, id="workloads")
        yield SearchTable(table, "workloads", id="finder")

    def set_data(self, look: Look) -> None:
        self.query_one(SearchTable).set_data(list(look.shown.workloads))

    def on_item_table_opened(self) -> None:
        self.action_workload()


class WorkloadPage(Page):
    NAME, BEGIN = "workloads", "#story"
    ABOUT: ClassVar[str] = (
        "One workload, as 'skuwise explain' prints it. Beside it are its GPU-hours by bottleneck and its metrics over "
        "the window, with reference values (dotted)."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("i", "what_if", "What if")]

    def compose_data(self) -> ComposeResult:
        with Scroll(id="board"):
            with Scroll(classes="half", id="story"):
                yield panel("Workload", Drawn("This workload is not in the data.", id="explained"))
            with Scroll(classes="half", id="history-half"):
                yield panel("GPU-hours by bottleneck", Drawn("No data.", id="shares"))
                yield Static(_SHORT, classes="prose", id="short")
                for name, title, _, top in _PLOTS:
                    yield panel(title, TimePlot(top, id=name), id=f"over-{name}", classes="plot")

    def on_mount(self) -> None:
        super().on_mount()
        self.query("#short, .plot").set(display=False)

    def set_data(self, loaded: Loaded) -> None:
        w = loaded.workload(self._workload)
        self.query_one("#explained", Drawn).set_data(explained(loaded.advice, w) if w is not None else lambda _: ())
        if w is None:
            return
        shares = sorted(w.bottleneck.time_shares.items(), key=lambda item: -item[1])
        show_bars(self.query_one("#shares", Drawn), [(label, share * w.gpu_hours) for label, share in shares])

        def work(loader: Loader, _tell: Tell) -> WorkloadTimeline:
            from ...advisor.show.series.device_series import timeline_of  # noqa: PLC0415 - it needs pandas

            book = loader.rulebook()
            sku = book.catalog.gpu(w.gpu_sku) if w.gpu_sku else None
            return timeline_of(loaded.frame, w, sku, book.rules)

        self.post_message(WorkWanted("timeline", work, self.draw))

    def draw(self, timeline: WorkloadTimeline) -> None:
        """Draw the metrics over time; plots without a line are hidden."""
        if not self.is_attached:  # it was left meanwhile
            return
        self.query_one("#short").display = len(timeline.ends) == 1
        for name, _, names, _ in _PLOTS:
            measures = [m for m in timeline.lines if m.name in names] if len(timeline.ends) > 1 else []
            self.query_one(f"#over-{name}").display = bool(measures)
            self.query_one(f"#{name}", TimePlot).set_data(timeline.ends, measures, timeline.levels)


def _search(w: WorkloadVerdict) -> str:
    s = w.scheduled
    parts = (
        w.name, w.id, w.kind.label, w.bottleneck.label, w.gpu_sku, w.node_sku, w.framework, words.owner_words(w.owner),
        *w.nodes, s.job_id, f"{s.array_job_id}_{s.array_task_id}" if s.array_task_id else None, s.partition, s.qos,
        s.state, s.controller_kind, s.image,
    )  # fmt: skip
    return "\n".join(part for part in parts if part)


_COLUMNS = (
    Column("workload", 18, lambda w: w.name, grows=True, middle=True),
    Column("kind", 16, lambda w: w.kind.label),
    Column("bottleneck", 14, lambda w: w.bottleneck.label),
    number("GPUs", 5, lambda w: str(len(w.gpus)), lambda w: float(len(w.gpus))),
    number("GPU-hours", 10, lambda w: words.bare_hours(w.gpu_hours), lambda w: w.gpu_hours),
    number("cost", 10, lambda w: words.usd(w.cost_usd), lambda w: w.cost_usd),
    number("confidence", 11, lambda w: words.percent(w.kind.confidence), lambda w: w.kind.confidence),
    Column("GPU", 12, lambda w: w.gpu_sku or "unknown"),
    Column("id", 10, lambda w: short_id(w.id)),
    Column("owner", 14, lambda w: w.owner.name or "unknown", middle=True),
    Column("nodes", 16, lambda w: words.listed(w.nodes)),
    number("observed", 8, lambda w: words.percent(w.coverage.fraction), lambda w: w.coverage.fraction),
)  # fmt: skip
