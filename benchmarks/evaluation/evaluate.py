"""How often verdicts are right, on data that no rule was made from: `make evaluate`. Real data stand first.

    python -m skuwise.benchmarks.evaluation.evaluate --seeds 0-14           all, the generators' reported seeds
    python -m skuwise.benchmarks.evaluation.evaluate --seeds none --third-seeds none    the real series
    python -m skuwise.benchmarks.evaluation.evaluate --no-real --third-seeds none --seeds 1000-1004 --wrong
        what is wrong, on seeds for development
    python -m skuwise.benchmarks.evaluation.evaluate --labelled DIR  real labelled series (the format: docs/method.md)
    python -m skuwise.benchmarks.evaluation.evaluate --seeds none --third-seeds none --weeks 0-3
        the real series, the first simulator and the backtest
    python -m skuwise.benchmarks.evaluation.evaluate --explain 10
        ten workloads with their verdicts and reasons, half of them wrong, and nothing else
    python -m skuwise.benchmarks.evaluation.evaluate --pairs FILE
        predicted moves on a table of published pairs; --decode-pairs: of measured serving; --power-caps: predicted
        time and energy on a table of runs under power caps (docs/moves.md)

Sources come in the order of their worth: real series (real.py), the generators that nothing is fitted on (the newest
first; `GENERATORS`), the first simulator over two weeks with a backtest (backtest.py), and the recordings of
tests/data/recordings. Seeds below 1000 are for reporting and are never looked at one by one. An abstention counts as
wrong. At the end stands one table of what confidence was worth on each source (sources.py).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

from skuwise.rules.base.errors import EXIT_DONE, SkuwiseError
from skuwise.rules.base.sanitize import clean

from ..scoring import Answer, Score, told
from . import explained, real, sources
from .accuracy import parse_seeds
from .backtest import Backtest, two_weeks
from .decode import tell as tell_decode
from .labelled import judged, score_of
from .moves import tell as tell_moves
from .power_caps import tell as tell_caps

T = TypeVar("T")
RECORDINGS = Path(__file__).parents[2] / "tests/data/recordings"
# Each is a module of this folder: `one_seed` gives a fleet's scores by view; where it has them, `told` says the figures
# of a view its own way and `cases` gives a fleet's workloads one by one.
GENERATORS: Mapping[str, str] = {"third generator": "third", "second generator": "second"}
EXPLAINED_SEED = 1000  # of those that may be looked at


class Part(Protocol):
    """What was said under one view of one fleet or of several."""

    kinds: list[Answer]
    wrong: list[str]

    def add(self, other: Any) -> None: ...  # of its own kind


def generators() -> dict[str, ModuleType]:
    """The generators that are here, the newest first."""
    found = {name: f"{__package__}.{module}" for name, module in GENERATORS.items()}
    return {n: importlib.import_module(m) for n, m in found.items() if importlib.util.find_spec(m) is not None}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--third-seeds", default="0-3", metavar="SEEDS", help="of the third generator (default: 0-3)")
    parser.add_argument("--seeds", default="0-14", help="of the second generator; none for none (default: 0-14)")
    parser.add_argument("--weeks", default="none", metavar="SEEDS", help="of the first simulator, two weeks each")
    parser.add_argument("--no-real", action="store_true", help="leave out the real series")
    parser.add_argument("--labelled", type=Path, metavar="DIR", help="judge this folder's series, and nothing else")
    parser.add_argument(
        "--rules", type=Path, metavar="DIR", help="judge labelled and real series by a site's own rules"
    )
    parser.add_argument("--pairs", type=Path, metavar="FILE", help="judge moves on this table, and nothing else")
    parser.add_argument("--decode-pairs", type=Path, metavar="FILE", help="judge times of a token, and nothing else")
    parser.add_argument(
        "--power-caps", type=Path, metavar="FILE", help="judge power caps on this table, and nothing else"
    )
    parser.add_argument("--explain", type=int, metavar="N", help="explain N workloads, and nothing else")
    parser.add_argument("--wrong", action="store_true", help="print every workload that is judged wrong")
    parser.add_argument("--answers", type=Path, metavar="FILE", help="keep every answer as CSV, for sources.py")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(argv)
    try:
        if options.pairs is not None:
            tell_moves(options.pairs, wrong=options.wrong)
        elif options.decode_pairs is not None:
            tell_decode(options.decode_pairs, wrong=options.wrong)
        elif options.power_caps is not None:
            tell_caps(options.power_caps, wrong=options.wrong)
        elif options.labelled is not None:
            view = f"labelled series of {clean(options.labelled)}"
            _tell({view: score_of(judged(options.labelled, options.rules))}, wrong=options.wrong)
        elif options.explain is not None:
            _explain(options.explain)
        else:
            _evaluate(options)
    except SkuwiseError as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return error.exit_status
    return EXIT_DONE


def _evaluate(options: argparse.Namespace) -> None:
    """Every source in its turn, and what confidence was worth on each."""
    every: dict[str, Part] = {}
    if not options.no_real:
        every |= _real(options.rules, wrong=options.wrong)
    backtest = Backtest()
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for name, module in generators().items():
            seeds = _seeds(options.third_seeds if name == "third generator" else options.seeds)
            views = _views(_progress(pool.imap_unordered(module.one_seed, seeds), f"fleets, {name}"))
            own = {f"{name}, {view}": score for view, score in views.items()}
            _tell(own, wrong=options.wrong, say=getattr(module, "told", told))
            every |= own
        first: dict[str, Score] = {}
        for whole, part in _progress(pool.imap_unordered(two_weeks, _seeds(options.weeks)), "fleets of two weeks"):
            first.setdefault("first simulator, 14 days at 1 s", Score()).add(whole)
            backtest.add(part)
    if any(RECORDINGS.glob("*.jsonl.gz")):
        first["recordings"] = score_of(judged(RECORDINGS))
    _tell(first, wrong=options.wrong)
    every |= first
    if backtest.fleets:
        print("\n".join(backtest.told()))
    tell_moves(wrong=options.wrong)
    tell_decode(wrong=options.wrong)
    tell_caps(wrong=options.wrong)
    answers = {name: score.kinds for name, score in every.items()}
    print("\n".join(sources.table(answers)))
    if options.answers is not None:
        sources.keep(answers, options.answers)


def _real(rules: Path | None, *, wrong: bool) -> dict[str, Score]:
    """The real series, told; returned is what is a source of its own: the part that nothing was fitted on."""
    scores = real.parts(real.judge_real(rules))
    print("\n".join(real.table(scores)))
    if wrong:
        print("\n".join(scores[real.ALL].wrong))
    return {f"real series, {real.JUDGED}": scores[real.JUDGED]}


def _views(parts: Iterable[Mapping[str, Part]]) -> dict[str, Part]:
    total: dict[str, Part] = {}
    for views in parts:
        for view, part in views.items():
            total.setdefault(view, type(part)()).add(part)
    return total


def _explain(count: int) -> None:
    """Workloads of the real series that nothing was fitted on, and of a development fleet of the newest generator."""
    found = real.cases(real.judge_real())
    found += next((module.cases(EXPLAINED_SEED) for module in generators().values() if hasattr(module, "cases")), [])
    print("\n".join(explained.told(explained.chosen(found, count))))


def _seeds(text: str) -> list[int]:
    return [] if text == "none" else parse_seeds(text)


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
