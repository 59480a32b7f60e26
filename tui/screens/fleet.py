"""Every node and GPU of the fleet as a map: what each does, by a measure that people choose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from ..cell_text import fit, line, lines
from ..color_scale import KINDS, MISSING, Mark, kind_mark, unobserved_mark, value_mark
from ..content.fleet_measures import (
    GROUPINGS,
    MEASURES,
    FleetMap,
    MapMeasure,
    Spot,
    fleet_map,
    shortened,
    spots,
    value_words,
)
from ..data.background_jobs import Tell
from ..data.loaders import Loader
from ..state import Loaded
from ..themes import MONOCHROME
from ..widgets.heatmap import MOST_IN_A_TILE, HeatMap, MapBand, MapTile
from ..widgets.panel import panel, put
from .base_page import NodeWanted, Page, WorkloadWanted, WorkWanted

_EDGES = 4  # border and padding of a panel
_STEPS = 16  # of the ramp in the legend
_ROOM_FOR_LEGEND = 14  # lines of the terminal


class FleetPage(Page):
    NAME, LABEL, BEGIN = "fleet", "Fleet", "HeatMap"
    ABOUT: ClassVar[str] = (
        "Every GPU as a cell, every node as a row of cells. Press m to select the metric, a mean over the window. "
        "Press v to group by SKU, by fabric (the compute ports observed) or by team. The arrows move by GPU, n and "
        "N by node. The lines below the map describe the selected GPU. Fabric values belong to the node: all its "
        "GPUs share the ports. A dot is a value that was not measured. × is a GPU that exists but was not "
        "observed, with the reason below the map. Enter opens the node."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "measure(1)", "Metric"),
        Binding("M", "measure(-1)", "Previous metric", show=False),
        Binding("v", "group", "Group"),
        Binding("o", "workload", "Workload", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._map: FleetMap | None = None
        self._tiles: Mapping[int, Sequence[MapTile]] = {}
        self._measure, self._by = 0, 0
        self._window = ""

    def compose_data(self) -> ComposeResult:
        legend, spot = Static(classes="prose", id="legend"), Static(classes="prose", id="spot")
        yield panel("Fleet", legend, HeatMap(_place, empty="Drawing the fleet ..."), spot, id="map", classes="fills")

    def on_mount(self) -> None:
        self.watch(self.app, "theme", self._draw, init=False)

    def set_data(self, loaded: Loaded) -> None:
        self._window = loaded.window.name

        def work(loader: Loader, tell: Tell) -> tuple[FleetMap, Mapping[int, Sequence[MapTile]]]:  # noqa: ARG001
            from ...advisor.show.series.fleet_map import nodes_with_gpus  # noqa: PLC0415 - it needs pandas

            found = fleet_map(nodes_with_gpus(loaded.frame, loaded.shown.summary.unobserved), loaded.shown)
            return found, tiles_of(found)

        self.post_message(WorkWanted("fleet", work, lambda told: self.set_map(*told)))

    def set_map(self, found: FleetMap, tiles: Mapping[int, Sequence[MapTile]]) -> None:
        """Show a fleet. `tiles`: as `tiles_of`."""
        self._map, self._tiles = found, tiles
        self._draw()

    def on_resize(self) -> None:
        """Where there is little height, it belongs to the map."""
        super().on_resize()
        self.call_after_refresh(self._tell)

    @property
    def measure(self) -> MapMeasure:
        return MEASURES[self._measure]

    @property
    def workload(self) -> str | None:
        spot = self.query_one(HeatMap).item
        return spot.gpu.workload if isinstance(spot, Spot) and spot.gpu is not None else None

    def action_measure(self, by: int) -> None:
        self._measure = (self._measure + by) % len(MEASURES)
        self._draw()

    def action_group(self) -> None:
        self._by = (self._by + 1) % len(GROUPINGS)
        self._draw()

    def action_workload(self) -> None:
        spot = self.query_one(HeatMap).item
        if isinstance(spot, Spot) and self._map is not None and (verdict := self._map.verdict(spot)) is not None:
            self.post_message(WorkloadWanted(verdict.id))

    def on_heat_map_moved(self) -> None:
        self._tell_spot()

    def on_heat_map_opened(self, event: HeatMap.Opened) -> None:
        gpu = event.item.gpu
        self.post_message(NodeWanted(event.item.node.node, gpu.gpu_uuid if gpu is not None else None))

    @property
    def _mono(self) -> bool:
        return self.app.current_theme.name == MONOCHROME.name

    def _draw(self) -> None:
        found = self._map
        if found is None:
            return
        by = GROUPINGS[self._by]
        bands = [
            MapBand(
                found.title(name, nodes, self.measure), tuple(tile for node in nodes for tile in self._tiles[id(node)])
            )
            for name, nodes in found.grouped(by)
        ]
        self.query_one(HeatMap).set_data(bands, self._paint(found))
        self._tell()

    def _paint(self, found: FleetMap) -> Callable[[Spot, int], Mark]:
        measure, mono, top = self.measure, self._mono, found.top(self.measure)

        def paint(spot: Spot, width: int) -> Mark:
            if spot.unobserved is not None:
                return unobserved_mark(width, mono=mono)
            if measure.of is None:
                verdict = found.verdict(spot)
                return kind_mark(verdict.kind.label if verdict is not None else None, width, mono=mono)
            value = found.value(spot, measure)
            if value is None:
                return value_mark(None, "", width, mono=mono)
            return value_mark(value / top, f"{value:.0f}", width, mono=mono)

        return paint

    def _tell(self) -> None:
        """What stands around the map."""
        found = self._map
        if found is None or self.query_one(HeatMap).item is None:
            return
        told, frame = f"Fleet: {self.measure.name}, by {GROUPINGS[self._by]}", self.query_one("#map")
        if frame.border_title != told:  # each setting paints the whole panel
            frame.border_title = told
        put(self.query_one("#legend", Static), self._legend(found))
        self._tell_spot()

    def _tell_spot(self) -> None:
        found, spot = self._map, self.query_one(HeatMap).item
        if found is not None and isinstance(spot, Spot):
            put(self.query_one("#spot", Static), self._spot(found, spot))

    def _legend(self, found: FleetMap) -> Content:
        measure, mono = self.measure, self._mono
        if measure.of is None:
            dark = [_drawn(unobserved_mark(1, mono=mono)), " not observed  "] if found.any_dark else []
            parts = [Content.assemble(_drawn(kind_mark(kind, 3, mono=mono)), f" {kind}  ") for kind in KINDS]
            return Content.assemble(*dark, *parts, f"{MISSING} none")
        ramp = [_drawn(value_mark(n / (_STEPS - 1), "", 1, mono=mono)) for n in range(_STEPS)]
        told = Content.assemble("0 ", *ramp, f" {value_words(found.top(measure), measure)}")
        if found.any_dark:
            told = Content.assemble(told, "   ", _drawn(unobserved_mark(1, mono=mono)), " not observed")
        for more in (f"   {MISSING} not measured", f"   mean over {self._window}"):
            if told.cell_length + len(more) <= self._room:
                told = Content.assemble(told, Content.styled(more, "$foreground-muted"))
        return told

    def _spot(self, found: FleetMap, spot: Spot) -> Content:
        gpu, verdict = spot.gpu, found.verdict(spot)
        if gpu is None:
            return self._two(spot.node.node, "No GPU of this node was observed in this window.")
        index = "?" if gpu.index is None else gpu.index
        name = " ".join(part for part in (f"{spot.node.node} · GPU {index}", gpu.sku, gpu.mig_profile) if part)
        if gpu.unobserved is not None:
            named = name if gpu.index is not None else f"{spot.node.node} · {gpu.gpu_uuid}"
            return self._two(f"{named} · not observed", gpu.unobserved)
        measure = self.measure
        told = f" · {measure.name} {value_words(found.value(spot, measure), measure)}" if measure.of is not None else ""
        work = "no workload" if gpu.workload is None else gpu.workload
        if verdict is not None:
            held = f"bottleneck {verdict.bottleneck.label}"
            work = f"{verdict.kind.label}, {held} · {found.owner(spot)} · {verdict.name}"
        return self._two(name + told, work)

    def _two(self, above: str, below: str) -> Content:
        return lines(line(fit(above, self._room), "bold"), line(fit(below, self._room)))

    @property
    def _room(self) -> int:
        return max(self.size.width - _EDGES, 20)


def tiles_of(found: FleetMap) -> dict[int, list[MapTile]]:
    """The tiles of each node, by its identity: names may recur from one cluster to another."""
    names = shortened([node.node for node in found.nodes])
    return {id(node): _tiles(names[node.node], spots(node)) for node in found.nodes}


def _tiles(name: str, places: tuple[Spot, ...]) -> list[MapTile]:
    """A node's GPUs in tiles; from the second on the name stands for itself."""
    parts = [places[at : at + MOST_IN_A_TILE] for at in range(0, len(places), MOST_IN_A_TILE)]
    return [MapTile(name if n == 0 else f"{name} +{n * MOST_IN_A_TILE}", part) for n, part in enumerate(parts)]


def _place(spot: Spot) -> tuple[str, str]:
    return spot.node.node, spot.gpu.gpu_uuid if spot.gpu is not None else ""


def _drawn(mark: Mark) -> Content:
    return Content.from_rich_text(Text(mark.text, mark.style))
