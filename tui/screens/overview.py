"""The first page: savings and cost, the findings, waste over time, GPU-hours by use, and coverage."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import Advice, Finding
from ...advisor.core.ids import short_ids
from ...advisor.show import coverage
from ...advisor.show.pages import energy
from ...advisor.show.pages.story import story_of, tiles
from ...advisor.show.titles import Titles, fact_of, sum_of
from ..cell_text import line
from ..state import FINDINGS_WINDOW, Loaded, Look
from ..widgets.figures import TimePlot, show_bars
from ..widgets.frame import Drawn, Scroll, panel
from ..widgets.table import Column, ItemTable, number, quantity
from .base_page import Page, WorkWanted

if TYPE_CHECKING:
    from ...advisor.show.series.fleet_map import WasteHistory

_NOTES = 3
_REASONS = 3  # why GPUs were not observed


class Overview(Page):
    NAME, LABEL = "overview", "Overview"
    IDS = attrgetter("finding.id", "finding.workload")
    SHOWS_EARLIER = True
    ABOUT: ClassVar[str] = (
        "What is recoverable, what the GPUs cost, and the findings, the largest savings first. Findings are judged "
        f"over {FINDINGS_WINDOW.name}, for every window shown: waste needs 30 hours of data."
    )

    def compose_data(self) -> ComposeResult:
        findings = ItemTable(_COLUMNS, empty="No waste found.", identity=lambda row: row.finding.id, id="findings")
        money = Drawn("No price available.", id="money")
        with Scroll(id="board"):
            with Vertical(classes="half", id="money-half"):
                yield panel("Savings and cost", Static(id="cost", classes="prose"), money)
                yield panel("Findings", findings, id="found")
                yield panel("Waste over time", TimePlot(id="history"), id="wasted")
            with Vertical(classes="half", id="use-half"):
                yield panel("GPU-hours by kind of work", Drawn("No GPU-hours.", id="kinds"))
                yield panel("GPU-hours by bottleneck", Drawn("No GPU-hours.", id="bottlenecks"))
                yield panel("Coverage", Static(id="coverage", classes="prose"), id="cover")

    def set_data(self, look: Look) -> None:
        shown = look.shown
        self.write("#cost", *_cost(look))
        self.write("#coverage", *_coverage(look))
        show_bars(self.query_one("#money", Drawn), words.money_parts(shown.summary.reconciliation), words.usd)
        show_bars(self.query_one("#kinds", Drawn), coverage.hours_by_kind(shown).items())
        show_bars(self.query_one("#bottlenecks", Drawn), coverage.hours_by_bottleneck(shown).items())
        self.query_one(ItemTable).set_data(_rows(look.advice), coverage.nothing_found_short(look.advice))
        if not isinstance(look, Loaded):
            self.query_one(TimePlot).set_waste(None, "Drawn when the telemetry has been read.")
            return
        frame = look.frame

        def work(*_: object) -> WasteHistory:
            from ...advisor.show.series.fleet_map import waste_history  # noqa: PLC0415 - it needs numpy

            return waste_history(frame, shown)

        def draw(history: WasteHistory) -> None:
            if self.is_attached:
                box, total = self.query_one("#wasted"), shown.summary.wasted_usd
                box.border_title = f"Waste over time, {look.window.name}, by finding"
                overlap = history.priced and total is not None and sum(w.total for w in history.rules) > 1.01 * total
                box.border_subtitle = f"findings overlap; total {words.usd(total)}" if overlap else ""
                self.query_one(TimePlot).set_waste(history, coverage.nothing_found_short(shown))

        self.post_message(WorkWanted("waste", work, draw))

    def on_item_table_opened(self) -> None:
        self.want("workload" if self.workload else "details", self.workload or self.subject)


_STYLES = {"Recoverable": "$success bold", "Wasted": "$warning", "Slowed": "$warning"}


def _cost(look: Look) -> list[Content]:
    s = look.shown.summary
    # The queue is of now, whatever window is shown.
    text = [line(waiting, "$warning bold")] if (waiting := coverage.waiting_words(look.advice.summary)) else []
    for tile in tiles(story_of(look.advice)):
        if tile.label not in ("Coverage", "Not judged", ""):
            change = f" ({tile.change})" if tile.change else ""
            style = _STYLES.get(tile.label, "") if tile.meaning else ""
            text.append(line(f"{tile.label}  {tile.value}{change}", style))
            text += [line(tile.meaning, "$foreground-muted")] if tile.meaning else []
    is_other_window = look.shown is not look.advice
    cost = f"{words.usd(s.cost_usd)} in this window: " if is_other_window and s.cost_usd is not None else ""
    text.append(line(f"{cost}{coverage.size_words(s)}"))
    if s.energy is not None:
        text.append(line(f"Energy {energy.kwh(s.energy.kwh)}. {energy.idle_words(s.energy)}"))
    notes = [note.text for note in look.advice.notes if note.code in words.PRICE_NOTES]
    basis = notes or [words.price_note(look.advice.prices)]
    return [*text, *(line(note, "$foreground-muted") for note in basis)]


def _coverage(look: Look) -> list[Content]:
    shown, health, notes = look.shown, look.health, look.advice.notes
    share, missing, more = coverage.observed_share(shown), len(health.lacks), len(notes) - _NOTES
    dark = coverage.unobserved_rows(shown.summary)[:_REASONS]
    text = [
        line(f"{coverage.observed_time(shown)}; {coverage.gpus_words(shown.summary)}", "bold"),
        line(f"Nodes {len(health.nodes):,}, workloads {len(shown.workloads):,}"),
        *(
            line(f"{gpus} {'GPU' if gpus == '1' else 'GPUs'} of {nodes} not observed: {reason}", "$warning")
            for nodes, gpus, reason, _ in dark
        ),
    ]
    text += [line(f"{words.percent(share)} of the workloads' GPU time was observed")] if share is not None else []
    text += [line(f"Not judged: {verdict}") for verdict in coverage.open_verdicts(look.advice)]
    text += [line(f"Metrics not available: {missing:,} (see Doctor)", "$warning")] if missing else []
    text += [line(f"Note: {note}") for note in notes[:_NOTES]]
    return [*text, *([line(f"{words.counted(more, 'more note')} (see Doctor)")] if more > 0 else [])]


class _Row(NamedTuple):
    """A finding with its first recommendation. `id`: short; `saves` None: no recommendation saves cash now."""

    finding: Finding
    resource: str
    recommendation: str
    saves: float | None
    id: str


def _rows(advice: Advice) -> list[_Row]:
    titles, ids, rows = Titles(advice), short_ids(f.id for f in advice.findings), []
    for f, best in coverage.answered_findings(advice):
        cash = best.saving_usd_per_month.p50 if best is not None and best.saving_usd_per_month is not None else None
        rows.append(_Row(f, titles.resource(f), titles.of(best) if best is not None else words.NONE, cash, ids[f.id]))
    return rows


def _cost_of(f: Finding) -> str:
    return words.hours(f.gpu_hours, "GPU-h") if f.cost_usd is None else words.usd(f.cost_usd)


_COLUMNS = (
    Column("resource", 18, lambda row: row.resource, grows=True, middle=True),
    Column("finding", 26, lambda row: fact_of(row.finding.rule)),
    quantity("saves/month", 11, lambda row: row.saves, words.usd),
    number("cost", 8, lambda row: _cost_of(row.finding), lambda row: row.finding.cost_usd),
    Column("sum", 6, lambda row: sum_of(row.finding.rule)),
    Column("id", 10, lambda row: row.id),
    Column("best recommendation", 30, lambda row: row.recommendation, middle=True),
    Column("severity", 8, lambda row: row.finding.severity),
)  # fmt: skip
