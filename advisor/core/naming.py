"""Which of many things a person means: by id, the beginning of one, name, job id, node, or ``name@node``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...rules.base.errors import UsageError
from ...rules.base.output import columns
from ...rules.base.sanitize import quoted, suggest
from .ids import short_ids

# So many characters of an id are enough where they name one thing only.
PREFIX_MIN = 4
_LISTED = 20
_NODES_LISTED = 2
_BRIEFLY_LISTED = 5
_HEX = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Named:
    """One thing that can be named. `what`: what it is; `when`, `cost`: for the list of candidates."""

    id: str
    what: str
    name: str = ""
    nodes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    when: str = ""
    cost: str = ""


class AmbiguousError(UsageError):
    """One name, several things: the remedy lists them as a table, with a command for each."""

    def __init__(self, asked: str, found: Sequence[Named], command: Callable[[str], str]) -> None:
        self.found = tuple(found)
        short = short_ids(one.id for one in found)
        shown = found[:_LISTED]
        rows = [(short[one.id], one.what, nodes_words(one.nodes), one.when, one.cost) for one in shown]
        table = columns(("ID", "what", "node", "when", "cost"), rows)
        more = f"\n({len(found) - len(shown)} more are not listed.)" if len(found) > len(shown) else ""
        commands = "\n".join(f"  {command(short[one.id])}" for one in shown)
        self.ids = tuple(short.values())
        super().__init__(
            f"{quoted(asked)} matches {len(found)} items.", f"Choose one:\n\n{table}{more}\n\nRun one of:\n{commands}"
        )

    @property
    def brief(self) -> str:
        """One line, for where there is no room for a table."""
        listed = ", ".join(self.ids[:_BRIEFLY_LISTED])
        more = f" and {len(self.ids) - _BRIEFLY_LISTED} more" if len(self.ids) > _BRIEFLY_LISTED else ""
        return f"{self.message} Use one of these IDs: {listed}{more}."


def matching(asked: str, every: Sequence[Named]) -> list[Named]:
    """The things that `asked` names. An exact id comes first, then a job id, a name, name@node, a node, and the
    beginning of an id last."""
    word = asked.strip()
    if not word:
        return []
    name, at, node = word.rpartition("@")
    is_hex = _HEX.fullmatch(word) is not None
    ways: tuple[Callable[[Named], bool], ...] = (
        lambda one: one.id == word,
        lambda one: word in one.jobs,
        lambda one: one.name == word,
        lambda one: bool(at) and one.name == name and node in one.nodes,
        lambda one: word in one.nodes,
        lambda one: (
            len(word) >= PREFIX_MIN
            and (one.id.startswith(word) or (is_hex and one.id.partition("-")[2].startswith(word)))
        ),
    )
    return next((found for fits in ways if (found := [one for one in every if fits(one)])), [])


def unknown(asked: str, every: Sequence[Named], where: str, remedy: str) -> UsageError:
    """That nothing has this name, with the nearest names; `remedy` where none is near."""
    names = [name for one in every for name in (one.id, one.name, *one.nodes, *one.jobs) if name]
    near = suggest(asked, list(dict.fromkeys(names)))
    return UsageError(f"No match for {quoted(asked)} {where}.", near or remedy)


def nodes_words(nodes: Sequence[str]) -> str:
    """The first nodes by name, and how many more there are."""
    more = len(nodes) - _NODES_LISTED
    return ", ".join(nodes[:_NODES_LISTED]) + (f" and {more} more" if more > 0 else "")
