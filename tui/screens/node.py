"""One node: its GPUs, HCAs and host with their newest values, live where a node's own database is read."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import DescendantFocus
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.timestamps import minute, span
from ...advisor.show.pages.energy import node_words
from ...rules.base.errors import SkuwiseError
from ...rules.base.sanitize import clean
from ..cell_text import fit, line, spark
from ..state import Loaded
from ..widgets.figures import short, show_sparklines, top_of
from ..widgets.frame import Drawn, Scroll, panel
from ..widgets.table import Column, ItemTable, quantity
from .base_page import Page, WorkWanted

if TYPE_CHECKING:
    from ...advisor.show.series.device_series import Device, DeviceGauge, NodeSeries

_LIVE_SECONDS = 1.0
_HISTORY_WIDTH = 24  # cells of the history in a table


class NodePage(Page):
    NAME, BEGIN = "fleet", "#gpus"
    IDS = attrgetter("workload", "workload")
    ABOUT: ClassVar[str] = (
        "GPUs, HCAs and the host with their newest values, and the history of the selected line. A node's own database "
        "updates every second, three seconds late; other sources show the newest rows and their age."
    )

    def __init__(self, node: str, gpu: str | None, clock: Callable[[], float]) -> None:
        """`gpu`: the uuid of the GPU to begin with, None: the first. `clock` returns Unix seconds."""
        super().__init__()
        self._node, self._first, self._clock = node, gpu, clock
        self._file: Path | None = None
        self._series: NodeSeries | None = None
        self._live = self._reading = False  # whether samples of a file are shown, or are being read
        self._sku = self._lost = ""  # `_lost`: why the file cannot be read any more

    def compose_data(self) -> ComposeResult:
        yield Static(id="node-head", classes="prose")
        with Scroll(id="devices"):
            with Scroll(classes="half"):
                empty = "No GPU of this node was observed."
                yield panel("GPUs", ItemTable(_GPUS, empty=empty, identity=lambda d: d.key, id="gpus"), id="gpu-panel")
                ports = ItemTable(_PORTS, empty="No port was observed.", identity=lambda d: d.key, id="ports")
                yield panel("HCAs", ports, id="port-panel")
            with Vertical(classes="half", id="histories"):
                yield panel("", Drawn("No data.", id="history"), id="selected")
                yield panel("Host", Drawn("No data.", id="host"), id="host-panel")

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(_LIVE_SECONDS, self._read)

    def set_data(self, loaded: Loaded) -> None:
        self._sku = next((node.node_sku or "" for node in loaded.health.nodes if node.node == self._node), "")
        node, frame, live = self._node, loaded.frame, self._live and not self._lost

        def work(*_: object) -> tuple[NodeSeries, Path | None]:
            from ...advisor.show.series import device_series as of  # noqa: PLC0415 - it needs pandas

            return of.in_frame(of.by_minute(frame, (node,)), node), of.newest_database(frame, node)

        def begin(result: tuple[NodeSeries, Path | None]) -> None:
            """Show the newest rows that were read, until the file has newer ones."""
            series, self._file = result
            if self.is_attached and not live:
                self._show(series, live=False)
            self._read()

        self.post_message(WorkWanted("node", work, begin))

    def _read(self) -> None:
        file, node, now = self._file, self._node, self._clock()
        self._describe()
        if file is None or self._reading or not self.is_current:
            return
        self._reading = True

        def work(*_: object) -> tuple[NodeSeries | None, str]:
            from ...advisor.show.series.device_series import read_live  # noqa: PLC0415

            try:
                return read_live(file, node, now), ""
            except SkuwiseError as error:
                return None, clean(error)

        self.post_message(WorkWanted("live", work, lambda result: self._received(*result)))

    def _received(self, series: NodeSeries | None, lost: str) -> None:
        self._reading, self._lost = False, lost
        if self.is_attached and series is not None and series.ends:
            self._show(series, live=True)
        self._describe()

    def _show(self, series: NodeSeries, *, live: bool) -> None:
        first = self._series is None
        self._series, self._live = series, live
        self.query_one("#gpus", ItemTable).set_data(series.of("gpu"))
        self.query_one("#ports", ItemTable).set_data(series.of("port"))
        if first and self._first is not None:
            self.query_one("#gpus", ItemTable).stand_on(self._first)
        show_sparklines(self.query_one("#host", Drawn), [g for d in series.of("host") for g in _measured(d)])
        self.show_history()

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        if event.item.workload is not None:
            self.want("workload", event.item.workload)

    @on(ItemTable.Moved)
    @on(DescendantFocus)
    def show_history(self) -> None:
        """Show the history of the device that the cursor is on."""
        table = self.focused if isinstance(self.focused, ItemTable) else self.query_one("#gpus", ItemTable)
        device: Device | None = table.item
        about = " ".join(part for part in (device.name, device.about) if part) if device else "GPU"
        ends = self._series.ends if self._series is not None else ()
        duration = f", the last {span(ends[-1] - ends[0])}" if len(ends) > 1 else ""
        self.query_one("#selected").border_title = clean(about + duration)
        show_sparklines(self.query_one("#history", Drawn), _measured(device) if device else ())

    def _describe(self) -> None:
        if not self.is_attached:  # it was left meanwhile
            return
        name = fit(" · ".join(part for part in (self._node, self._sku) if part), max(self.size.width - 2, 20))
        text = [line(name, "bold"), line(self._age(), "$warning" if self._lost else "")]
        if self._loaded is not None:
            shown, window = self._loaded.shown, self._loaded.window.name
            for dark in (dark for dark in shown.summary.unobserved if dark.node == self._node):
                count = words.counted(len(dark.gpus), "GPU")
                text.append(line(f"{count} not observed ({words.listed(dark.gpus)}): {dark.reason}", "$warning"))
            text += [line(f"{window}: {node_words(e)}") for e in shown.node_energy if e.node == self._node]
        self.write("#node-head", *text)

    def _age(self) -> str:
        series = self._series
        if series is None or not series.ends:
            return "reading ..." if series is None else "No data of this node in the window."
        from ...advisor.show.series.device_series import LIVE_SECONDS  # noqa: PLC0415 - it needs pandas

        age, every = max(self._clock() - series.ends[-1], 0.0), span(series.interval_seconds)
        newest = f"to {minute(series.ends[-1])}, {span(age)} ago"
        if self._lost:
            return f"old, {newest}: {self._lost}"
        if not self._live:
            return f"no live data here: rows of {every} {newest}"
        return f"live, every {every}, {newest}" if age < LIVE_SECONDS else f"not live: newest samples, {newest}"


def _measured(device: Device) -> tuple[DeviceGauge, ...]:
    return tuple(gauge for gauge in device.gauges if any(value is not None for value in gauge.values))


def _history_column(name: str) -> Column:
    def text(device: Device) -> str:
        gauge = device.gauge(name)
        return "" if gauge is None else spark(gauge.values, top_of(gauge), _HISTORY_WIDTH)

    return Column(name, _HISTORY_WIDTH, text)


def _gauge_column(name: str, title: str, width: int) -> Column:
    return quantity(title, width, lambda device: (gauge := device.gauge(name)) and gauge.last, short)


_GPUS = (
    Column("GPU", 6, lambda device: device.name.removeprefix("GPU ")),
    _history_column("SM active"),
    _gauge_column("SM active", "SM %", 6),
    Column("workload", 16, lambda device: words.listed([name for _, name in device.work]) or words.NONE, grows=True),
    _gauge_column("tensor active", "tensor %", 8),
    _gauge_column("DRAM active", "DRAM %", 6),
    _gauge_column("power", "W", 5),
    _gauge_column("memory used", "GiB", 6),
    _gauge_column("NVLink sent", "NVLink GB/s", 11),
    _gauge_column("NVLink received", "received", 9),
    _gauge_column("SM clock", "GHz", 5),
    _gauge_column("PCIe sent", "PCIe GB/s", 9),
    _gauge_column("PCIe received", "received", 9),
)
_PORTS = (
    Column("HCA", 16, lambda device: device.name),
    _history_column("sent"),
    _gauge_column("sent", "GB/s", 6),
    _gauge_column("received", "received", 8),
    Column("port", 18, lambda device: device.about, grows=True),
    _gauge_column("waited", "waited /s", 9),
)
