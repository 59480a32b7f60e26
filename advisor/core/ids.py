"""Ids that are stable over runs, so that a ledger can follow them, their short form for tables, and what a person means
by an id, the beginning of one, a name, a job id, a node, or ``name@node``."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...rules.base.errors import UsageError
from ...rules.base.output import columns
from ...rules.base.sanitize import quoted, suggest

PREFIX_MIN = 4  # characters of an id that are enough
_LISTED = 20
_HEX = re.compile(r"[0-9a-f]+")


def stable_id(prefix: str, *parts: object) -> str:
    """`prefix` and twelve hex digits of a hash over the parts, which may hold any text."""
    joined = "\x1f".join("" if p is None else str(p) for p in parts)
    return f"{prefix}-{hashlib.sha256(joined.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def short_id(full: str, digits: int = 8) -> str:
    """The short form of an id (``w-7d371f98``); every command accepts it as the beginning of the id."""
    prefix, dash, rest = full.partition("-")
    return f"{prefix}-{rest[:digits]}" if dash else full[:digits]


def short_ids(every: Iterable[str]) -> Mapping[str, str]:
    """The short form of each id, longer where ids would share it."""
    digits, short = 8, {full: short_id(full) for full in every}
    while True:
        counts = Counter(short.values())
        alike = [full for full in short if counts[short[full]] > 1 and short[full] != full]
        if not alike:
            return short
        digits += 2
        short |= {full: short_id(full, digits) for full in alike}


@dataclass(frozen=True, slots=True)
class Named:
    """Something that can be named. `what`, `when`, `cost`: for the list of candidates."""

    id: str
    what: str
    name: str = ""
    nodes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    when: str = ""
    cost: str = ""


class AmbiguousError(UsageError):
    """A name with several matches: the remedy lists them as a table, with a command for each."""

    def __init__(self, asked: str, matches: Sequence[Named], command: Callable[[str], str]) -> None:
        short, rows = short_ids(match.id for match in matches), []
        for match in matches[:_LISTED]:
            more = f" and {len(match.nodes) - 2} more" if len(match.nodes) > 2 else ""
            rows.append((short[match.id], match.what, ", ".join(match.nodes[:2]) + more, match.when, match.cost))
        table = columns(("ID", "what", "node", "when", "cost"), rows)
        rest = f"\n({len(matches) - _LISTED} more are not listed.)" if len(matches) > _LISTED else ""
        commands = "\n".join(f"  {command(row[0])}" for row in rows)
        remedy = f"Choose one:\n\n{table}{rest}\n\nRun one of:\n{commands}"
        super().__init__(f"{quoted(asked)} matches {len(matches)} items.", remedy)


def matching(asked: str, every: Sequence[Named]) -> list[Named]:
    """What `asked` names, by the first rule that matches: id, job id, name, name@node, node, beginning of an id."""
    word = asked.strip()
    name, at, node = word.rpartition("@")
    is_hex = len(word) >= PREFIX_MIN and _HEX.fullmatch(word) is not None
    rules: tuple[Callable[[Named], bool], ...] = (
        lambda entry: entry.id == word,
        lambda entry: word in entry.jobs,
        lambda entry: entry.name == word,
        lambda entry: bool(at) and entry.name == name and node in entry.nodes,
        lambda entry: word in entry.nodes,
        lambda entry: len(word) >= PREFIX_MIN and entry.id.startswith(word),
        lambda entry: is_hex and entry.id.partition("-")[2].startswith(word),
    )
    return next((matches for fits in rules if word and (matches := [e for e in every if fits(e)])), [])


def unknown(asked: str, every: Sequence[Named], where: str, remedy: str) -> UsageError:
    """The error for a name without a match: suggests the nearest names, else `remedy`."""
    names = [name for entry in every for name in (entry.id, entry.name, *entry.nodes, *entry.jobs) if name]
    return UsageError(f"No match for {quoted(asked)} {where}.", suggest(asked, list(dict.fromkeys(names))) or remedy)


def resolve(asked: str, every: Sequence[Named], where: str, remedy: str, command: Callable[[str], str]) -> Named:
    """The single match. `command` gives the command line for an id. Raises AmbiguousError for several matches,
    UsageError for none."""
    match matching(asked, every):
        case []:
            raise unknown(asked, every, where, remedy)
        case [match]:
            return match
        case matches:
            raise AmbiguousError(asked, matches, command)
