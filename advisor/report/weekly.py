"""The letters of one week: the fleet's, and each team's own part. Pure; what was told before comes as a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..ledger.outcomes import Outcome
from ..mail.letter import Letter
from ..mail.routes import Routes, Team
from ..model import Advice
from .letters import letter_of
from .shares import outcomes_of, share_out
from .story import Story, story_of

# Who is told of the whole fleet: the administrators.
FLEET = Team("", ())


@dataclass(frozen=True, slots=True)
class Report:
    """What one team is told; the fleet's has the team "". `told`: the ids of the moves in it that are new to it."""

    team: Team
    letter: Letter
    told: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Making:
    """What letters are made of. `before`: the week before, None: there is none. `told`: what a team, by its name, was
    told within the cooldown. `with_empty`: whether a team of which the week has nothing is written to."""

    advice: Advice
    before: Advice | None
    outcomes: Sequence[Outcome]
    routes: Routes
    told: Callable[[str], frozenset[str]]
    with_empty: bool = True

    def reports(self, wanted: Callable[[str], bool]) -> Iterator[Report]:
        """The letters of the teams that are `wanted`, one after the other: the fleet's first."""
        divided = bool(self.routes.teams)
        names = [team.name for team in self.routes.teams]
        parts = self._parts(self.advice, names) if divided else {}
        parts_before = self._parts(self.before, names) if divided and self.before is not None else None
        if wanted(FLEET.name):
            story = story_of(
                self.advice, self.before, self.outcomes, teams=parts or None, teams_before=parts_before,
                told=self.told(FLEET.name),
            )  # fmt: skip
            yield _report(FLEET, story)
        for team in self.routes.teams:
            if not wanted(team.name):
                continue
            story = story_of(
                parts[team.name], None if parts_before is None else parts_before[team.name],
                outcomes_of(self.outcomes, parts, team.name), team=team.name, told=self.told(team.name),
            )  # fmt: skip
            if self.with_empty or not story.empty:
                yield _report(team, story)

    def _parts(self, advice: Advice, names: Sequence[str]) -> Mapping[str | None, Advice]:
        return share_out(advice, self.routes.whose, self.routes.whose_node, teams=names)


def _report(team: Team, story: Story) -> Report:
    return Report(team, letter_of(story), tuple(move.id for move in story.moves if not move.told))
