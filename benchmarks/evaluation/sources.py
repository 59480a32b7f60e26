"""Whether confidence is a promise on sources that nothing was fitted on, as a table.

    make evaluate                                            everything; the answers stay in out/answers.csv
    python -m skuwise.benchmarks.evaluation.sources [FILE]   the table of those answers

The first simulator is what the weights are fitted on, so its reported seeds are shown last and apart.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from skuwise.rules.base.errors import EXIT_DONE

from ..scoring import Answer, abstention, accuracy, calibration_error, given

ANSWERS = Path(__file__).parents[2] / "out/answers.csv"
SURE = 0.8
_COLUMNS = ("source", "truth", "verdict", "confidence")


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


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", type=Path, nargs="?", default=ANSWERS, metavar="FILE", help="what evaluate kept")
    options = parser.parse_args(argv)
    print("\n".join(table(kept(options.answers))))
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
