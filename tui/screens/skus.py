"""The catalog: GPUs and nodes with what they do and cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import ContentSwitcher

from ...advisor.core import formatting as words
from ...rules.catalog.types import GpuSku, NodeSku, Price
from ..state import Loaded
from ..widgets.table import Column, ItemTable, SearchTable, quantity
from .base_page import Page, WorkWanted

if TYPE_CHECKING:
    from ...rules.catalog.loader import Catalog


class Skus(Page):
    NAME, LABEL, BEGIN = "skus", "SKUs", "#gpus ItemTable"
    NEEDS_DATA = False
    ABOUT: ClassVar[str] = (
        "The catalog of GPUs and nodes. Compute rates are dense, links one way, prices those of the whole node. Press "
        "n for nodes, enter for every figure with its source, v on one line and then on another to compare the two."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("n", "table", "GPUs / nodes"), Binding("v", "compare", "Compare")]
    _catalog: Catalog | None = None
    _first: Any = None  # the line to compare another one with

    def compose_data(self) -> ComposeResult:
        with ContentSwitcher(initial="gpus"):
            for columns, what in ((_GPUS, "GPUs"), (_NODES, "nodes")):
                empty = "Reading the catalog ..."
                table = ItemTable(columns, empty=empty, search=_search, identity=lambda sku: sku.name)
                yield SearchTable(table, what, id=what.casefold())

    def on_mount(self) -> None:
        self.post_message(WorkWanted("catalog", lambda loader, _tell: loader.rulebook().catalog, self.set_catalog))

    def set_data(self, loaded: Loaded) -> None:
        """Do nothing: the catalog does not depend on the source."""

    def set_catalog(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.query_one("#gpus", SearchTable).set_data(list(catalog.gpus.values()))
        self.query_one("#nodes", SearchTable).set_data(list(catalog.nodes.values()))

    @property
    def selected(self) -> Any:  # noqa: ANN401 - a GPU or a node
        return self.query_one(f"#{self.query_one(ContentSwitcher).current} ItemTable", ItemTable).item

    def action_table(self) -> None:
        switcher = self.query_one(ContentSwitcher)
        switcher.current = "nodes" if switcher.current == "gpus" else "gpus"
        self._first = None
        self.query_one(f"#{switcher.current} ItemTable").focus()

    def action_compare(self) -> None:
        first, second, catalog = self._first, self.selected, self._catalog
        if first in (None, second) or catalog is None:
            self._first = second
            self.notify("Select another line and press v again.")
            return
        self._first, show = None, partial(self.want, "text", "Comparison")
        self.post_message(WorkWanted("comparing", lambda *_: comparison_text(first, second, catalog), show))

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        if self._catalog is not None:
            from ...advisor.show.pages.skus import sku_text  # noqa: PLC0415 - it is not needed at the start

            self.want("text", "Catalog entry", sku_text(event.item, self._catalog))


def comparison_text(first: GpuSku | NodeSku, second: GpuSku | NodeSku, catalog: Catalog) -> str:
    """Two GPUs or two nodes beside each other, the times of ``skuwise skus compare``, and the sources of the prices."""
    from ...advisor.cli.sku_estimates import compare_typical  # noqa: PLC0415 - it needs numpy: not at the start

    columns = _GPUS if isinstance(first, GpuSku) else _NODES
    rows: list[tuple[str, ...]] = [(column.title, column.text(first), column.text(second)) for column in columns]
    cheapest = [_cheapest(sku, catalog) for sku in (first, second)]
    rows.append(("$/GPU-hour, from", *("unknown" if price is None else f"{price[1]:,.2f}" for price in cheapest)))
    text = [f"{name:<19}{value:<32}{other}" for name, value, other in rows]
    source, target = (sku if isinstance(sku, GpuSku) else catalog.gpu(sku.gpu) for sku in (first, second))
    if source is None or target is None:
        text += ["", "A GPU is not in the catalog."]
    else:
        phases = compare_typical(source, target, catalog)
        text += ["", f"Time of typical work on {second.name}, relative to {first.name}"]
        text += [f"{phase}: {words.time_words(comparison.time_ratio)}" for phase, comparison in phases]
        text += ["", *dict.fromkeys(f"Blocked: {why}" for _, comparison in phases for why in comparison.blocked_by)]
        text += dict.fromkeys(f"Basis: {comparison.basis}" for _, comparison in phases)
    return "\n".join([*text, *(f"{p.sku}, {p.region}: {words.price_words(p)}" for p, _ in filter(None, cheapest))])


def _cheapest(sku: GpuSku | NodeSku, catalog: Catalog) -> tuple[Price, float] | None:
    """The lowest list price of a node, of a GPU that of the node with the cheapest GPUs; and dollars per GPU-hour."""
    nodes = catalog.nodes_of(sku.name) if isinstance(sku, GpuSku) else [sku]
    prices = [(price, price.usd_per_hour / max(node.gpu_count, 1)) for node in nodes for price in node.prices]
    return min(prices, key=lambda price: (price[1], price[0].sku, price[0].region), default=None)


def _search(sku: GpuSku | NodeSku) -> str:
    if isinstance(sku, GpuSku):
        return "\n".join((sku.name, sku.architecture, sku.form_factor, *sku.aliases))
    return "\n".join((sku.name, sku.gpu, sku.fabric.kind, sku.intra_node_link, *(p.region for p in sku.prices)))


def _number(title: str, width: int, value: Callable[[Any], float | None], unit: float = 1.0) -> Column:
    return quantity(title, width, value, lambda amount: f"{amount / unit:,.0f}")


def _link(gpu: GpuSku) -> str:
    """A bridge joins pairs of cards alone, so its rate is not that of all GPUs of a node."""
    if gpu.link_bytes_per_second is None:
        return "PCIe"
    return f"{gpu.link_name} bridge, pairs" if gpu.nvlink_by_bridge else gpu.link_name


def _priced(node: NodeSku) -> str:
    price = _price(node)
    return words.NONE if price is None else f"{price.region}, {price.as_of}"


def _price(node: NodeSku) -> Price | None:
    return min(node.prices, key=lambda price: price.usd_per_hour, default=None)


_GPUS = (
    Column("GPU", 14, lambda gpu: gpu.name, grows=True),
    _number("FP16 TFLOP/s", 13, lambda gpu: gpu.dense_flops.get("fp16"), 1e12),
    _number("memory GiB", 11, lambda gpu: gpu.mem_bytes, 1024**3),
    _number("memory GB/s", 12, lambda gpu: gpu.mem_bandwidth_bytes_per_second, 1e9),
    _number("link GB/s", 10, lambda gpu: gpu.link_bytes_per_second, 1e9),
    _number("W", 5, lambda gpu: gpu.tdp_watts),
    Column("link", 20, _link),
    _number("FP8 TFLOP/s", 12, lambda gpu: gpu.dense_flops.get("fp8"), 1e12),
    _number("BF16 achieved %", 15, lambda gpu: gpu.achieved.bf16_gemm, 0.01),
    _number("memory achieved %", 17, lambda gpu: gpu.achieved.mem, 0.01),
    _number("MIG slices", 10, lambda gpu: gpu.mig_slices_max),
    Column("architecture", 14, lambda gpu: gpu.architecture),
)
_NODES = (
    Column("node", 30, lambda node: node.name, grows=True),
    Column("GPUs", 16, lambda node: f"{node.gpu_count} x {node.gpu}"),
    quantity("$/node-hour", 12, lambda node: (price := _price(node)) and price.usd_per_hour, "{:,.2f}".format),
    Column("fabric", 22, words.fabric_words),
    Column("link", 10, lambda node: node.intra_node_link),
    Column("region, date", 22, _priced),
    _number("CPUs", 6, lambda node: node.vcpus),
    _number("host GiB", 9, lambda node: node.host_mem_bytes, 1024**3),
)
