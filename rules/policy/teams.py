"""Owners of workloads, the teams of a site's rules folder (``teams/NAME/``), and the layers of rules.

A team's folder holds ``waste/``, ``custom/`` and ``exceptions.yaml``, shaped as a site's, for the team's own workloads.
``team.yaml`` defines these; an owner with the team's name needs no entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from ..base.sanitize import quoted
from ..base.typed import Strict, Text, wrong
from ..base.yaml_loader import TEAM_FILE, TEAMS_FOLDER, Faults, layers, read

# In order of precedence where an owner matches several teams.
PARTS = ("team", "namespace", "account", "user")


class OwnerLike(Protocol):
    """Owner of a workload, as far as telemetry has it; None: unknown."""

    @property
    def team(self) -> str | None: ...
    @property
    def namespace(self) -> str | None: ...
    @property
    def account(self) -> str | None: ...
    @property
    def user(self) -> str | None: ...


class Owners(Strict, frozen=True):
    """Owners by exact names; one match is enough. Empty: no owner."""

    team: frozenset[Text] = frozenset()
    namespace: frozenset[Text] = frozenset()
    account: frozenset[Text] = frozenset()
    user: frozenset[Text] = frozenset()

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__)

    def rank(self, owner: OwnerLike) -> int | None:
        """Position in `PARTS` of the first part that matches; None: the owner is none of these."""
        return next((n for n, part in enumerate(PARTS) if getattr(owner, part) in getattr(self, part)), None)


class Team(NamedTuple):
    """A team: its name, its folder of rules, and the owners of its workloads."""

    name: str
    folder: Path
    owners: Owners


class Layer(NamedTuple):
    """A folder of rules. `origin`: ``shipped``, ``site`` or ``team NAME``."""

    origin: str
    folder: Traversable | Path
    team: Team | None = None


def every_layer(rules_dir: Path | None, faults: Faults) -> Iterator[Layer]:
    """The folders of rules: those that ship, a site's, and its teams'. `faults` collects errors of team files."""
    for origin, folder in layers(rules_dir):
        yield Layer(origin, folder)
    for team in load_teams(rules_dir, faults):
        yield Layer(f"team {team.name}", team.folder, team)


def load_teams(rules_dir: Path | None, faults: Faults | None = None) -> tuple[Team, ...]:
    """The teams of a site's rules folder, by name. Raises RulesError, also for an owner that two teams claim; `faults`
    collects these errors instead, so that the other files of a team are read."""
    folder = rules_dir / TEAMS_FOLDER if rules_dir is not None else None
    teams: list[Team] = []
    claimed: dict[tuple[str, str], str] = {}
    collected = Faults() if faults is None else faults
    for root in sorted(path for path in folder.iterdir() if path.is_dir()) if folder and folder.is_dir() else ():
        file, owners = root / TEAM_FILE, Owners()
        with collected:
            owners = read(file, Owners) if file.is_file() else owners
            owners = msgspec.structs.replace(owners, team=owners.team | {root.name})
            for part, name in ((key, value) for key in PARTS for value in sorted(getattr(owners, key))):
                other = claimed.setdefault((part, name), root.name)
                if other != root.name:
                    raise wrong(
                        file, part, f"{quoted(name)} is already of team {quoted(other)}", "Name it in one team."
                    )
        teams.append(Team(root.name, root, owners))
    if faults is None:
        collected.raise_all()
    return tuple(teams)


def team_of(teams: Sequence[Team], owner: OwnerLike) -> Team | None:
    """The owner's team; None: no team's. Two teams never claim the same name, so the best rank is unique."""
    ranked = [(rank, team) for team in teams if (rank := team.owners.rank(owner)) is not None]
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None
