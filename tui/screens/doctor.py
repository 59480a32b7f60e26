"""The health of the telemetry: the age of each node's data, which metrics are missing and why, and the notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.timestamps import minute, span
from ..cell_text import line, lines
from ..state import Look
from ..widgets.panel import panel
from ..widgets.table import Column, ItemTable
from .base_page import Page

if TYPE_CHECKING:
    from ...advisor.show.series.health import NodeHealth

NodeRow = tuple["NodeHealth", float]  # the node, and when it was read (Unix seconds)


class Doctor(Page):
    NAME, LABEL, BEGIN = "doctor", "Doctor", "#lacks"
    SHOWS_EARLIER = True
    ABOUT: ClassVar[str] = (
        "The data behind the figures: each node with the age of its newest data, the metrics missing at the end of "
        "the window with reason and remedy, and the notes of the advice. Run 'skuwise agent doctor' on a node for "
        "details."
    )

    def compose_data(self) -> ComposeResult:
        with Container(id="health"):
            nodes = ItemTable(_NODES, empty="No nodes.", identity=lambda row: row[0].node, id="nodes")
            yield panel("Nodes", nodes, classes="fills")
            lacks = ItemTable(
                _LACKS, empty="Nothing is missing.", id="lacks",
                identity=lambda lack: f"{lack.scope} {lack.metric} {lack.reason} {lack.remedy}",
            )  # fmt: skip
            yield panel("Metrics not available", lacks, classes="fills")
        yield panel("Reason, remedy and notes", Static(classes="prose"), id="notes", classes="fills", scrolls=True)

    def set_data(self, look: Look) -> None:
        self.query_one("#nodes", ItemTable).set_data([(node, look.at) for node in look.health.nodes])
        self.query_one("#lacks", ItemTable).set_data(list(look.health.lacks))
        self._show_reason()

    def on_item_table_moved(self) -> None:
        self._show_reason()

    def _show_reason(self) -> None:
        lack, text = self.query_one("#lacks", ItemTable).item, []
        if lack is not None:
            since = f" since {minute(lack.since)}" if lack.since is not None else ""
            text.append(line(f"{lack.metric}: {lack.reason}, on {words.listed(lack.nodes)}{since}", "bold"))
            text += [line(sentence) for sentence in dict.fromkeys((lack.detail, lack.remedy)) if sentence]
        text += [line(f"Note: {note}") for note in (self._taken.shown.notes if self._taken is not None else ())]
        self.query_one("#notes > .prose", Static).update(lines(*text) if text else line("No notes."))


def _age(row: NodeRow) -> float | None:
    node, at = row
    return None if node.last_seen is None else max(at - node.last_seen, 0.0)


def _age_words(row: NodeRow) -> str:
    age = _age(row)
    return "unknown" if age is None else f"{span(age)} ago"


_NODES = (
    Column("node", 16, lambda row: row[0].node, grows=True, middle=True),
    Column("GPUs", 5, lambda row: "?" if row[0].gpu_count is None else str(row[0].gpu_count),
           lambda row: row[0].gpu_count, right=True, falling=True),
    Column("last data", 14, _age_words, _age, right=True, falling=True),
    Column("missing metrics", 16, lambda row: str(row[0].lacks), lambda row: row[0].lacks, right=True, falling=True),
    Column("SKU", 30, lambda row: row[0].node_sku or "unknown"),
)  # fmt: skip
_LACKS = (
    Column("metric", 20, lambda lack: lack.metric, grows=True),
    Column("reason", 22, lambda lack: lack.reason),
    Column("devices", 8, lambda lack: f"{lack.devices:,}", lambda lack: lack.devices, right=True, falling=True),
    Column("nodes", 6, lambda lack: f"{len(lack.nodes):,}", lambda lack: len(lack.nodes), right=True, falling=True),
    Column("scope", 8, lambda lack: lack.scope),
)  # fmt: skip
