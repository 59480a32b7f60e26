"""The last hours of a fleet as arrays: what the watch evaluates. Every road of telemetry gives the same.

Subjects (GPUs, nodes, workloads) are rows of an array, equal spans of time its columns. NaN is missing, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from .advice_types import Fleet
from .coded_text import CodedText
from .verdict_types import Owner

Values = npt.NDArray[np.float32]
# What holds a GPU: work with an end, a person's notebook, something that answers requests, a process of which no more
# is known, an allocation in which no process touches the GPU.
HolderKind = Literal["job", "notebook", "service", "process", "allocation"]

FINE_SECONDS = 60.0
COARSE_SECONDS = 300.0
HOUR_SECONDS = 3600.0


@dataclass(frozen=True)
class Rows:
    """Measures over equal spans. `start`: the beginning of the first span, Unix seconds. `values`: by measure, an
    array of (subjects, spans); a measure that nobody reports is not in it.

    Of a GPU or MIG instance: ``observed``, the share of the row that was observed (0..1); ``engine``, the mean share of
    time in which any kernel ran, by the best of GR_ENGINE_ACTIVE, SM_ACTIVE and GPU utilization, and ``engine_max``,
    its highest sample, and ``engine_p95``, its 95th percentile; ``util``, the driver's utilization alone, the second
    opinion; ``sm``, ``tensor``, ``dram``, ``power_watts``, ``mem_used_ratio``, ``sm_clock_hertz``;
    ``links_bytes_per_second``, PCIe and NVLink, both ways;
    ``throttled``, the share of the row with a fault's throttle reason (hardware slowdown, thermal, power brake).

    Of a node: ``cpu_util``, ``disk_bytes_per_second``; ``fabric_bytes_per_second``, all compute ports, both ways;
    ``fabric_line_bytes_per_second``, what they could carry one way; ``fabric_up``, the share of them that are active;
    ``network_bytes_per_second``, all other ports, both ways.
    """

    start: float
    step_seconds: float
    count: int
    values: Mapping[str, Values] = field(default_factory=dict)

    @property
    def end(self) -> float:
        return self.start + self.step_seconds * self.count

    def of(self, name: str, subjects: int) -> Values:
        """One measure; all NaN where nobody reports it."""
        found = self.values.get(name)
        return found if found is not None else np.full((subjects, self.count), np.nan, dtype=np.float32)


@dataclass(frozen=True)
class Detail:
    """The same subjects twice: `fine` rows of the last hour or two, `coarse` ones of the hours before. Fine rows end at
    the end of the reading; where coarse rows reach beyond the first fine one, the fine ones count."""

    fine: Rows
    coarse: Rows


@dataclass(frozen=True, slots=True)
class RecentGpu:
    """A GPU, or a MIG instance (`part`: which part of a GPU it is, else 1). `sku`: by the catalog, None: unknown.
    `last_seen`: the end of its newest sample, Unix seconds; None: none within the span."""

    node: str
    uuid: str
    index: int | None = None
    sku: str | None = None
    part: float = 1.0
    power_limit_watts: float | None = None
    last_seen: float | None = None


@dataclass(frozen=True, slots=True)
class RecentNode:
    """`price`: of one of its GPUs for an hour, USD; `price_id` names it in the price book. None: unknown.
    `last_seen`: as of a GPU. `gpus_expected`: by its SKU or what was once observed there; None: unknown.
    `drained`: whether a scheduler or an operator took it out of service, with or without telemetry."""

    node: str
    sku: str | None = None
    sku_source: str | None = None
    provider: str | None = None
    region: str | None = None
    cluster: str = ""
    usd_per_gpu_hour: float | None = None
    price_id: str | None = None
    price_source: str | None = None
    gpus_expected: int | None = None
    last_seen: float | None = None
    drained: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """A workload and the GPUs that it holds at the end of the reading. `gpus`: places in `Recent.gpus`. `since`: when
    it began (may lie before the span). `shared`: others hold the same GPUs. `engine`: an inference engine's own
    metrics are read, so that an empty queue is known. `basis`: allocation, process or activity."""

    workload_id: str
    series_id: str
    name: str
    holder: HolderKind
    owner: Owner
    gpus: tuple[int, ...]
    since: float
    basis: str = "process"
    shared: bool = False
    engine: bool = False
    scheduler: str = "process"
    job_id: str | None = None
    namespace: str | None = None
    pod: str | None = None


@dataclass(frozen=True)
class Recent:
    """The last hours. `end`: the newest moment that most of the source has, Unix seconds; `now`: the clock when it was
    read. `gpu`, `node`, `service`: measures of `gpus`, `nodes` and `holds`, in their order. `past`: measures of `gpus`
    by the hour up to these rows, without any where they were not read. `notes`: what could not be read. `source`: how
    it was read, as for an advice; `fleet`: whose telemetry it is."""

    now: float
    end: float
    gpus: tuple[RecentGpu, ...]
    nodes: tuple[RecentNode, ...]
    holds: tuple[Hold, ...]
    gpu: Detail
    node: Detail
    service: Detail
    fleet: Fleet
    past: Rows = field(default_factory=lambda: Rows(0.0, HOUR_SECONDS, 0))
    notes: tuple[CodedText, ...] = ()
    source: Mapping[str, object] = field(default_factory=dict)
