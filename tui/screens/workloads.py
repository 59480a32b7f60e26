"""Every workload of the window in one table."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ...advisor.core import formatting as words
from ...advisor.core.ids import short_id
from ...advisor.core.verdict_types import WorkloadVerdict
from ..cell_text import cost_cell
from ..state import Look
from ..widgets.table import Column, ItemTable, SearchTable
from .base_page import Page, WorkloadWanted


class Workloads(Page):
    NAME, LABEL, BEGIN = "workloads", "Workloads", "ItemTable"
    SHOWS_EARLIER = True
    ABOUT: ClassVar[str] = (
        "Every workload of the window: its kind, its bottleneck, its GPU-hours and its cost. Press / to search "
        "names, ids, owners, nodes, kinds and bottlenecks. Press s to sort by the next column, S to reverse the "
        "order, or click a title. Enter opens a workload, i opens What if."
    )

    BINDINGS: ClassVar[list[BindingType]] = [Binding("i", "what_if", "What if")]

    def compose_data(self) -> ComposeResult:
        yield SearchTable(workload_table("workloads"), "workloads", id="finder")

    @property
    def subject(self) -> str | None:
        selected = self.query_one(ItemTable).item
        return selected.id if selected is not None else None

    @property
    def workload(self) -> str | None:
        return self.subject

    def set_data(self, look: Look) -> None:
        self.query_one(SearchTable).set_data(list(look.shown.workloads))

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        self.post_message(WorkloadWanted(event.item.id))


def owner_of(w: WorkloadVerdict) -> str | None:
    """The nearest name of its owner; None: unknown."""
    return w.owner.team or w.owner.namespace or w.owner.account or w.owner.user


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
    Column("GPUs", 5, lambda w: str(len(w.gpus)), lambda w: float(len(w.gpus)), right=True, falling=True),
    Column("GPU-hours", 10, lambda w: words.bare_hours(w.gpu_hours), lambda w: w.gpu_hours, right=True, falling=True),
    Column("cost", 10, lambda w: cost_cell(w.cost_usd, w.gpu_hours), lambda w: w.cost_usd, right=True, falling=True),
    Column("confidence", 11, lambda w: words.percent(w.kind.confidence), lambda w: w.kind.confidence, right=True,
           falling=True),
    Column("GPU", 12, lambda w: w.gpu_sku or "unknown"),
    Column("id", 10, lambda w: short_id(w.id)),
    Column("owner", 14, lambda w: owner_of(w) or "unknown", middle=True),
    Column("nodes", 16, lambda w: words.listed(w.nodes)),
    Column("observed", 8, lambda w: words.percent(w.coverage.fraction), lambda w: w.coverage.fraction, right=True,
           falling=True),
)  # fmt: skip


def workload_table(id_: str) -> ItemTable:
    """A table of workloads, the largest first."""
    return ItemTable(_COLUMNS, empty="No workloads in this window.", search=_search, sorted_by=4, id=id_)
