"""The catalog: GPUs and nodes with what they do and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import ContentSwitcher

from ...advisor.core import formatting as words
from ...rules.catalog.types import GpuSku, NodeSku
from ..content.sku_comparison import SkuComparison, compared
from ..state import Loaded
from ..widgets.columns import Column
from ..widgets.search_table import SearchTable
from ..widgets.table import ItemTable
from .base_page import Header, Page, ReadingWanted, WorkWanted
from .dialogs.text_viewer import SkuComparisonDialog

if TYPE_CHECKING:
    from ...rules.catalog.loader import Catalog


class Skus(Page):
    NAME, LABEL, BEGIN = "skus", "SKUs", "#gpus ItemTable"
    NEEDS_DATA = False
    ABOUT: ClassVar[str] = (
        "The catalog of GPUs and nodes behind verdicts and prices. Press n to switch between GPUs and nodes, / to "
        "search, s to sort. Compute rates are dense, links are one way. Prices are list prices of the whole node, "
        "with their date. Enter shows every figure with its source. Press space to mark a line. Press v to compare "
        "the two marked lines, or the marked and the selected one."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("n", "table", "GPUs / nodes"), Binding("v", "compare", "Compare")]

    def __init__(self, header: Header) -> None:
        super().__init__(header)
        self._catalog: Catalog | None = None

    def compose_data(self) -> ComposeResult:
        with ContentSwitcher(initial="gpus"):
            yield SearchTable(
                ItemTable(_GPUS, empty=_READING, search=_gpu_text, identity=_name, marks=2, id="gpu-table"),
                "GPUs",
                id="gpus",
            )
            nodes = ItemTable(_NODES, empty=_READING, search=_node_text, identity=_name, marks=2, id="node-table")
            yield SearchTable(nodes, "nodes", id="nodes")

    def on_mount(self) -> None:
        self.post_message(WorkWanted("catalog", lambda loader, _tell: loader.rulebook().catalog, self.set_catalog))

    def set_data(self, loaded: Loaded) -> None:
        """The catalog is the same whatever was read."""

    def set_catalog(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.query_one("#gpus", SearchTable).set_data(list(catalog.gpus.values()))
        self.query_one("#nodes", SearchTable).set_data(list(catalog.nodes.values()))

    def action_table(self) -> None:
        switcher = self.query_one(ContentSwitcher)
        switcher.current = which = "nodes" if switcher.current == "gpus" else "gpus"
        self.query_one(f"#{which} ItemTable").focus()

    def action_compare(self) -> None:
        """The two marked, or the one marked and the one chosen."""
        table = self.query_one(f"#{self.query_one(ContentSwitcher).current} ItemTable", ItemTable)
        two = [*table.marked, *([table.item] if table.item not in table.marked else [])][:2]
        if len(two) < 2 or self._catalog is None:
            self.notify("Mark one line with space, select another, and press v.")
            return
        catalog, (first, second) = self._catalog, two

        self.post_message(WorkWanted("comparing", lambda _loader, _tell: compared(first, second, catalog), self._show))

    def _show(self, told: SkuComparison) -> None:
        if self.is_attached:
            self.app.push_screen(SkuComparisonDialog(told))

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        if self._catalog is not None:
            from ...advisor.cli.skus import sku_text  # noqa: PLC0415 - it is not needed at the start

            self.post_message(ReadingWanted("Catalog entry", sku_text(event.item, self._catalog)))


def _name(sku: GpuSku | NodeSku) -> str:
    return sku.name


def _gpu_text(gpu: GpuSku) -> str:
    return "\n".join((gpu.name, gpu.architecture, gpu.form_factor, *gpu.aliases))


def _node_text(node: NodeSku) -> str:
    return "\n".join((node.name, node.gpu, node.fabric.kind, node.intra_node_link, *(p.region for p in node.prices)))


def _scaled(value: float | None, unit: float) -> str:
    return words.NONE if value is None else f"{value / unit:,.0f}"


def _cheapest(node: NodeSku) -> float | None:
    return min((price.usd_per_hour for price in node.prices), default=None)


def _priced(node: NodeSku) -> str:
    price = min(node.prices, key=lambda one: one.usd_per_hour, default=None)
    return words.NONE if price is None else f"{price.region}, {price.as_of}"


_READING = "Reading the catalog ..."
_GPUS = (
    Column("GPU", 14, _name, grows=True, middle=True),
    Column("FP16 TFLOP/s", 13, lambda g: _scaled(g.dense_flops.get("fp16"), 1e12), lambda g: g.dense_flops.get("fp16"),
           right=True, falling=True),
    Column("memory GiB", 11, lambda g: f"{g.mem_bytes / 1024**3:.0f}", lambda g: g.mem_bytes, right=True, falling=True),
    Column("memory GB/s", 12, lambda g: _scaled(g.mem_bandwidth_bytes_per_second, 1e9),
           lambda g: g.mem_bandwidth_bytes_per_second, right=True, falling=True),
    Column("link GB/s", 12, lambda g: _scaled(g.link_bytes_per_second, 1e9), lambda g: g.link_bytes_per_second,
           right=True, falling=True),
    Column("W", 5, lambda g: f"{g.tdp_watts:g}", lambda g: g.tdp_watts, right=True, falling=True),
    Column("FP8 TFLOP/s", 12, lambda g: _scaled(g.dense_flops.get("fp8"), 1e12), lambda g: g.dense_flops.get("fp8"),
           right=True, falling=True),
    Column("architecture", 14, lambda g: g.architecture),
)  # fmt: skip
_NODES = (
    Column("node", 30, _name, grows=True, middle=True),
    Column("GPUs", 16, lambda n: f"{n.gpu_count} x {n.gpu}"),
    Column("$/node-hour", 12, lambda n: words.NONE if _cheapest(n) is None else f"{_cheapest(n):,.2f}", _cheapest,
           right=True, falling=True),
    Column("fabric", 22, words.fabric_words),
    Column("link", 10, lambda n: n.intra_node_link),
    Column("region, date", 22, _priced),
)  # fmt: skip
