"""Reads ``teams/NAME/``: what one team sets apart from its site, for the workloads that are its own.

A team's folder holds ``waste/``, ``custom/`` and ``exceptions.yaml``, shaped as a site's. Who belongs to it stands in
its ``team.yaml``; an owner who carries the team's name always does. Kinds, bottlenecks, GPUs, nodes
and premiums are one for all: a node that two teams share is not measured twice.

```yaml
# teams/search/team.yaml
namespace: [search, search-staging]
account: [srch]
```
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Protocol

from ..base.sanitize import quoted
from ..base.typed import Text, wrong
from ..base.yaml_loader import TEAM_FILE, TEAMS_FOLDER, each, read

# In the order in which they decide where an owner fits several: the narrowest claim of a team comes first.
PARTS = ("team", "namespace", "account", "user")


class OwnerLike(Protocol):
    """Who owns a workload, as far as telemetry tells it; None: not told."""

    @property
    def team(self) -> str | None: ...
    @property
    def namespace(self) -> str | None: ...
    @property
    def account(self) -> str | None: ...
    @property
    def user(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Owners:
    """Owners by the exact names that fit. Empty: nobody."""

    team: frozenset[Text] = frozenset()
    namespace: frozenset[Text] = frozenset()
    account: frozenset[Text] = frozenset()
    user: frozenset[Text] = frozenset()

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    def rank(self, owner: OwnerLike) -> int | None:
        """Position in `PARTS` of the first part that fits; None: the owner is none of these."""
        fitting = (n for n, part in enumerate(PARTS) if getattr(owner, part) in getattr(self, part))
        return next(fitting, None)

    def fits(self, owner: OwnerLike) -> bool:
        return self.rank(owner) is not None


@dataclass(frozen=True, slots=True)
class Team:
    """One team: its name, its folder of rules, and whose workloads are its own."""

    name: str
    folder: Path
    owners: Owners


def load_teams(rules_dir: Path | None) -> tuple[Team, ...]:
    """The teams of a site's rules folder, by name. An owner that two teams claim is refused."""
    folder = rules_dir / TEAMS_FOLDER if rules_dir is not None else None
    if folder is None or not folder.is_dir():
        return ()
    teams: list[Team] = []
    claimed: dict[tuple[str, str], str] = {}

    def read_one(root: Path) -> None:
        file = root / TEAM_FILE
        owners = read(file, Owners) if file.is_file() else Owners()
        owners = replace(owners, team=owners.team | {root.name})
        for part in PARTS:
            for name in sorted(getattr(owners, part)):
                other = claimed.setdefault((part, name), root.name)
                if other != root.name:
                    raise wrong(
                        file, part, f"{quoted(name)} is already of team {quoted(other)}", "Name it in one team."
                    )
        teams.append(Team(root.name, root, owners))

    each(sorted(path for path in folder.iterdir() if path.is_dir()), read_one)
    return tuple(teams)


def team_of(teams: Sequence[Team], owner: OwnerLike) -> Team | None:
    """The team whose an owner is; None: no team's. A label or namespace decides before an account, that before a user.

    Two teams never claim the same name, so what fits best is one.
    """
    ranked = [(rank, team) for team in teams if (rank := team.owners.rank(owner)) is not None]
    return min(ranked, key=lambda pair: pair[0])[1] if ranked else None
