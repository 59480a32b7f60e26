"""What one report says, chosen from advice, the week before and the ledger.

Pure: advice in, one frozen `Story` of figures and outside text out. Words and lengths are those of `report_document`.
"""

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
    """A figure of this week and of the week before. None: not known, or there is no such week."""

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
    """One team in the fleet's table. `team` None: workloads and nodes that are nobody's; `before` None: there is no
    such part of the week before."""

    team: str | None
    part: Advice
    before: Advice | None


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


@dataclass(frozen=True, slots=True)
class Story:
    """One report. `team` None: the whole fleet.

    `rows`: every recommendation, as lists have them; `told`: ids of those that the reader was told within the cooldown.
    `teams`: what wasted most first; empty where the fleet is not divided.
    """

    team: str | None
    advice: Advice
    gpu_hours: Change
    cost_usd: Change
    wasted_usd: Change
    slowed_usd: Change
    rows: tuple[Row, ...]
    told: frozenset[str]
    outcomes: tuple[MoveOutcome, ...]
    teams: tuple[TeamRow, ...]
    changes: WeekChanges

    @property
    def listed(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.left_out)

    @property
    def proposed(self) -> tuple[str, ...]:
        """The ids of those that this report proposes anew: not those told within the cooldown, nor accepted ones."""
        rows = (row for row in self.listed[:LISTED_MAX] if not row.accepted)
        return tuple(row.recommendation.id for row in rows if row.recommendation.id not in self.told)

    @property
    def empty(self) -> bool:
        """Whether there is nothing of it in the telemetry: no workload, no finding, no GPU."""
        return not (self.advice.workloads or self.advice.findings or self.advice.summary.gpu_count)


def story_of(
    advice: Advice,
    before: Advice | None = None,
    outcomes: Sequence[MoveOutcome] = (),
    *,
    team: str | None = None,
    teams: Mapping[str | None, Advice] | None = None,
    teams_before: Mapping[str | None, Advice] | None = None,
    told: frozenset[str] = frozenset(),
) -> Story:
    """The report of `advice`: the fleet's, or one team's part of it (`by_team.split_by_team`; then `before` is the same
    team's part of the week before, and `outcomes` are its own: `by_team.outcomes_of`).

    `before` None: there is no week before. `teams`, `teams_before`: the parts of all teams, for the fleet's table;
    None: the fleet is not divided. `told`: these are marked as told before.
    """
    now, was = advice.summary, before.summary if before is not None else None

    def change(name: str) -> Change:
        return Change(getattr(now, name), getattr(was, name) if was is not None else None)

    return Story(
        team=team,
        advice=advice,
        gpu_hours=change("gpu_hours"),
        cost_usd=change("cost_usd"),
        wasted_usd=change("wasted_usd"),
        slowed_usd=change("slowed_usd"),
        rows=recommendation_rows(advice),
        told=told,
        outcomes=tuple(outcomes),
        teams=tuple(
            sorted(
                (TeamRow(name, part, (teams_before or {}).get(name)) for name, part in (teams or {}).items()),
                key=_wasted_most,
            )
        ),
        changes=_week_changes(advice, before, outcomes),
    )


def _wasted_most(row: TeamRow) -> tuple[float, float, float, str]:
    s = row.part.summary
    return (-(s.wasted_usd or 0.0), -(s.cost_usd or 0.0), -s.gpu_hours, row.team or "")


def _week_changes(advice: Advice, before: Advice | None, outcomes: Sequence[MoveOutcome]) -> WeekChanges:
    """The changes from the week before. `outcomes`: of the same fleet or team."""
    done = tuple(o for o in outcomes if o.done_at is not None and advice.start <= o.done_at < advice.end)
    if before is None:
        return WeekChanges(compared=False, done=done)
    now, known = _together(advice), _together(before)
    new, few = _largest([f for key, f in now.items() if key not in known], advice)
    gone, fewer = _largest([f for key, f in known.items() if key not in now], before)
    return WeekChanges(True, new, gone, done, few + fewer)


def _together(advice: Advice) -> dict[tuple[str, str], Finding]:
    """The findings of one rule on one workload or node as one, whichever of its runs they name, with their costs
    summed."""
    titles = Titles(advice)
    found: dict[tuple[str, str], Finding] = {}
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

    def cost(f: Finding) -> float:
        """A month's, US dollars; where no price is known, by the stand-in that only orders."""
        if advice.summary.cost_usd is not None:
            return monthly(f.cost_usd, advice) or 0.0
        return (monthly(f.gpu_hours, advice) or 0.0) * USD_PER_GPU_HOUR

    least = Worth(advice).minimum
    large = [f for f in sorted(findings, key=lambda f: (-cost(f), f.id)) if cost(f) >= least]
    return tuple(finding_title(f, advice) for f in large), len(findings) - len(large)
