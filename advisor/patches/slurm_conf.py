"""slurm.conf and gres.conf with other lines, as text: what is not changed stays byte by byte."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from ...rules.base.errors import UsageError
from ...rules.base.sanitize import quoted

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
# Slurm reads keys in any case, and blanks around '='.
_PAIR = re.compile(r"""(?P<key>[A-Za-z]+)[ \t]*=[ \t]*(?P<value>"[^"]*"|[^\s#]*)""")
_RANGE = re.compile(r"(?P<head>[^\[\]]*)\[(?P<body>[0-9,-]+)\](?P<tail>[^\[\]]*)")
_HOSTS_MAX = 10_000


def is_conf(text: str) -> bool:
    """Whether it reads as slurm.conf or gres.conf."""
    return bool(
        re.search(
            r"^\s*(?:NodeName|PartitionName|ClusterName|Name|AutoDetect)[ \t]*=", text, re.MULTILINE | re.IGNORECASE
        )
    )


def is_gres(text: str) -> bool:
    """Whether it reads as gres.conf: lines of GRES, none of a cluster or a partition."""
    return not re.search(r"^\s*(?:PartitionName|ClusterName|SlurmctldHost)[ \t]*=", text, re.MULTILINE | re.IGNORECASE)


def hosts(expression: str) -> list[str]:
    """The nodes of ``n[1-3,5],m1``. Raises UsageError for what is none, or too long."""
    found: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", expression):
        ranged = _RANGE.fullmatch(part)
        if ranged is None:
            found.append(part)
            continue
        for piece in ranged["body"].split(","):
            first, _, last = piece.partition("-")
            if not first.isdecimal() or (last and not last.isdecimal()) or len(first) > 6 or len(last) > 6:
                raise UsageError(f"Invalid host list {quoted(expression)}.", "Write the nodes out.")
            numbers = range(int(first), int(last or first) + 1)
            if len(found) + len(numbers) > _HOSTS_MAX:
                raise UsageError(f"The host list {quoted(expression)} is too long.", "Write the nodes out.")
            found += [f"{ranged['head']}{n:0{len(first)}d}{ranged['tail']}" for n in numbers]
    return found


def with_node_values(text: str, nodes: Sequence[str], keys: Sequence[str], change: Callable[[str | None], str]) -> str:
    """The text with another value of a key in the lines of exactly these nodes. `keys`: its names, of which Slurm reads
    the first that is there. A line without it has the value of the lines NodeName=DEFAULT above, which it would lose.

    Raises UsageError where a line describes others too, or a node has no line.
    """
    lines = _LINE.findall(text)
    for n, line in _own(lines, nodes):
        key = next((one for one in keys if _value(line, one) is not None), None)
        inherited = _inherited(lines[:n], keys) if key is None else None
        lines[n] = with_value(line, key or keys[0], lambda old, inherited=inherited: change(old or inherited))
    return "".join(lines)


def _inherited(above: Sequence[str], keys: Sequence[str]) -> str | None:
    found: dict[str, str] = {}
    for line in above:
        if re.match(r"\s*include\s", line, re.IGNORECASE):
            raise UsageError(
                f"{keys[0]} of a node may come from a file that slurm.conf includes.", f"Write {keys[0]}= on its line."
            )
    for _, line in _told(above):
        if (_value(line, "NodeName") or "").upper() == "DEFAULT":
            found |= {key: value for key in keys if (value := _value(line, key)) is not None}
    return next((found[key] for key in keys if key in found), None)


def _own(
    lines: Sequence[str], nodes: Sequence[str], counts: Callable[[str], bool] = lambda _: True
) -> list[tuple[int, str]]:
    """The lines that describe exactly these nodes, of those that count."""
    found, left = [], set(nodes)
    for n, line in _told(lines):
        own = set(hosts(_value(line, "NodeName") or ""))
        touched = own & set(nodes)
        if not touched or not counts(line):
            continue
        if not own <= set(nodes):
            raise UsageError(
                f"One line describes {len(own)} nodes, of which {len(touched)} change.",
                f"Split the line of {quoted(sorted(touched)[0])} in two first, or name them all with --node.",
            )
        found.append((n, line))
        left -= touched
    if left:
        raise UsageError(f"The file has no line for node {quoted(sorted(left)[0])}.", "Name the nodes with --node.")
    return found


