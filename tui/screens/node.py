"""One node: its GPUs, HCAs and host with their newest values, live where a node's own database is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.timestamps import minute, span
from ...advisor.show.energy_shares import node_words
from ...rules.base.errors import SkuwiseError
from ...rules.base.sanitize import clean
from ..cell_text import fit, line, lines, spark
from ..data.background_jobs import Tell
from ..data.loaders import Loader
from ..state import Loaded
from ..widgets.panel import Scroll, panel
from ..widgets.rows import Sparklines, short, top_of
from ..widgets.table import Column, ItemTable
from .base_page import Page, WorkloadWanted, WorkWanted

if TYPE_CHECKING:
    from ...advisor.show.series.device_series import Device, DeviceGauge, NodeSeries

_LOOK_SECONDS = 1.0
# Measures whose course the table of GPUs shows; m chooses.
_COURSES = ("SM active", "tensor active", "DRAM active", "NVLink sent", "memory used", "power")


class NodePage(Page):
    NAME, BEGIN = "fleet", "#gpus"
    ABOUT: ClassVar[str] = (
        "One node: GPUs, HCAs and the host with their newest values, and the history of the selected line. Press m "
        "to select the metric whose history the table of GPUs shows. With a node's own database, the values update "
        "every second, three seconds late. Other sources show the newest rows and their age. Enter on a GPU opens its "
        "workload."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("m", "measure", "Metric")]

    def __init__(self, node: str, gpu: str | None, clock: Callable[[], float]) -> None:
        """`gpu`: the uuid of the GPU to begin with, None: the first. `clock` gives Unix seconds."""
        super().__init__()
        self._node, self._first, self._clock = node, gpu, clock
        self._sku = ""
        self._files: tuple[Path, ...] = ()
        self._file: Path | None = None
        self._series: NodeSeries | None = None
        self._live = False  # whether what is shown are samples of a file
        self._looking = False
        self._lost = ""
        self._course = 0

    def compose_data(self) -> ComposeResult:
        yield Static(id="node-name")
        yield Static(id="node-dark", classes="prose")
        yield Static(id="node-energy", classes="prose")
        with Scroll(id="devices"):
            with Scroll(classes="half"):
                gpus = ItemTable(
                    self._gpu_columns(), empty="No GPU of this node was observed.", identity=_key, id="gpus"
                )
                yield panel("", gpus, id="gpu-panel")
                ports = ItemTable(_PORTS, empty="No port was observed.", identity=_key, id="ports")
                yield panel("HCAs", ports, id="port-panel")
            with Scroll(classes="half", id="course-panels"):
                yield panel("", Sparklines(empty="No data.", id="courses"), id="chosen")
                yield panel("Host", Sparklines(empty="No data.", id="host"))

    def on_mount(self) -> None:
        self.set_interval(_LOOK_SECONDS, self._look)

    @property
    def workload(self) -> str | None:
        device: Device | None = self.query_one("#gpus", ItemTable).item
        return device.work[0][0] if device is not None and device.work else None

    def set_data(self, loaded: Loaded) -> None:
        known = [node for node in loaded.health.nodes if node.node == self._node]
        self._sku = (known[0].node_sku or "") if known else ""
        drawn = self.query_one("#node-energy", Static)
        told = [one for one in loaded.shown.node_energy if one.node == self._node]
        drawn.display = bool(told)
        drawn.update(lines(*(line(f"{loaded.window.name}: {node_words(one)}") for one in told)))
        dark = self.query_one("#node-dark", Static)
        unseen = [
            f"{words.counted(len(one.gpus), 'GPU')} not observed ({words.listed(one.gpus)}): {one.reason}"
            for one in loaded.shown.summary.unobserved
            if one.node == self._node
        ]
        dark.display = bool(unseen)
        dark.update(lines(*(line(one, "$warning") for one in unseen)))
        node, source, live = self._node, loaded.frame.source, self._live and not self._lost
        files = tuple(Path(str(path)) for path in source.get("databases", ()))  # type: ignore[attr-defined] - a list

        def work(loader: Loader, tell: Tell) -> tuple[NodeSeries, Path | None]:  # noqa: ARG001 - it is soon done
            from ...advisor.show.series.device_series import in_frame  # noqa: PLC0415 - it needs pandas: not at the start
            from ...advisor.show.series.live import holding  # noqa: PLC0415
            from ...advisor.show.series.minutes import by_minute  # noqa: PLC0415
            from ...advisor.telemetry.sqlite.join import believed_of  # noqa: PLC0415

            own = [path for path, nodes in believed_of(source, files).items() if nodes is None or node in nodes]
            return in_frame(by_minute(loaded.frame, (node,)), node), holding(own, node)

        self.post_message(WorkWanted("node", work, lambda told: self._begin(*told, live=live)))

    def _begin(self, series: NodeSeries, file: Path | None, *, live: bool) -> None:
        """Show the newest rows that were read, until a look at the file tells more."""
        if not self.is_attached:
            return
        self._file = file
        if not live:
            self._show(series, live=False)
        self._tell()
        self._look()

    def _look(self) -> None:
        """Have the file looked at, unless the last look is still under way or another screen is in front."""
        file, node = self._file, self._node
        if file is None or self._looking or not self.is_current:
            self._tell()
            return
        now = self._clock()
        self._looking = True

        def work(loader: Loader, tell: Tell) -> tuple[NodeSeries | None, str]:  # noqa: ARG001
            from ...advisor.show.series.live import read_live  # noqa: PLC0415

            try:
                return read_live(file, node, now), ""
            except SkuwiseError as error:
                return None, clean(error)

        self.post_message(WorkWanted("live", work, lambda told: self._seen(*told)))

    def _seen(self, series: NodeSeries | None, lost: str) -> None:
        self._looking, self._lost = False, lost
        if not self.is_attached:
            return
        with self.app.batch_update():  # one paint a look
            if series is not None and series.ends and series is not self._series:
                self._show(series, live=True)
            self._tell()

    def _show(self, series: NodeSeries, *, live: bool) -> None:
        first = self._series is None
        self._series, self._live = series, live
        gpus, ports = self.query_one("#gpus", ItemTable), self.query_one("#ports", ItemTable)
        for table, devices in ((gpus, series.of("gpu")), (ports, series.of("port"))):
            table.set_data(devices)
        if first and self._first is not None:
            gpus.stand_on(self._first)
        self.query_one("#host", Sparklines).set_data([g for d in series.of("host") for g in _measured(d)])
        self._chosen()

    def on_item_table_moved(self) -> None:
        self._chosen()

    def on_descendant_focus(self) -> None:
        self._chosen()

    def on_item_table_opened(self, event: ItemTable.Opened) -> None:
        """Into the newest of the workloads that hold the GPU."""
        if event.item.work:
            self.post_message(WorkloadWanted(event.item.work[0][0]))

    def action_measure(self) -> None:
        self._course = (self._course + 1) % len(_COURSES)
        if self._series is not None:
            self.query_one("#gpus", ItemTable).set_data(self._series.of("gpu"))
        self._tell()

    def _chosen(self) -> None:
        """The course of what the cursor is on."""
        table = self.focused if isinstance(self.focused, ItemTable) else self.query_one("#gpus", ItemTable)
        device: Device | None = table.item
        about = " ".join(part for part in (device.name, device.about) if part) if device else "GPU"
        self._title("#chosen", f"{about}{self._over()}")
        self.query_one("#courses", Sparklines).set_data(_measured(device) if device else ())

    def _tell(self) -> None:
        self._title("#gpu-panel", f"GPUs: {_COURSES[self._course]}{self._over()}")
        head, lost = self.query_one("#node-name", Static), bool(self._lost)
        width = max(self.size.width - 2, 20)
        name = fit(" · ".join(part for part in (self._node, self._sku) if part), width)
        standing = self._standing() if lost else fit(self._standing(), width)
        head.set_class(lost, "-lost")
        head.update(lines(line(name, "bold"), line(standing, "$warning" if lost else "")), layout=lost)

    def _title(self, panel: str, told: str) -> None:
        """Only a title that changes is set: each setting paints the whole panel."""
        frame, title = self.query_one(panel), clean(told)
        if frame.border_title != title:
            frame.border_title = title

    def _over(self) -> str:
        """How long the courses are."""
        ends = self._series.ends if self._series is not None else ()
        return f", the last {span(ends[-1] - ends[0])}" if len(ends) > 1 else ""

    def _standing(self) -> str:
        """What is shown, and how old it is."""
        series = self._series
        if series is None:
            return "reading ..."
        if not series.ends:
            return "No data of this node in the window."
        age = max(self._clock() - series.ends[-1], 0.0)
        told = f"to {minute(series.ends[-1])}, {span(age)} ago"
        if self._lost:
            return f"old, {told}: {self._lost}"
        if not self._live:
            every = f"rows of {span(series.interval_seconds)} " if series.interval_seconds else ""
            return f"no live data here: {every}{told}"
        from ...advisor.show.series.live import LIVE_SECONDS  # noqa: PLC0415

        every = f"every {span(series.interval_seconds)}" if series.interval_seconds else "one sample"
        return f"live, {every}, {told}" if age < LIVE_SECONDS else f"not live: newest samples, {told}"

    def _gpu_columns(self) -> tuple[Column, ...]:
        course = _CourseColumn("history", 12, _key, grows=True, gauge=lambda gpu: gpu.gauge(_COURSES[self._course]))
        return (Column("GPU", 16, _gpu_words, middle=True), course, *(_gauge_column(*one) for one in _GPU_COLUMNS))


@dataclass(frozen=True)
class _CourseColumn(Column):
    """Draws what `gauge` gives of a device over as many moments as it is wide."""

    gauge: Callable[[Device], DeviceGauge | None] = lambda _: None

    def cell(self, item: Device, width: int) -> str:
        gauge = self.gauge(item)
        return " " * width if gauge is None else spark(gauge.values, top_of(gauge.values, gauge.top), width)[0]


def _key(device: Device) -> str:
    return device.key


def _gpu_words(device: Device) -> str:
    return f"{device.name.removeprefix('GPU ')} {words.listed([name for _, name in device.work]) or words.NONE}"


def _measured(device: Device) -> tuple[DeviceGauge, ...]:
    return tuple(gauge for gauge in device.gauges if any(value is not None for value in gauge.values))


def _gauge_column(name: str, title: str, width: int) -> Column:
    def last(device: Device) -> float | None:
        gauge = device.gauge(name)
        return gauge.last if gauge is not None else None

    def told(device: Device) -> str:
        value = last(device)
        return words.NONE if value is None else short(value)

    return Column(title, width, told, last, right=True, falling=True)


_GPU_COLUMNS = (
    ("SM active", "SM %", 6), ("tensor active", "tens %", 6), ("DRAM active", "DRAM %", 6), ("power", "W", 5),
    ("memory used", "GiB", 6), ("NVLink sent", "NVLink GB/s", 11), ("NVLink received", "received", 9),
    ("SM clock", "GHz", 5), ("PCIe sent", "PCIe GB/s", 9), ("PCIe received", "received", 9),
)  # fmt: skip
_PORTS = (
    Column("HCA", 16, lambda device: device.name, middle=True),
    _CourseColumn("sent", 12, _key, grows=True, gauge=lambda port: port.gauge("sent")),
    _gauge_column("sent", "GB/s", 6),
    _gauge_column("received", "received", 8),
    Column("port", 18, lambda device: device.about),
    _gauge_column("waited", "waited /s", 9),
)  # fmt: skip
