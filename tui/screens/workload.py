"""One workload: its kind, its bottleneck, its metrics over time, the findings, and what would change them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import Advice
from ...advisor.core.timestamps import minute, span
from ...advisor.core.verdict_types import INFERRED, WorkloadVerdict
from ...advisor.show import coverage
from ...advisor.show.energy_shares import workload_words
from ...advisor.show.phases import phase_reasons, phase_sentence
from ...advisor.show.titles import finding_title, titled
from ..cell_text import line, lines
from ..data.background_jobs import Tell
from ..data.loaders import Loader
from ..state import Loaded
from ..widgets.panel import Scroll, panel
from ..widgets.plot import TimePlot
from ..widgets.rows import Bars, hours_short
from .base_page import Page, WorkWanted

if TYPE_CHECKING:
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
        "One workload: its kind and its time by bottleneck with the evidence, the findings and recommendations with "
        "what would change each, and its metrics over the window with reference values (dotted). Press i for What if."
    )

    BINDINGS: ClassVar[list[BindingType]] = [Binding("i", "what_if", "What if")]

    def compose_data(self) -> ComposeResult:
        with Scroll(id="story"):
            yield Static(id="who", classes="prose")
            with Container(classes="pair"):
                yield panel("Kind", Static(classes="prose"), id="kind")
                shares = Bars(hours_short, empty="No data.", id="shares")
                yield panel("Bottleneck, GPU-hours", Static(classes="prose"), shares, id="bottleneck")
            with Container(classes="pair"):
                yield panel("Findings", Static(classes="prose"), id="workload-findings")
                yield panel("Recommendations", Static(classes="prose"), id="workload-recommendations")
            yield Static(_SHORT, classes="prose", id="short")
            for pair in (_PLOTS[:2], _PLOTS[2:]):
                plots = (panel(title, TimePlot(top, id=n), id=f"over-{n}", classes="plot") for n, title, _, top in pair)
                yield Container(*plots, classes="pair")

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#short").display = False
        self.query(".plot").set(display=False)

    def set_data(self, loaded: Loaded) -> None:
        w = loaded.workload(self._workload)
        if w is None:
            self.query_one("#who", Static).update(line("This workload is not in the data.", "$warning"))
            return
        self.query_one("#who", Static).update(_who(w))
        for name, text in (
            ("kind", _kind(w)),
            ("bottleneck", _bottleneck(w)),
            ("workload-findings", _findings(loaded.advice, w)),
            ("workload-recommendations", _recommendations(loaded.advice, w)),
        ):
            self.query_one(f"#{name} > .prose", Static).update(text)
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


def _who(w: WorkloadVerdict) -> Content:
    scheduled = words.scheduled_words(w.scheduled)
    dollars = "" if w.cost_usd is None else f", {words.usd(w.cost_usd)}"
    gpus = f"{words.counted(len(w.gpus), 'GPU')} ({w.gpu_sku or 'not one known SKU'})"
    where, when = words.listed(w.nodes) or "no node", f"{minute(w.start)} to {minute(w.end)}"
    observed, every = words.percent(w.coverage.fraction), span(w.coverage.resolution_seconds)
    return lines(
        line(w.name, "bold"),
        line(f"{gpus} on {where}, {when}: {words.hours(w.gpu_hours)}{dollars}."),
        *([line(f"{scheduled}.")] if scheduled else []),
        *([line(workload_words(w.energy))] if w.energy is not None else []),
        line(f"{words.whose_words(w)}; id {w.id}", "$warning" if w.basis == INFERRED else "$foreground-muted"),
        line(f"{observed} of its GPU time was observed, one sample every {every}."),
        *(line(f"{metric} not available: {reason}", "$warning") for metric, reason in w.coverage.missing.items()),
    )


def _items(sentences: Iterable[object]) -> list[Content]:
    return [line(f"- {sentence}") for sentence in sentences]


def _kind(w: WorkloadVerdict) -> Content:
    others = ", ".join(f"{other.label} {words.percent(other.confidence)}" for other in w.kind.alternatives)
    return lines(
        line(f"{w.kind.label}, confidence {words.percent(w.kind.confidence)}", "bold"),
        *_items(w.kind.evidence),
        *_items([f"Alternatives: {others}."] if others else []),
        *_items([f"Latency class: {words.latency_words(w.latency)}."] if w.latency is not None else []),
    )


def _bottleneck(w: WorkloadVerdict) -> Content:
    changes = phase_sentence(w)
    return lines(
        line(f"{w.bottleneck.label}, confidence {words.percent(w.bottleneck.confidence)}", "bold"),
        *_items(w.bottleneck.evidence),
        *_items([changes] if changes is not None else []),
        *_items(phase_reasons(w.phases)),
    )


def _findings(advice: Advice, w: WorkloadVerdict) -> Content:
    text: list[Content] = []
    for f in (f for f in advice.findings if f.workload == w.id):
        text += [line(f"{finding_title(f, advice)}, severity {f.severity}", "bold"), line(f.text)]
        text += _items(words.evidence_words(evidence) for evidence in f.evidence)
        text += [line(f"Changes if: {condition}") for condition in f.would_change_if]
    return lines(*text) if text else line(coverage.nothing_found_words(advice))


def _recommendations(advice: Advice, w: WorkloadVerdict) -> Content:
    text: list[Content] = []
    for r in (r for r in advice.recommendations if r.workload == w.id):
        text.append(line(f"{titled(r, advice)}, risk {r.risk}, id {r.id}", "bold"))
        text.append(line(f"Predicted time {words.time_words(r.time_ratio)}. {r.text}"))
        text += [line(f"Blocked: {reason}") for reason in r.blocked_by]
        text += [line(f"Changes if: {condition}") for condition in r.would_change_if]
        if r.decision is not None:
            text.append(line(f"Decision: {words.decision_words(r.decision)}"))
    return lines(*text) if text else line("No recommendations for this workload.")
