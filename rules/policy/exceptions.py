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
from importlib.resources.abc import Traversable
from pathlib import Path

from ..base.sanitize import quoted
from ..base.suggestions import suggest
from ..base.typed_fields import Fields
from ..base.yaml_loader import packaged_rules, read_table, rules_root
from .owners import OwnerLike, Owners, read_owners
from .teams import Team, load_teams, team_of
from .thresholds import SHIPPED, SITE

FILE = "exceptions.yaml"


@dataclass(frozen=True, slots=True)
class Match:
    """What an exception fits: owners, workloads' names, nodes, or words of a command line. Empty: nothing."""

    owners: Owners = field(default_factory=Owners)
    names: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    command: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.owners or self.names or self.nodes or self.command)

    def fits_workload(self, owner: OwnerLike, name: str, command: str | None) -> bool:
        words = {word.partition("=")[0] for word in (command or "").split()}
        return self.owners.fits(owner) or name in self.names or bool(self.command & words)

    def fits_nodes(self, nodes: Collection[str]) -> bool:
        """Whether it names all of these nodes (and there are any)."""
        return bool(nodes) and self.nodes.issuperset(nodes)


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
class _Layer:
    """One folder that may hold exceptions: ours, the site's, or a team's."""

    folder: Traversable | Path
    origin: str
    team: Team | None = None


def load_exceptions(rules_dir: Path | None = None, *, known_rules: Collection[str]) -> Exceptions:
    """The exceptions that ship, a site's and its teams'. `known_rules`: ids that an exception may name."""
    root = rules_root(rules_dir)
    shipped = _read(_Layer(packaged_rules(), SHIPPED), {}, known_rules)
    if root is None:
        return Exceptions(tuple(shipped.values()))
    site = _read(_Layer(root, SITE), shipped, known_rules)
    teams = load_teams(root)
    own = [_read(_Layer(team.folder, f"team {team.name}", team), shipped | site, known_rules) for team in teams]
    # A site's entry adds whose work it is: what a command line tells goes on to count, so ours stays beside it.
    every = [one for layer in (*own, site, shipped) for one in layer.values()]
    return Exceptions(tuple(every), teams)


def _read(layer: _Layer, base: Mapping[str, RuleException], known_rules: Collection[str]) -> dict[str, RuleException]:
    file = layer.folder.joinpath(FILE)
    if not file.is_file():
        return {}
    top = Fields(str(file), read_table(file), FILE)
    found: dict[str, RuleException] = {}
    for name, fields in top.subtable("exceptions").entries(lambda name: f"exception {quoted(name)}"):
        for rule in fields.texts("rules"):
            if rule not in known_rules:
                near = suggest(rule, known_rules) or "'skuwise rules list' names them all."
                raise fields.fault("rules", f"unknown rule {quoted(rule)}", near)
        found[name] = _exception(name, fields, base.get(name), layer)
    top.done()
    return found


def _exception(name: str, fields: Fields, base: RuleException | None, layer: _Layer) -> RuleException:
    rules = fields.texts("rules")
    if not rules and base is None:
        raise fields.fault(None, "'rules' is missing", "Name the rules that it silences.")
    reason = fields.text_or_none("reason") if base else fields.text("reason")
    source = fields.text_or_none("source") or f"{layer.origin} rules ({fields.file}:{fields.table.line})"
    match = _match(fields.table_or_none("match"), layer)
    if not match and layer.origin == SITE:
        raise fields.fault(None, "'match' is missing", "Say whose work it is: an owner, a name, a node or a command.")
    until = fields.date_or_none("until")
    fields.done()
    return RuleException(
        name,
        rules or (base.rules if base else ()),
        " ".join((reason or (base.reason if base else "")).split()),
        " ".join(source.split()),
        match,
        layer.origin,
        layer.team,
        until,
    )


def _match(fields: Fields | None, layer: _Layer) -> Match:
    if fields is None:
        return Match()
    if layer.team is not None and "node" in fields.table:
        raise fields.fault("node", "a team cannot except nodes, which others may share", "Let the site's file do it.")
    match = Match(
        owners=read_owners(fields),
        names=frozenset(fields.texts("name")),
        nodes=frozenset(fields.texts("node")),
        command=frozenset(fields.texts("command")),
    )
    fields.done()
    return match
