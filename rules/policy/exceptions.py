"""Reads ``exceptions.yaml``: whose work a waste rule does not speak of, and why.

```yaml
exceptions:
  standby-capacity:                  # one that ships: this says whose
    match: {namespace: [failover], node: [gpu-17]}
    until: 2027-03-31                # optional: the last day on which it holds
  night-batch:                       # one of a site's own
    rules: [too-many-gpus, custom/slow-input]
    reason: sized for the quarter's end
    match: {name: [close-books], account: [finance]}
```

Matching is by exact names; one that fits is enough. A team's file fits the team's own workloads alone, and without a
``match`` all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from importlib.resources.abc import Traversable
from pathlib import Path

from ..base.sanitize import quoted, suggest
from ..base.typed import Name, Text, joined, place, wrong
from ..base.yaml_loader import all_of, each, packaged_rules, read, rules_root
from .teams import OwnerLike, Owners, Team, load_teams, team_of
from .thresholds import SHIPPED, SITE

FILE = "exceptions.yaml"


@dataclass(frozen=True, slots=True)
class Match(Owners):
    """What an exception fits: owners, workloads' names, nodes, or words of a command line. Empty: nothing."""

    name: frozenset[Text] = frozenset()
    node: frozenset[Text] = frozenset()
    command: frozenset[Text] = frozenset()

    def fits_workload(self, owner: OwnerLike, name: str, command: str | None) -> bool:
        words = {word.partition("=")[0] for word in (command or "").split()}
        return self.fits(owner) or name in self.name or bool(self.command & words)

    def fits_nodes(self, nodes: Collection[str]) -> bool:
        """Whether it names all of these nodes (and there are any)."""
        return bool(nodes) and self.node.issuperset(nodes)


@dataclass(frozen=True, slots=True)
class RuleException:
    """`rules` are ids it silences. `team`: it is this team's, for its workloads alone. `until`: an ISO date, the last
    day on which it holds (None: until it is removed)."""

    id: str
    rules: tuple[str, ...]
    reason: str
    source: str
    match: Match
    origin: str
    team: Team | None = None
    until: str | None = None

    def holds(self, rule: str, today: str) -> bool:
        """Whether it speaks of this rule on this day (ISO)."""
        return rule in self.rules and (self.until is None or today <= self.until)


@dataclass(frozen=True, slots=True)
class Exceptions:
    """All exceptions: a team's before its site's, that before those that ship. `teams`: all that the site has."""

    every: tuple[RuleException, ...] = ()
    teams: tuple[Team, ...] = ()

    def of_workload(
        self, rule: str, owner: OwnerLike, name: str, command: str | None, today: str
    ) -> RuleException | None:
        """Why a rule does not speak of a workload; None: it does."""
        team = team_of(self.teams, owner)
        for one in self.every:
            if one.holds(rule, today) and one.team in (None, team):
                everything = one.team is not None and not one.match
                if everything or one.match.fits_workload(owner, name, command):
                    return one
        return None

    def of_nodes(self, rule: str, nodes: Collection[str], today: str) -> RuleException | None:
        """Why a rule does not speak of these nodes; None: it does. Only a site names nodes: teams may share them."""
        return next((one for one in self.every if one.holds(rule, today) and one.match.fits_nodes(nodes)), None)


@dataclass(frozen=True, slots=True)
class _Exception:
    """As files have it: one that is there already is told whose work it is, and may keep the rest."""

    rules: tuple[Text, ...] = ()
    reason: Text | None = None
    source: Text | None = None
    match: Match = field(default_factory=Match)
    until: date | None = None


@dataclass(frozen=True, slots=True)
class _File:
    exceptions: Mapping[Name, _Exception]


def load_exceptions(rules_dir: Path | None = None, *, known_rules: Collection[str]) -> Exceptions:
    """The exceptions that ship, a site's and its teams'. `known_rules`: ids that an exception may name."""
    root = rules_root(rules_dir)
    shipped = _read(packaged_rules().joinpath(FILE), SHIPPED, None, {}, known_rules)
    if root is None:
        return Exceptions(tuple(shipped.values()))
    site: dict[str, RuleException] = {}
    own: list[RuleException] = []
    teams: list[Team] = []

    def of_team(team: Team) -> None:
        found = _read(team.folder / FILE, f"team {team.name}", team, shipped | site, known_rules)
        own.extend(found.values())
        teams.append(team)

    all_of(
        lambda: site.update(_read(root / FILE, SITE, None, shipped, known_rules)),
        lambda: each(load_teams(root), of_team),
    )
    # A site's entry adds whose work it is: what a command line tells goes on to count, so ours stays beside it.
    return Exceptions((*own, *site.values(), *shipped.values()), tuple(teams))


def _read(
    file: Traversable | Path,
    origin: str,
    team: Team | None,
    base: Mapping[str, RuleException],
    known_rules: Collection[str],
) -> dict[str, RuleException]:
    found: dict[str, RuleException] = {}
    for name, told in read(file, _File).exceptions.items() if file.is_file() else ():
        at, old = place("exceptions", name), base.get(name)
        for rule in told.rules:
            if rule not in known_rules:
                near = suggest(rule, known_rules) or "'skuwise rules list' names them all."
                raise wrong(file, at, f"unknown rule {quoted(rule)}", near)
        rules, reason = told.rules or (old.rules if old else ()), told.reason or (old.reason if old else None)
        if not rules:
            raise wrong(file, at, "'rules' is missing", "Name the rules that it silences.")
        if reason is None:
            raise wrong(file, at, "'reason' is missing", "Say why.")
        if team is not None and told.match.node:
            raise wrong(file, at, "a team cannot except nodes, which others may share", "Let the site's file do it.")
        if not told.match and origin == SITE:
            raise wrong(file, at, "'match' is missing", "Name the work: an owner, a name, a node or a command.")
        source = told.source or f"{origin} rules ({file})"
        until = told.until.isoformat() if told.until else None
        found[name] = RuleException(name, rules, joined(reason), joined(source), told.match, origin, team, until)
    return found
