"""How often verdicts are right, on fleets that no rule was made from: `make evaluate`.

    python -m skuwise.benchmarks.evaluation.evaluate --seeds 0-14           the second generator, reported seeds
    python -m skuwise.benchmarks.evaluation.evaluate --seeds 1000-1004 --wrong  what is wrong, on seeds for development
    python -m skuwise.benchmarks.evaluation.evaluate --labelled DIR  real labelled series (the format: docs/method.md)
    python -m skuwise.benchmarks.evaluation.evaluate --seeds none --weeks 0-3
        the first simulator and the backtest alone
    python -m skuwise.benchmarks.evaluation.evaluate --pairs FILE
        predicted moves on a table of published pairs (docs/moves.md)

Seeds below 1000 are for reporting and are never looked at one by one. Each fleet of the second generator is judged at
1 s and from means of a minute, with names and with everything that people wrote taken away; an abstention counts as
wrong. Beside it stand two baselines on GPU-Util, kinds as they would have been named after the first day, the first
simulator's fleets of two weeks with a backtest (`backtest.py`), and the recordings of tests/data/recordings.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from skuwise.advisor.advise import load_rulebook
from skuwise.advisor.core.frame import Frame, Window
from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.advisor.pipeline import AdviseOptions, advise_on
from skuwise.advisor.telemetry.sqlite.reader import read_frame
from skuwise.advisor.verdicts.judge import judge
from skuwise.rules.base.errors import EXIT_DONE, SkuwiseError
from skuwise.rules.base.sanitize import clean

from ..generators.second.fleet import Truth, build
from ..generators.second.write_db import write
from ..scoring import Answer, Score, told
from ..withheld import hidden
from .accuracy import parse_seeds
from .backtest import Backtest, two_weeks
from .labelled import evaluate_folder
from .moves import tell as tell_moves

T = TypeVar("T")
RECORDINGS = Path(__file__).parents[2] / "tests/data/recordings"

END = 1_790_000_000.0 - 1_790_000_000.0 % 3600  # a fixed moment (2026-09-21): the same fleets every time
BOOK = load_rulebook(None, None, END)
RESOLUTIONS = (1, 60)


def score(frame: Frame, truths: Iterable[Truth], seed: int, view: str) -> Score:
    """Judge a frame and hold it against its labels."""
    judged = judge(frame, BOOK)
    advice = advise_on(judged, BOOK, AdviseOptions(END), np.random.default_rng(seed), source={})
    silent = [f for f in advice.findings if f.rule == "idle-fabric"]
    nodes = {name for f in silent for name in (*f.nodes, f.node)}
    by_id = {w.id: w for w in judged.workloads}
    out = Score()
    for truth in truths:
        found = by_id.get(truth.workload_id)
        _one(out, truth, found, nodes, f"{seed} {view}")
    return out


def _one(out: Score, truth: Truth, found: WorkloadVerdict | None, silent: set[str | None], where: str) -> None:
    out.count(truth.kind, truth.bottleneck, found, f"{where} {truth.archetype}")
    if truth.light:
        out.light += 1
        out.light_idle += found is not None and found.kind.label == "idle"
    if truth.fabric_waste is not None:
        flagged = found is not None and bool(silent.intersection(found.nodes))
        out.fabric["right"] += truth.fabric_waste and flagged
        out.fabric["missed"] += truth.fabric_waste and not flagged
        out.fabric["false"] += not truth.fabric_waste and flagged
        out.fabric["negatives"] += not truth.fabric_waste


def one_seed(seed: int) -> dict[str, Score]:
    """Every view of one fleet of the second generator."""
    fleet = build(seed, start=END - 48 * 3600)
    views: dict[str, Score] = {}
    with tempfile.TemporaryDirectory() as name:
        folders = {resolution: Path(name) / f"{resolution}s" for resolution in RESOLUTIONS}
        for folder in folders.values():
            folder.mkdir()
        write(fleet, folders, seed)
        for resolution, folder in folders.items():
            frame = read_frame([folder])
            views[f"{resolution} s"] = score(frame, fleet.truths, seed, f"{resolution} s")
            views[f"{resolution} s, names hidden"] = score(hidden(frame), fleet.truths, seed, f"{resolution} s hidden")
        views["1 s"].early = _after_a_day(folders[1], fleet.truths)
    return views


def _after_a_day(folder: Path, truths: Iterable[Truth]) -> list[Answer]:
    """Kinds as they would have been named after the first day, beside the truth of both."""
    day = read_frame([folder], Window(END - 48 * 3600, END - 24 * 3600))
    said = {w.id: w.kind for w in judge(day, BOOK).workloads}
    return [
        Answer(t.kind, said[t.workload_id].label, said[t.workload_id].confidence)
        for t in truths
        if t.workload_id in said
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0-14", help="of the second generator; none for none (default: 0-14)")
    parser.add_argument("--weeks", default="none", metavar="SEEDS", help="of the first simulator, two weeks each")
    parser.add_argument("--labelled", type=Path, metavar="DIR", help="judge this folder's series, and nothing else")
    parser.add_argument("--pairs", type=Path, metavar="FILE", help="judge moves on this table, and nothing else")
    parser.add_argument("--wrong", action="store_true", help="print every workload that is judged wrong")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(argv)
    try:
        if options.pairs is not None:
            tell_moves(options.pairs, wrong=options.wrong)
            return EXIT_DONE
        if options.labelled is not None:
            _tell({f"labelled series of {clean(options.labelled)}": _folder(options.labelled)}, wrong=options.wrong)
            return EXIT_DONE
        total: dict[str, Score] = {}
        backtest = Backtest()
        with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
            for views in _progress(
                pool.imap_unordered(one_seed, _seeds(options.seeds)), "fleets of the second generator"
            ):
                for view, part in views.items():
                    total.setdefault(view, Score()).add(part)
            weeks = pool.imap_unordered(two_weeks, _seeds(options.weeks))
            for whole, part in _progress(weeks, "fleets of two weeks"):
                total.setdefault("first simulator, 14 days at 1 s", Score()).add(whole)
                backtest.add(part)
        if any(RECORDINGS.glob("*.jsonl.gz")):
            total["recordings"] = _folder(RECORDINGS)
        _tell(total, wrong=options.wrong)
        if backtest.fleets:
            print("\n".join(backtest.told()))
        tell_moves(wrong=options.wrong)
        return EXIT_DONE
    except SkuwiseError as error:
        print(f"evaluate: {error}", file=sys.stderr)
        return error.exit_status


def _seeds(text: str) -> list[int]:
    return [] if text == "none" else parse_seeds(text)


def _progress(parts: Iterable[T], what: str) -> Iterator[T]:
    for number, part in enumerate(parts, 1):
        print(f"{number} {what} judged", file=sys.stderr, flush=True)
        yield part


def _folder(folder: Path) -> Score:
    with tempfile.TemporaryDirectory() as scratch:
        return evaluate_folder(folder, Path(scratch))


def _tell(views: Mapping[str, Score], *, wrong: bool) -> None:
    for view, result in views.items():
        print("\n".join(told(view, result)))
        if wrong:
            print("\n".join(result.wrong))


if __name__ == "__main__":
    sys.exit(main())
