"""Which team's a workload is and who is told: the routes file, strict TOML.

```toml
administrators = ["gpu-platform@example.org"]

[teams.search]
namespace = ["search", "search-*"]
to = ["search-leads@example.org"]
```

A matcher is a name, or its beginning and a star. No two of a kind may fit the same name, so that no order of the teams
decides anything; of the kinds the narrowest decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import QUOTED_MAX, clean, quoted
from ...rules.base.suggestions import suggest
from ...rules.base.toml import line_of, read_toml
from ..core.verdict_types import Owner, WorkloadVerdict
from .addresses import bare_address

# In the order in which they decide. `label` is the team that telemetry names by itself; `sku` a GPU's or a node's.
PARTS = ("label", "namespace", "account", "user", "node", "sku")
_TEAM_KEYS = (*PARTS, "to", "webhook_url_file")
_KEYS = ("administrators", "teams")
_MAX_NAME = 100


@dataclass(frozen=True, slots=True)
class TeamRoute:
    """One team. `to`: its addresses; `webhook_url_file`: the file with its webhook's address, empty: it has none."""

    name: str
    to: tuple[str, ...]
    webhook_url_file: str = ""


@dataclass(frozen=True)
class Routes:
    """Who is told what. Without teams there is one report, of the fleet, to the administrators.

    `matchers`: (part, matcher) -> team.
    """

    administrators: tuple[str, ...] = ()
    teams: tuple[TeamRoute, ...] = ()
    matchers: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """How long the beginnings are that stand before a star."""
        return tuple(sorted({len(matcher) - 1 for _, matcher in self.matchers if matcher.endswith("*")}))

    def whose(self, workload: WorkloadVerdict) -> str | None:
        """The team whose a workload is; None: nobody's. By its nodes only where all of them are one team's."""
        return self.whose_owner(workload.owner, workload.nodes, workload.gpu_sku, workload.node_sku)

    def whose_owner(self, owner: Owner, nodes: Sequence[str], gpu_sku: str | None, node_sku: str | None) -> str | None:
        """The team of what has this owner and runs on these nodes; None: no team."""
        names: Mapping[str, Sequence[str | None]] = {
            "label": (owner.team,), "namespace": (owner.namespace,), "account": (owner.account,),
            "user": (owner.user,), "node": nodes,
        }  # fmt: skip
        for part, values in names.items():
            teams = {self._fits(part, value) for value in values}
            if len(teams) == 1 and (team := teams.pop()) is not None:
                return team
        return self._fits("sku", gpu_sku) or self._fits("sku", node_sku)

    def whose_node(self, node: str) -> str | None:
        """The team whose a node is by its name; None: nobody's."""
        return self._fits("node", node)

    def _fits(self, part: str, name: str | None) -> str | None:
        if name is None:
            return None
        if not name.endswith("*") and (exact := self.matchers.get((part, name))) is not None:
            return exact
        # Matchers do not overlap, so that one beginning fits at most; a file can hold tens of thousands of them.
        beginnings = (self.matchers.get((part, f"{name[:length]}*")) for length in self.lengths if length <= len(name))
        return next((team for team in beginnings if team is not None), None)


def load_routes(file: Path) -> Routes:
    """The routes of a file. Raises UsageError, with file and key, for anything that is not strictly that."""
    table = _read(file)
    for key in table:
        if key not in _KEYS:
            remedy = suggest(key, _KEYS) or f"Known: {', '.join(_KEYS)}."
            raise _fault(_At(file, table, key), key, "is no key of a routes file.", remedy)
    administrators = _addresses(_At(file, table, "administrators"), "administrators", table.get("administrators", []))
    teams_table = table.get("teams", {})
    if not isinstance(teams_table, dict):
        raise _fault(_At(file, table, "teams"), "teams", "is not a table.", "Write [teams.NAME] above each team.")
    teams: list[TeamRoute] = []
    found: list[tuple[str, str, str]] = []
    for name, entry in teams_table.items():
        teams.append(_team(file, _At(file, teams_table, name), name, entry))
        found += [(part, matcher, name) for part, matcher in _matchers(file, name, entry)]
    _check_overlaps(file, teams_table, found)
    return Routes(administrators, tuple(teams), {(part, matcher): name for part, matcher, name in found})


