"""Every node and GPU of the fleet as a map, by a metric and a grouping that keys select."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import Advice
from ...advisor.core.verdict_types import WorkloadVerdict
from ..cell_text import fit, fit_apart, line, nice
from ..state import Loaded
from ..themes import KINDS, MISSING, MONOCHROME, Mark, kind_mark, unobserved_mark, value_mark
from ..widgets.frame import panel
from ..widgets.heatmap import MOST_IN_A_TILE, HeatMap, MapTile
from .base_page import Page, WorkWanted

if TYPE_CHECKING:
    from ...advisor.show.series.fleet_map import GpuUse, NodeUse

NO_WORKLOAD, NO_OWNER, NOT_OBSERVED = "no workload", "owner unknown", "not observed"
_EDGES = 4  # border and padding of a panel
_STEPS = 16  # of the ramp in the legend
_NAME_WIDTH = 18  # of a node on the map


@dataclass(frozen=True)
class MapMeasure:
    """A metric of the map, in `unit`: a value of `GpuUse.values` times `factor`. `top`: the scale's upper end, None:
    what the fleet needs. Without `key` it is the kind of work, which has no scale."""

    name: str
    unit: str = ""
    key: str | None = None
    factor: float = 1.0
    top: float | None = None

    def of(self, gpu: GpuUse) -> float | None:
        value = gpu.values.get(self.key or "")
        whole = gpu.mem_total_bytes if self.key == "mem_used_bytes" else 1.0
        return value / whole * self.factor if value is not None and whole else None

    def text(self, value: float | None) -> str:
        """A value with its unit: whole numbers from 10 on."""
        if value is None:
            return "not measured"
        return f"{words.figure(round(value) if value >= 10 else float(f'{value:.2g}'))} {self.unit}"


MEASURES = (
    MapMeasure("SM active", "%", "sm_active", 100.0, 100.0),
    MapMeasure("tensor active", "%", "tensor_active", 100.0, 100.0),
    MapMeasure("DRAM active", "%", "dram_active", 100.0, 100.0),
    MapMeasure("NVLink sent", "GB/s", "nvlink_tx_bytes_per_second", 1e-9),
    MapMeasure("fabric of the node", "% of line rate", "fabric_util", 100.0, 100.0),
    MapMeasure("memory used", "%", "mem_used_bytes", 100.0, 100.0),
    MapMeasure("power", "W", "power_watts"),
    MapMeasure("kind of work"),
)
GROUPINGS = ("SKU", "fabric", "team")


class FleetMap:
    """Every node, with the verdicts on what its GPUs do. `tiles`: of each node, by its name."""

    def __init__(self, nodes: Sequence[NodeUse], advice: Advice) -> None:
        self.nodes, gpus = tuple(nodes), [gpu for node in nodes for gpu in node.gpus]
        self._verdicts = {w.id: w for w in advice.workloads}
        names = fit_apart([node.node for node in nodes], _NAME_WIDTH)
        self.tiles = {node.node: _tiles(name.rstrip(), node.gpus) for node, name in zip(nodes, names, strict=True)}
        self.any_dark = any(gpu.unobserved is not None for gpu in gpus)
        values = {m.name: [value for gpu in gpus if (value := m.of(gpu))] for m in MEASURES}
        self._tops = {name: nice(max(measured, default=0.0)) for name, measured in values.items()}

    def verdict(self, gpu: GpuUse) -> WorkloadVerdict | None:
        """Of what held the GPU longest; None: nothing did, or it was not judged."""
        return self._verdicts.get(gpu.workload or "")

    def top(self, measure: MapMeasure) -> float:
        """The end of the measure's scale."""
        return measure.top or self._tops[measure.name]

    def mark(self, gpu: GpuUse, measure: MapMeasure, width: int, mono: bool) -> Mark:
        """The cell of a GPU on the map."""
        if gpu.unobserved is not None:
            return unobserved_mark(width, mono=mono)
        if measure.key is None:
            verdict = self.verdict(gpu)
            return kind_mark(verdict.kind.label if verdict is not None else None, width, mono=mono)
        value = measure.of(gpu)
        return value_mark(value and value / self.top(measure), f"{value or 0:.0f}", width, mono=mono)

    def owner(self, gpu: GpuUse) -> str:
        """The nearest name of the work's owner."""
        if gpu.workload is None:
            return NO_WORKLOAD if gpu.unobserved is None else NOT_OBSERVED
        verdict = self.verdict(gpu)
        return (verdict.owner.name if verdict is not None else None) or NO_OWNER

    def grouped(self, by: str) -> list[tuple[str, list[NodeUse]]]:
        """Names of the groups with their nodes, the group with most GPUs first. A node whose GPUs belong to several
        teams is in the group of the one that holds most of them."""
        groups: dict[str, list[NodeUse]] = {}
        for node in self.nodes:
            groups.setdefault(self._group(node, by), []).append(node)
        return sorted(groups.items(), key=lambda group: (-sum(len(node.gpus) for node in group[1]), group[0]))

    def _group(self, node: NodeUse, by: str) -> str:
        if by == "fabric":
            return node.fabric
        if by == "SKU":
            skus = ", ".join(sorted({gpu.sku for gpu in node.gpus if gpu.sku}))
            return node.node_sku or skus or "unknown SKU"
        owners = [self.owner(gpu) for gpu in node.gpus]
        held = [owner for owner in owners if owner not in (NO_WORKLOAD, NOT_OBSERVED)] or owners
        return max(sorted(set(held)), key=held.count)

    def title(self, name: str, nodes: Sequence[NodeUse], measure: MapMeasure) -> str:
        """Of a group: ``azure/ND96 · 12 nodes, 96 GPUs · mean 62 %``."""
        gpus = [gpu for node in nodes for gpu in node.gpus]
        dark = sum(gpu.unobserved is not None for gpu in gpus)
        values = [value for gpu in gpus if (value := measure.of(gpu)) is not None]
        size = f"{name} · {words.counted(len(nodes), 'node')}, {words.counted(len(gpus), 'GPU')}"
        size += f", {dark:,} not observed" if dark else ""
        return size + (f" · mean {measure.text(sum(values) / len(values))}" if values else "")


