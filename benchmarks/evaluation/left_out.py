"""How often kinds are right on real series of owners that the model has not met: leave one owner out.

    python -m skuwise.benchmarks.evaluation.left_out [--wrong]

The shipped model is fitted on all owners of the table, so that judging their series with it proves nothing. Here it is
fitted once without each owner, and the product's own judge says the kind of what was left out.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from skuwise.advisor.classify.kinds.kinds import judge_kind
from skuwise.advisor.core.verdict_types import KindVerdict
from skuwise.rules.models import KindModel
from skuwise.rules.policy.thresholds import load_levels

from ..fit.real_series import Row, read_rows
from ..fit.train_kinds import fit_rows
from ..scoring import Answer, abstention, accuracy, calibration, util_kind
from . import report

Model = TypeVar("Model")
Fit = Callable[[Sequence[Row]], Model]
Judge = Callable[[Mapping[str, float], Model], KindVerdict]
FIGURES = Path(__file__).with_name("left_out.json")


def leave_owners_out(rows: Sequence[Row], fit: Fit[Model], judge: Judge[Model]) -> Iterator[tuple[Row, Answer]]:
    """Every row, judged by what was fitted on the rows of all other owners."""
    for owner in dict.fromkeys(row.owner for row in rows):
        model = fit([row for row in rows if row.owner != owner])
        for row in rows:
            if row.owner == owner:
                yield row, _answer(row, judge(row.features, model))


def _answer(row: Row, verdict: KindVerdict) -> Answer:
    features = {name: round(value, 3) for name, value in row.features.items()}
    others = [(a.label, a.confidence) for a in verdict.alternatives]
    return Answer(
        truth=row.kind, verdict=verdict.label, confidence=verdict.confidence, accept=row.kinds, owner=row.owner,
        gpus=row.gpus, baseline=util_kind(row.features),
        about=f"{row.owner} {row.file} ({row.window}); alternatives {others}\n    {features}",
    )  # fmt: skip


def judge_features(features: Mapping[str, float], model: KindModel) -> KindVerdict:
    """The kind that the product finds without names."""
    return judge_kind((), features, load_levels("kinds.yaml"), model)


def figures(answers: Sequence[Answer]) -> dict[str, float]:
    """Shares of all answers, and the largest distance of a band of confidence from being right."""
    bands = [band for band in calibration(answers, report.BANDS) if band.count >= report.SMALL_BAND]
    rates = report.errors_that_matter(answers)
    return {
        "right": accuracy(answers),
        "wrong": 1 - accuracy(answers) - abstention(answers),
        "sure_right": report.sure(answers).share,
        "training_called_service": rates["training or fine-tuning called online-inference"].share,
        "idle_found": rates["idle found"].share,
        "calibration_error_max": max((abs(band.error) for band in bands), default=0.0),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wrong", action="store_true", help="print every mistake, the most confident first")
    parser.add_argument("--write-figures", action="store_true", help=f"write what the gate holds: {FIGURES.name}")
    options = parser.parse_args(argv)
    tell(wrong=options.wrong, write=options.write_figures)
    return 0


def tell(*, wrong: bool = False, write: bool = False) -> None:
    """Print the report of every collection, of every window, and of all."""
    judged = list(leave_owners_out(read_rows(), fit_rows, judge_features))
    for part in (lambda row: row.set, lambda row: row.window):
        for name in dict.fromkeys(part(row) for row, _ in judged):
            part_answers = [answer for row, answer in judged if part(row) == name]
            print("\n".join(report.summary(f"real series, one owner left out, {name}", part_answers)))
    answers = [answer for _, answer in judged]
    if wrong:
        print("\n".join(report.mistakes(answers)))
    if write:
        FIGURES.write_text(json.dumps(figures_by_window(judged), indent=1) + "\n")


def figures_by_window(judged: Sequence[tuple[Row, Answer]]) -> dict[str, dict[str, float]]:
    """What the gate of the tests holds."""
    windows = dict.fromkeys(row.window for row, _ in judged)
    return {
        window: {k: round(v, 4) for k, v in figures([answer for row, answer in judged if row.window == window]).items()}
        for window in windows
    }


if __name__ == "__main__":
    sys.exit(main())
