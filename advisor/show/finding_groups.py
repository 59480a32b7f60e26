"""Findings with the recommendations that answer them, in reading order."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.advice_types import Advice, Finding, Recommendation
from ..core.worth import Worth

_SEVERITY = {"high": 0, "medium": 1, "low": 2}


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """A finding and the recommendations that name it, by rank. `best`: the first one that gains something now, or
    None."""

    finding: Finding
    recommendations: tuple[Recommendation, ...]
    best: Recommendation | None

    @property
    def order(self) -> tuple[object, ...]:
        f, best = self.finding, self.best
        return (best is None, best.rank if best else (), _SEVERITY[f.severity], -(f.cost_usd or 0.0), f.id)


def cases(advice: Advice) -> tuple[FindingGroup, ...]:
    """Every finding with its recommendations, by the rank of these, then by severity and cost."""
    worth = Worth(advice)
    answers: dict[str, list[Recommendation]] = {f.id: [] for f in advice.findings}
    for r in sorted(advice.recommendations, key=lambda r: r.rank):
        for finding in r.findings:
            answers.setdefault(finding, []).append(r)
    groups = []
    for f in advice.findings:
        gains = (r for r in answers[f.id] if not r.blocked_by and not r.set_aside and worth.usd(r).p50 > 0)
        groups.append(FindingGroup(f, tuple(answers[f.id]), next(gains, None)))
    return tuple(sorted(groups, key=lambda group: group.order))
