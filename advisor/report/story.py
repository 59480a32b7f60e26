"""What one report tells, chosen from advice, the week before and the ledger, in the order in which people read it.

Pure: advice in, one frozen `Story` out. Everything of outside text is clean and short here already (`brief.py`); the
whole of it stands in the advice that goes with the story.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..ledger.outcomes import Outcome
from ..model import Advice, Interval, Reconciliation, Summary
from .choice import Move, moves_of


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


@dataclass(frozen=True, slots=True)
class TeamRow:
    """One team in the fleet's table. `team` None: workloads and nodes that are nobody's."""

    team: str | None
    gpu_hours: Change
    cost_usd: Change
    wasted_usd: float | None
    recoverable_usd_per_month: float | None
    workloads: int
    moves: int


@dataclass(frozen=True, slots=True)
class Story:
    """One report. `team` None: the whole fleet. `advice` is what it tells of, for the lists that go with it.

    `start`, `end`, `generated_at`: Unix seconds (UTC).
    """

    team: str | None
    start: float
    end: float
    generated_at: float
    gpu_count: int
    gpu_hours: Change
    cost_usd: Change
    wasted_usd: Change
    recoverable_usd_per_month: Interval | float | None
    reconciliation: Reconciliation
    moves: tuple[Move, ...]
    outcomes: tuple[Outcome, ...]
    teams: tuple[TeamRow, ...]
    advice: Advice
    notes: tuple[str, ...] = field(default=())

    @property
    def empty(self) -> bool:
        """Whether nothing was seen of it: no workload, no finding."""
        return not self.advice.workloads and not self.advice.findings


def story_of(
    advice: Advice,
    before: Advice | None,
    outcomes: Sequence[Outcome] = (),
    *,
    team: str | None = None,
    teams: Mapping[str | None, Advice] | None = None,
    teams_before: Mapping[str | None, Advice] | None = None,
    told: frozenset[str] = frozenset(),
) -> Story:
    """The report of `advice`: the fleet's, or one team's part of it (`shares.share_out`; then `before` is the same
    team's part of the week before, and `outcomes` are its own: `shares.outcomes_of`).

    `before` None: there is no week before, and that is said. `teams`, `teams_before`: the parts of all teams, for the
    fleet's table; None: the fleet is not divided. `told`: ids of recommendations that the reader was told within the
    cooldown; they are named, and not told again in full.
    """
    now, was = advice.summary, before.summary if before is not None else None

    def change(name: str) -> Change:
        return Change(getattr(now, name), getattr(was, name) if was is not None else None)

    return Story(
        team=team,
        start=advice.start,
        end=advice.end,
        generated_at=advice.generated_at,
        gpu_count=now.gpu_count,
        gpu_hours=change("gpu_hours"),
        cost_usd=change("cost_usd"),
        wasted_usd=change("wasted_usd"),
        recoverable_usd_per_month=now.recoverable_interval_usd_per_month or now.recoverable_usd_per_month,
        reconciliation=now.reconciliation,
        moves=moves_of(advice, told),
        outcomes=tuple(outcomes),
        teams=_rows(teams or {}, teams_before or {}),
        advice=advice,
        notes=advice.notes,
    )


def _rows(teams: Mapping[str | None, Advice], before: Mapping[str | None, Advice]) -> tuple[TeamRow, ...]:
    def row(team: str | None, part: Advice) -> TeamRow:
        now = part.summary
        was: Summary | None = before[team].summary if team in before else None
        return TeamRow(
            team=team,
            gpu_hours=Change(now.gpu_hours, was.gpu_hours if was else None),
            cost_usd=Change(now.cost_usd, was.cost_usd if was else None),
            wasted_usd=now.wasted_usd,
            recoverable_usd_per_month=now.recoverable_usd_per_month,
            workloads=len(part.workloads),
            moves=len(moves_of(part)),
        )

    rows = [row(team, part) for team, part in teams.items()]
    return tuple(sorted(rows, key=lambda r: (-(r.cost_usd.now or 0.0), -(r.gpu_hours.now or 0.0), r.team or "")))
