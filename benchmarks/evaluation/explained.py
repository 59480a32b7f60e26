"""Workloads explained one by one: what each was, what was said of it, and why; right ones and wrong ones alike.

python -m skuwise.benchmarks.evaluation.evaluate --explain 10
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from textwrap import fill

from skuwise.advisor.core.verdict_types import WorkloadVerdict
from skuwise.rules.base.sanitize import clean

SENTENCES = 6


@dataclass(frozen=True, slots=True)
class Case:
    """A workload that was judged: its label, what it is in a few words, and its verdict."""

    truth: str
    about: str
    verdict: WorkloadVerdict

    @property
    def right(self) -> bool:
        return self.verdict.kind.label == self.truth


def chosen(cases: Iterable[Case], count: int) -> list[Case]:
    """`count` of them, half right and half wrong where there are so many, across kinds: the same every time.

    The order within a kind is that of a hash of what they are called, so that nobody picks.
    """
    every = list(cases)
    wrong = _across([one for one in every if not one.right])
    right = _across([one for one in every if one.right])
    few = min(len(wrong), count // 2)
    return [*right[: count - few], *wrong[:few]]


def _across(cases: Sequence[Case]) -> list[Case]:
    """One of each kind in turn."""
    seen: dict[str, int] = {}
    turns: list[tuple[int, str, Case]] = []
    for one in sorted(
        cases, key=lambda case: sha256(f"{case.truth} {case.about} {case.verdict.id}".encode()).hexdigest()
    ):
        turns.append((seen.get(one.truth, 0), one.truth, one))
        seen[one.truth] = seen.get(one.truth, 0) + 1
    return [case for _, _, case in sorted(turns, key=lambda turn: turn[:2])]


def told(cases: Sequence[Case]) -> Iterator[str]:
    """What was said of each, with its reasons."""
    yield f"\n== {len(cases)} workloads explained: {sum(one.right for one in cases)} right"
    for number, one in enumerate(cases, 1):
        kind = one.verdict.kind
        others = ", ".join(f"{other.label} {other.confidence:.2f}" for other in kind.alternatives)
        yield f"\n{number}. {clean(one.about)}"
        right = "right" if one.right else "no verdict" if kind.label == "unknown" else "wrong"
        yield f"   is {one.truth}; called {kind.label}, confidence {kind.confidence:.2f} ({right})"
        if others:
            yield f"   else {others}"
        for reason in kind.evidence[:SENTENCES]:
            yield fill(reason.text, width=116, initial_indent="   - ", subsequent_indent="     ")
