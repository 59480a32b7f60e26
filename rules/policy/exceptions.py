"""Exceptions (``exceptions.yaml``): workloads and nodes that a waste rule skips, and why. docs/rules.md has examples.

Names match exactly; one match is enough. A team's file applies to the team's own workloads, without a ``match`` to all
of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from ..base.sanitize import quoted, suggest
from ..base.typed import Name, Strict, Text, convert, place, wrong
from ..base.yaml_loader import SITE, Faults, read
from .teams import Layer, OwnerLike, Owners, Team, every_layer, team_of

FILE = "exceptions.yaml"


class Match(Owners, frozen=True):
    """Owners, names of workloads, nodes, or words of a command line. Empty: nothing."""

    name: frozenset[Text] = frozenset()
    node: frozenset[Text] = frozenset()
    command: frozenset[Text] = frozenset()

    def fits_workload(self, owner: OwnerLike, name: str, command: str | None) -> bool:
        words = {word.partition("=")[0] for word in (command or "").split()}
        return self.rank(owner) is not None or name in self.name or bool(self.command & words)


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
        """The exception that names all of these nodes; None: there is none. Only a site names nodes: teams may share
        them."""
        every = (e for e in self.every if nodes and e.match.node.issuperset(nodes))
        return next((exception for exception in every if exception.holds(rule, today)), None)


class _File(Strict, frozen=True):
    exceptions: Mapping[Name, dict[str, Any]]


def load_exceptions(rules_dir: Path | None = None, *, known_rules: Collection[str]) -> Exceptions:
    """The exceptions that ship, a site's and its teams'. `known_rules`: ids that an exception may name."""
    every: list[RuleException] = []
    teams: list[Team] = []
    faults = Faults()
    for layer in every_layer(rules_dir, faults):
        teams += [layer.team] if layer.team is not None else []
        with faults:
            # A site's entry adds owners: the command lines of the entry that ships still match.
            every = [*_read(layer, every, known_rules), *every]
    faults.raise_all()
    return Exceptions(tuple(every), tuple(teams))


def _read(layer: Layer, below: Collection[RuleException], known_rules: Collection[str]) -> Iterator[RuleException]:
    file, origin, team = layer.folder.joinpath(FILE), layer.origin, layer.team
    # Of the entries below, the latest of a site: another team's are not its own.
    base = {exception.id: exception for exception in reversed(list(below)) if exception.team is None}
    for id_, entry in read(file, _File).exceptions.items() if file.is_file() else ():
        at = place("exceptions", id_)
        defaults = {"rules": base[id_].rules, "reason": base[id_].reason} if id_ in base else {}
        entry = {"source": f"{origin} rules ({file})", **defaults, **entry}  # noqa: PLW2901 - with its defaults
        exception = convert(file, entry, RuleException, "exceptions", id_, id=id_, origin=origin, team=team)
        if (rule := next((rule for rule in exception.rules if rule not in known_rules), None)) is not None:
            near = suggest(rule, known_rules) or "'skuwise rules list' names them all."
            raise wrong(file, at, f"unknown rule {quoted(rule)}", near)
        if not exception.match and origin == SITE:
            raise wrong(file, at, "'match' is missing", "Name the work: an owner, a name, a node or a command.")
        if team is not None and exception.match.node:
            raise wrong(file, at, "a team cannot except nodes, which others may share", "Let the site's file do it.")
        yield exception
