"""The recommendations as rows of a table: which are shown, which are folded away, and what a row is called."""

from __future__ import annotations

from dataclasses import dataclass

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import Advice, Recommendation
from ...advisor.core.ids import short_ids
from ...advisor.views.move_words import action_words

NO_GAIN, BLOCKED, SET_ASIDE = "no gain", "blocked", "set aside"


@dataclass(frozen=True, slots=True)
class RecommendationRow:
    """`title`: an action with its object; `id`: short; `folded`: why it is not shown at first, None: it is."""

    recommendation: Recommendation
    title: str
    id: str
    folded: str | None


def recommendation_rows(advice: Advice) -> tuple[RecommendationRow, ...]:
    """Every recommendation, as it is ranked."""
    names = short_ids(r.id for r in advice.recommendations)
    return tuple(
        RecommendationRow(r, title(advice, r), names[r.id], _folded(r)) for r in advice.recommendations
    )


def title(advice: Advice, r: Recommendation) -> str:
    """What to do with what."""
    return f"{_about(advice, r)}: {action_words(r)}, {words.target_words(r)}"


def fold_words(rows: tuple[RecommendationRow, ...]) -> str:
    """``9 more save nothing now: 5 blocked, 4 no gain``; empty: there are none."""
    counts: dict[str, int] = {}
    for row in rows:
        if row.folded is not None:
            counts[row.folded] = counts.get(row.folded, 0) + 1
    if not counts:
        return ""
    told = ", ".join(f"{count} {why}" for why, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    return f"{sum(counts.values())} more save nothing now: {told}"


def _folded(r: Recommendation) -> str | None:
    if r.decision is not None:
        return SET_ASIDE if r.set_aside and r.decision.state != "done" else None
    if r.blocked_by:
        return BLOCKED
    saving, energy = r.saving_usd_per_month, r.energy_saving_kwh_per_month
    gains = (saving is not None and saving.p50 > 0) or r.freed_gpu_hours_per_month > 0
    return None if gains or (energy is not None and energy.p50 > 0) else NO_GAIN


def _about(advice: Advice, r: Recommendation) -> str:
    """The workload's name, or its nodes'."""
    name = next((w.name for w in advice.workloads if w.id == r.workload), "")
    nodes = (words.listed(f.nodes) for f in advice.findings if f.id in r.findings and f.nodes)
    return name or next(nodes, "") or "the fleet"
