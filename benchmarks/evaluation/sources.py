"""Whether confidence is a promise on sources that nothing was fitted on: a table, and the calibration plot.

    make evaluate                                                   everything; the answers stay in out/answers.csv
    python -m skuwise.benchmarks.evaluation.sources [FILE] --draw   the table of those answers, and their plot as SVG

The first simulator is what the weights are fitted on, so its reported seeds are shown last and apart.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from skuwise.rules.base.errors import EXIT_DONE

from ..scoring import Answer, abstention, accuracy, calibration, calibration_error, given

ANSWERS = Path(__file__).parents[2] / "out/answers.csv"
PICTURE = Path(__file__).parents[2] / "docs/calibration.svg"
SURE = 0.8
_COLUMNS = ("source", "truth", "verdict", "confidence")
_COLOURS = ("#1b6ca8", "#c8553d", "#588157", "#8a5a9e", "#b08900", "#3d8b8b", "#7a7a7a", "#a23b72")
_INK = "#444444"


def table(sources: Mapping[str, Sequence[Answer]]) -> Iterator[str]:
    """One line a source: how many, right, abstained, of what is said with 0.8 and more how many and the share right,
    and the expected calibration error of all that is said."""
    yield f"\n== confidence, source by source (of what is said with {SURE:g} and more: how many, share right)"
    yield f"{'source':<42} {'n':>5} {'right':>7} {'abstained':>10} {f'said {SURE:g}+':>9} {'right':>7} {'error':>7}"
    for name, answers in sources.items():
        sure = [one for one in given(answers) if one.confidence >= SURE]
        right = f"{accuracy(sure):.1%}" if sure else "none"
        yield (
            f"{name:<42} {len(answers):>5} {accuracy(answers):>7.1%} {abstention(answers):>10.1%} {len(sure):>9} "
            f"{right:>7} {calibration_error(answers):>7.3f}"
        )


def keep(sources: Mapping[str, Sequence[Answer]], path: Path) -> None:
    """The answers as CSV, in their order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(_COLUMNS)
        for name, answers in sources.items():
            rows.writerows((name, one.truth, one.verdict, f"{one.confidence:.3f}") for one in answers)


def kept(path: Path) -> dict[str, list[Answer]]:
    """The answers that `keep` wrote."""
    out: dict[str, list[Answer]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            out.setdefault(row["source"], []).append(Answer(row["truth"], row["verdict"], float(row["confidence"])))
    return out


def draw(sources: Mapping[str, Sequence[Answer]], path: Path) -> None:
    """What was said against what was right, a line a source, a larger dot for more verdicts; the same answers give the
    same file."""
    figure = Figure(figsize=(7.2, 6.0), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=_INK, linewidth=1, linestyle=(0, (4, 4)), label="a promise kept")
    for colour, (name, answers) in zip(_colours(len(sources)), sources.items(), strict=True):
        rows = calibration(answers)
        if rows:
            said, right = [row[3] for row in rows], [row[4] for row in rows]
            axes.plot(said, right, color=colour, linewidth=1.2, alpha=0.8, label=f"{name} ({len(given(answers))} said)")
            sizes = [12 + 3 * row[2] ** 0.5 for row in rows]
            axes.scatter(said, right, s=sizes, color=colour, alpha=0.8, linewidths=0, zorder=3, clip_on=False)
    axes.axvspan(SURE, 1.0, color="#000000", alpha=0.04, linewidth=0)
    axes.set_xlim(0.4, 1.0)
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel("confidence said (mean of a bin)", color=_INK)
    axes.set_ylabel("share that was right", color=_INK)
    axes.set_title("Kinds: confidence against being right, source by source", fontsize=11, color=_INK, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=_INK)
    axes.grid(visible=True, linewidth=0.4, alpha=0.5)
    figure.legend(fontsize=8, frameon=False, loc="outside lower left", ncols=2)
    with rc_context({"svg.hashsalt": "skuwise", "svg.fonttype": "none"}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _colours(count: int) -> list[str]:
    return [_COLOURS[n % len(_COLOURS)] for n in range(count)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", type=Path, nargs="?", default=ANSWERS, metavar="FILE", help="what evaluate kept")
    parser.add_argument("--draw", action="store_true", help=f"draw the plot ({PICTURE.name})")
    parser.add_argument("--out", type=Path, default=PICTURE, metavar="FILE", help="draw it there")
    options = parser.parse_args(argv)
    found = kept(options.answers)
    print("\n".join(table(found)))
    if options.draw:
        draw(found, options.out)
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
