"""The letters of one week: the fleet's, and each team's own part. Pure; what was told before comes as a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..core.advice_types import Advice, Fleet
from ..ledger.outcomes import MoveOutcome
from ..mail.letter import Letter
from ..mail.routes import Routes, TeamRoute
from ..render.ink import Words
from ..views.document.mail_document import NO_LINKS, ReaderLinks
from ..views.document.report_content import story_of
from .by_team import outcomes_of, split_by_team
from .letters import letter_of

# Who is told of the whole fleet: the administrators.
FLEET = TeamRoute("", ())


@dataclass(frozen=True, slots=True)
class Report:
    """What one team is told; the fleet's has the team "". `told`: the ids of the moves that
    it tells in full; `fleet`: whose ledger notes them."""

    team: TeamRoute
    letter: Letter
    told: tuple[str, ...]
    fleet: Fleet | None = None


@dataclass(frozen=True, slots=True)
class WeeklyReports:
    """What letters are made of. `before`: the week before, None: there is none. `told`: what a team, by its name, was
    told within the cooldown. `with_empty`: whether a team of which the week has nothing is written to. `links`: where
    its readers go on."""

    advice: Advice
    before: Advice | None
    outcomes: Sequence[MoveOutcome]
    routes: Routes
    told: Callable[[str], frozenset[str]]
    with_empty: bool = True
    links: ReaderLinks = NO_LINKS

    def reports(self, teams: Sequence[TeamRoute]) -> Iterator[Report]:
        """The letters of `teams`, one after the other; the team "" is the fleet."""
        parts = self._parts(self.advice)
        parts_before = self._parts(self.before) if self.before is not None else None
        lettering = Words()
        for team in teams:
            told = self.told(team.name)
            if team.name == FLEET.name:
                divided = bool(self.routes.teams)
                story = story_of(
                    self.advice, self.before, self.outcomes, teams=parts if divided else None,
                    teams_before=parts_before if divided else None, told=told,
                )  # fmt: skip
            else:
                story = story_of(
                    parts[team.name], None if parts_before is None else parts_before[team.name],
                    outcomes_of(self.outcomes, parts, team.name), team=team.name, told=told,
                )  # fmt: skip
            if self.with_empty or not story.empty:
                letter = letter_of(story, links=self.links, lettering=lettering)
                yield Report(team, letter, story.told_in_full, self.advice.fleet)

    def _parts(self, advice: Advice) -> Mapping[str | None, Advice]:
        names = [team.name for team in self.routes.teams]
        return split_by_team(advice, self.routes.whose, self.routes.whose_node, teams=names)
