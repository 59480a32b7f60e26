"""Draws what was predicted against what was measured, each line left out of what predicts it: docs/moves-measured.svg.

python -m skuwise.benchmarks.evaluation.plot_pairs
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from skuwise.advisor.moves.predict.sku_comparison import kind_of
from skuwise.rules.base.errors import EXIT_DONE
from skuwise.rules.catalog.loader import load_catalog

from ..fit.decode_pairs import DECODE_TABLE
from . import decode, moves
from .moves import Told

PICTURE = Path(__file__).parents[2] / "docs/moves-measured.svg"
_COLOURS = (
    "#1b6ca8",
    "#c8553d",
    "#588157",
    "#8a5a9e",
    "#b08900",
    "#3d8b8b",
    "#7a7a7a",
    "#a23b72",
    "#26547c",
    "#5f6b3a",
)
_INK = "#444444"
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)


def draw(panels: Mapping[str, Mapping[str, Sequence[Told]]], path: Path) -> None:
    """A panel for each title, a colour for each class; the same lines give the same file."""
    figure = Figure(figsize=(10.4, 5.6), layout="constrained")
    for axes, (title, classes) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        _panel(axes, title, classes)
    with rc_context({"svg.hashsalt": "skuwise", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _panel(axes: Axes, title: str, classes: Mapping[str, Sequence[Told]]) -> None:
    span = _span([t for told in classes.values() for t in told])
    axes.plot(span, span, color=_INK, linewidth=1)
    for factor in (1.25, 1 / 1.25):
        axes.plot(span, [x * factor for x in span], color=_INK, linewidth=0.6, linestyle=(0, (4, 4)))
    for colour, (name, told) in zip(_COLOURS, sorted(classes.items()), strict=False):
        measured, predicted = np.exp([t.pair.observed for t in told]), np.exp([t.predicted for t in told])
        axes.scatter(
            measured, predicted, s=11, color=colour, alpha=0.65, linewidths=0, label=f"{name} ({len(told)})", zorder=3
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*span)
    axes.set_ylim(*span)
    ticks = [tick for tick in _TICKS if span[0] <= tick <= span[1]]
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks, [f"x{tick:g}" for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.set_xlabel("time on the other GPU, measured or published", color=_INK)
    axes.set_ylabel("predicted without the line's model", color=_INK)
    axes.set_title(title, fontsize=10, color=_INK, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=_INK)
    axes.grid(visible=True, linewidth=0.4, alpha=0.5)
    axes.legend(fontsize=7, frameon=False, loc="lower right")


def _span(told: Sequence[Told]) -> tuple[float, float]:
    """The least and the most of both, with a margin."""
    every = np.exp([value for t in told for value in (t.pair.observed, t.predicted)])
    return float(every.min()) / 1.15, float(every.max()) * 1.15


def _by(told: Sequence[Told], key: str) -> dict[str, list[Told]]:
    out: dict[str, list[Told]] = {}
    for one in told:
        name = kind_of(one.pair.question) if key == "kind" else one.pair.model.rsplit("/", 1)[-1]
        out.setdefault(name, []).append(one)
    return out


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=PICTURE, metavar="FILE", help="draw it there")
    options = parser.parse_args(argv)
    catalog = load_catalog()
    published = moves.evaluate(None, catalog)[0]["moves, held out by model"]
    tokens = decode.sections(DECODE_TABLE, catalog)[0]["time of a token, held out by family"]
    panels = {
        "Published pairs, each model left out": _by(published, "kind"),
        "Time of a generated token, each family left out": _by(tokens, "model"),
    }
    draw(panels, options.out)
    print(f"{len(published)} and {len(tokens)} lines: {options.out}", file=sys.stderr)
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
