"""The first page: the money, where the GPU-hours went, what was found, and what the telemetry covers."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import Summary
from ...advisor.views import coverage
from ...advisor.views.aggregates import hours_by_bottleneck, hours_by_kind, observed_share
from ...advisor.views.energy import kg, kwh, small
from ...advisor.views.finding_groups import FindingGroup, best_recommendation, cases
from ...advisor.views.move_words import action_words, wasted_hours
from ..cell_text import cost_cell, line, lines
from ..state import FINDINGS_WINDOW, Loaded
from ..widgets.bars import Bars, hours_short, quantities
from ..widgets.columns import Column
from ..widgets.movement import Scroll
from ..widgets.table import ItemTable
from .base_page import Page, TextWanted, WorkloadWanted

_NOTES = 3
_DARK = 3  # reasons why GPUs were not observed


class Overview(Page):
    NAME, LABEL = "overview", "Overview"
    ABOUT: ClassVar[str] = (
        "What the GPUs cost in the window and where it went; what is recoverable in cash; what was found, the "
        f"costliest first. Findings are judged over {FINDINGS_WINDOW.name}, whichever window is shown, because waste "
        "needs 30 hours of data. Enter on a finding opens its workload."
    )

    def compose_data(self) -> ComposeResult:
        found = ItemTable(_COLUMNS, empty="No waste was found.", identity=lambda row: row[1].finding.id, id="findings")
        with Scroll(id="board"):
            with Vertical(classes="half"):
                with Vertical(classes="panel") as panel:
                    panel.border_title = "Money"
                    yield Static(id="cost", classes="prose")
                    yield Bars(words.usd, empty="No price is known.", id="money")
                with Vertical(classes="panel fills", id="found") as panel:
                    panel.border_title = "Found"
                    yield found
            with Vertical(classes="half"):
                with Vertical(classes="panel") as panel:
                    panel.border_title = "GPU-hours by kind"
                    yield Bars(hours_short, empty="No GPU-hours.", id="kinds")
                with Vertical(classes="panel") as panel:
                    panel.border_title = "GPU-hours by what holds the work back"
                    yield Bars(hours_short, empty="No GPU-hours.", id="bottlenecks")
                with Vertical(classes="panel") as panel:
                    panel.border_title = "Coverage"
                    yield Static(id="coverage", classes="prose")

    def on_mount(self) -> None:
        self.query_one(ItemTable).focus()

    @property
    def subject(self) -> str | None:
        row = self.query_one(ItemTable).item
        return row[1].finding.id if row is not None else None

    def set_data(self, loaded: Loaded) -> None:
        shown = loaded.shown
        self.query_one("#cost", Static).update(_cost(loaded))
        self.query_one("#money", Bars).set_data(quantities(words.money_parts(shown.summary.reconciliation)))
        self.query_one("#kinds", Bars).set_data(quantities(hours_by_kind(shown).items()))
        self.query_one("#bottlenecks", Bars).set_data(quantities(hours_by_bottleneck(shown).items()))
        self.query_one("#coverage", Static).update(_coverage(loaded))
        names = {w.id: w.name for w in loaded.advice.workloads}
        rows = [(names.get(case.finding.workload or "", ""), case) for case in cases(loaded.advice)]
        self.query_one(ItemTable).set_data(rows, coverage.nothing_found_short(loaded.advice))

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        finding = event.item[1].finding
        self.post_message(WorkloadWanted(finding.workload) if finding.workload else TextWanted(finding.id))


def _cost(loaded: Loaded) -> Content:
    s, found = loaded.shown.summary, loaded.advice.summary
    over = f" over {FINDINGS_WINDOW.name}" if loaded.shown is not loaded.advice else ""
    if not words.has_prices(s):
        wasted = wasted_hours(loaded.advice.findings)
        judged = not found.nothing_judged
        return lines(
            line(coverage.size_words(s), "bold"),
            line(f"wasted {words.hours(wasted)}{over}", "$warning" if wasted else "")
            if judged
            else line(f"waste: {coverage.not_judged(found)}"),
            *_energy(s),
            *(line(note.text, "$foreground-muted") for note in loaded.advice.notes if note.code in words.PRICE_NOTES),
        )
    told = [
        line(f"wasted {coverage.wasted_words(found)}{over}", "$warning" if found.wasted_usd else ""),
        line(
            f"recoverable in cash {coverage.recoverable_words(found)}",
            "$success" if found.recoverable_usd_per_month else "",
        ),
    ]
    if found.nothing_judged and found.wasted_usd is None:
        told = [line(f"waste and recoverable cash: {coverage.not_judged(found)}")]
    return lines(
        line(f"{words.usd(s.cost_usd)} for {coverage.size_words(s)}", "bold"),
        *told,
        *_energy(s),
        line(words.price_note(loaded.advice.prices), "$foreground-muted"),
    )


def _energy(s: Summary) -> list[Content]:
    """What the GPUs drew, in a line; nothing where it is not told."""
    e = s.energy
    if e is None:
        return []
    if e.kwh is None:
        return [line("energy: not measured")]
    parts = [f"energy {kwh(e.kwh)}, of it {kwh(e.idle_kwh)} at rest"]
    if e.joules_per_token is not None:
        parts.append(f"{small(e.joules_per_token)} J a generated token")
    if e.usd is not None:
        parts.append(f"{words.usd(e.usd)} of power")
    if e.co2_kg is not None:
        parts.append(f"{kg(e.co2_kg)} of CO2")
    return [line("; ".join(parts))]


def _coverage(loaded: Loaded) -> Content:
    shown, health = loaded.shown, loaded.health
    told = [
        line(f"{coverage.observed_time(shown)}; {coverage.gpus_words(shown.summary)}", "bold"),
        line(f"Nodes {len(health.nodes):,}, workloads {len(shown.workloads):,}"),
    ]
    told += [
        line(f"{words.counted(int(count), 'GPU')} of {nodes} not observed: {reason}", "$warning")
        for nodes, count, reason, _ in coverage.unobserved_rows(shown.summary)[:_DARK]
    ]
    share = observed_share(shown)
    if share is not None:
        told.append(line(f"{words.percent(share)} of the workloads' GPU time was observed"))
    if health.lacks:
        told.append(line(f"Measures that cannot be read: {len(health.lacks):,} (Doctor tells why)", "$warning"))
    notes = loaded.advice.notes
    told += [line(f"Note: {note}") for note in notes[:_NOTES]]
    if len(notes) > _NOTES:
        told.append(line(f"and {len(notes) - _NOTES} more notes: Doctor tells them"))
    return lines(*told)


def _of(row: tuple[str, FindingGroup]) -> str:
    name, case = row
    return name or words.listed(case.finding.nodes) or case.finding.node or words.NONE


def _saving(row: tuple[str, FindingGroup]) -> float | None:
    way = best_recommendation(row[1])
    return way.saving_usd_per_month.p50 if way is not None and way.saving_usd_per_month is not None else None


def _way(row: tuple[str, FindingGroup]) -> str:
    way = best_recommendation(row[1])
    return action_words(way) if way is not None else "none that saves"


_COLUMNS = (
    Column("of", 16, _of, grows=True),
    Column("finding", 13, lambda row: row[1].finding.rule),
    Column("saves a month", 14, lambda row: words.NONE if _saving(row) is None else words.usd(_saving(row)), _saving,
           right=True, falling=True),
    Column("cost so far", 12, lambda row: cost_cell(row[1].finding.cost_usd, row[1].finding.gpu_hours),
           lambda row: row[1].finding.cost_usd, right=True, falling=True),
    Column("best way out", 20, _way),
    Column("severity", 9, lambda row: row[1].finding.severity),
)  # fmt: skip
