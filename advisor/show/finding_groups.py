"""Findings with the recommendations that answer them, in the order in which people should read them."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.advice_types import Advice, Finding, Recommendation
from ..core.worth import Worth

_SEVERITY = {"high": 0, "medium": 1, "low": 2}


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """One finding and every recommendation that names it, by rank. `best`: the first that gains something now; None:
    none does."""

    finding: Finding
    recommendations: tuple[Recommendation, ...]
    best: Recommendation | None


def cases(advice: Advice) -> tuple[FindingGroup, ...]:
    """Every finding with its recommendations, in the order of these; then by severity and cost."""
    worth = Worth(advice)
    answers: dict[str, list[Recommendation]] = {}
    for r in sorted(advice.recommendations, key=lambda r: r.rank):
        for finding in r.findings:
            answers.setdefault(finding, []).append(r)

    def case(f: Finding) -> FindingGroup:
        answer = answers.get(f.id, ())
        gains = (r for r in answer if not r.blocked_by and not r.set_aside and worth.usd(r).p50 > 0)
        return FindingGroup(f, tuple(answer), next(gains, None))

    def order(case: FindingGroup) -> tuple[object, ...]:
        f, best = case.finding, case.best
        return (best is None, best.rank if best else (), _SEVERITY[f.severity], -(f.cost_usd or 0.0), f.id)

    return tuple(sorted(map(case, advice.findings), key=order))
