"""The content of one report, chosen from advice, the week before and the ledger. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...core.advice_types import Advice, Finding
from ...core.worth import USD_PER_GPU_HOUR, Worth
from ..titles import Row, Titles, finding_title, monthly, recommendation_rows

if TYPE_CHECKING:
    from ...state.outcomes import MoveOutcome

LISTED_MAX = 10  # recommendations of one report


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of this week and of the week before. None: unknown, or there is no such week."""

    now: float | None
    before: float | None

    @property
    def words(self) -> str:
        """``+4 % on last week``; empty where the two cannot be compared."""
        if self.now is None or self.before is None or self.before <= 0:
            return ""
        ratio = self.now / self.before - 1
        if abs(ratio) < 0.005:
            return "same as last week"
        return f"{ratio * 100:+,.0f} % on last week" if ratio < 10 else "more than tenfold on last week"


@dataclass(frozen=True, slots=True)
class TeamRow:
    """One team in the fleet's table. `team` None: workloads and nodes of no team; `before` None: no such part of the
    week before."""

    team: str | None
    part: Advice
    before: Advice | None


@dataclass(frozen=True, slots=True)
class WeekChanges:
    """`new`, `resolved`: titles of findings, the most expensive first; those below the minimum gain are counted in
    `smaller`. `done`: recommendations that were done within the week. `compared`: whether there is a week before."""

    compared: bool
    new: tuple[str, ...] = ()
    resolved: tuple[str, ...] = ()
    done: tuple[MoveOutcome, ...] = ()
    smaller: int = 0


@dataclass(frozen=True, slots=True)
class Story:
    """One report. `team` None: the whole fleet. `rows`: every recommendation, as lists have them; `reported`: ids in an
    earlier report within the cooldown. `teams`: the most waste first; empty where the fleet is not divided."""

    team: str | None
    advice: Advice
    before: Advice | None
    rows: tuple[Row, ...]
    reported: frozenset[str]
    outcomes: tuple[MoveOutcome, ...]
    teams: tuple[TeamRow, ...]
    changes: WeekChanges

    def change(self, name: str) -> Change:
        """A figure of the summary (``cost_usd``) against the week before."""
        before = getattr(self.before.summary, name) if self.before is not None else None
        return Change(getattr(self.advice.summary, name), before)

    @property
    def listed(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.left_out)

    @property
    def proposed(self) -> tuple[str, ...]:
        """The ids that this report proposes first: not those accepted or in an earlier report within the cooldown."""
        rows = (row for row in self.listed[:LISTED_MAX] if not row.accepted)
        return tuple(row.recommendation.id for row in rows if row.recommendation.id not in self.reported)

    @property
    def empty(self) -> bool:
        """Whether the telemetry has no workload, no finding and no GPU of it."""
        return not (self.advice.workloads or self.advice.findings or self.advice.summary.gpu_count)


def story_of(
    advice: Advice,
    before: Advice | None = None,
    outcomes: Sequence[MoveOutcome] = (),
    *,
    team: str | None = None,
    teams: Mapping[str | None, Advice] | None = None,
    teams_before: Mapping[str | None, Advice] | None = None,
    reported: frozenset[str] = frozenset(),
) -> Story:
    """The report of `advice`: the fleet's, or one team's part of it (`by_team.split_by_team`) with its part of the week
    before and its outcomes.

    `before` None: there is no week before. `teams`, `teams_before`: the parts of all teams, for the fleet's table;
    None: the fleet is not divided. `reported`: ids in an earlier report within the cooldown.
    """

    def most_waste(row: TeamRow) -> tuple[float, float, float, str]:
        s = row.part.summary
        return -(s.wasted_usd or 0.0), -(s.cost_usd or 0.0), -s.gpu_hours, row.team or ""

    rows = [TeamRow(name, part, (teams_before or {}).get(name)) for name, part in (teams or {}).items()]
    done = tuple(o for o in outcomes if o.done_at is not None and advice.start <= o.done_at < advice.end)
    changes = WeekChanges(compared=False, done=done)
    if before is not None:
        now, earlier = _by_resource(advice), _by_resource(before)
        new, few = _largest([f for key, f in now.items() if key not in earlier], advice)
        gone, fewer = _largest([f for key, f in earlier.items() if key not in now], before)
        changes = WeekChanges(True, new, gone, done, few + fewer)
    every = recommendation_rows(advice)
    return Story(team, advice, before, every, reported, tuple(outcomes), tuple(sorted(rows, key=most_waste)), changes)


def _by_resource(advice: Advice) -> dict[tuple[str, str], Finding]:
    """The findings of one rule on one workload (all its runs) or node as one, with their costs summed."""
    titles, merged = Titles(advice), dict[tuple[str, str], Finding]()
    for f in advice.findings:
        key = f.rule, titles.resource(f)
        if (same := merged.get(key)) is None:
            merged[key] = f
            continue
        costs = [cost for cost in (same.cost_usd, f.cost_usd) if cost is not None]
        merged[key] = replace(same, cost_usd=sum(costs) if costs else None, gpu_hours=same.gpu_hours + f.gpu_hours)
    return merged


def _largest(findings: Sequence[Finding], advice: Advice) -> tuple[tuple[str, ...], int]:
    """Titles of those that cost at least the minimum gain a month, the dearest first; how many cost less."""

    def cost(f: Finding) -> float:
        """A month's, US dollars; where no price is known, by the stand-in that only orders."""
        if advice.summary.cost_usd is not None:
            return monthly(f.cost_usd, advice) or 0.0
        return (monthly(f.gpu_hours, advice) or 0.0) * USD_PER_GPU_HOUR

    least = Worth(advice).minimum
    large = [f for f in sorted(findings, key=lambda f: (-cost(f), f.id)) if cost(f) >= least]
    return tuple(finding_title(f, advice) for f in large), len(findings) - len(large)
