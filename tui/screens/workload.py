"""One workload: its kind, its bottleneck, its metrics over time, the findings, and what would change them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import Advice, Finding, Recommendation
from ...advisor.core.coded_text import CodedText
from ...advisor.core.formatting import latency_words
from ...advisor.core.timestamps import minute, span
from ...advisor.core.verdict_types import INFERRED, WorkloadVerdict
from ...advisor.show import coverage
from ...advisor.show.energy_shares import workload_words
from ...advisor.show.phases import phase_reasons, phase_sentence
from ...advisor.show.titles import is_waste, titled, waste_of
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

# The plots, one below another on the same time axis: (id, title, names of the lines, upper end).
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
        "One workload: its kind with the evidence, its time by bottleneck, and its metrics over the window with "
        "reference values (dotted). Below are the "
        "findings, the recommendations, and what would change each of them. Press i for What if, escape to go "
        "back."
    )

    BINDINGS: ClassVar[list[BindingType]] = [Binding("i", "what_if", "What if")]

    def compose_data(self) -> ComposeResult:
        with Scroll(id="story"):
            yield Static(id="who", classes="prose")
            yield panel("Kind", Static(classes="prose"), id="kind")
            shares = Bars(hours_short, empty="No data.", id="shares")
            yield panel("Bottleneck, GPU-hours", Static(classes="prose"), shares, id="held")
            yield Static(_SHORT, classes="prose", id="short")
            for name, title, _, top in _PLOTS:
                yield panel(title, TimePlot(top, id=name), id=f"over-{name}", classes="plot")
            yield panel("Findings", Static(classes="prose"), id="found-here")
            yield panel("Recommendations", Static(classes="prose"), id="out")
            yield panel("Coverage", Static(classes="prose"), id="cover")

    def on_mount(self) -> None:
        self.query_one("#short").display = False
        self.query(".plot").set(display=False)

    def set_data(self, loaded: Loaded) -> None:
        w = loaded.workload(self._workload)
        if w is None:
            self.query_one("#who", Static).update(line("This workload is not in the data.", "$warning"))
            return
        findings = [f for f in loaded.advice.findings if f.workload == w.id]
        ways = [r for r in loaded.advice.recommendations if r.workload == w.id]
        self.query_one("#who", Static).update(_who(w))
        self._say("#kind", _kind(w))
        self._say("#held", _held(w))
        shares = sorted(w.bottleneck.time_shares.items(), key=lambda item: -item[1])
        self.query_one("#shares", Bars).set_data([(label, share * w.gpu_hours) for label, share in shares])
        self._say("#found-here", _found(loaded.advice, findings))
        self._say("#out", _out(loaded.advice, ways))
        self._say("#cover", _cover(w))

        def work(loader: Loader, tell: Tell) -> WorkloadTimeline:  # noqa: ARG001 - it is soon done
            from ...advisor.show.series.workload_timeline import timeline_of  # noqa: PLC0415 - it needs pandas

            book = loader.rulebook()
            return timeline_of(loaded.frame, loaded.advice, w, book.catalog, book.rules)

        self.post_message(WorkWanted("course", work, self.draw))

    def draw(self, told: WorkloadTimeline) -> None:
        """Draw what the workload did over time, and its roofline; plots of what was never read are not shown."""
        if not self.is_attached:  # it was left before the course was there
            return
        history = told.history
        self.query_one("#short").display = len(history.ends) == 1
        course = history.lines if len(history.ends) > 1 else ()
        for name, _, wanted, _ in _PLOTS:
            found = [one for one in course if one.name in wanted]
            self.query_one(f"#over-{name}").display = bool(found)
            self.query_one(f"#{name}", TimePlot).set_data(history.ends, found, told.levels)

    def _say(self, panel: str, told: Content) -> None:
        self.query_one(f"{panel} > .prose", Static).update(told)


def _who(w: WorkloadVerdict) -> Content:
    told = words.scheduled_words(w.scheduled)
    dollars = "" if w.cost_usd is None else f", {words.usd(w.cost_usd)}"
    gpus = f"{words.counted(len(w.gpus), 'GPU')} ({w.gpu_sku or 'not one known SKU'})"
    return lines(
        line(w.name, "bold"),
        line(
            f"{gpus} on {words.listed(w.nodes) or 'no node'}, {minute(w.start)} to {minute(w.end)}: "
            f"{words.hours(w.gpu_hours)}{dollars}."
        ),
        *([line(f"{told}.")] if told else []),
        *([line(workload_words(w.energy))] if w.energy is not None else []),
        line(f"{words.whose_words(w)}; id {w.id}", "$warning" if w.basis == INFERRED else "$foreground-muted"),
    )


def _items(sentences: Sequence[str | CodedText]) -> list[Content]:
    return [Content.assemble("- ", line(sentence)) for sentence in sentences]


def _kind(w: WorkloadVerdict) -> Content:
    others = ", ".join(f"{a.label} {words.percent(a.confidence)}" for a in w.kind.alternatives)
    return lines(
        line(f"{w.kind.label}, confidence {words.percent(w.kind.confidence)}", "bold"),
        *_items(w.kind.evidence),
        *_items([f"Alternatives: {others}."] if others else []),
        *_items([f"Latency class: {latency_words(w.latency)}."] if w.latency is not None else []),
    )


def _held(w: WorkloadVerdict) -> Content:
    turning = phase_sentence(w)
    return lines(
        line(f"{w.bottleneck.label}, confidence {words.percent(w.bottleneck.confidence)}", "bold"),
        *_items(w.bottleneck.evidence),
        *_items([turning] if turning is not None else []),
        *_items(list(phase_reasons(w.phases))),
    )


def _claims(f: Finding) -> str:
    """In which sum the cost of a finding is."""
    return "wasted" if is_waste(f.rule) else "slowed" if waste_of(f.rule) == "slowed" else "affects"


def _found(advice: Advice, findings: Sequence[Finding]) -> Content:
    if not findings:
        return line(coverage.nothing_found_words(advice))
    told: list[Content] = []
    for f in findings:
        cost = words.cost(f.cost_usd, f.gpu_hours, priced=True)
        told.append(line(f"{f.rule}: {f.severity}, {_claims(f)} {cost} in the findings' window", "bold"))
        told.append(line(f.text))
        told += _items([words.evidence_words(e) for e in f.evidence])
        told += [Content.assemble("Changes if: ", line(one)) for one in f.would_change_if]
    return lines(*told)


def _out(advice: Advice, recommendations: Sequence[Recommendation]) -> Content:
    if not recommendations:
        return line("No recommendations for this workload.")
    told: list[Content] = []
    for r in recommendations:
        told.append(line(f"{titled(r, advice)}, risk {r.risk}, id {r.id}", "bold"))
        told.append(line(f"Predicted time {words.time_words(r.time_ratio)}. {r.text}"))
        told += [Content.assemble("Blocked: ", line(one)) for one in r.blocked_by]
        told += [Content.assemble("Changes if: ", line(one)) for one in r.would_change_if]
        if r.decision is not None:
            told.append(line(f"Decision: {words.decision_words(r.decision)}"))
    return lines(*told)


def _cover(w: WorkloadVerdict) -> Content:
    return lines(
        line(
            f"{words.percent(w.coverage.fraction)} of its GPU time was observed, one sample every "
            f"{span(w.coverage.resolution_seconds)}."
        ),
        *_items([f"{metric} not available: {reason}" for metric, reason in w.coverage.missing.items()]),
    )
