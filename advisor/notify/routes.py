"""The team of a workload and its recipients: the routes file, strict TOML (docs/report.md, Recipients).

A matcher is a name, or its beginning and a star. No two of a kind may fit the same name, so that the order of the teams
decides nothing; of the kinds the narrowest decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.headerregistry import Address
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ...agent.base.settings import read_layers
from ...rules.base.errors import UsageError
from ...rules.base.files import read_toml
from ...rules.base.sanitize import QUOTED_MAX, clean, quoted
from ..core.incident_types import Subject
from ..core.verdict_types import WorkloadVerdict
from ..state.deliveries import Channel
from .settings import ReportSettings, mail_addresses

# In the order in which they decide. `label` is the team that telemetry names by itself; `sku` a GPU's or a node's.
PARTS = ("label", "namespace", "account", "user", "node", "sku")
# Stands for a webhook where a mail has an address: the webhook's own is a secret.
WEBHOOK = "webhook"
_MAX_NAME = 100


class Recipient(NamedTuple):
    """One address of a team, or its webhook (`WEBHOOK`). `team` empty: the administrators."""

    team: str
    channel: Channel
    address: str

    @property
    def key(self) -> str:
        """Who receives it: an address that two teams share is one recipient."""
        return f"{self.channel}:{self.address if self.channel == 'mail' else self.team}"


@dataclass(frozen=True, slots=True)
class TeamRoute:
    """One team. `to`: its addresses; `webhook_url_file`: the file with its webhook's address, empty: it has none."""

    name: str
    to: tuple[str, ...]
    webhook_url_file: str = ""

    @property
    def recipients(self) -> tuple[Recipient, ...]:
        mails = tuple(Recipient(self.name, "mail", address) for address in self.to)
        return (*mails, Recipient(self.name, "webhook", WEBHOOK)) if self.webhook_url_file else mails


@dataclass(frozen=True)
class Routes:
    """`fleet`: the administrators, as the team "". Without teams there is one report, the fleet's.

    `matchers`: (part, matcher) -> team. `sender`: the From of mails; None: not set. `list_unsubscribe`: where
    to ask to be left out; empty: nowhere.
    """

    fleet: TeamRoute = TeamRoute("", ())
    teams: tuple[TeamRoute, ...] = ()
    matchers: Mapping[tuple[str, str], str] = field(default_factory=dict)
    sender: Address | None = None
    list_unsubscribe: str = ""

    def team_of(self, what: WorkloadVerdict | Subject) -> str | None:
        """The team of a workload, or of what an incident is about; None: no team. By its nodes only where all of them
        are one team's."""
        owner = what.owner
        names: Mapping[str, Sequence[str | None]] = {
            "label": (owner.team,), "namespace": (owner.namespace,), "account": (owner.account,),
            "user": (owner.user,), "node": what.nodes,
        }  # fmt: skip
        for part, values in names.items():
            teams = {self._match(part, value) for value in values}
            if len(teams) == 1 and (team := teams.pop()) is not None:
                return team
        return self._match("sku", what.gpu_sku) or self._match("sku", what.node_sku)

    def team_of_node(self, node: str) -> str | None:
        """The team that a node belongs to by its name; None: none."""
        return self._match("node", node)

    def _match(self, part: str, name: str | None) -> str | None:
        if name is None:
            return None
        # Matchers do not overlap, so that one fits at most; a file can hold tens of thousands of them.
        fitting = ([] if name.endswith("*") else [name]) + [f"{name[:length]}*" for length in range(len(name), 0, -1)]
        return next((self.matchers[part, matcher] for matcher in fitting if (part, matcher) in self.matchers), None)


def routes_of(settings: ReportSettings, file: Path | None = None) -> Routes:
    """The routes of `file`, by default of ``report.teams``; none: no teams. Where they name no administrators, those of
    ``[report]``. Raises UsageError."""
    file = file or settings.teams
    routes = load_routes(file) if file is not None else Routes()
    to = routes.fleet.to or settings.administrators
    return replace(
        routes, fleet=TeamRoute("", to, settings.webhook_url_file), sender=settings.sender,
        list_unsubscribe=settings.list_unsubscribe or (f"mailto:{to[0]}?subject=unsubscribe" if to else ""),
    )  # fmt: skip


def _matchers(value: object, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name.strip() for name in value):
        raise UsageError(f"{what} is no list of names.", 'Write ["name", "beginning-*"], or leave the key out.')
    for matcher in value:
        if matcher == "*" or "*" in matcher[:-1]:
            raise UsageError(
                f"{what} holds {quoted(matcher)}: a star is allowed only at the end of a prefix.",
                "Workloads without a team go to the administrators.",
            )
    return tuple(value)


@dataclass(frozen=True, slots=True)
class _TeamTable:
    """A table ``[teams.NAME]``."""

    label: tuple[str, ...] = field(default=(), metadata={"parse": _matchers})
    namespace: tuple[str, ...] = field(default=(), metadata={"parse": _matchers})
    account: tuple[str, ...] = field(default=(), metadata={"parse": _matchers})
    user: tuple[str, ...] = field(default=(), metadata={"parse": _matchers})
    node: tuple[str, ...] = field(default=(), metadata={"parse": _matchers})
    sku: tuple[str, ...] = field(default=(), metadata={"parse": _matchers})
    to: tuple[str, ...] = field(default=(), metadata={"parse": mail_addresses})
    webhook_url_file: str = ""


@dataclass(frozen=True, slots=True)
class _RoutesTable:
    """The whole file."""

    administrators: tuple[str, ...] = field(default=(), metadata={"parse": mail_addresses})
    teams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def load_routes(file: Path) -> Routes:
    """The routes of a file. Raises UsageError, with file, line and key, for anything that is not strictly that."""
    try:
        whole = read_toml(file, f"The routes file {file}")
    except FileNotFoundError as error:
        raise UsageError(f"The routes file {file} cannot be read: {error.strerror}.", "Name one that can.") from error
    administrators = read_layers(_RoutesTable, [(str(file), whole)]).administrators
    tables = whole.get("teams", {})
    teams: list[TeamRoute] = []
    matchers: list[tuple[str, str, str, str]] = []  # sorted, whatever begins with a matcher stands right behind it
    for name, entry in tables.items():
        what = f"teams.{clean(name)[:QUOTED_MAX]} in {file}"
        if not name.strip() or not name.isprintable() or len(name) > _MAX_NAME:
            remedy = f"Use at most {_MAX_NAME} printable characters."
            raise UsageError(f"{what} is not a valid team name.", remedy)
        team = read_layers(_TeamTable, [(str(file), entry)], f"teams.{name}.")
        rows = [(part, m.removesuffix("*"), m, name) for part in PARTS for m in getattr(team, part)]
        if not team.to and not team.webhook_url_file:
            raise UsageError(f"{what} has no recipient.", 'Add to = ["team@example.org"].')
        if not rows:
            raise UsageError(f"{what} matches nothing.", f"Add one of {', '.join(PARTS)}.")
        teams.append(TeamRoute(name, team.to, team.webhook_url_file))
        matchers += rows
    for (part, start, matcher, team), (next_part, next_start, other, owner) in pairwise(sorted(matchers)):
        if part == next_part and (start == next_start or (matcher.endswith("*") and next_start.startswith(start))):
            what = f"teams.{owner}.{part} in {file}"
            raise UsageError(
                f"{what} holds {quoted(other)}, which overlaps {quoted(matcher)} of teams.{team}.",
                "Let each name fit one matcher.",
            )
    return Routes(TeamRoute("", administrators), tuple(teams), {(part, m): team for part, _, m, team in matchers})
