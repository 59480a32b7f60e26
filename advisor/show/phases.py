"""Phases as a person reads them: what a workload does when, however often it turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core import formatting as words
from ..core.coded_text import CodedText
from ..core.timestamps import minute, span
from ..core.verdict_types import Phase, WorkloadVerdict


@dataclass(frozen=True, slots=True)
class Habit:
    """All phases of one kind and one bottleneck. `hours`: of all of them; `share`: of the time of all phases."""

    kind: str
    bottleneck: str
    times: int
    hours: float
    share: float
    last: Phase
    evidence: tuple[CodedText, ...]


def habits(phases: Sequence[Phase]) -> tuple[Habit, ...]:
    """The phases gathered by what they do, the longest first."""
    together: dict[tuple[str, str, tuple[CodedText, ...]], list[Phase]] = {}
    for phase in phases:
        together.setdefault((phase.kind, phase.bottleneck, phase.evidence), []).append(phase)
    total = sum(phase.end - phase.start for phase in phases) or 1.0
    found = [
        Habit(
            kind, bottleneck, len(same), sum(p.end - p.start for p in same) / 3600,
            sum(p.end - p.start for p in same) / total, max(same, key=lambda p: p.end), evidence,
        )
        for (kind, bottleneck, evidence), same in together.items()
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda habit: -habit.hours))


def phase_rows(phases: Sequence[Phase]) -> list[tuple[str, ...]]:
    """Rows for a table: kind, limit, share of the time, how often and how long, when last; none if nothing recurs."""
    told = habits(phases)
    if len(told) == len(phases):
        return []
    return [
        (h.kind, h.bottleneck, words.percent(h.share), _times(h), minute(h.last.start))
        for h in told
    ]  # fmt: skip


def phase_reasons(phases: Sequence[Phase]) -> list[str]:
    """A sentence for each thing it does, with what tells it from the others."""
    return [f"{h.kind}, {h.bottleneck}: {' '.join(map(str, h.evidence))}" for h in habits(phases) if h.evidence]


def phase_sentence(workload: WorkloadVerdict) -> str | None:
    """One sentence on a workload that changes what it does; None: it does not."""
    if len(workload.phases) < 2:
        return None
    told = ", ".join(
        f"{h.kind} ({h.bottleneck}) in {words.percent(h.share)} of the time, {_times(h)}"
        + (f", since {minute(h.last.start)}" if h.times == 1 and h.last is workload.phases[-1] else "")
        for h in habits(workload.phases)
    )
    return f"{workload.name} changes what it does: {told}."


def _times(habit: Habit) -> str:
    mean = span(habit.hours * 3600 / habit.times)
    return f"once for {mean}" if habit.times == 1 else f"{habit.times} times for {mean}"
