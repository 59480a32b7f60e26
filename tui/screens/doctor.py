"""The health of the telemetry: the age of each node's data, which metrics are missing and why, and the notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Container
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.timestamps import minute, span
from ..cell_text import line
from ..state import Look
from ..widgets.frame import panel
from ..widgets.table import Column, ItemTable, number
from .base_page import Page

if TYPE_CHECKING:
    from ...advisor.show.series.health import NodeHealth


class Doctor(Page):
    NAME, LABEL, BEGIN = "doctor", "Doctor", "#lacks"
    SHOWS_EARLIER = True
    ABOUT: ClassVar[str] = (
        "The data behind the figures: each node with the age of its newest data, the metrics missing at the end of "
        "the window with reason and remedy, and the notes of the advice."
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
        self.on_item_table_moved()

    def on_item_table_moved(self) -> None:
        """Show the reason of the selected metric, its remedy, and the notes."""
        lack, text = self.query_one("#lacks", ItemTable).item, []
        if lack is not None:
            since = f" since {minute(lack.since)}" if lack.since is not None else ""
            text.append(line(f"{lack.metric}: {lack.reason}, on {words.listed(lack.nodes)}{since}", "bold"))
            text += [line(sentence) for sentence in dict.fromkeys((lack.detail, lack.remedy)) if sentence]
        text += [line(f"Note: {note}") for note in (self._taken.shown.notes if self._taken is not None else ())]
        self.write("#notes > .prose", *(text or [line("No notes.")]))


def _age(row: tuple[NodeHealth, float]) -> float | None:
    return None if row[0].last_seen is None else max(row[1] - row[0].last_seen, 0.0)


_NODES = (
    Column("node", 16, lambda row: row[0].node, grows=True, middle=True),
    number("GPUs", 5, lambda row: str(row[0].gpu_count or "?"), lambda row: row[0].gpu_count),
    number("last data", 14, lambda row: "unknown" if (age := _age(row)) is None else f"{span(age)} ago", _age),
    number("missing metrics", 16, lambda row: str(row[0].lacks), lambda row: row[0].lacks),
    Column("SKU", 30, lambda row: row[0].node_sku or "unknown"),
)
_LACKS = (
    Column("metric", 20, lambda lack: lack.metric, grows=True),
    Column("reason", 22, lambda lack: lack.reason),
    number("devices", 8, lambda lack: f"{lack.devices:,}", lambda lack: lack.devices),
    number("nodes", 6, lambda lack: f"{len(lack.nodes):,}", lambda lack: len(lack.nodes)),
    Column("scope", 8, lambda lack: lack.scope),
)
