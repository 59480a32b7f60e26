"""The last hours of a fleet as arrays, from any source: the input of the watch.

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
# Holders of GPUs: work with an end, a notebook, something that answers requests, any other process, an allocation
# without a process on the GPU.
HolderKind = Literal["job", "notebook", "service", "process", "allocation"]


@dataclass(frozen=True)
class Spans:
    """Consecutive spans of time: their `ends` (Unix seconds) and lengths."""

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

    def last_end(self, mask: Mask) -> float:
        """The end of the last span that is in a mask; the begin of the first where none is."""
        return float(self.ends[mask][-1]) if mask.any() else self.start


@dataclass(frozen=True, slots=True)
class RecentGpu:
    """A GPU or a MIG instance."""

    node: str
    uuid: str
    index: int | None = None
    sku: str | None = None  # of the catalog, else the reported name
    part: float = 1.0  # of a GPU
    power_limit_watts: float | None = None
    last_seen: float | None = None  # end of its newest sample, Unix seconds; None: none in the spans


@dataclass(frozen=True, slots=True)
class RecentNode:
    node: str
    sku: str | None = None
    usd_per_gpu_hour: float | None = None
    price_source: str | None = None
    gpus_expected: int | None = None  # by its SKU or earlier observation
    last_seen: float | None = None
    drained: bool = False  # out of service by a scheduler or an operator, with or without telemetry


@dataclass(frozen=True, slots=True)
class Hold:
    """A workload and the GPUs that it holds at the end of the spans."""

    workload_id: str
    series_id: str
    name: str
    holder: HolderKind
    owner: Owner
    gpus: tuple[int, ...]  # indices of `Recent.gpus`
    since: float
    basis: str = "process"  # allocation, process or activity
    shared: bool = False  # others hold the same GPUs
    engine: bool = False  # its engine reports metrics, so an empty queue is known
    scheduler: str = "process"
    job_id: str | None = None
    pod: str | None = None


@dataclass(frozen=True)
class Recent:
    """The last hours. `gpu`, `node`, `service`: measures of `gpus`, `nodes` and `holds`, in their order."""

    now: float  # the clock at reading
    gpus: tuple[RecentGpu, ...]
    nodes: tuple[RecentNode, ...]
    holds: tuple[Hold, ...]
    spans: Spans  # minutes last; the newest ends where most of the source has data
    gpu: Measures
    node: Measures
    service: Measures
    fleet: Fleet
    past: tuple[Spans, Measures] | None = None  # the hours before, measures of `gpus`; None: not read
    notes: tuple[CodedText, ...] = ()
