"""Exceptions (``exceptions.yaml``): workloads and nodes that a waste rule skips, and why. docs/rules.md has examples.

Names match exactly; one match is enough. A team's file applies to the team's own workloads, without a ``match`` to all
of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from ..base.sanitize import quoted, suggest
from ..base.typed import Name, Strict, Text, convert, place, wrong
from ..base.yaml_loader import SITE, Faults, layers, read
from .teams import OwnerLike, Owners, Team, load_teams, team_of

FILE = "exceptions.yaml"


class Match(Owners, frozen=True):
    """Owners, names of workloads, nodes, or words of a command line. Empty: nothing."""

    name: frozenset[Text] = frozenset()
    node: frozenset[Text] = frozenset()
    command: frozenset[Text] = frozenset()

    def fits_workload(self, owner: OwnerLike, name: str, command: str | None) -> bool:
        words = {word.partition("=")[0] for word in (command or "").split()}
        return self.fits(owner) or name in self.name or bool(self.command & words)

    def fits_nodes(self, nodes: Collection[str]) -> bool:
        """Whether it names all of these nodes (and there are any)."""
        return bool(nodes) and self.node.issuperset(nodes)


class RuleException(Strict, frozen=True):
    """`rules`: ids of the rules that it disables. `team`: only for this team's workloads. `until`: the last day on
    which it applies (None: no end)."""

    id: str
    rules: tuple[Text, ...]
    reason: Text
    source: Text
    origin: str
    team: Team | None
    match: Match = Match()
    until: date | None = None

    def holds(self, rule: str, today: str) -> bool:
        """Whether it disables this rule on this day (ISO)."""
        return rule in self.rules and (self.until is None or today <= self.until.isoformat())


@dataclass(frozen=True, slots=True)
class Exceptions:
    """All exceptions: a team's before its site's, that before those that ship. `teams`: all of the site."""

    every: tuple[RuleException, ...] = ()
    teams: tuple[Team, ...] = ()

    def of_workload(
        self, rule: str, owner: OwnerLike, name: str, command: str | None, today: str
    ) -> RuleException | None:
        """The exception of a workload from a rule; None: there is none."""
        team = team_of(self.teams, owner)
        for exception in self.every:
            if exception.holds(rule, today) and exception.team in (None, team):
                whole_team = exception.team is not None and not exception.match
                if whole_team or exception.match.fits_workload(owner, name, command):
                    return exception
        return None

    def of_nodes(self, rule: str, nodes: Collection[str], today: str) -> RuleException | None:
        """The exception of nodes from a rule; None: there is none. Only a site names nodes: teams may share them."""
        return next((e for e in self.every if e.holds(rule, today) and e.match.fits_nodes(nodes)), None)


class _File(Strict, frozen=True):
    exceptions: Mapping[Name, dict[str, Any]]


def load_exceptions(rules_dir: Path | None = None, *, known_rules: Collection[str]) -> Exceptions:
    """The exceptions that ship, a site's and its teams'. `known_rules`: ids that an exception may name."""
    every: list[RuleException] = []
    faults = Faults()
    for origin, layer in layers(rules_dir):
        with faults:
            # A site's entry adds owners: the command lines of the entry that ships still match.
            every = [*_read(layer.joinpath(FILE), origin, None, every, known_rules), *every]
    teams = load_teams(rules_dir, faults)
    of_teams: list[RuleException] = []
    for team in teams:
        with faults:
            of_teams += _read(team.folder / FILE, team.origin, team, every, known_rules)
    faults.raise_all()
    return Exceptions((*of_teams, *every), teams)


def _read(
    file: Traversable | Path,
    origin: str,
    team: Team | None,
    base: Collection[RuleException],
    known_rules: Collection[str],
) -> list[RuleException]:
    exceptions: list[RuleException] = []
    for id_, entry in read(file, _File).exceptions.items() if file.is_file() else ():
        at, old = place("exceptions", id_), next((exception for exception in base if exception.id == id_), None)
        defaults = {"rules": old.rules, "reason": old.reason} if old is not None else {}
        entry = {"source": f"{origin} rules ({file})", **defaults, **entry}  # noqa: PLW2901 - with its defaults
        exception = convert(file, entry, RuleException, "exceptions", id_, id=id_, origin=origin, team=team)
        for rule in exception.rules:
            if rule not in known_rules:
                near = suggest(rule, known_rules) or "'skuwise rules list' names them all."
                raise wrong(file, at, f"unknown rule {quoted(rule)}", near)
        if not exception.match and origin == SITE:
            raise wrong(file, at, "'match' is missing", "Name the work: an owner, a name, a node or a command.")
        if team is not None and exception.match.node:
            raise wrong(file, at, "a team cannot except nodes, which others may share", "Let the site's file do it.")
        exceptions.append(exception)
    return exceptions
