"""The first page: savings and cost, the findings, waste over time, GPU-hours by use, and coverage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import Advice, Summary
from ...advisor.core.ids import short_ids
from ...advisor.show import coverage
from ...advisor.show.aggregates import hours_by_bottleneck, hours_by_kind, observed_share
from ...advisor.show.energy_shares import kg, kwh, small
from ...advisor.show.finding_groups import FindingGroup, cases
from ...advisor.show.pages.head import tiles
from ...advisor.show.pages.story import story_of
from ...advisor.show.titles import Titles, is_waste, waste_of
from ..cell_text import cost_cell, line, lines
from ..content.waste_history import WasteHistory, waste_history
from ..data.background_jobs import Tell
from ..data.loaders import Loader
from ..state import FINDINGS_WINDOW, Loaded, Look
from ..widgets.panel import Scroll, panel
from ..widgets.plot import WasteChart
from ..widgets.rows import Bars, hours_short
from ..widgets.table import Column, ItemTable
from .base_page import Page, TextWanted, WorkloadWanted, WorkWanted

_NOTES = 3
_DARK = 3  # reasons why GPUs were not observed


class Overview(Page):
    NAME, LABEL, BEGIN = "overview", "Overview", "ItemTable"
    SHOWS_EARLIER = True
    ABOUT: ClassVar[str] = (
        "What is recoverable, what the GPUs cost, and the findings, the largest savings first. Waste over time spreads "
        "each finding over the hours in which its GPUs were observed. Findings are judged over "
        f"{FINDINGS_WINDOW.name}, for every window shown, because waste needs 30 hours of data. Enter on a finding "
        "opens its workload."
    )

    def compose_data(self) -> ComposeResult:
        item_table = ItemTable(
            _COLUMNS, empty="No waste found.", identity=lambda row: row.group.finding.id, id="findings"
        )
        money = Bars(words.usd, empty="No price available.", id="money")
        with Scroll(id="board"):
            with Vertical(classes="half", id="money-half"):
                yield panel("Savings and cost", Static(id="cost", classes="prose"), money)
                yield panel("Findings", item_table, id="found")
                yield panel("Waste over time", WasteChart(id="history"), id="wasted")
            with Vertical(classes="half", id="use-half"):
                yield panel("GPU-hours by kind of work", Bars(hours_short, empty="No GPU-hours.", id="kinds"))
                yield panel("GPU-hours by bottleneck", Bars(hours_short, empty="No GPU-hours.", id="bottlenecks"))
                yield panel("Coverage", Static(id="coverage", classes="prose"))

    @property
    def subject(self) -> str | None:
        row = self.query_one(ItemTable).item
        return row.group.finding.id if row is not None else None

    @property
    def workload(self) -> str | None:
        row = self.query_one(ItemTable).item
        return row.group.finding.workload if row is not None else None

    def set_data(self, look: Look) -> None:
        shown = look.shown
        self.query_one("#cost", Static).update(_cost(look))
        self.query_one("#money", Bars).set_data(words.money_parts(shown.summary.reconciliation))
        self.query_one("#kinds", Bars).set_data(hours_by_kind(shown).items())
        self.query_one("#bottlenecks", Bars).set_data(hours_by_bottleneck(shown).items())
        self.query_one("#coverage", Static).update(_coverage(look))
        self.query_one(ItemTable).set_data(_rows(look.advice), coverage.nothing_found_short(look.advice))
        if not isinstance(look, Loaded):
            self.query_one(WasteChart).set_data(None, "Drawn when the telemetry has been read.")
            return
        frame = look.frame

        def work(loader: Loader, tell: Tell) -> WasteHistory:  # noqa: ARG001 - it is soon done
            return waste_history(frame, shown)

        self.post_message(WorkWanted("waste", work, lambda history: self.draw(history, look)))

    def draw(self, history: WasteHistory, look: Look) -> None:
        """Draw the waste over time; where there is none, why."""
        if self.is_attached:
            self.query_one("#wasted").border_title = f"Waste over time, {look.window.name}, by rule"
            found, whole = sum(rule.total for rule in history.rules), look.shown.summary.wasted_usd
            overlap = history.priced and whole is not None and found > 1.01 * whole
            self.query_one("#wasted").border_subtitle = f"rules overlap; total {words.usd(whole)}" if overlap else ""
            self.query_one(WasteChart).set_data(history, coverage.nothing_found_short(look.shown))

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        finding = event.item.group.finding
        self.post_message(WorkloadWanted(finding.workload) if finding.workload else TextWanted(finding.id))


_STYLES = {"Recoverable": "$success bold", "Wasted": "$warning", "Slowed": "$warning"}


def _cost(look: Look) -> Content:
    """The sums of every page's head, each with what it contains; then what the chosen window cost."""
    s, told = look.shown.summary, []
    for tile in tiles(story_of(look.advice)):
        if tile.label != "Coverage":
            change = f" ({tile.change})" if tile.change else ""
            told.append(
                line(f"{tile.label}  {tile.value}{change}", _STYLES.get(tile.label, "") if tile.meaning else "")
            )
            told += [line(tile.meaning, "$foreground-muted")] if tile.meaning else []
    over = "this window" if look.shown is not look.advice else FINDINGS_WINDOW.name
    cost = f"{words.usd(s.cost_usd)} in {over}: " if words.has_prices(s) else ""
    notes = [note.text for note in look.advice.notes if note.code in words.PRICE_NOTES]
    return lines(
        *told,
        line(f"{cost}{coverage.size_words(s)}"),
        *_energy(s),
        *(line(one, "$foreground-muted") for one in (notes or [words.price_note(look.advice.prices)])),
    )


