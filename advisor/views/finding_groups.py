"""Findings gathered with the ways out of them, in the order in which people should read them."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.advice_types import Advice, Finding, Recommendation

_SEVERITY = {"high": 0, "medium": 1, "low": 2}


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """One finding and every way out that names it."""

    finding: Finding
    ways_out: tuple[Recommendation, ...]


def cases(advice: Advice) -> tuple[FindingGroup, ...]:
    """Every finding with its ways out: what saves most first, then by severity and cost."""
    every = (FindingGroup(f, tuple(r for r in advice.recommendations if f.id in r.findings)) for f in advice.findings)

    def order(case: FindingGroup) -> tuple[float, int, float, str]:
        f, way = case.finding, best_recommendation(case)
        saving = way.saving_usd_per_month.p50 if way is not None and way.saving_usd_per_month is not None else 0.0
        return (-saving, _SEVERITY[f.severity], -(f.cost_usd or 0.0), f.id)

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
    """The first way out that is open and gains something, as they are ranked; None: nothing gains today."""
    return next((r for r in case.ways_out if _saves(r) or _frees(r) or _spares(r)), None)


def best(case: FindingGroup) -> str:
    """One sentence: what the case comes to."""
    saving = [r for r in case.ways_out if _saves(r)]
    if any(r.realisation == "cash-now" and r.risk in ("very-low", "low") for r in saving):
        return "Best way out listed first; savings of ways that exclude one another are counted once."
    if saving:
        return "What would save cash here is tied to a later date or too risky to recommend: try it first."
    if any(map(_frees, case.ways_out)):
        return "Nothing here saves cash; GPU-hours can be freed for other work."
    if any(map(_spares, case.ways_out)):
        return "Nothing here saves cash; energy can be saved, at a cost in time that each option names."
    if case.ways_out and all(r.blocked_by for r in case.ways_out):
        return "Nothing saves here today: every option is blocked, and the reasons stand with each."
    return "Nothing saves here today. Leave it as it is, or act when what is named below changes."
