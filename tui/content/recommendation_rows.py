"""The recommendations as rows of a table: which are shown, which are folded away, and what a row is called."""

from __future__ import annotations

from dataclasses import dataclass

from ...advisor.core import formatting as words
from ...advisor.core.advice_types import Advice, Recommendation
from ...advisor.core.ids import short_ids
from ...advisor.views.titles import Titles
from ...advisor.views.worth import folded, is_open, worth_showing

_SETTLED = ("accepted", "done")  # decisions that people follow


@dataclass(frozen=True, slots=True)
class RecommendationRow:
    """`title`: an action with its object; `id`: short; `folded`: why it is not shown at first, None: it is."""

    recommendation: Recommendation
    title: str
    id: str
    folded: str | None


def recommendation_rows(advice: Advice) -> tuple[RecommendationRow, ...]:
    """Every recommendation: those worth showing first, cash before the rest, the largest savings first."""
    names, titles = short_ids(r.id for r in advice.recommendations), Titles(advice)
    rows = [RecommendationRow(r, titles.of(r), names[r.id], _folded(advice, r)) for r in advice.recommendations]
    return tuple(sorted(rows, key=lambda row: (row.folded is not None, row.recommendation.rank)))


def fold_words(rows: tuple[RecommendationRow, ...], advice: Advice) -> str:
    """``9 more recommendations: 5 blocked, 4 below $100/month``; empty: there are none."""
    counts: dict[str, int] = {}
    for row in rows:
        if row.folded is not None:
            counts[row.folded] = counts.get(row.folded, 0) + 1
    if not counts:
        return ""
    least = words.usd(folded(advice).minimum, "/month")
    told = ", ".join(
        f"{count} {why.format(least=least)}" for why, count in sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    )
    return f"{words.counted(sum(counts.values()), 'more recommendation')}: {told}"


def _folded(advice: Advice, r: Recommendation) -> str | None:
    if r.decision is not None and not is_open(r):
        return r.decision.state if r.set_aside and r.decision.state not in _SETTLED else None
    if r.blocked_by:
        return "blocked"
    return None if worth_showing(r, advice) else "below {least}"