def _check_overlaps(file: Path, teams: Mapping[str, object], found: Sequence[tuple[str, str, str]]) -> None:
    """Raises UsageError where some name fits two of the (part, matcher, team)."""
    # In order, whatever begins with a matcher stands right behind it.
    ordered = sorted((part, matcher.removesuffix("*"), matcher, team) for part, matcher, team in found)
    for (part, start, matcher, team), (next_part, next_start, other, owner) in pairwise(ordered):
        if part == next_part and (start == next_start or (matcher.endswith("*") and next_start.startswith(start))):
            first = f"{quoted(matcher)} of teams.{clean(team)[:QUOTED_MAX]}"
            raise _fault(
                _At(file, teams[owner], part), f"teams.{owner}.{part}",
                f"holds {quoted(other)}, which overlaps {first}.", "Let each name fit one matcher.",
            )  # fmt: skip


def _read(file: Path) -> Mapping[str, object]:
    try:
        return read_toml(file, f"The routes file {file}")
    except FileNotFoundError as error:
        raise UsageError(f"The routes file {file} cannot be read: {error.strerror}.", "Name one that can.") from error


def _team(file: Path, place: _At, name: str, entry: object) -> TeamRoute:
    key = f"teams.{name}"
    if not name.strip() or not name.isprintable() or len(name) > _MAX_NAME:
        raise _fault(
            place, key, f"is not a valid team name: use at most {_MAX_NAME} printable characters.", "Rename it."
        )
    if not isinstance(entry, dict):
        raise _fault(place, key, "is not a table.", "Write [teams.NAME] above its keys.")
    for own in entry:
        if own not in _TEAM_KEYS:
            remedy = suggest(own, _TEAM_KEYS) or f"Known: {', '.join(_TEAM_KEYS)}."
            raise _fault(_At(file, entry, own), f"{key}.{own}", "is no key of a team.", remedy)
    to = _addresses(_At(file, entry, "to"), f"{key}.to", entry.get("to", []))
    webhook = entry.get("webhook_url_file", "")
    if not isinstance(webhook, str) or not (webhook == "" or webhook.isprintable()):
        place = _At(file, entry, "webhook_url_file")
        raise _fault(place, f"{key}.webhook_url_file", "is not a path.", "Name the file that holds the address.")
    if not to and not webhook:
        raise _fault(place, key, "has no recipient.", 'Add to = ["team@example.org"].')
    if not any(entry.get(part) for part in PARTS):
        raise _fault(place, key, "matches nothing.", f"Add one of {', '.join(PARTS)}.")
    return TeamRoute(name, to, webhook)


def _matchers(file: Path, team: str, entry: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for part in PARTS:
        key, place = f"teams.{team}.{part}", _At(file, entry, part)
        matchers = entry.get(part)
        if matchers is None:
            continue
        if not isinstance(matchers, list) or not matchers:
            raise _fault(place, key, "is no list of names.", 'Write ["name", "beginning-*"], or leave the key out.')
        for matcher in matchers:
            if not isinstance(matcher, str) or not matcher.strip() or not matcher.isprintable():
                raise _fault(place, key, "holds a value that is not text.", "Write names in quotes.")
            if matcher == "*" or "*" in matcher[:-1]:
                raise _fault(
                    place, key, f"holds {quoted(matcher)}: a star is allowed only at the end of a prefix.",
                    "Workloads without a team go to the administrators.",
                )  # fmt: skip
            yield part, matcher


def _addresses(place: _At, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _fault(place, key, "is no list of addresses.", 'Write ["ann@example.org"].')
    try:
        found = tuple(bare_address(one, key) for one in value)
    except UsageError as error:
        raise UsageError(f"{place}: {error.message}", error.remedy) from None
    if len({address.lower() for address in found}) < len(found):
        raise _fault(place, key, "names an address twice.", "Name it once.")
    return found


@dataclass(frozen=True, slots=True)
class _At:
    """Where a key is: ``FILE:LINE``. Written out, which reads the file's lines, where something is wrong alone."""

    file: Path
    values: object
    key: str

    def __str__(self) -> str:
        return f"{self.file}{line_of(self.values, self.key)}"


def _fault(place: _At, key: str, sentence: str, remedy: str) -> UsageError:
    return UsageError(f"{place}: {clean(key)[:QUOTED_MAX]} {sentence}", remedy)
