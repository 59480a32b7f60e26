"""From a fleet to the series of its Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

import numpy as np
from skuwise.tests.server_metrics.prometheus_series import Series

from .dcgm import dcgm
from .description import Fleet
from .kube import kube_state_metrics
from .node import node_exporter
from .world import world


def series(fleet: Fleet, rng: np.random.Generator) -> list[Series]:
    """Every series of a fleet, those of one name together, names rising. The same fleet and seed give the same."""
    there = world(fleet, rng)
    found: list[Series] = []
    for node in fleet.nodes:
        for_gpus, for_host = rng.spawn(2)
        found += dcgm(there, node, for_gpus)
        found += node_exporter(there, node, for_host)
    found += kube_state_metrics(there, rng.spawn(1)[0])
    return by_name(found)


def by_name(found: Iterable[Series]) -> list[Series]:
    """Without empty series, in the order in which promtool takes them. What has the same name and labels at several
    times (a pod made anew under its name, the ReplicaSet of replicas that came later) is one series."""
    parts: dict[tuple[str, frozenset[tuple[str, object]]], list[Series]] = {}
    for one in found:
        if len(one.ts):
            parts.setdefault((one.name, frozenset(one.labels.items())), []).append(one)
    return sorted(map(_joined, parts.values()), key=attrgetter("name"))


def _joined(parts: list[Series]) -> Series:
    if len(parts) == 1:
        return parts[0]
    ts, values = (np.concatenate([getattr(one, name) for one in parts]) for name in ("ts", "values"))
    ts, first = np.unique(ts, return_index=True)
    return Series(parts[0].name, parts[0].labels, ts, values[first])
