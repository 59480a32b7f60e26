"""Scores of verdicts against labels: F1, abstention, calibration, and what a count of errors proves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scipy.stats import beta
from skuwise.advisor.core.verdict_types import WorkloadVerdict

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


def recall_by_label(answers: Sequence[Answer]) -> dict[str, float]:
    """The share of each label of truth that was said."""
    total = Counter(a.truth for a in answers)
    right = Counter(a.truth for a in answers if a.truth == a.verdict)
    return {label: right[label] / n for label, n in sorted(total.items())}


def balanced_accuracy(answers: Sequence[Answer]) -> float:
    """The mean of recall over the labels that occur in truth; abstentions are misses."""
    recalls = recall_by_label(answers)
    return sum(recalls.values()) / len(recalls) if recalls else 0.0


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


def util_kind(features: Mapping[str, float]) -> str:
    """The baseline of dashboards: busy is training, idle is idle, the rest serves."""
    util = features.get("engine_active", 0.0)
    return "idle" if util < 0.05 else "training" if util >= 0.8 else "online-inference"


def util_limit(features: Mapping[str, float]) -> str:
    """The baseline of dashboards: a busy GPU is compute-bound, a less busy one waits for its host."""
    util = features.get("engine_active", 0.0)
    return "idle" if util < 0.05 else "compute" if util >= 0.8 else "host-input"


@dataclass
class Score:
    """What was said, under one view of one fleet or of several."""

    kinds: list[Answer] = field(default_factory=list)
    limits: list[Answer] = field(default_factory=list)
    util_kinds: list[Answer] = field(default_factory=list)
    util_limits: list[Answer] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def count(self, kind: str, bottleneck: str | None, found: WorkloadVerdict | None, about: str) -> None:
        """One verdict beside its label; what was not seen at all counts as an abstention. `bottleneck` None: it has
        no one answer and is not scored. `about` names the workload where the verdict is wrong."""
        said, limit = (found.kind.label, found.bottleneck.label) if found else (ABSTAINED, ABSTAINED)
        features = found.features if found else {}
        self.kinds.append(Answer(kind, said, found.kind.confidence if found else 0.0))
        self.util_kinds.append(Answer(kind, util_kind(features), 1.0))
        if bottleneck is not None:
            self.limits.append(Answer(bottleneck, limit, found.bottleneck.confidence if found else 0.0))
            self.util_limits.append(Answer(bottleneck, util_limit(features), 1.0))
        if said != kind or (bottleneck is not None and limit != bottleneck):
            shown = {name: round(value, 2) for name, value in features.items()}
            shares = dict(found.bottleneck.time_shares) if found else {}
            others = [(a.label, a.confidence) for a in found.kind.alternatives] if found else []
            self.wrong.append(
                f"{about} {found.gpu_sku if found else 'not seen'}: {kind}/{bottleneck} judged {said} {others} / "
                f"{limit} {shares}\n    {shown}"
            )

    def add(self, other: Score) -> None:
        for name in ("kinds", "limits", "util_kinds", "util_limits", "wrong"):
            getattr(self, name).extend(getattr(other, name))


def rate(errors: int, n: int, what: str) -> str:
    """A count of errors with what it proves."""
    return f"{errors} {what} of {n} (95 % upper bound {upper_bound(errors, n):.1%})"


def told(view: str, s: Score) -> Iterable[str]:
    """The figures of one view."""
    yield f"\n== {view}: {len(s.kinds)} workloads"
    for what, answers, util in (("kind", s.kinds, s.util_kinds), ("bottleneck", s.limits, s.util_limits)):
        named = given(answers)
        yield (
            f"{what}: macro-F1 {macro_f1(answers):.3f}, right {accuracy(answers):.1%} of {len(answers)}, abstained "
            f"{abstention(answers):.1%}; of the verdicts given macro-F1 {macro_f1(named):.3f}, right "
            f"{accuracy(named):.1%}; GPU-Util thresholds: macro-F1 {macro_f1(util):.3f}, right {accuracy(util):.1%}"
        )
        yield "  F1 " + ", ".join(f"{label} {value:.2f}" for label, value in f1_by_label(answers).items())
        yield confusion(answers)
    yield f"calibration of kinds (expected error {calibration_error(s.kinds):.3f}):"
    for low, high, n, said, right in calibration(s.kinds):
        yield f"  confidence {low:.2f} to {min(high, 1.0):.2f}: n {n}, said {said:.2f}, right {right:.2f}"
