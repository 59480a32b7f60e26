"""Phases in words: what a workload does when, however often it changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core import formatting as words
from ..core.coded_text import CodedText
from ..core.timestamps import minute, span
from ..core.verdict_types import Phase, WorkloadVerdict
from .document import Table

_NEWEST = 14  # phases listed one by one


@dataclass(frozen=True, slots=True)
class Habit:
    """All phases of one kind and one bottleneck. `hours`: their sum; `share`: of the time of all phases."""

    kind: str
    bottleneck: str
    times: int
    hours: float
    share: float
    last: Phase
    evidence: tuple[CodedText, ...]

    @property
    def times_words(self) -> str:
        mean = span(self.hours * 3600 / self.times)
        return f"once for {mean}" if self.times == 1 else f"{self.times} times for {mean}"


def habits(phases: Sequence[Phase]) -> tuple[Habit, ...]:
    """The phases by what they do, the longest first."""
    groups: dict[tuple[str, str, tuple[CodedText, ...]], list[Phase]] = {}
    for phase in phases:
        groups.setdefault((phase.kind, phase.bottleneck, phase.evidence), []).append(phase)
    total = sum(phase.end - phase.start for phase in phases) or 1.0
    sums = {key: sum(p.end - p.start for p in same) for key, same in groups.items()}
    ordered = sorted(groups.items(), key=lambda group: -sums[group[0]])
    return tuple(
        Habit(*key[:2], len(same), sums[key] / 3600, sums[key] / total, max(same, key=lambda p: p.end), key[2])
        for key, same in ordered
    )


def phase_table(phases: Sequence[Phase]) -> Table:
    """What recurs, with its share of the time; where nothing recurs each phase, the newest ones."""
    recurring = habits(phases)
    if len(recurring) < len(phases):
        rows = tuple(
            (h.kind, h.bottleneck, words.percent(h.share), h.times_words, minute(h.last.start)) for h in recurring
        )
        return Table(("kind", "bottleneck", "share of the time", "times", "last start"), rows, (2,))
    rows = tuple((minute(p.start), minute(p.end), p.kind, p.bottleneck) for p in phases[-_NEWEST:])
    more = len(phases) - len(rows)
    return Table(
        ("from", "to", "kind", "bottleneck"), rows, (), f"and {more} before: --format json lists them." if more else ""
    )


def phase_reasons(phases: Sequence[Phase]) -> list[str]:
    """A sentence for each activity, with its evidence."""
    return [f"{h.kind}, {h.bottleneck}: {' '.join(map(str, h.evidence))}" for h in habits(phases) if h.evidence]


def phase_sentence(workload: WorkloadVerdict) -> str | None:
    """One sentence on a workload whose activity changes; None: it does not."""
    if len(workload.phases) < 2:
        return None
    parts = ", ".join(
        f"{h.kind} ({h.bottleneck}) in {words.percent(h.share)} of the time, {h.times_words}"
        + (f", since {minute(h.last.start)}" if h.times == 1 and h.last is workload.phases[-1] else "")
        for h in habits(workload.phases)
    )
    return f"{workload.name} changes what it does: {parts}."
