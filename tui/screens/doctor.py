"""The health of the telemetry: the age of each node's data, which metrics are missing and why, and the notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.coded_text import CodedText
from ...advisor.core.timestamps import minute, span
from ..cell_text import line, lines
from ..state import Look
from ..widgets.panel import panel, put
from ..widgets.table import Column, ItemTable
from .base_page import Page

if TYPE_CHECKING:
    from ...advisor.show.series.health import Lack, NodeHealth

NodeRow = tuple["NodeHealth", float]


class Doctor(Page):
    NAME, LABEL, BEGIN = "doctor", "Doctor", "#lacks"
    SHOWS_EARLIER = True
    ABOUT: ClassVar[str] = (
        "The data behind the figures: each node with the age of its newest data, and the metrics that were not "
        "available at the end of the window. The last panel shows why the selected metric is missing, how to fix "
        "it, and the notes of the advice. Run 'skuwise agent doctor' on a node for details."
    )

    def __init__(self) -> None:
        super().__init__()
        self._notes: tuple[CodedText, ...] = ()

    def compose_data(self) -> ComposeResult:
        nodes = ItemTable(_NODES, empty="No nodes.", identity=lambda row: row[0].node, id="nodes")
        yield panel("Nodes", nodes, classes="fills")
        lacks = ItemTable(_LACKS, empty="Nothing is missing.", identity=_identity, id="lacks")
        yield panel("Metrics not available", lacks, classes="fills")
        yield panel("Reason, remedy and notes", Static(classes="prose"), id="notes", classes="fills", scrolls=True)

    def set_data(self, look: Look) -> None:
        self._notes = look.shown.notes
        self.query_one("#nodes", ItemTable).set_data([(node, look.at) for node in look.health.nodes])
        self.query_one("#lacks", ItemTable).set_data(list(look.health.lacks))
        self._tell()

    def on_item_table_moved(self) -> None:
        self._tell()

    def _tell(self) -> None:
        lack = self.query_one("#lacks", ItemTable).item
        told = []
        if lack is not None:
            since = f" since {minute(lack.since)}" if lack.since is not None else ""
            told = [
                line(f"{lack.metric}: {lack.reason}, on {words.listed(lack.nodes)}{since}", "bold"),
                line(lack.detail),
                *([line(lack.remedy)] if lack.remedy not in lack.detail else []),
            ]
        told += [line(f"Note: {note}") for note in self._notes]
        put(self.query_one("#notes > .prose", Static), lines(*told) if told else line("No notes."))


def _identity(lack: Lack) -> str:
    return "\n".join((lack.scope, lack.metric, lack.reason, lack.remedy))


def _age(row: NodeRow) -> float | None:
    node, at = row
    return None if node.last_seen is None else max(at - node.last_seen, 0.0)


def _age_words(row: NodeRow) -> str:
    age = _age(row)
    return "unknown" if age is None else f"{span(age)} ago"


_NODES = (
    Column("node", 16, lambda row: row[0].node, grows=True, middle=True),
    Column("SKU", 30, lambda row: row[0].node_sku or "unknown"),
    Column("GPUs", 5, lambda row: "?" if row[0].gpu_count is None else str(row[0].gpu_count),
           lambda row: row[0].gpu_count, right=True, falling=True),
    Column("last data", 14, _age_words, _age, right=True, falling=True),
    Column("missing metrics", 16, lambda row: str(row[0].lacks), lambda row: row[0].lacks, right=True, falling=True),
)  # fmt: skip
_LACKS = (
    Column("metric", 20, lambda lack: lack.metric, grows=True),
    Column("scope", 8, lambda lack: lack.scope),
    Column("reason", 22, lambda lack: lack.reason),
    Column("devices", 8, lambda lack: f"{lack.devices:,}", lambda lack: lack.devices, right=True, falling=True),
    Column("nodes", 6, lambda lack: f"{len(lack.nodes):,}", lambda lack: len(lack.nodes), right=True, falling=True),
)  # fmt: skip
