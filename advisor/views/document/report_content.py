"""What one report tells, chosen from advice, the week before and the ledger, in the order in which people read it.

Pure: advice in, one frozen `Story` of figures and outside text out. Words and lengths are those of `sections`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...core.advice_types import Advice, Finding, Interval, Summary
from ...core.worth import USD_PER_GPU_HOUR, Worth, selected
from ..aggregates import (
    NOT_OBSERVED,
    FabricSum,
    IdleGpus,
    MissingMetric,
    blind_spots,
    fabric_sums,
    holdings,
    hours_by_kind,
    observed_share,
)
from ..titles import Row, Titles, finding_title, monthly, recommendation_rows

if TYPE_CHECKING:
    from ...state.outcomes import MoveOutcome

TOLD_IN_FULL = 3  # recommendations of one report
AS_BEFORE = "as before"
KINDS, MONEY, FABRIC = "kinds", "money", "fabric"  # the charts' names


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of this week and of the week before. None: not known, or there is no such week."""

    now: float | None
    before: float | None

    @property
    def ratio(self) -> float | None:
        """By which share it grew (negative: shrank); None: one of the two is not known or was nothing."""
        if self.now is None or self.before is None or self.before <= 0:
            return None
        return self.now / self.before - 1

    @property
    def words(self) -> str:
        """``+4 %`` on the week before; empty where the two cannot be compared."""
        ratio = self.ratio
        if ratio is None:
            return ""
        return AS_BEFORE if abs(ratio) < 0.005 else f"{ratio * 100:+,.0f} %" if ratio < 10 else "more than tenfold"


@dataclass(frozen=True, slots=True)
class TeamRow:
    """One team in the fleet's table. `team` None: workloads and nodes that are nobody's. `judged`: whether any of its
    GPUs was observed long enough to judge waste."""

    team: str | None
    gpu_hours: Change
    cost_usd: Change
    wasted_usd: float | None
    slowed_usd: float | None
    recoverable_usd_per_month: float | None
    workloads: int
    moves: int
    judged: bool = True


@dataclass(frozen=True, slots=True)
class Story:
    """One report. `team` None: the whole fleet.

    `advice` is what it tells of, for sums, prices and the lists that go with it; `has_before`: whether there is a week
    before. `kwh`: what the GPUs drew. `hours_by_kind`: kind -> GPU-hours. `rows`: every recommendation, as lists have
    them; `told`: ids of those that the reader was told within the cooldown. `changes`: what is new, resolved and done
    since the week before. `observed`: share of the workloads' GPU time that was observed (None: no workload). `teams`:
    empty where the fleet is not divided.
    """

    team: str | None
    advice: Advice
    has_before: bool
    gpu_hours: Change
    cost_usd: Change
    wasted_usd: Change
    slowed_usd: Change
    recoverable_usd_per_month: Change
    recoverable_interval_usd_per_month: Interval | None
    kwh: Change
    hours_by_kind: Mapping[str, Change]
    rows: tuple[Row, ...]
    told: frozenset[str]
    holdings: tuple[IdleGpus, ...]
    fabrics: tuple[FabricSum, ...]
    observed: float | None
    blind_spots: tuple[MissingMetric, ...]
    outcomes: tuple[MoveOutcome, ...]
    teams: tuple[TeamRow, ...]
    changes: WeekChanges

    @property
    def listed(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if not row.left_out)

    @property
    def told_in_full(self) -> tuple[str, ...]:
        """The ids of those that this report tells in full: not those told within the cooldown, nor accepted ones."""
        ways = [row.recommendation for row in self.listed if row.recommendation.id not in self.told]
        return tuple(r.id for r in ways if r.decision is None or r.decision.state != "accepted")[:TOLD_IN_FULL]

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
    None: the fleet is not divided. `told`: they are named, and not told again in full.
    """
    now, was = advice.summary, before.summary if before is not None else None

    def change(name: str) -> Change:
        return Change(getattr(now, name), getattr(was, name) if was is not None else None)

    kinds, kinds_before = hours_by_kind(advice), hours_by_kind(before) if before is not None else {}
    return Story(
        team=team,
        advice=advice,
        has_before=before is not None,
        gpu_hours=change("gpu_hours"),
        cost_usd=change("cost_usd"),
        wasted_usd=change("wasted_usd"),
        slowed_usd=change("slowed_usd"),
        recoverable_usd_per_month=change("recoverable_usd_per_month"),
        recoverable_interval_usd_per_month=now.recoverable_interval_usd_per_month,
        kwh=Change(_kwh(now), _kwh(was)),
        hours_by_kind={
            kind: Change(kinds.get(kind, 0.0), kinds_before.get(kind, 0.0) if before is not None else None)
            for kind in sorted(
                {**kinds, **kinds_before}, key=lambda kind: (kind == NOT_OBSERVED, -kinds.get(kind, 0.0), kind)
            )
        },
        rows=recommendation_rows(advice),
        told=told,
        holdings=holdings(advice),
        fabrics=fabric_sums(advice),
        observed=observed_share(advice),
        blind_spots=blind_spots(advice),
        outcomes=tuple(outcomes),
        teams=team_rows(teams or {}, teams_before),
        changes=week_changes(advice, before, outcomes),
    )


def _kwh(summary: Summary | None) -> float | None:
    return summary.energy.kwh if summary is not None and summary.energy is not None else None


def team_rows(
    teams: Mapping[str | None, Advice], before: Mapping[str | None, Advice] | None = None
) -> tuple[TeamRow, ...]:
    """The fleet's table: what cost most first. `before` None: there is no week before."""

    def row(team: str | None, part: Advice) -> TeamRow:
        now = part.summary
        was = before[team].summary if before is not None and team in before else None
        return TeamRow(
            team=team,
            gpu_hours=Change(now.gpu_hours, was.gpu_hours if was is not None else None),
            cost_usd=Change(now.cost_usd, was.cost_usd if was is not None else None),
            wasted_usd=now.wasted_usd,
            slowed_usd=now.slowed_usd,
            recoverable_usd_per_month=now.recoverable_usd_per_month,
            workloads=len(part.workloads),
            moves=len(selected(part).shown),
            judged=not now.nothing_judged,
        )

    rows = [row(team, part) for team, part in teams.items()]
    return tuple(sorted(rows, key=lambda r: (-(r.cost_usd.now or 0.0), -(r.gpu_hours.now or 0.0), r.team or "")))


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
