"""What happens on a fleet: who holds each GPU when, and what it does there; the same for every exporter."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from skuwise.tests.server_metrics.prometheus_series import Series

from .behaviors import BEHAVIORS, Activity, Clock, Floats, Span
from .description import Fleet, Hold, Node, Workload

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Held:
    """One hold of one workload: its pod, when it lasts, and what runs (nothing outside of that time)."""

    workload: Workload
    pod: str
    mask: Mask
    activity: Activity


@dataclass(frozen=True)
class World:
    fleet: Fleet
    clock: Clock
    held: Mapping[Hold, tuple[Held, ...]]

    def on(self, node: Node) -> Iterator[tuple[Hold, Held]]:
        for hold, several in self.held.items():
            if hold.node == node.name:
                for one in several:
                    yield hold, one

    def sharing(self, node: Node) -> int:
        """The most pods that have one GPU of a node at a time (1 without time slicing)."""
        places = [held for hold, held in self.held.items() if hold.node == node.name]
        return max((int(np.sum([one.mask for one in several], axis=0).max()) for several in places), default=1) or 1

    def sliced(self, node: Node, gpu: int) -> Mask:
        """When a GPU is divided into instances."""
        masks = [self.during(one.begin_day, one.end_day) for one in node.sliced(gpu)]
        return np.any([np.zeros(self.clock.count, dtype=bool), *masks], axis=0)

    def during(self, begin_day: float | None, end_day: float | None) -> Mask:
        first = self.fleet.start if begin_day is None else self.fleet.at(begin_day)
        last = self.fleet.at(end_day) if end_day is not None else np.inf
        return (self.clock.ts >= first) & (self.clock.ts < last)


@dataclass(frozen=True)
class Target:
    """One endpoint that is scraped: its labels, the moments of its scrapes, and which of them succeed."""

    labels: Mapping[str, str]
    ts: npt.NDArray[np.float64]
    up: Mask

    def series(
        self, name: str, labels: Mapping[str, object], values: Floats | float, when: Mask | None = None
    ) -> Series:
        seen = self.up if when is None else self.up & when
        values = np.broadcast_to(np.asarray(values, dtype=np.float64), self.ts.shape)
        ts = self.ts[seen] if not seen.all() else self.ts
        return Series(name, {**labels, **self.labels}, ts, np.ascontiguousarray(values[seen]))


def world(fleet: Fleet, rng: np.random.Generator) -> World:
    count = int(fleet.days * 86400 / fleet.interval_s)
    clock = Clock(fleet.start + np.arange(count) * fleet.interval_s, fleet.interval_s)
    held: dict[Hold, tuple[Held, ...]] = {}
    for workload, own in zip(fleet.workloads, rng.spawn(len(fleet.workloads)), strict=True):
        span = Span(len(workload.holds), len({hold.node for hold in workload.holds}))
        activity = BEHAVIORS[workload.behavior].make(clock, span, own)
        end = np.inf if workload.end_day is None else fleet.at(workload.end_day)
        mask = (clock.ts >= fleet.at(workload.begin_day)) & (clock.ts < end)
        for number, (hold, pod) in enumerate(zip(workload.holds, workload.pods, strict=True)):
            mine = _rough(activity.row(number), len(fleet.holders(fleet.node(hold.node), hold.gpu, hold.instance)), own)
            one = Held(workload, pod, mask, mine.during(mask))
            held[hold] = (*held.get(hold, ()), one)
    return World(fleet, clock, held)


def _rough(activity: Activity, sharing: int, rng: np.random.Generator) -> Activity:
    """What keeps step with the engine does so roughly; those who share a GPU fit into its memory together."""
    rough = {
        name: np.clip(getattr(activity, name) * (1 + 0.05 * rng.standard_normal(len(activity.engine))), 0.0, 1.0)
        for name in ("sm", "tensor", "dram", "pcie_tx", "pcie_rx")
    }
    return replace(activity, memory=activity.memory / sharing, **rough)


def target(fleet: Fleet, clock: Clock, job: str, instance: str, rng: np.random.Generator) -> Target:
    """Prometheus scrapes each target at its own offset within the interval; a few scrapes fail."""
    offset = np.round(rng.uniform(0, min(fleet.interval_s, 60.0)), 3)
    return Target(
        {"job": job, "instance": instance},
        (clock.ts + offset).astype(np.float64),
        rng.random(clock.count) >= fleet.missed,
    )


def address(*parts: object) -> str:
    """A private IPv4 address, the same for the same parts."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return f"10.{digest[0]}.{digest[1]}.{digest[2] % 254 + 1}"
