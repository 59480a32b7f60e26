"""What is printed of answers to labelled series: right, abstained and wrong, the errors that matter, calibration."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from skuwise.rules.policy.labels import TRAINING_KINDS

from ..scoring import ABSTAINED, Answer, abstention, accuracy, calibration, calibration_error, confusion, mean

SURE = 0.8
SERVICE = "online-inference"
BANDS = (0.0, 0.6, 0.7, 0.8, 0.9, 1.0001)
SMALL_BAND = 8  # fewer verdicts say nothing of a band


@dataclass(frozen=True, slots=True)
class Rate:
    """How many of how many. `share` of none is 0."""

    count: int
    total: int

    @property
    def share(self) -> float:
        return self.count / self.total if self.total else 0.0

    def __str__(self) -> str:
        return f"{self.count} of {self.total} ({self.share:.1%})" if self.total else "none"


def sure(answers: Sequence[Answer]) -> Rate:
    """Of what is said with SURE or more, what is right."""
    said = [a for a in answers if a.verdict != ABSTAINED and a.confidence >= SURE]
    return Rate(sum(a.is_right for a in said), len(said))


def errors_that_matter(answers: Sequence[Answer]) -> dict[str, Rate]:
    """Rates by name, each over the series of which it can be true."""

    def rate(truths: Sequence[str], is_so: Callable[[Answer], bool]) -> Rate:
        kind_answers = [a for a in answers if a.truth in truths]
        return Rate(sum(map(is_so, kind_answers)), len(kind_answers))

    return {
        f"said with {SURE:g} or more, right": sure(answers),
        "training or fine-tuning called online-inference": rate(
            TRAINING_KINDS, lambda a: a.is_wrong and a.verdict == SERVICE
        ),
        "online-inference called idle or interactive": rate(
            (SERVICE,), lambda a: a.is_wrong and a.verdict in ("idle", "interactive")
        ),
        "idle found": rate(("idle",), lambda a: a.verdict == "idle"),
        "batch-inference found": rate(("batch-inference",), lambda a: a.verdict == "batch-inference"),
        "batch-inference right (serving accepted where its label accepts it)": rate(
            ("batch-inference",), lambda a: a.is_right
        ),
    }


def summary(name: str, answers: Sequence[Answer]) -> Iterator[str]:
    """Everything about the kinds of some series."""
    owners: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        owners[answer.owner].append(answer)
    yield f"\n== {name}: {len(answers)} series of {len(owners)} owners"
    yield f"{'':<28} {'n':>4} {'right':>8} {'abstained':>10} {'wrong':>8}   {'right by GPU-use thresholds':>28}"
    parts = {
        "all": answers,
        "one GPU": [a for a in answers if a.gpus == 1],
        "several GPUs": [a for a in answers if a.gpus > 1],
    }
    for part, part_answers in parts.items():
        if part_answers:
            yield _row(part, len(part_answers), [part_answers])
        if part == "all":
            yield _row("all, owners weighted equally", len(owners), list(owners.values()))
    for what, rate in errors_that_matter(answers).items():
        yield f"{what}: {rate}"
    yield confusion(answers)
    yield from reliability(answers)


def _row(name: str, count: int, groups: Sequence[Sequence[Answer]]) -> str:
    """The mean over groups of their shares."""
    right, abstained = mean(map(accuracy, groups)), mean(map(abstention, groups))
    # The same series as thresholds on GPU use judge them.
    plain = mean(accuracy([replace(a, verdict=a.baseline) for a in group]) for group in groups)
    return f"{name:<28} {count:>4} {right:>8.1%} {abstained:>10.1%} {1 - right - abstained:>8.1%}   {plain:>28.1%}"


def reliability(answers: Sequence[Answer]) -> Iterator[str]:
    """Calibration by band of confidence."""
    yield f"calibration (expected error {calibration_error(answers):.3f}):"
    for band in calibration(answers, BANDS):
        yield (
            f"  {max(band.low, 0.5):.2f} to {band.high:.2f}: n {band.count:>3}, said {band.said:.2f}, right "
            f"{band.right:.2f}, error {band.error:+.2f}"
        )


def mistakes(answers: Sequence[Answer]) -> Iterator[str]:
    """Wrong verdicts, the most confident first, then abstentions."""
    for a in sorted(answers, key=lambda a: (a.verdict == ABSTAINED, -a.confidence)):
        if not a.is_right:
            accepted = "|".join(dict.fromkeys((a.truth, *a.accept)))
            yield f"{a.confidence:.2f} {a.verdict}, labelled {accepted}, {a.gpus} GPUs: {a.about}"


def bottlenecks(answers: Sequence[Answer]) -> Iterator[str]:
    """What was said of the series whose bottleneck is known."""
    if answers:
        yield f"bottleneck: right {accuracy(answers):.1%} of {len(answers)}, abstained {abstention(answers):.1%}"
        wrong = Counter((a.truth, a.verdict) for a in answers if not a.is_right)
        yield from (f"  {truth} called {verdict}: {n}" for (truth, verdict), n in sorted(wrong.items()))
