"""The last hours of a fleet as arrays: what the watch evaluates. Every road of telemetry gives the same.

Subjects (GPUs, nodes, workloads) are rows of an array, spans of time its columns. NaN is missing, never zero. Measures:

- of a GPU or MIG instance: ``observed``, the share of the span that was observed; ``engine``, the mean share of time in
  which any kernel ran, by SM_ACTIVE or GPU utilization, with ``engine_max`` and ``engine_p95``; ``util``, the driver's
  utilization alone; ``sm``, ``tensor``, ``dram``, ``power_watts``, ``mem_used_ratio``; of minutes alone
  ``sm_clock_hertz``, ``links_bytes_per_second`` (PCIe and NVLink, both ways), ``throttled`` (share of the span);
- of a node: ``cpu_util``, ``disk_bytes_per_second``; ``fabric_bytes_per_second``, all compute ports, both ways;
  ``fabric_line_bytes_per_second``, one way; ``fabric_up``, the share of them that are active;
  ``network_bytes_per_second``, all other ports, both ways;
- of a workload, by its inference engine: ``requests_running``, ``requests_waiting``, ``tokens_per_second``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from .advice_types import Fleet
from .coded_text import CodedText
from .verdict_types import Owner

Values = npt.NDArray[np.float32]
Measures = Mapping[str, Values]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
# What holds a GPU: work with an end, a person's notebook, something that answers requests, a process of which no more
# is known, an allocation in which no process touches the GPU.
HolderKind = Literal["job", "notebook", "service", "process", "allocation"]


@dataclass(frozen=True)
class Spans:
    """Spans of time, one after another: the `ends` of them, Unix seconds, and how many `seconds` each is long."""

    ends: Floats
    seconds: Floats

    @property
    def start(self) -> float:
        return float(self.ends[0] - self.seconds[0])

    @property
    def end(self) -> float:
        return float(self.ends[-1])

    def since(self, ts: float) -> Mask:
        """The spans that end after a moment."""
        return self.ends > ts + 1e-6


@dataclass(frozen=True, slots=True)
class RecentGpu:
    """A GPU, or a MIG instance (`part`: which part of a GPU it is, else 1). `sku`: by the catalog, else as it is named;
    None: unknown. `last_seen`: the end of its newest sample, Unix seconds; None: none within the spans."""

    node: str
    uuid: str
    index: int | None = None
    sku: str | None = None
    part: float = 1.0
    power_limit_watts: float | None = None
    last_seen: float | None = None


@dataclass(frozen=True, slots=True)
class RecentNode:
    """`usd_per_gpu_hour`: of one of its GPUs; None: unknown. `gpus_expected`: by its SKU or what was once observed
    there; None: unknown. `last_seen`: as of its GPUs. `drained`: whether a scheduler or an operator took it out of
    service, with or without telemetry."""

    node: str
    sku: str | None = None
    usd_per_gpu_hour: float | None = None
    price_source: str | None = None
    gpus_expected: int | None = None
    last_seen: float | None = None
    drained: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """A workload and the GPUs that it holds at the end of the reading. `gpus`: places in `Recent.gpus`. `since`: when
    it began. `basis`: allocation, process or activity. `shared`: others hold the same GPUs. `engine`: its metrics are
    read, so that an empty queue is known."""

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
    pod: str | None = None


@dataclass(frozen=True)
class Recent:
    """The last hours. `now`: the clock when they were read. `spans`: those of minutes last; the newest one ends where
    most of the source has data. `gpu`, `node`, `service`: measures of `gpus`, `nodes` and `holds`, in their order.
    `past`: the hours before, and measures of `gpus` in them; None: not read. `notes`: what could not be read."""

    now: float
    gpus: tuple[RecentGpu, ...]
    nodes: tuple[RecentNode, ...]
    holds: tuple[Hold, ...]
    spans: Spans
    gpu: Measures
    node: Measures
    service: Measures
    fleet: Fleet
    past: tuple[Spans, Measures] | None = None
    notes: tuple[CodedText, ...] = ()
