"""How often verdicts are right, on data that no rule was made from: `make evaluate`. Real data stand first.

    python -m skuwise.benchmarks.evaluation.evaluate --third-seeds 0-3 --weeks 0-2    all
    python -m skuwise.benchmarks.evaluation.evaluate --no-real --third-seeds 1000 --wrong      for development
    python -m skuwise.benchmarks.evaluation.evaluate --labelled DIR  real labelled series (the format: docs/method.md)
    python -m skuwise.benchmarks.evaluation.evaluate --pairs FILE
        predicted moves on a table of published pairs; --decode-pairs: of measured serving; --power-caps: predicted
        time and energy on a table of runs under power caps (docs/method.md)

Sources come in the order of their worth: real series (real.py), the generator that nothing is fitted on (third.py), the
first simulator over two weeks with a backtest (backtest.py). Seeds below 1000 are for reporting and are never looked at
one by one. An abstention counts as wrong. The last table says what confidence was worth on each source.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from skuwise.rules.base.errors import EXIT_DONE, SkuwiseError
from skuwise.rules.base.sanitize import clean

from ..scoring import Score, told
from . import real, sources, third
from .backtest import Backtest, two_weeks
from .decode import DECODE_TABLE
from .decode import tell as tell_decode
from .labelled import judged, score_of
from .moves import tell as tell_moves
from .power_caps import tell as tell_caps

T = TypeVar("T")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--third-seeds", default="0-3", metavar="SEEDS", help="of the third generator (default: 0-3)")
    parser.add_argument("--weeks", default="none", metavar="SEEDS", help="of the first simulator, two weeks each")
    parser.add_argument("--no-real", action="store_true", help="leave out the real series")
    parser.add_argument("--labelled", type=Path, metavar="DIR", help="judge this folder's series, and nothing else")
    parser.add_argument("--pairs", type=Path, metavar="FILE", help="judge moves on this table, and nothing else")
    parser.add_argument("--decode-pairs", type=Path, metavar="FILE", help="judge times of a token, and nothing else")
    parser.add_argument(
        "--power-caps", type=Path, metavar="FILE", help="judge power caps on this table, and nothing else"
    )
    parser.add_argument("--wrong", action="store_true", help="print every workload that is judged wrong")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(argv)
    try:
        if options.pairs is not None:
            tell_moves(options.pairs, wrong=options.wrong)
        elif options.decode_pairs is not None:
            tell_decode(options.decode_pairs, wrong=options.wrong)
        elif options.power_caps is not None:
            tell_caps(options.power_caps)
        elif options.labelled is not None:
            view = f"labelled series of {clean(options.labelled)}"
            _tell({view: score_of(judged(options.labelled))}, wrong=options.wrong)
        else:
            _evaluate(options)
    except SkuwiseError as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return error.exit_status
    return EXIT_DONE


def _evaluate(options: argparse.Namespace) -> None:
    """Every source in its turn, and what confidence was worth on each."""
    every: dict[str, Score | third.Result] = {}
    if not options.no_real:
        every |= _real(wrong=options.wrong)
    backtest = Backtest()
    first: dict[str, Score] = {}
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        fleets = pool.imap_unordered(third.one_seed, _seeds(options.third_seeds))
        views = {f"third generator, {view}": r for view, r in _views(_progress(fleets, "fleets")).items()}
        _tell(views, wrong=options.wrong, say=third.told)
        every |= views
        for whole, part in _progress(pool.imap_unordered(two_weeks, _seeds(options.weeks)), "fleets of two weeks"):
            first.setdefault("first simulator, 14 days at 1 s", Score()).add(whole)
            backtest.add(part)
    _tell(first, wrong=options.wrong)
    every |= first
    if backtest.fleets:
        print("\n".join(backtest.told()))
    tell_moves(None, wrong=options.wrong)
    tell_decode(DECODE_TABLE, wrong=options.wrong)
    tell_caps(None)
    print("\n".join(sources.table({name: score.kinds for name, score in every.items()})))


def _real(*, wrong: bool) -> dict[str, Score]:
    """The real series, told; returned is what is a source of its own: the part that nothing was fitted on."""
    scores = real.parts(real.judge_real())
    print("\n".join(real.table(scores)))
    if wrong:
        print("\n".join(scores[real.ALL].wrong))
    return {f"real series, {real.JUDGED}": scores[real.JUDGED]}


def _views(parts: Iterable[Mapping[str, third.Result]]) -> dict[str, third.Result]:
    total: dict[str, third.Result] = {}
    for views in parts:
        for view, part in views.items():
            total.setdefault(view, third.Result()).add(part)
    return total


def _seeds(text: str) -> list[int]:
    """Seeds as in "0-3"."""
    first, _, last = text.partition("-")
    return [] if text == "none" else list(range(int(first), int(last or first) + 1))


def _progress(parts: Iterable[T], what: str) -> Iterator[T]:
    for number, part in enumerate(parts, 1):
        print(f"{number} {what} judged", file=sys.stderr, flush=True)
        yield part


def _tell(views: Mapping[str, Any], *, wrong: bool, say: Callable[[str, Any], Iterable[str]] = told) -> None:
    for view, result in views.items():
        print("\n".join(say(view, result)))
        if wrong:
            print("\n".join(result.wrong))


if __name__ == "__main__":
    sys.exit(main())
