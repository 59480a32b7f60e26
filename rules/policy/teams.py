"""Owners of workloads, the layers of rules (those that ship, a site's, its teams'), and exceptions.

A team's folder (``teams/NAME/``) is for the work of the owners in its ``team.yaml``, and of those with its name. An
exception names workloads and nodes that a rule skips; a team's without ``match`` is for all its work. Names match
exactly; one match is enough. docs/rules.md has examples.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from ..base.sanitize import quoted
from ..base.typed import Name, Strict, Text, check_known, convert, place, wrong
from ..base.yaml_loader import SITE, layers, read
from .labels import Owner

T = TypeVar("T")
# In order of precedence where an owner matches several teams.
PARTS = ("team", "namespace", "account", "user")


class Owners(Strict, frozen=True):
    """Owners by exact names; one match is enough. Empty: no owner."""

    team: frozenset[Text] = frozenset()
    namespace: frozenset[Text] = frozenset()
    account: frozenset[Text] = frozenset()
    user: frozenset[Text] = frozenset()

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)

    def rank(self, owner: Owner) -> int | None:
        """Position in `PARTS` of the first part that matches; None: the owner is none of these."""
        return next((n for n, part in enumerate(PARTS) if getattr(owner, part) in getattr(self, part)), None)


class Team(NamedTuple):
    """A team of a site, and the owners of its workloads."""

    name: str
    owners: Owners


class Layer(NamedTuple):
    """A folder of rules. `origin`: ``shipped``, ``site`` or ``team NAME``."""

    origin: str
    folder: Path
    team: Team | None = None


def every_layer(rules_dir: Path | None) -> Iterator[Layer]:
    """The folders of rules: those that ship, a site's, its teams'. Raises RulesError, also for an owner that two teams
    claim."""
    for origin, folder in layers(rules_dir):
        yield Layer(origin, folder)
    claimed: dict[tuple[str, str], str] = {}
    for root in sorted(rules_dir.glob("teams/*/")) if rules_dir is not None else ():
        file, owners = root / "team.yaml", Owners()
        owners = read(file, Owners) if file.is_file() else owners
        owners = msgspec.structs.replace(owners, team=owners.team | {root.name})
        for part, name in ((key, value) for key in PARTS for value in sorted(getattr(owners, key))):
            if (other := claimed.setdefault((part, name), root.name)) != root.name:
                sentence = f"{quoted(name)} is already of team {quoted(other)}"
                raise wrong(file, part, sentence, "Name it in one team.")
        yield Layer(f"team {root.name}", root, Team(root.name, owners))


def of_team(of_teams: Sequence[tuple[Team, T]], owner: Owner, otherwise: T) -> T:
    """What the owner's team has, else `otherwise`. Two teams never claim the same name, so the best rank is unique."""
    ranked = [(rank, n) for n, (team, _) in enumerate(of_teams) if (rank := team.owners.rank(owner)) is not None]
    return of_teams[min(ranked)[1]][1] if ranked else otherwise


class Match(Owners, frozen=True):
    """Owners, names of workloads, nodes, or words of a command line. Empty: nothing."""

    name: frozenset[Text] = frozenset()
    node: frozenset[Text] = frozenset()
    command: frozenset[Text] = frozenset()


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


@dataclass(frozen=True, slots=True)
class Exceptions:
    """All exceptions: a team's before its site's, that before those that ship. `teams`: all of the site."""

    every: tuple[RuleException, ...] = ()
    teams: tuple[Team, ...] = ()

    def _from(self, rule: str, today: str) -> Iterator[RuleException]:
        return (e for e in self.every if rule in e.rules and (e.until is None or today <= e.until.isoformat()))

    def of_workload(self, rule: str, owner: Owner, name: str, command: str | None, today: str) -> RuleException | None:
        """The exception of a workload from a rule; None: there is none."""
        team = of_team([(team, team) for team in self.teams], owner, None)
        words = {word.partition("=")[0] for word in (command or "").split()}
        for exception in self._from(rule, today):
            match, of_its_team = exception.match, exception.team is not None and exception.team == team
            fits = match.rank(owner) is not None or name in match.name or bool(match.command & words)
            if (of_its_team and (fits or not match)) or (exception.team is None and fits):
                return exception
        return None

    def of_nodes(self, rule: str, nodes: Collection[str], today: str) -> RuleException | None:
        """The exception that names all of these nodes; None: there is none. Only a site names nodes: teams may share
        them."""
        return next((e for e in self._from(rule, today) if nodes and e.match.node.issuperset(nodes)), None)


def load_exceptions(rules_dir: Path | None = None, *, known_rules: Collection[str]) -> Exceptions:
    """The exceptions that ship, a site's and its teams'. `known_rules`: ids that an exception may name."""
    every: list[RuleException] = []
    folders = list(every_layer(rules_dir))
    for layer in folders:
        # A site's entry adds owners: the command lines of the entry that ships still match.
        every = [*_read(layer, every, known_rules), *every]
    return Exceptions(tuple(every), tuple(layer.team for layer in folders if layer.team is not None))


def _read(layer: Layer, below: Collection[RuleException], known_rules: Collection[str]) -> Iterator[RuleException]:
    file, origin, team = layer.folder / "exceptions.yaml", layer.origin, layer.team
    if not file.is_file():
        return
    # Of the entries below, the latest of a site: another team's are not its own.
    base = {exception.id: exception for exception in reversed(list(below)) if exception.team is None}
    for id_, entry in read(file, dict[Literal["exceptions"], dict[Name, dict[str, Any]]]).get("exceptions", {}).items():
        at = place("exceptions", id_)
        defaults = {"rules": base[id_].rules, "reason": base[id_].reason} if id_ in base else {}
        entry = {"source": f"{origin} rules ({file})", **defaults, **entry}  # noqa: PLW2901 - with its defaults
        exception = convert(file, entry, RuleException, "exceptions", id_, id=id_, origin=origin, team=team)
        check_known(file, at, "rule", exception.rules, known_rules, otherwise="See 'skuwise rules list'.")
        if not exception.match and origin == SITE:
            raise wrong(file, at, "'match' is missing", "Name the work: an owner, a name, a node or a command.")
        if team is not None and exception.match.node:
            raise wrong(file, at, "a team cannot except nodes, which others may share", "Let the site's file do it.")
        yield exception
