"""Which GPU of which node a series is of, over the whole window: one UUID may be reported under several nodes.

A GPU that moved, or whose node was renamed, is on one node after the other; where two nodes report it at once, one of
them is no node: an exporter that names itself, or a proxy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from ....core.coded_text import coded
from ..client.range_planner import Log
from ..client.response import Labels, SeriesAnswer
from ..promql.labels import HOST_LABELS, gpu_of
from ..promql.promql import DCGM_GAUGES, selector
from ..questions import Questions

_GPU_LABELS = ("UUID", "gpu", "modelName", "GPU_I_PROFILE", "GPU_I_ID")
Who = Callable[[Labels], tuple[str, str] | None]
"""Of a series the id of its whole GPU and its node; None: neither is named."""
Homes = Mapping[tuple[str, str], str]
"""(GPU, node) -> suffix of the key of its rows; what is missing is reported by another node as well and left out."""


def homes_of(counts: SeriesAnswer, named: Iterable[Labels], who: Who, log: Log) -> Homes:
    """`counts`: samples by series and row. `named`: labels of any series that names a GPU."""
    by_gpu: dict[str, dict[str, npt.NDArray[np.bool_]]] = defaultdict(dict)
    for labels, values in zip(counts.labels, counts.values, strict=True):
        if (found := who(labels)) is not None:
            own, node = by_gpu[found[0]], found[1]
            own[node] = own.get(node, False) | (values > 0)
    homes: dict[tuple[str, str], str] = {}
    at_once: dict[str, list[str]] = {}
    for uuid, own in by_gpu.items():
        order = sorted(own, key=lambda node: (own[node].argmax(), own[node].sum(), node))
        both = int((np.sum(list(own.values()), axis=0) > 1).sum())
        # Scrapes of two may mix in the row in which one takes over from the other.
        if len(own) == 1 or (both < len(own) and all(there.sum() > both for there in own.values())):
            homes |= {(uuid, node): f"@{node}" for node in order[:-1]} | {(uuid, order[-1]): ""}
        else:
            homes[uuid, max(sorted(own), key=lambda node: own[node].sum())] = ""
            at_once[uuid] = sorted(own)
    for found in map(who, named):
        if found is not None and found[0] not in by_gpu:
            by_gpu[found[0]], homes[found] = {}, ""
    if at_once:
        uuid, names = next(iter(at_once.items()))
        text = (
            "GPUs reported under several nodes at once: {gpus} ({gpu_uuid}: {nodes}). Each counts once, on the node "
            "that reported it longest."
        )
        log.add(coded("gpus-under-several-nodes", text, gpus=len(at_once), gpu_uuid=uuid, nodes=", ".join(names)))
    return homes


def named_gpus(asked: Questions) -> list[Labels]:
    """The GPUs of series that nothing is read of, at the window's end and in its middle: such a series alone shows that
    a GPU exists. Google Managed Prometheus takes exact names only."""
    # The engine's activity is asked of some GPUs only.
    read = {name for gauge in DCGM_GAUGES for name in gauge.names if gauge.measure != "engine"}
    others = sorted(name for name in asked.found.names - read if name.startswith(("DCGM_FI_DEV_", "DCGM_FI_PROF_")))
    kept, chosen = (*HOST_LABELS, *_GPU_LABELS), selector(asked.matches, 'UUID!=""')
    query = f"count by ({', '.join(kept)}) ({' or '.join(f'{name}{chosen}' for name in others)})"
    window = asked.found.window
    moments = (window.end, (window.start + window.end) / 2) if others else ()
    return [labels for at in moments for labels in asked.instant(query, kept, at).labels]


def reporters_note(counts: SeriesAnswer, who: Who, log: Log) -> set[tuple[str, str]]:
    """The GPUs that several exporters or targets report at once, with their nodes."""
    by_gpu: dict[tuple[str, str], dict[str, npt.NDArray[np.bool_]]] = defaultdict(dict)
    for labels, values in zip(counts.labels, counts.values, strict=True):
        if (gpu := who(labels)) is not None:
            own, target = by_gpu[gpu], reporter(labels)
            own[target] = own.get(target, False) | (values > 0)
    several = {gpu for gpu, own in by_gpu.items() if (np.sum(list(own.values()), axis=0) > 1).sum() > 1}
    if several:
        text = "GPUs reported by more than one exporter or target: {gpus} ({gpu_uuid}). Each counts once."
        log.add(coded("gpus-reported-twice", text, gpus=len(several), gpu_uuid=min(several)[0]))
    return several


def unnamed_note(series: Iterable[Labels], node_of: Callable[[Labels], str | None], log: Log) -> None:
    """Say which GPUs cannot be counted because their series do not tell them from others."""
    lost: dict[str, set[str]] = defaultdict(set)
    for labels in series:
        if gpu_of(labels) is None:
            lost["UUID"].add(f"{node_of(labels) or 'unknown node'} GPU {labels.get('gpu') or 'unknown'}")
        elif node_of(labels) is None:
            lost["Hostname or instance"].add(labels["UUID"])
    for label, gpus in sorted(lost.items()):
        text = (
            "GPUs not counted: {gpus} ({first}). Their dcgm-exporter time series have no label {label}. Keep that "
            "label in metric_relabel_configs."
        )
        log.add(coded("label-missing", text, label=label, gpus=len(gpus), first=min(gpus)))


def reporter(labels: Labels) -> str:
    """Which exporter's target a series is of."""
    return f"{labels.get('job', '')}|{labels.get('instance', '')}"


def whole_gpu(node_of: Callable[[Labels], str | None]) -> Who:
    """For series of dcgm-exporter: an instance is where its GPU is."""

    def who(labels: Labels) -> tuple[str, str] | None:
        found, node = gpu_of(labels), node_of(labels)
        return (found[1] or found[0], node) if found and node is not None else None

    return who
