"""Scores of verdicts against labels: right, abstained, wrong, F1, calibration."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

ABSTAINED = "unknown"
# By confidence; what is below a half is not said.
BANDS = (0.0, 0.6, 0.7, 0.8, 0.9, 0.97, 1.0001)


@dataclass(frozen=True, slots=True)
class Answer:
    """One verdict beside its label. `confidence`: 0..1, of the label given. `accept`: what counts as right beside
    `truth`. `owner`: whose work it is. `gpus`: how many it held. `baseline`: what thresholds on GPU use say. `about`:
    names it where the verdict is wrong."""

    truth: str
    verdict: str
    confidence: float
    accept: tuple[str, ...] = ()
    owner: str = ""
    gpus: int = 1
    baseline: str = ABSTAINED
    about: str = ""

    @property
    def is_right(self) -> bool:
        return self.verdict == self.truth or self.verdict in self.accept

    @property
    def is_wrong(self) -> bool:
        """Wrong, and not an abstention."""
        return not self.is_right and self.verdict != ABSTAINED

    @property
    def said(self) -> str:
        """The verdict as tables of labels count it: what is accepted counts as the truth."""
        return self.truth if self.is_right else self.verdict


@dataclass(frozen=True, slots=True)
class Band:
    """The verdicts given with a confidence from `low` to below `high`: how many, their mean confidence, and the share
    of them that is right."""

    low: float
    high: float
    count: int
    said: float
    right: float

    @property
    def error(self) -> float:
        """How far what is said lies above what is right; negative: below it."""
        return self.said - self.right


def f1_by_label(answers: Sequence[Answer]) -> dict[str, float]:
    """F1 of every label that occurs in truth. An abstention is a miss for its truth and false for none."""
    pairs = Counter((a.truth, a.said) for a in answers)
    out = {}
    for label in sorted({a.truth for a in answers}):
        right = pairs[label, label]
        missed = sum(n for (t, v), n in pairs.items() if t == label and v != label)
        false = sum(n for (t, v), n in pairs.items() if v == label and t != label)
        out[label] = 2 * right / (2 * right + missed + false) if right else 0.0
    return out


def macro_f1(answers: Sequence[Answer]) -> float:
    """The mean of F1 over the labels that occur in truth."""
    return mean(f1_by_label(answers).values())


def recall_by_label(answers: Sequence[Answer]) -> dict[str, float]:
    """The share of each label of truth that was said."""
    labels = sorted({a.truth for a in answers})
    return {label: accuracy([a for a in answers if a.truth == label]) for label in labels}


def balanced_accuracy(answers: Sequence[Answer]) -> float:
    """The mean of recall over the labels that occur in truth; abstentions are misses."""
    return mean(recall_by_label(answers).values())


def accuracy(answers: Sequence[Answer]) -> float:
    """Share of verdicts that are right; abstentions are not."""
    return mean(a.is_right for a in answers)


def abstention(answers: Sequence[Answer]) -> float:
    """Share of verdicts that name nothing."""
    return mean(a.verdict == ABSTAINED for a in answers)


def mean(values: Iterable[float]) -> float:
    """The mean, 0 of nothing."""
    distinct = list(values)
    return sum(distinct) / len(distinct) if distinct else 0.0


def given(answers: Iterable[Answer]) -> list[Answer]:
    """The verdicts that name something."""
    return [a for a in answers if a.verdict != ABSTAINED]


def calibration(answers: Sequence[Answer], edges: Sequence[float] = BANDS) -> list[Band]:
    """The verdicts given by their confidence; bands without any left out."""
    out = []
    for low, high in pairwise(edges):
        held = [a for a in given(answers) if low <= a.confidence < high]
        if held:
            out.append(Band(low, min(high, 1.0), len(held), mean(a.confidence for a in held), accuracy(held)))
    return out


def calibration_error(answers: Sequence[Answer]) -> float:
    """Expected calibration error: distance of confidence from being right, weighted by how many verdicts it is of."""
    bands = calibration(answers)
    total = sum(band.count for band in bands)
    return sum(band.count * abs(band.error) for band in bands) / total if total else 0.0


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


def util_kind(features: Mapping[str, float]) -> str:
    """The baseline of dashboards: busy is training, idle is idle, the rest serves."""
    util = features.get("engine_active", 0.0)
    return "idle" if util < 0.05 else "training" if util >= 0.8 else "online-inference"
