"""The real series of this project (benchmarks/data/real): the part that nothing was fitted on, and all of them.

Beside every figure stands the baseline of dashboards: thresholds on GPU use (`scoring.util_kind`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..scoring import ABSTAINED, Answer, Score, abstention, accuracy, macro_f1, told
from .labelled import Judged, judged, score_of

REAL = Path(__file__).parents[1] / "data/real"
SERVING = "online-inference"
JUDGED, FITTED, ALL = "not fitted on", "fitted on", "all"


def judge_real() -> list[Judged]:
    """Every real series with its verdict."""
    return list(judged(REAL))


def parts(found: Sequence[Judged]) -> dict[str, Score]:
    """Scores of the part for judging, of the part for fitting, and of all."""
    return {
        JUDGED: score_of(one for one in found if one.label.part == "judge"),
        FITTED: score_of(one for one in found if one.label.part != "judge"),
        ALL: score_of(found),
    }


def table(scores: dict[str, Score]) -> Iterator[str]:
    """One line a part, and one for the baseline on it."""
    yield "\n== real series"
    yield (
        f"{'part':<24} {'n':>4} {'right':>7} {'abstained':>10} {'macro-F1':>9}   "
        f"{'serving':>7} {'right':>7} {'called idle':>12} {'interactive':>12}"
    )
    for part, score in scores.items():
        yield _line(part, score.kinds)
        yield _line("  GPU-use thresholds", score.util_kinds)
    for part in (JUDGED, ALL):
        if part in scores:
            yield from told(f"real series, {part}", scores[part])


def _line(what: str, answers: Sequence[Answer]) -> str:
    serving = [one for one in answers if one.truth == SERVING]
    said = {
        label: sum(one.verdict == label for one in serving) for label in (SERVING, "idle", "interactive", ABSTAINED)
    }
    return (
        f"{what:<24} {len(answers):>4} {accuracy(answers):>7.1%} {abstention(answers):>10.1%} "
        f"{macro_f1(answers):>9.3f}   {len(serving):>7} {said[SERVING]:>7} {said['idle']:>12} {said['interactive']:>12}"
    )
