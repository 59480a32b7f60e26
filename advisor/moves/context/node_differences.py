"""What another node differs in from the present one, and why it may have the dearer fabric."""

from __future__ import annotations

from collections.abc import Collection

from ....rules.catalog.types import NodeSku
from ...core.coded_text import CodedText, coded

_KINDS = {
    "infiniband": "InfiniBand", "ethernet": "Ethernet", "roce": "RoCE", "efa": "EFA", "tcpx": "TCPX",
    "none": "no fabric", "unknown": "an unknown network",
}  # fmt: skip
# Codes of `fabric_reason`.
FABRIC_REASONS = frozenset(("fabric-included", "fabric-cheaper", "fabric-needed"))
# Line rates of one kind that differ by less are the same fabric.
_SAME_RATE = 1.1


def differences(source: NodeSku | None, gpu: str | None, target: NodeSku) -> tuple[CodedText, ...]:
    """What changes at `target`, the GPU first, then the fabric. `source` None: the present node's SKU is unknown."""
    same = gpu == target.gpu
    told = [
        coded("same-gpu", "same GPU") if same else coded("other-gpu", "{gpu} instead of {of}", gpu=target.gpu, of=gpu)
    ]
    if source is None:
        return tuple(told)
    here, there = _kind(source), _kind(target)
    if source.fabric.rdma and not target.fabric.rdma:
        told.append(coded("fabric-dropped", "no {fabric}", fabric=here))
    elif dearer_fabric(source, target):
        alike = _rated(source) == _rated(target)
        to = f"{_rated(target)} with RDMA" if alike else f"{_rated(target)} instead of {_rated(source)}"
        told.append(coded("fabric-added", "fabric {to}", to=to))
    elif here != there:
        told.append(coded("fabric-other", "{to} instead of {of}", to=there, of=here))
    return tuple(told)


def dearer_fabric(source: NodeSku | None, target: NodeSku) -> bool:
    """Whether the target's fabric is the dearer kind: RDMA where the present node has none, or a faster one of RDMA."""
    if source is None or not target.fabric.rdma:
        return False
    here, there = source.fabric.bytes_per_second, target.fabric.bytes_per_second
    return not source.fabric.rdma or (here is not None and there is not None and there > here * _SAME_RATE)


def fabric_reason(
    source: NodeSku | None, target: NodeSku, sold: Collection[NodeSku], fits: Collection[NodeSku]
) -> CodedText | None:
    """Why a target with the dearer fabric is right. None: the target's fabric is not dearer.

    `sold`: the nodes with a known price at this provider and region; `fits`: those among them that nothing forbids.
    """
    if not dearer_fabric(source, target):
        return None
    plain = [n for n in sold if n.gpu == target.gpu and not dearer_fabric(source, n)]
    if not plain:
        return coded("fabric-included", "{gpu} is sold only with {fabric} here", gpu=target.gpu, fabric=_kind(target))
    if any(n in fits for n in plain):
        return coded("fabric-cheaper", "{fabric} at no extra cost", fabric=_kind(target))
    return coded("fabric-needed", "the work needs {fabric}", fabric=_kind(target))


def _kind(node: NodeSku) -> str:
    return _KINDS.get(node.fabric.kind.lower(), node.fabric.kind)


def _rated(node: NodeSku) -> str:
    rate = node.fabric.bytes_per_second
    return f"{_kind(node)} {rate * 8 / 1e9:g} Gb/s" if rate is not None else _kind(node)