class FleetPage(Page):
    NAME, LABEL, BEGIN = "fleet", "Fleet", "HeatMap"
    IDS = attrgetter("workload", "workload")
    ABOUT: ClassVar[str] = (
        "Every GPU as a cell, by a metric (a mean over the window) and grouped by SKU, by fabric (compute ports "
        "observed) or by team. A dot is a value that was not measured, × a GPU that was not observed."
    )
    BINDINGS: ClassVar[list[BindingType]] = [Binding("m", "measure", "Metric"), Binding("v", "group", "Group")]

    _map: FleetMap | None = None
    _measure, _by, _window = MEASURES[0], GROUPINGS[0], ""

    def compose_data(self) -> ComposeResult:
        legend, spot = Static(classes="prose", id="legend"), Static(classes="prose", id="spot")
        yield panel("Fleet", legend, HeatMap("Drawing the fleet ..."), spot, id="map", classes="fills")

    def on_mount(self) -> None:
        super().on_mount()
        self.watch(self.app, "theme", self._draw, init=False)

    def set_data(self, loaded: Loaded) -> None:
        self._window = loaded.window.name

        def work(*_: object) -> FleetMap:
            from ...advisor.show.series.fleet_map import nodes_with_gpus  # noqa: PLC0415 - it needs pandas

            return FleetMap(nodes_with_gpus(loaded.frame, loaded.shown.summary.unobserved), loaded.shown)

        def show(fleet: FleetMap) -> None:
            self._map = fleet
            self._draw()

        self.post_message(WorkWanted("fleet", work, show))

    def on_resize(self) -> None:
        super().on_resize()
        self.call_after_refresh(self.on_heat_map_moved)

    @property
    def selected(self) -> GpuUse | None:
        return self.query_one(HeatMap).item

    def action_measure(self) -> None:
        self._measure = MEASURES[(MEASURES.index(self._measure) + 1) % len(MEASURES)]
        self._draw()

    def action_group(self) -> None:
        self._by = GROUPINGS[(GROUPINGS.index(self._by) + 1) % len(GROUPINGS)]
        self._draw()

    def action_workload(self) -> None:
        verdict = self._map.verdict(self.selected) if self._map is not None and self.selected is not None else None
        if verdict is not None:
            self.want("workload", verdict.id)

    def on_heat_map_opened(self) -> None:
        if (gpu := self.selected) is not None:
            self.want("node", gpu.node, gpu.gpu_uuid or None)

    @property
    def _mono(self) -> bool:
        return self.app.current_theme.name == MONOCHROME.name

    def _draw(self) -> None:
        fleet, measure, by, mono = self._map, self._measure, self._by, self._mono
        if fleet is None:
            return
        bands = [
            (fleet.title(name, nodes, measure), [tile for node in nodes for tile in fleet.tiles[node.node]])
            for name, nodes in fleet.grouped(by)
        ]
        self.query_one(HeatMap).set_data(bands, lambda gpu, width: fleet.mark(gpu, measure, width, mono))
        self.query_one("#map").border_title = f"Fleet: {measure.name}, by {by}"
        self.on_heat_map_moved()

    def on_heat_map_moved(self) -> None:
        """Write the legend above the map, and the selected GPU below it."""
        fleet, gpu, measure = self._map, self.selected, self._measure
        if fleet is not None and gpu is not None:
            width = max(self.size.width - _EDGES, 20)
            self.write("#legend", self._legend(fleet, measure, width))
            head, work = _gpu_text(fleet, gpu, measure)
            self.write("#spot", line(fit(head, width), "bold"), line(fit(work, width)))

    def _legend(self, fleet: FleetMap, measure: MapMeasure, width: int) -> Content:
        mono = self._mono
        dark = [_drawn(unobserved_mark(1, mono=mono)), " not observed   "] if fleet.any_dark else []
        if measure.key is None:
            parts = [Content.assemble(_drawn(kind_mark(kind, 3, mono=mono)), f" {kind}  ") for kind in KINDS]
            return Content.assemble(*dark, *parts, f"{MISSING} none")
        ramp = [_drawn(value_mark(n / (_STEPS - 1), "", 1, mono=mono)) for n in range(_STEPS)]
        legend = Content.assemble("0 ", *ramp, f" {measure.text(fleet.top(measure))}   ", *dark)
        for remark in (f"{MISSING} not measured   ", f"mean over {self._window}"):
            if legend.cell_length + len(remark) <= width:
                legend = Content.assemble(legend, Content.styled(remark, "$foreground-muted"))
        return legend


