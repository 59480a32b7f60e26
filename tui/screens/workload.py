"""One workload: what `skuwise explain` prints of it, its time by bottleneck, and its metrics over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from ..cell_text import line, lines
from ..data.background_jobs import Tell
from ..data.loaders import Loader
from ..state import Loaded
from ..widgets.panel import Scroll, panel
from ..widgets.plot import TimePlot
from ..widgets.rows import Bars, hours_short
from .base_page import Page, WorkWanted

if TYPE_CHECKING:
    from ...advisor.show.document import Document
    from ...advisor.show.series.workload_timeline import WorkloadTimeline

# The plots on one time axis: (id, title, names of the lines, upper end).
_PLOTS = (
    ("use", "Use of the GPUs, %", ("SM active", "tensor active", "DRAM active"), 100.0),
    ("links", "Links, GB/s sent", ("NVLink sent", "fabric sent"), None),
    ("memory", "Memory, GiB a GPU", ("memory used",), None),
    ("power", "Power, W a GPU", ("power",), None),
)
_SHORT = "No history: this window holds only one interval of this workload. A longer window (w) shows more."


class WorkloadPage(Page):
    NAME, BEGIN = "workloads", "#story"
    ABOUT: ClassVar[str] = (
        "One workload, as 'skuwise explain' prints it: kind and bottleneck with the evidence, findings and "
        "recommendations, and what would change them. Beside it are its GPU-hours by bottleneck and its metrics over "
        "the window, with reference values (dotted). Press i for What if."
    )

    BINDINGS: ClassVar[list[BindingType]] = [Binding("i", "what_if", "What if")]

    def compose_data(self) -> ComposeResult:
        with Scroll(id="board"):
            with Scroll(classes="half", id="story"):
                yield panel("Workload", ExplainedText(id="explained", classes="prose"))
            with Scroll(classes="half", id="history-half"):
                yield panel("GPU-hours by bottleneck", Bars(hours_short, empty="No data.", id="shares"))
                yield Static(_SHORT, classes="prose", id="short")
                for name, title, _, top in _PLOTS:
                    yield panel(title, TimePlot(top, id=name), id=f"over-{name}", classes="plot")

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#short").display = False
        self.query(".plot").set(display=False)

    def set_data(self, loaded: Loaded) -> None:
        w = loaded.workload(self._workload)
        if w is None:
            self.query_one(ExplainedText).update(line("This workload is not in the data.", "$warning"))
            return
        from ...advisor.show.pages.explain import explain_page  # noqa: PLC0415 - it needs numpy: not at the start

        self.query_one(ExplainedText).set_data(explain_page(loaded.advice, w))
        shares = sorted(w.bottleneck.time_shares.items(), key=lambda item: -item[1])
        self.query_one("#shares", Bars).set_data([(label, share * w.gpu_hours) for label, share in shares])

        def work(loader: Loader, _tell: Tell) -> WorkloadTimeline:
            from ...advisor.show.series.workload_timeline import timeline_of  # noqa: PLC0415 - it needs pandas

            book = loader.rulebook()
            sku = book.catalog.gpu(w.gpu_sku) if w.gpu_sku else None
            return timeline_of(loaded.frame, w, sku, book.rules)

        self.post_message(WorkWanted("timeline", work, self.draw))

    def draw(self, timeline: WorkloadTimeline) -> None:
        """Draw the metrics over time; plots without a line are hidden."""
        if not self.is_attached:  # it was left meanwhile
            return
        self.query_one("#short").display = len(timeline.ends) == 1
        for name, _, wanted, _ in _PLOTS:
            measures = [m for m in timeline.lines if m.name in wanted] if len(timeline.ends) > 1 else []
            self.query_one(f"#over-{name}").display = bool(measures)
            self.query_one(f"#{name}", TimePlot).set_data(timeline.ends, measures, timeline.levels)


class ExplainedText(Static):
    """A document as the command line writes it, for the width there is."""

    _document: Document | None = None

    def set_data(self, document: Document) -> None:
        self._document = document
        self.on_resize()

    def on_resize(self) -> None:
        from ...advisor.show.writers.text import document_text  # noqa: PLC0415 - it needs rich's tables

        if self._document is not None and self.size.width:
            text = document_text(self._document, width=self.size.width)
            self.update(lines(*(line(part) for part in text.split("\n"))))