def _told(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Lines of nodes that are no comments and not continued."""
    for n, line in enumerate(lines):
        if not re.match(r"\s*NodeName[ \t]*=", line, re.IGNORECASE):
            continue
        if line.rstrip().endswith("\\") or (n and lines[n - 1].rstrip().endswith("\\")):
            raise UsageError("A line of a node is continued with a backslash.", "Join it to one line first.")
        yield n, line


def _value(line: str, key: str) -> str | None:
    for pair in _PAIR.finditer(line.partition("#")[0]):
        if pair["key"].lower() == key.lower():
            return pair["value"].strip('"')
    return None


def with_value(line: str, key: str, change: Callable[[str | None], str]) -> str:
    """A line with another value of a key; it is added at the end where it is not there."""
    told, mark, comment = line.partition("#")
    for pair in _PAIR.finditer(told):
        if pair["key"].lower() == key.lower():
            start, end = pair.span("value")
            return f"{told[:start]}{change(pair['value'].strip(chr(34)))}{told[end:]}{mark}{comment}"
    bare = told.rstrip()
    return f"{bare} {key}={change(None)}{told[len(bare) :]}{mark}{comment}"


def with_feature(text: str, nodes: Sequence[str], feature: str) -> str:
    def more(old: str | None) -> str:
        known = [one for one in (old or "").split(",") if one]
        return ",".join([*known, *([] if feature in known else [feature])])

    return with_node_values(text, nodes, ("Feature", "Features"), more)


def with_partition(text: str, name: str, nodes: Sequence[str]) -> str:
    """One more partition at the end. Raises UsageError where it is there."""
    if re.search(rf"^\s*PartitionName[ \t]*=[ \t]*{re.escape(name)}(?:\s|$)", text, re.MULTILINE | re.IGNORECASE):
        raise UsageError(f"The partition {quoted(name)} is there already.", "Name it in the batch script instead.")
    gap = "" if text.endswith("\n") or not text else "\n"
    return f"{text}{gap}PartitionName={name} Nodes={','.join(nodes)} State=UP\n"


def with_mig_gres(text: str, counts: dict[str, int], each: int, profile: str) -> str:
    """slurm.conf with so many GPUs of each node as MIG instances, `each` of them on a GPU."""
    for count in sorted(set(counts.values())):
        own = [node for node, found in counts.items() if found == count]

        def fewer(old: str | None, count: int = count) -> str:
            kept, taken = [], False
            for one in [part for part in (old or "").split(",") if part]:
                found = re.fullmatch(r"gpu(?::(?P<type>[^:(]+))?:(?P<count>[0-9]{1,4})(?P<more>\(.*\))?", one)
                if found is None or taken or found["type"] == profile:
                    kept.append(one)
                    continue
                taken, left = True, int(found["count"]) - count
                if left < 0:
                    raise UsageError(
                        f"A node has {found['count']} GPUs, fewer than {count}.", "Name other nodes with --node."
                    )
                head = f"gpu:{found['type']}" if found["type"] else "gpu"
                kept += [f"{head}:{left}{found['more'] or ''}"] if left else []
            if not taken:
                raise UsageError("A node's line has no Gres=gpu.", "Name the slurm.conf that is in use.")
            return ",".join([*kept, f"gpu:{profile}:{count * each}"])

        text = with_node_values(text, own, ("Gres",), fewer)
    return text


def with_detected_gres(text: str, nodes: Sequence[str]) -> str:
    """gres.conf with the GPUs and instances of these nodes found by NVML: device files of instances have no fixed
    names. Lines of other GRES stay.

    Raises UsageError where NVML finds those of all nodes already, or a line has GPUs of all nodes."""
    lines = _LINE.findall(text)
    everywhere = [one for one in lines if not one.lstrip().startswith("#") and _value(one, "NodeName") is None]
    if any((_value(one, "AutoDetect") or "").lower() == "nvml" for one in everywhere):
        raise UsageError(
            "gres.conf has AutoDetect=nvml, which finds MIG instances: it needs no change.", "Leave it out."
        )
    if any((_value(one, "Name") or "").lower() == "gpu" for one in everywhere):
        raise UsageError("A line of gres.conf has GPUs of all nodes.", "Begin the line with NodeName= and its nodes.")
    (first, line), *more = _own(lines, nodes, _is_of_gpus)
    lines[first] = f"NodeName={','.join(nodes)} AutoDetect=nvml{line[len(line.rstrip()) :]}"
    for n, _ in more:
        lines[n] = ""
    return "".join(lines)


def _is_of_gpus(line: str) -> bool:
    """Whether a line of gres.conf describes GPUs, or tells how those of its nodes are found (AutoDetect alone)."""
    name = _value(line, "Name")
    return name.lower() == "gpu" if name is not None else _value(line, "AutoDetect") is not None
