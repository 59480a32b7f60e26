"""Identity of the fleet behind a frame, which separates ledgers, and of simulated fleets."""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from .advice_types import Fleet
from .frame import Frame
from .scalars import records, text

# External labels that separate replicas of one server (Prometheus Operator, Thanos, Mimir), not fleets.
_REPLICAS = re.compile(r".*replica.*", re.IGNORECASE)
_OPERATOR = re.compile(r"\s*(=~|!~|!=|=)\s*")
_NAMED = 3


def simulated_hex(*parts: str) -> str:
    """64 hexadecimal digits determined by `parts`."""
    return sha256("\0".join(parts).encode()).hexdigest()


def fleet_mark(*parts: object) -> str:
    """Eight hexadecimal digits of a simulated fleet, determined by `parts`. Two fleets have no GPU in common."""
    return simulated_hex("fleet", *map(str, parts))[:8]


def gpu_uuid(mark: str, node: str, index: int) -> str:
    """The UUID of a simulated GPU, recognizable because its digits follow from the mark, the node and the index."""
    digest = simulated_hex("gpu", mark, node, str(index))
    return f"GPU-{mark}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:32]}"


def is_simulated(uuid: str, node: str, index: int) -> bool:
    """Whether the simulator made this GPU; no driver makes such a UUID."""
    return uuid == gpu_uuid(uuid[4:12], node, index)


def fleet_of(frame: Frame) -> Fleet:
    """The identity of the fleet in a frame.

    GPUs are identified by UUID, the same in all databases and servers, MIG instances by that of their GPU. A node
    without UUIDs is identified by its machine id (nothing else: machines of one image may share it), else by its name.
    """
    members: dict[str, str] = {}
    simulated = False
    for gpu in records(frame.gpus):
        uuid, node, index = text(gpu["parent_uuid"]) or text(gpu["gpu_uuid"]), text(gpu["node"]), gpu["gpu_index"]
        if uuid and node and uuid not in members:
            members[uuid] = node
            simulated |= index == index and index is not None and is_simulated(uuid, node, int(index))  # noqa: PLR0124
    identified, clusters = set(members.values()), set()
    names = [str(name) for name in frame.nodes["node"]]
    for node in records(frame.nodes):
        name, machine = str(node["node"]), text(node.get("machine_id"))
        if name not in identified:
            members[f"machine {machine}" if machine else f"node {name}"] = name
        if cluster := text(node["cluster"]):
            clusters.add(cluster)
    source: Mapping[str, Any] = frame.source
    url = source.get("url", "")
    labels = {name: value for name, value in frame.external_labels.items() if not _REPLICAS.fullmatch(name)}
    # The clusters of simulated fleets all have the provider's name.
    shown = [] if simulated else sorted(clusters) or [labels[name] for name in ("cluster",) if labels.get(name)]
    shown = shown or sorted(names)
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return Fleet(
        name=f"{'simulated ' if simulated else ''}{', '.join(shown[:_NAMED])}{more}",
        simulated=simulated,
        match=tuple(sorted({_OPERATOR.sub(r"\1", part.strip(), count=1) for part in source.get("match", ())})),
        clusters=frozenset(clusters),
        members=members,
        nodes=frozenset(names),
        sources=frozenset(source.get("databases", ())) or frozenset({url}),
        server=url,
        labels=labels,
        start=frame.window.start,
        end=frame.window.end,
    )
