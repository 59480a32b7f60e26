"""Which file is believed about which node.

A file of the agent is one machine's: it tells of one node, or of one that was renamed. It is believed about that node.
A file of several nodes (simulated, or gathered) is nobody's own. Where two of its nodes or more have files of their
own, or half of them, it is not believed about those; otherwise it counts as much as any, and a file of one node is no
more than its word against it. What is left may tell of one node several times:
files that agree are joined (`copies`); where they contradict one another, or where a GPU is told of on two nodes at
once, nothing says which is right, and the node is refused: its GPUs stay in every count as not observed, and no dollar
comes of them.

One file can therefore take from the advice at most one node of others. A file that contradicts several nodes about
their GPUs is alone against all of them, whatever nodes it tells of, and only these are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# File -> the nodes about which it is believed; None: all of which it tells.
Believed = Mapping[Path, Collection[str] | None]
# Codes of a `DisbelievedNode`.
CONTRADICTION, TWO_PLACES = "contradicting-copies", "gpu-in-two-places"


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """What a file says that it is. `machines`: node -> machine id (None: not told). `in_turn`: its nodes are names of
    one machine that followed one another."""

    file: int
    machines: Mapping[str, str | None]
    in_turn: bool

    @property
    def own(self) -> bool:
        return len(self.machines) == 1 or self.in_turn


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two files that cannot both be right, and the nodes that they tell of. `code`: why."""

    one: int
    one_node: str
    other: int
    other_node: str
    code: str

    def ends(self) -> tuple[tuple[int, str], tuple[int, str]]:
        return (self.one, self.one_node), (self.other, self.other_node)


@dataclass(frozen=True, slots=True)
class DisbelievedNode:
    """A node that is not believed. `files`: those that contradict one another about it."""

    node: str
    code: str
    files: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trust:
    """`elsewhere`: (file, node) that others tell of themselves, so that the file is not believed about it. `refused`:
    by node."""

    elsewhere: frozenset[tuple[int, str]] = frozenset()
    refused: Mapping[str, DisbelievedNode] = field(default_factory=dict)


def believed_of(source: Mapping[str, object], paths: Iterable[Path]) -> Believed:
    """What a frame's or an advice's ``source`` says of these files."""
    told = source.get("believed")
    if not isinstance(told, Mapping):
        return dict.fromkeys(paths)
    return {path: told.get(str(path), ()) for path in paths}


def speaks_for_others(claims: Sequence[NodeClaim]) -> frozenset[tuple[int, str]]:
    """Files of several nodes with those of their nodes that have files of their own, where these are several or half.

    How many nodes beside them a file tells of counts for nothing: it may have made them up.
    """
    single = {(node, id_) for claim in claims if len(claim.machines) == 1 for node, id_ in claim.machines.items()}

    def is_own(claim: NodeClaim) -> bool:
        # A machine that was renamed may leave one copy under an old name; the names of several others are not its own.
        told = set(claim.machines.items())
        others = {node for node, id_ in single - told if node in claim.machines}
        return claim.own and (len(claim.machines) == 1 or len(others) < 2)

    own = {node for claim in claims if is_own(claim) for node in claim.machines}
    found: set[tuple[int, str]] = set()
    for claim in claims:
        theirs = own.intersection(claim.machines)
        if not is_own(claim) and (len(theirs) > 1 or 2 * len(theirs) >= len(claim.machines)):
            found.update((claim.file, node) for node in theirs)
    return frozenset(found)


def decide(conflicts: Iterable[Conflict]) -> dict[str, DisbelievedNode]:
    """The nodes that conflicts leave unproven.

    A file that is at odds with several nodes over their GPUs is refused first, with all nodes of its that are, the one
    with the most of them before the others; what conflicts are left are between two, and both are refused.
    """
    left = set(conflicts)
    refused: dict[str, set[int]] = {}
    codes: dict[str, str] = {}

    def refuse(node: str, because: Iterable[Conflict]) -> None:
        for conflict in because:
            refused.setdefault(node, set()).update((conflict.one, conflict.other))
            codes.setdefault(node, conflict.code)

    while True:
        against: dict[int, set[str]] = {}
        opposed: dict[int, set[int]] = {}
        for conflict in left:
            if conflict.one_node != conflict.other_node and conflict.one != conflict.other:
                ends = conflict.ends()
                for (file, _), (other, node) in (ends, ends[::-1]):
                    against.setdefault(file, set()).add(node)
                    opposed.setdefault(file, set()).add(other)
        alone = [
            file for file, nodes in against.items()
            if len(nodes) > 1 and all(len(against[other]) < len(nodes) for other in opposed[file])
        ]  # fmt: skip
        if not alone:
            break
        worst = max(alone, key=lambda file: (len(against[file]), file))
        crossing = [conflict for conflict in left if conflict.one_node != conflict.other_node]
        for node in {node for conflict in crossing for file, node in conflict.ends() if file == worst}:
            own = {conflict for conflict in left if node in (conflict.one_node, conflict.other_node)}
            refuse(node, own)
            left -= own
    for conflict in sorted(left, key=lambda one: (one.one_node, one.other_node, one.one, one.other)):
        for node in {conflict.one_node, conflict.other_node}:
            refuse(node, (conflict,))
    return {node: DisbelievedNode(node, codes[node], tuple(sorted(files))) for node, files in sorted(refused.items())}
