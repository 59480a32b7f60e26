"""What changed between two weeks of advice: findings that are new or gone, and recommendations that were done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...core.advice_types import Advice, Finding
from ...core.worth import USD_PER_GPU_HOUR, Worth
from ...ledger.outcomes import MoveOutcome
from ..titles import finding_title, monthly


@dataclass(frozen=True, slots=True)
class WeekChanges:
    """`new`, `resolved`: titles of findings, what costs most first; what costs less than the minimum gain is counted in
    `smaller`. `done`: recommendations that were seen done within the week. `compared`: whether there is a week
    before."""

    compared: bool
    new: tuple[str, ...] = ()
    resolved: tuple[str, ...] = ()
    done: tuple[MoveOutcome, ...] = ()
    smaller: int = 0


def week_changes(advice: Advice, before: Advice | None, outcomes: Sequence[MoveOutcome]) -> WeekChanges:
    """The changes from the week before. `outcomes`: of the same fleet or team."""
    done = tuple(o for o in outcomes if o.done_at is not None and advice.start <= o.done_at < advice.end)
    if before is None:
        return WeekChanges(compared=False, done=done)
    known, now = {f.id for f in before.findings}, {f.id for f in advice.findings}
    new, few = _largest((f for f in advice.findings if f.id not in known), advice)
    gone, fewer = _largest((f for f in before.findings if f.id not in now), before)
    return WeekChanges(True, new, gone, done, few + fewer)


def _largest(findings: Iterable[Finding], advice: Advice) -> tuple[tuple[str, ...], int]:
    """Titles of those that cost at least the minimum gain a month, the dearest first; how many cost less."""
    least = Worth(advice).minimum
    every = sorted(findings, key=lambda f: (-_cost(f, advice), f.id))
    large = [f for f in every if _cost(f, advice) >= least]
    return tuple(finding_title(f, advice) for f in large), len(every) - len(large)


def _cost(f: Finding, advice: Advice) -> float:
    """A month's, in US dollars; where no price is known, by the stand-in that only orders."""
    cost = monthly(f.cost_usd, advice)
    return cost if cost is not None else (monthly(f.gpu_hours, advice) or 0.0) * USD_PER_GPU_HOUR
