"""Draws the boards as Grafana would roughly show them, from a real Prometheus with a simulated day.

python -m skuwise.docs.tools.boards FOLDER
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter
from skuwise.advisor.monitoring.boards import BOARDS
from skuwise.advisor.monitoring.grafana import board_json
from skuwise.advisor.monitoring.panels import Board, Panel
from skuwise.tests.support.monitored_fleet import ask, day_of_series, plain_query
from skuwise.tests.support.prometheus_engines import prometheus

_INK, _GROUND, _PAPER = "#d8d9da", "#111217", "#181b1f"
_COLUMNS, _WIDTH, _ROW = 24, 14.0, 0.33
_LINES_SHOWN = 8
_COLORS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff780a", "#b877d9", "#e02f44", "#8ab8ff", "#ffb357")


def shown(value: float, unit: str) -> str:
    """A value with its unit, as Grafana writes the units that the boards have."""
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit == "currencyUSD":
        return f"${value:,.2f}" if abs(value) < 1000 else f"${value:,.0f}"
    if unit == "s":
        return f"{value / 3600:.1f} h" if value >= 3600 else f"{value / 60:.0f} min"
    if unit == "watt":
        return f"{value / 1e3:.1f} kW"
    if unit == "Bps":
        return f"{value / 1e9:.1f} GB/s"
    return f"{value:g}"


def label(legend: str, metric: dict[str, str]) -> str:
    """A legend with its labels filled in; what is not there is left out."""
    for name, value in metric.items():
        legend = legend.replace(f"{{{{{name}}}}}", value)
    while "{{" in legend:
        legend = legend[: legend.index("{{")] + legend[legend.index("}}") + 2 :]
    return " ".join(legend.split()) or "value"


def draw(axes: Axes, panel: Panel, url: str) -> None:
    """One panel."""
    axes.set_title(panel.title, color=_INK, fontsize=9, loc="left")
    axes.set_facecolor(_PAPER)
    found = [(query.legend, one) for query in panel.queries for one in ask(url, panel, plain_query(query.expr))]
    if panel.shape == "stat":
        values = [shown(float(one["value"][1]), panel.unit) for _, one in found]
        axes.text(0.5, 0.45, " / ".join(values) or "No data", color=_COLORS[0], fontsize=20, ha="center", va="center")
        axes.set_axis_off()
    elif panel.shape == "bargauge":
        _bars(axes, panel, found)
    else:
        _lines(axes, panel, found)
    axes.tick_params(colors=_INK, labelsize=7, length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _bars(axes: Axes, panel: Panel, found: list[tuple[str, dict[str, Any]]]) -> None:
    rows = sorted(((float(one["value"][1]), label(legend, one["metric"])) for legend, one in found))
    names = [name[:40] for _, name in rows]
    axes.barh(range(len(rows)), [value for value, _ in rows], color=_COLORS[0], height=0.6)
    axes.set_yticks(range(len(rows)), names)
    axes.set_xticks([])
    for at, (value, _) in enumerate(rows):
        axes.text(value, at, f" {shown(value, panel.unit)}", color=_INK, fontsize=7, va="center")
    axes.margins(x=0.15)


def _lines(axes: Axes, panel: Panel, found: list[tuple[str, dict[str, Any]]]) -> None:
    for at, (legend, one) in enumerate(found):
        times = [float(ts) / 86400.0 for ts, _ in one["values"]]
        values = [float(value) for _, value in one["values"]]
        name = label(legend, one["metric"]) if at < _LINES_SHOWN else None
        axes.plot(times, values, color=_COLORS[at % len(_COLORS)], linewidth=0.9, label=name)
    axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))
    axes.yaxis.set_major_formatter(lambda value, _: shown(value, panel.unit))
    axes.set_ylim(bottom=0)
    axes.grid(color="#2c3235", linewidth=0.5)
    if found:
        axes.legend(fontsize=6, ncols=4, frameon=False, labelcolor=_INK, loc="upper center", bbox_to_anchor=(0.5, -0.1))


def picture(board: Board, url: str, path: Path) -> None:
    """A board as one image."""
    places = [one["gridPos"] for one in board_json(board)["panels"]]
    height = max(one["y"] + one["h"] for one in places)
    figure = plt.figure(figsize=(_WIDTH, height * _ROW), facecolor=_GROUND)
    for panel, place in zip(board.panels, places, strict=True):
        left = 0.035 if panel.shape != "bargauge" else 0.16
        axes = figure.add_axes((
            place["x"] / _COLUMNS + left, 1 - (place["y"] + place["h"] - 1.3) / height,
            place["w"] / _COLUMNS - left - 0.01, (place["h"] - 2.3) / height,
        ))  # fmt: skip
        draw(axes, panel, url)
    figure.savefig(path, dpi=80, facecolor=_GROUND)
    plt.close(figure)


def main(folder: Path) -> None:
    """Write one PNG for each board."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        series = day_of_series(Path(place) / "fleet")
        with prometheus(Path(place) / "prometheus", series) as url:
            for board in BOARDS:
                picture(board, url, folder / f"{board.uid}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
