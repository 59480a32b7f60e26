"""Findings with the recommendations that answer them, in the order in which people should read them."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.advice_types import Advice, Finding, Recommendation
from ..core.worth import Worth

_SEVERITY = {"high": 0, "medium": 1, "low": 2}


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """One finding and every recommendation that names it."""

    finding: Finding
    recommendations: tuple[Recommendation, ...]


def cases(advice: Advice) -> tuple[FindingGroup, ...]:
    """Every finding with its recommendations: what is worth most first, then by severity and cost."""
    worth = Worth(advice)
    answers: dict[str, list[Recommendation]] = {}
    for r in advice.recommendations:
        for finding in r.findings:
            answers.setdefault(finding, []).append(r)

    def order(case: FindingGroup) -> tuple[float, int, float, str]:
        f, way = case.finding, best_recommendation(case)
        value = worth.usd(way).p50 if way is not None else 0.0
        return (-value, _SEVERITY[f.severity], -(f.cost_usd or 0.0), f.id)

    every = (FindingGroup(f, worth.ranked(answers.get(f.id, ()))) for f in advice.findings)
    return tuple(sorted(every, key=order))


def without_finding(advice: Advice) -> tuple[Recommendation, ...]:
    """Recommendations that follow from no finding."""
    return tuple(r for r in advice.recommendations if not r.findings)


def _open(r: Recommendation) -> bool:
    return not r.blocked_by and not r.set_aside


def _saves(r: Recommendation) -> bool:
    return _open(r) and r.saving_usd_per_month is not None and r.saving_usd_per_month.p50 > 0


def _frees(r: Recommendation) -> bool:
    return _open(r) and r.freed_gpu_hours_per_month > 0


def _spares(r: Recommendation) -> bool:
    kwh = r.energy_saving_kwh_per_month
    return _open(r) and r.realisation == "energy" and kwh is not None and kwh.p50 > 0


def best_recommendation(case: FindingGroup) -> Recommendation | None:
    """The open recommendation worth most; None: none gains anything now."""
    return next((r for r in case.recommendations if _saves(r) or _frees(r) or _spares(r)), None)


def best(case: FindingGroup) -> str:
    """One sentence: what can be saved."""
    saving = [r for r in case.recommendations if _saves(r)]
    if any(r.realisation == "cash-now" and r.risk in ("very-low", "low") for r in saving):
        return "Recommendations that exclude one another are counted once."
    if saving:
        return "The savings here depend on a later date or carry a higher risk. Test first."
    if any(map(_frees, case.recommendations)):
        return "No cash savings; GPU-hours become available for other work."
    if any(map(_spares, case.recommendations)):
        return "No cash savings; energy can be saved, at the cost in time listed with each recommendation."
    if case.recommendations and all(r.blocked_by for r in case.recommendations):
        return "No savings now: every recommendation is blocked. The reasons are listed with each."
    return "No savings now."
