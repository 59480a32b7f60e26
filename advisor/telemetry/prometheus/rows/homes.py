"""Which GPU of which node a series speaks of, over the whole window: one id may stand under several names of nodes.

A node that was renamed shows its GPUs under two names, one after the other; an exporter without a node's name shows
them under two at once. The first are two stays of one GPU, the second are one GPU that is told twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ....core.coded_text import coded
from ..client.range_planner import Log
from ..client.response import Floats, Labels, SeriesAnswer
from ..promql.labels import gpu_of

Who = Callable[[Labels], tuple[str, str] | None]
"""Of a series the id of its whole GPU and its node; None: neither is named."""
# Hours of both names within which one took over from the other: scrapes of the two may mix in so many rows.
_HANDOVER_ROWS = 1


@dataclass(frozen=True)
class Homes:
    """`keys`: (GPU, node) -> suffix of the key of its rows; what is not in it is told by another node's series."""

    keys: Mapping[tuple[str, str], str]
    nodes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """(GPU, node as a series names it) -> the node that it is counted on."""

    def suffix(self, uuid: str, node: str) -> str | None:
        return self.keys.get((uuid, node))

    def node(self, uuid: str, node: str) -> str:
        return self.nodes.get((uuid, node), node)


def homes_of(counts: SeriesAnswer, named: Iterable[Labels], who: Who, log: Log) -> Homes:
    """`counts`: samples by series and row. `named`: labels of any series that names a GPU."""
    rows: dict[str, dict[str, Floats]] = {}
    for labels, values in zip(counts.labels, counts.values, strict=True):
        found = who(labels)
        if found is not None:
            own = rows.setdefault(found[0], {})
            seen = np.nan_to_num(values)
            own[found[1]] = np.maximum(own[found[1]], seen) if found[1] in own else seen
    keys: dict[tuple[str, str], str] = {}
    nodes: dict[tuple[str, str], str] = {}
    twice: list[tuple[str, list[str]]] = []
    moved: list[tuple[str, list[str]]] = []
    for uuid, own in rows.items():
        if len(own) == 1:
            keys[uuid, next(iter(own))] = ""
            continue
        order = sorted(own, key=lambda node: (_first(own[node] > 0), node))
        if _successive([own[node] > 0 for node in order]):
            moved.append((uuid, order))
            keys |= {(uuid, node): f"@{node}" for node in order[:-1]} | {(uuid, order[-1]): ""}
            continue
        twice.append((uuid, order))
        best = max(sorted(own), key=lambda node: float(own[node].sum()))
        for node in own:
            # What another tells while the best says nothing is the same GPU; what both tell is told once.
            if node == best or ((own[node] > 0) & (own[best] > 0)).sum() <= _HANDOVER_ROWS:
                keys[uuid, node], nodes[uuid, node] = "", best
    for labels in named:
        found = who(labels)
        if found is not None and found[0] not in rows:
            rows[found[0]] = {}
            keys[found] = ""
    if twice:
        uuid, names = twice[0]
        log.add(
            coded(
                "gpus-under-several-nodes",
                "GPUs reported under several nodes at once: {gpus} ({gpu_uuid}: {nodes}). Each counts "
                "once, on the node that reported it longest.",
                gpus=len(twice),
                gpu_uuid=uuid,
                nodes=", ".join(sorted(names)),
            )
        )
    if moved:
        uuid, names = moved[0]
        log.add(
            coded(
                "gpus-under-another-node",
                "GPUs reported under one node after another: {gpus} ({gpu_uuid}: {nodes}), as after a "
                "node was renamed. Each counts once.",
                gpus=len(moved),
                gpu_uuid=uuid,
                nodes=", ".join(names),
            )
        )
    return Homes(keys, nodes)


def reporters_note(counts: SeriesAnswer, who: Who, log: Log) -> set[tuple[str, str]]:
    """The GPUs that several exporters or targets report at once."""
    seen: dict[tuple[str, str], dict[str, npt.NDArray[np.bool_]]] = {}
    for labels, values in zip(counts.labels, counts.values, strict=True):
        found = who(labels)
        if found is not None:
            own = seen.setdefault(found, {})
            name = reporter(labels)
            own[name] = own[name] | (values > 0) if name in own else values > 0
    several = {key for key, own in seen.items() if len(own) > 1 and (np.sum(list(own.values()), axis=0) > 1).sum() > 1}
    if several:
        first = min(several)
        log.add(
            coded(
                "gpus-reported-twice",
                "GPUs reported by more than one exporter or target: {gpus} ({gpu_uuid}). Each counts once.",
                gpus=len(several), gpu_uuid=first[0],
            )
        )  # fmt: skip
    return several


def unnamed_note(series: Iterable[Labels], node_of: Callable[[Labels], str | None], log: Log) -> None:
    """Say which GPUs cannot be counted because their series do not tell them from others."""
    lost: dict[str, dict[str, None]] = {}
    for labels in series:
        node = node_of(labels)
        if gpu_of(labels) is None:
            lost.setdefault("UUID", {})[f"{node or 'unknown node'} GPU {labels.get('gpu') or 'unknown'}"] = None
        elif node is None:
            lost.setdefault("Hostname or instance", {})[labels["UUID"]] = None
    for label, gpus in sorted(lost.items()):
        log.add(
            coded(
                "label-missing",
                "GPUs not counted: {gpus} ({first}). Their dcgm-exporter time series have no label "
                "{label}. Keep that label in metric_relabel_configs.",
                label=label,
                gpus=len(gpus),
                first=str(min(gpus)),
            )
        )


def reporter(labels: Labels) -> str:
    """Which exporter's target a series is of."""
    return f"{labels.get('job', '')}|{labels.get('instance', '')}"


def whole_gpu(node_of: Callable[[Labels], str | None]) -> Who:
    """For series of dcgm-exporter: an instance is where its GPU is."""

    def who(labels: Labels) -> tuple[str, str] | None:
        found, node = gpu_of(labels), node_of(labels)
        return None if found is None or node is None else (found[1] or found[0], node)

    return who


def _first(mask: npt.NDArray[np.bool_]) -> int:
    at = np.nonzero(mask)[0]
    return int(at[0]) if len(at) else len(mask)


def _successive(masks: list[npt.NDArray[np.bool_]]) -> bool:
    """Whether each stay ends before the next begins; a row in which both are seen is a handover."""
    spans = [np.nonzero(mask)[0] for mask in masks]
    if any(not len(at) for at in spans):
        return False
    for one, other in pairwise(spans):
        shared = one[-1] - other[0] + 1
        if shared > 0 and (shared > _HANDOVER_ROWS or len(one) <= shared or len(other) <= shared):
            return False
    return True
