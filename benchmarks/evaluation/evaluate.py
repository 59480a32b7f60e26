"""How often verdicts and predictions are right, on data that nothing was fitted on: `make evaluate`.

    python -m skuwise.benchmarks.evaluation.evaluate --third-seeds 0-3    all: the third generator, moves, power caps
    python -m skuwise.benchmarks.evaluation.evaluate --labelled DIR [--repeat HOURS] [--wrong]
        labelled series of a folder or several (the format: docs/method.md), judged by the rules that ship
    python -m skuwise.benchmarks.evaluation.evaluate --pairs [FILE]
        predicted moves: error and coverage by left-out source and model family on the tables that ship, or as shipped
        on a table of published pairs

Seeds below 1000 are for reporting and are never read one by one. An abstention counts as not right.
"""

import argparse
import multiprocessing
import sys
from collections.abc import Sequence
from pathlib import Path

from skuwise.rules.base.errors import EXIT_DONE, SkuwiseError
from skuwise.rules.base.sanitize import clean

from ..scoring import Answer
from . import left_out, report, third
from .judged_series import judge_series, read_folder
from .moves import tell as tell_moves
from .moves import tell_table
from .power_caps import tell as tell_caps

SHIPPED = Path()  # in place of a table: those that ship


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--third-seeds", default="0-3", metavar="SEEDS", help="of the third generator (default: 0-3)")
    add("--labelled", type=Path, metavar="DIR", action="append", help="judge this folder's series (repeatable)")
    add("--repeat", type=float, metavar="HOURS", help="repeat steady series that are shorter, by the minute")
    add("--pairs", type=Path, metavar="FILE", nargs="?", const=SHIPPED, help="judge moves alone, on this table or all")
    add("--wrong", action="store_true", help="print every mistake, the most confident first")
    add("--processes", type=int, default=2)
    options = parser.parse_args(argv)
    try:
        if options.pairs == SHIPPED:
            tell_moves()
        elif options.pairs is not None:
            tell_table(options.pairs)
        elif options.labelled:
            _tell_labelled(options)
        else:
            _evaluate(options)
    except SkuwiseError as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return error.exit_status
    return EXIT_DONE


def _tell_labelled(options: argparse.Namespace) -> None:
    """Each folder, and all of them together."""
    every: list[Answer] = []
    for folder in options.labelled:
        judged = list(judge_series(read_folder(folder, repeat_hours=options.repeat)))
        limits = [answer for judged_series in judged if (answer := judged_series.bottleneck) is not None]
        kinds = [judged_series.kind for judged_series in judged]
        print("\n".join((*report.summary(clean(folder), kinds), *report.bottlenecks(limits))))
        every += kinds
    if len(options.labelled) > 1:
        print("\n".join(report.summary("together", every)))
    if options.wrong:
        print("\n".join(report.mistakes(every)))


def _evaluate(options: argparse.Namespace) -> None:
    """Every source in its turn, real series first."""
    left_out.tell(wrong=options.wrong)
    first, _, last = options.third_seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    views: dict[str, third.Result] = {}
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for number, parts in enumerate(pool.imap_unordered(third.one_seed, seeds), 1):
            print(f"{number} fleets judged", file=sys.stderr, flush=True)
            for view, part in parts.items():
                views.setdefault(view, third.Result()).add(part)
    for view, result in views.items():
        print("\n".join(third.told(f"third generator, {view}", result)))
    tell_moves()
    tell_caps()


if __name__ == "__main__":
    sys.exit(main())