def _gpu_text(fleet: FleetMap, gpu: GpuUse, measure: MapMeasure) -> tuple[str, str]:
    verdict, value = fleet.verdict(gpu), f" · {measure.name} {measure.text(measure.of(gpu))}" if measure.key else ""
    if not gpu.gpu_uuid:
        return gpu.node, "No GPU of this node was observed in this window."
    index = f"GPU {gpu.index}" if gpu.index is not None else "GPU ?" if gpu.unobserved is None else gpu.gpu_uuid
    name = " ".join(filter(None, (f"{gpu.node} · {index}", gpu.sku, gpu.mig_profile)))
    if gpu.unobserved is not None:
        return f"{name} · not observed", gpu.unobserved
    if verdict is None:
        return name + value, gpu.workload or NO_WORKLOAD
    bottleneck = f"bottleneck {verdict.bottleneck.label}"
    return name + value, f"{verdict.kind.label}, {bottleneck} · {fleet.owner(gpu)} · {verdict.name}"


def _tiles(name: str, gpus: tuple[GpuUse, ...]) -> list[MapTile]:
    firsts = range(0, len(gpus), MOST_IN_A_TILE)
    return [(f"{name} +{first}" if first else name, gpus[first : first + MOST_IN_A_TILE]) for first in firsts]


def _drawn(mark: Mark) -> Content:
    return Content.from_rich_text(Text(mark.text, mark.style))
