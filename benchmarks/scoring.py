"""Scores of verdicts against labels: F1, abstention, calibration, and what a count of errors proves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import beta

ABSTAINED = "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """One verdict beside its label. `confidence`: 0..1, of the label given."""

    truth: str
    verdict: str
    confidence: float


def f1_by_label(answers: Sequence[Answer]) -> dict[str, float]:
    """F1 of every label that occurs in truth. An abstention is a miss for its truth and false for nobody."""
    pairs = Counter((a.truth, a.verdict) for a in answers)
    out = {}
    for label in sorted({a.truth for a in answers}):
        right = pairs[label, label]
        missed = sum(n for (t, v), n in pairs.items() if t == label and v != label)
        false = sum(n for (t, v), n in pairs.items() if v == label and t != label)
        out[label] = 2 * right / (2 * right + missed + false) if right else 0.0
    return out


def macro_f1(answers: Sequence[Answer]) -> float:
    """The mean of F1 over the labels that occur in truth."""
    scores = f1_by_label(answers)
    return sum(scores.values()) / len(scores) if scores else 0.0


def accuracy(answers: Sequence[Answer]) -> float:
    """Share of verdicts that are right; abstentions are not."""
    return sum(a.truth == a.verdict for a in answers) / len(answers) if answers else 0.0


def abstention(answers: Sequence[Answer]) -> float:
    """Share of verdicts that name nothing."""
    return sum(a.verdict == ABSTAINED for a in answers) / len(answers) if answers else 0.0


def given(answers: Iterable[Answer]) -> list[Answer]:
    """The verdicts that name something."""
    return [a for a in answers if a.verdict != ABSTAINED]


def calibration(answers: Sequence[Answer], edges: Sequence[float] = (0.6, 0.7, 0.8, 0.9, 0.97, 1.0001)) -> list[
    tuple[float, float, int, float, float]
]:  # fmt: skip
    """(from, to, n, mean confidence, share right) of the verdicts given, by confidence; bins without any left out."""
    out = []
    named = given(answers)
    for low, high in zip((0.0, *edges[:-1]), edges, strict=True):
        held = [a for a in named if low <= a.confidence < high]
        if held:
            out.append((low, high, len(held), sum(a.confidence for a in held) / len(held), accuracy(held)))
    return out


def calibration_error(answers: Sequence[Answer]) -> float:
    """Expected calibration error: distance of confidence from being right, weighted by how many verdicts it is of."""
    rows = calibration(answers)
    total = sum(n for _, _, n, _, _ in rows)
    return sum(n * abs(said - right) for _, _, n, said, right in rows) / total if total else 0.0


def upper_bound(errors: int, n: int, confidence: float = 0.95) -> float:
    """The highest rate that so few errors in `n` cannot exclude (one-sided Clopper-Pearson); 1 where n is 0."""
    return 1.0 if errors >= n else float(beta.ppf(confidence, errors + 1, n - errors))


def confusion(answers: Sequence[Answer]) -> str:
    """A table: truth down, verdict across, a dot for none."""
    pairs: Mapping[tuple[str, str], int] = Counter((a.truth, a.verdict) for a in answers)
    truths, verdicts = sorted({a.truth for a in answers}), sorted({a.verdict for a in answers})
    first = max((len(t) for t in truths), default=0) + 1
    lines = [" " * first + " ".join(f"{v:>{max(len(v), 5)}}" for v in verdicts)]
    for truth in truths:
        cells = (f"{pairs.get((truth, v), 0) or '.':>{max(len(v), 5)}}" for v in verdicts)
        lines.append(f"{truth:<{first}}" + " ".join(cells))
    return "\n".join(lines)
