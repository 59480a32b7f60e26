"""What changed between two weeks of advice: findings that are new or gone, and recommendations that were done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...core.advice_types import Advice, Finding
from ...core.worth import USD_PER_GPU_HOUR, Worth
from ...ledger.outcomes import MoveOutcome
from ..titles import Titles, finding_title, monthly


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


# A finding of the same rule on the same workload or node, whichever of its runs it names.
_Key = tuple[str, str]


def week_changes(advice: Advice, before: Advice | None, outcomes: Sequence[MoveOutcome]) -> WeekChanges:
    """The changes from the week before. `outcomes`: of the same fleet or team."""
    done = tuple(o for o in outcomes if o.done_at is not None and advice.start <= o.done_at < advice.end)
    if before is None:
        return WeekChanges(compared=False, done=done)
    now, known = _together(advice), _together(before)
    new, few = _largest([f for key, f in now.items() if key not in known], advice)
    gone, fewer = _largest([f for key, f in known.items() if key not in now], before)
    return WeekChanges(True, new, gone, done, few + fewer)


def _together(advice: Advice) -> dict[_Key, Finding]:
    """The findings of an advice, those of one resource and rule as one, with their costs summed."""
    titles = Titles(advice)
    found: dict[_Key, Finding] = {}
    for f in advice.findings:
        key = (f.rule, titles.resource(f))
        same = found.get(key)
        if same is not None:
            costs = [cost for cost in (same.cost_usd, f.cost_usd) if cost is not None]
            f = replace(same, cost_usd=sum(costs) if costs else None, gpu_hours=same.gpu_hours + f.gpu_hours)  # noqa: PLW2901
        found[key] = f
    return found


def _largest(findings: Sequence[Finding], advice: Advice) -> tuple[tuple[str, ...], int]:
    """Titles of those that cost at least the minimum gain a month, the dearest first; how many cost less."""
    least = Worth(advice).minimum
    every = sorted(findings, key=lambda f: (-_cost(f, advice), f.id))
    large = [f for f in every if _cost(f, advice) >= least]
    return tuple(finding_title(f, advice) for f in large), len(every) - len(large)


def _cost(f: Finding, advice: Advice) -> float:
    """A month's, in US dollars: nothing for a finding that costs none among those that do. Where no price is known, by
    the stand-in that only orders."""
    if advice.summary.cost_usd is not None:
        return monthly(f.cost_usd, advice) or 0.0
    return (monthly(f.gpu_hours, advice) or 0.0) * USD_PER_GPU_HOUR