def _energy(s: Summary) -> list[Content]:
    """What the GPUs drew, in a line; nothing where it is not told."""
    e = s.energy
    if e is None:
        return []
    if e.kwh is None:
        return [line("energy: not measured")]
    parts = [f"energy {kwh(e.kwh)}, of it {kwh(e.idle_kwh)} idle"]
    if e.joules_per_token is not None:
        parts.append(f"{small(e.joules_per_token)} J per generated token")
    if e.usd is not None:
        parts.append(f"{words.usd(e.usd)} of power")
    if e.co2_kg is not None:
        parts.append(f"{kg(e.co2_kg)} of CO2")
    return [line("; ".join(parts))]


def _coverage(look: Look) -> Content:
    shown, health = look.shown, look.health
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
        told.append(line(f"Metrics not available: {len(health.lacks):,} (see Doctor)", "$warning"))
    notes = look.advice.notes
    told += [line(f"Note: {note}") for note in notes[:_NOTES]]
    if len(notes) > _NOTES:
        told.append(line(f"and {len(notes) - _NOTES} more notes (see Doctor)"))
    return lines(*told)


@dataclass(frozen=True, slots=True)
class _FindingRow:
    """A finding with the first recommendation that answers it. `id`: short; `kind`: the sum in which its cost is."""

    group: FindingGroup
    resource: str
    recommendation: str
    id: str
    kind: str


def _rows(advice: Advice) -> list[_FindingRow]:
    titles, names = Titles(advice), short_ids(f.id for f in advice.findings)
    rows = []
    for group in cases(advice):
        f, action = group.finding, titles.of(group.best) if group.best is not None else words.NONE
        kind = "wasted" if is_waste(f.rule) else "slowed" if waste_of(f.rule) == "slowed" else words.NONE
        rows.append(_FindingRow(group, titles.resource(f), action, names[f.id], kind))
    return rows


def _saving(row: _FindingRow) -> float | None:
    best = row.group.best
    return best.saving_usd_per_month.p50 if best is not None and best.saving_usd_per_month is not None else None


_COLUMNS = (
    Column("resource", 14, lambda row: row.resource, grows=True, middle=True),
    Column("finding", 12, lambda row: row.group.finding.rule),
    Column("saves/month", 11, lambda row: words.NONE if _saving(row) is None else words.usd(_saving(row)), _saving,
           right=True, falling=True),
    Column("cost", 8, lambda row: cost_cell(row.group.finding.cost_usd, row.group.finding.gpu_hours),
           lambda row: row.group.finding.cost_usd, right=True, falling=True),
    Column("sum", 6, lambda row: row.kind),
    Column("id", 10, lambda row: row.id),
    Column("best recommendation", 24, lambda row: row.recommendation, middle=True),
    Column("severity", 8, lambda row: row.group.finding.severity),
)  # fmt: skip
