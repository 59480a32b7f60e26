"""Which GPU of which node a series is of, over the whole window: one UUID may be reported under several nodes.

A node that was renamed shows its GPUs under two names, one after the other; an exporter without a node's name shows
them under two at once. The first are two stays of one GPU, the second are one GPU that is reported twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ....core.coded_text import coded
from ..client.range_planner import Log
from ..client.response import Floats, Labels, SeriesAnswer
from ..promql.labels import gpu_of

K = TypeVar("K")
Who = Callable[[Labels], tuple[str, str] | None]
"""Of a series the id of its whole GPU and its node; None: neither is named."""
# Rows in which both names may occur while one takes over from the other: scrapes of the two mix in them.
_HANDOVER_ROWS = 1


@dataclass(frozen=True)
class Homes:
    """`keys`: (GPU, node) -> suffix of the key of its rows; what is not in it is reported by another node's series.
    `nodes`: (GPU, node as a series names it) -> the node that it is counted on, where that is another."""

    keys: Mapping[tuple[str, str], str]
    nodes: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def suffix(self, uuid: str, node: str) -> str | None:
        return self.keys.get((uuid, node))

    def node(self, uuid: str, node: str) -> str:
        return self.nodes.get((uuid, node), node)


def homes_of(counts: SeriesAnswer, named: Iterable[Labels], who: Who, log: Log) -> Homes:
    """`counts`: samples by series and row. `named`: labels of any series that names a GPU."""
    by_gpu: dict[str, dict[str, Floats]] = {}
    for (uuid, node), rows in _rows(counts, who).items():
        by_gpu.setdefault(uuid, {})[node] = rows
    keys: dict[tuple[str, str], str] = {}
    nodes: dict[tuple[str, str], str] = {}
    at_once: dict[str, list[str]] = {}
    in_turn: dict[str, list[str]] = {}
    for uuid, own in by_gpu.items():
        stays = {node: np.flatnonzero(samples > 0) for node, samples in own.items()}
        order = sorted(own, key=lambda node: (*stays[node][:1].tolist(), len(own[node]), node))
        if _successive([stays[node] for node in order]):
            keys |= {(uuid, node): f"@{node}" for node in order[:-1]} | {(uuid, order[-1]): ""}
            if len(order) > 1:
                in_turn[uuid] = order
            continue
        at_once[uuid] = sorted(own)
        best = max(sorted(own), key=lambda node: float(own[node].sum()))
        for node in own:
            # What another reports while the best is silent is the same GPU; what both report counts once.
            if node == best or ((own[node] > 0) & (own[best] > 0)).sum() <= _HANDOVER_ROWS:
                keys[uuid, node], nodes[uuid, node] = "", best
    for labels in named:
        found = who(labels)
        if found is not None and found[0] not in by_gpu:
            by_gpu[found[0]] = {}
            keys[found] = ""
    for gpus, code, text in (
        (at_once, "gpus-under-several-nodes",
         "GPUs reported under several nodes at once: {gpus} ({gpu_uuid}: {nodes}). Each counts once, on the node that "
         "reported it longest."),
        (in_turn, "gpus-under-another-node",
         "GPUs reported under one node after another: {gpus} ({gpu_uuid}: {nodes}), as after a node was renamed. Each "
         "counts once."),
    ):  # fmt: skip
        if gpus:
            uuid, names = next(iter(gpus.items()))
            log.add(coded(code, text, gpus=len(gpus), gpu_uuid=uuid, nodes=", ".join(names)))
    return Homes(keys, nodes)


def reporters_note(counts: SeriesAnswer, who: Who, log: Log) -> set[tuple[str, str]]:
    """The GPUs that several exporters or targets report at once."""

    def target(labels: Labels) -> tuple[tuple[str, str], str] | None:
        return None if (found := who(labels)) is None else (found, reporter(labels))

    by_gpu: dict[tuple[str, str], list[npt.NDArray[np.bool_]]] = {}
    for (gpu, _), rows in _rows(counts, target).items():
        by_gpu.setdefault(gpu, []).append(rows > 0)
    several = {gpu for gpu, rows in by_gpu.items() if len(rows) > 1 and (np.sum(rows, axis=0) > 1).sum() > 1}
    if several:
        text = "GPUs reported by more than one exporter or target: {gpus} ({gpu_uuid}). Each counts once."
        log.add(coded("gpus-reported-twice", text, gpus=len(several), gpu_uuid=min(several)[0]))
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
                "GPUs not counted: {gpus} ({first}). Their dcgm-exporter time series have no label {label}. Keep that "
                "label in metric_relabel_configs.",
                label=label, gpus=len(gpus), first=min(gpus),
            )
        )  # fmt: skip


def reporter(labels: Labels) -> str:
    """Which exporter's target a series is of."""
    return f"{labels.get('job', '')}|{labels.get('instance', '')}"


def whole_gpu(node_of: Callable[[Labels], str | None]) -> Who:
    """For series of dcgm-exporter: an instance is where its GPU is."""

    def who(labels: Labels) -> tuple[str, str] | None:
        found, node = gpu_of(labels), node_of(labels)
        return None if found is None or node is None else (found[1] or found[0], node)

    return who


def _rows(counts: SeriesAnswer, key_of: Callable[[Labels], K | None]) -> dict[K, Floats]:
    """Samples by row of what series are of; of several series the largest."""
    out: dict[K, Floats] = {}
    for labels, values in zip(counts.labels, np.nan_to_num(counts.values), strict=True):
        if (key := key_of(labels)) is not None:
            out[key] = np.maximum(out[key], values) if key in out else values
    return out


def _successive(stays: list[np.ndarray]) -> bool:
    """Whether each stay ends before the next begins; a row of both is a handover. `stays`: rows with samples."""
    if len(stays) > 1 and not all(map(len, stays)):
        return False
    for one, other in pairwise(stays):
        shared = one[-1] - other[0] + 1
        if shared > 0 and (shared > _HANDOVER_ROWS or len(one) <= shared or len(other) <= shared):
            return False
    return True
