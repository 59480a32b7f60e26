"""Whose telemetry a frame is: the fleet's identity, by which ledgers are told apart."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256

import pandas as pd

from .advice_types import Fleet
from .frame import Frame


def fleet_mark(*parts: object) -> str:
    """Eight hexadecimal digits that tell one simulated fleet from others: two of them have no GPU in common, and so no
    ledger either. `parts`: what decides the fleet."""
    return simulated_hex("fleet", *map(str, parts))[:8]


def gpu_uuid(mark: str, node: str, index: int) -> str:
    """The UUID of a simulated GPU. It begins with the fleet's mark and follows from where the GPU is, so that simulated
    telemetry can be recognized."""
    digest = simulated_hex("gpu", mark, node, str(index))
    return f"GPU-{mark}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def is_simulated(uuid: str, node: str, index: int) -> bool:
    """Whether the simulator made this GPU; no driver makes such a UUID."""
    return uuid == gpu_uuid(uuid[4:12], node, index)


def simulated_hex(*parts: str) -> str:
    """64 hexadecimal digits that `parts` alone decide."""
    return sha256("\0".join(parts).encode()).hexdigest()


# Names of external labels that tell copies of one server apart (Prometheus Operator, Thanos, Mimir), not fleets.
_REPLICAS = re.compile(r".*replica.*", re.IGNORECASE)
_BLANKS = re.compile(r"\s*(=~|!~|!=|=)\s*")
_NAMED = 3


def fleet_of(frame: Frame) -> Fleet:
    """The identity of the fleet in a frame.

    GPUs are known by their UUIDs, which are unique everywhere and the same through databases and servers. A node
    without any is known by its machine id (not more: machines of one image may share it), else by its name.
    """
    source, nodes = frame.source, frame.nodes
    names = [str(name) for name in nodes["node"]]
    devices = _devices(frame.gpus)
    members = {uuid: node for uuid, node, _ in devices}
    machines = nodes["machine_id"] if "machine_id" in nodes else pd.Series([None] * len(nodes))
    known = set(members.values())
    for node, id_ in zip(names, machines, strict=True):
        if node not in known:
            members[f"machine {id_}" if isinstance(id_, str) and id_ else f"node {node}"] = node
    clusters = {str(name) for name in nodes["cluster"] if isinstance(name, str) and name} if len(nodes) else set()
    files = source.get("databases")
    places = frozenset(map(str, files)) if isinstance(files, list | tuple) else frozenset()
    url = str(source.get("url", ""))
    match = source.get("match", ())
    labels = {name: value for name, value in frame.external_labels.items() if not _REPLICAS.fullmatch(name)}
    simulated = any(
        isinstance(at, int | float) and math.isfinite(at) and is_simulated(uuid, node, int(at))
        for uuid, node, at in devices
    )
    return Fleet(
        name=_name(clusters, labels, names, simulated=simulated),
        simulated=simulated,
        match=matchers(map(str, match)) if isinstance(match, list | tuple) else (),
        clusters=frozenset(clusters),
        members=members,
        nodes=frozenset(names),
        sources=places or frozenset({url}),
        server=url,
        labels=labels,
        start=frame.window.start,
        end=frame.window.end,
    )


def matchers(match: Iterable[str]) -> tuple[str, ...]:
    """Label matchers in one spelling: in order, each once, without blanks around the sign."""
    return tuple(sorted({_BLANKS.sub(r"\1", one.strip(), count=1) for one in match}))


def _devices(gpus: pd.DataFrame) -> list[tuple[str, str, object]]:
    """UUID, node and index of whole GPUs: an instance of MIG stands for its parent."""
    found: dict[str, tuple[str, str, object]] = {}
    for uuid, parent, node, index in gpus[["gpu_uuid", "parent_uuid", "node", "gpu_index"]].itertuples(index=False):
        whole = parent if isinstance(parent, str) and parent else uuid
        if isinstance(whole, str) and whole and isinstance(node, str):
            found.setdefault(whole, (whole, node, index))
    return list(found.values())


def _name(clusters: Iterable[str], labels: Mapping[str, str], nodes: Iterable[str], *, simulated: bool) -> str:
    """What people may call it: its clusters, else its nodes."""
    named, ordered = sorted(clusters) or [labels[n] for n in ("cluster",) if labels.get(n)], sorted(nodes)
    if simulated:
        named = []  # made from the provider's name: every simulated fleet has it
    words = named or ordered
    text = ", ".join(words[:_NAMED]) + (f" and {len(words) - _NAMED} more" if len(words) > _NAMED else "")
    return f"simulated {text}" if simulated else text
