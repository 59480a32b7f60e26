"""What the telemetry of a window says: verdicts of workloads, facts of nodes, every GPU-hour's place. No prices."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..core.coded_text import CodedText
from ..core.column_rows import ColumnRows
from ..core.frame import Window
from ..core.segments import Floats, Ints, Mask
from ..core.timestamps import minute, span
from ..core.verdict_types import WorkloadVerdict
from .workloads.inventory import Inventory

Sentence = str | Callable[[Ints], str]


@dataclass(frozen=True, slots=True)
class Doubt:
    """Readings of one metric of one GPU that were not believed. `metric`: the frame's name, several with commas.
    `code`: constants of `soundness`. `hours`: observed hours of the rows concerned, between `start` and `end` (Unix
    seconds). `text`: a sentence that names the signals, the hours and since when."""

    node: str
    gpu_uuid: str
    metric: str
    code: str
    hours: float
    start: float
    end: float
    text: str


def doubts_of(gpu: pd.DataFrame, at: Mask, *, metric: str, code: str, sentence: Sentence) -> list[Doubt]:
    """One doubt for each GPU with rows `at`. `sentence`: without the hours, or what gives it of the GPU's rows `at`."""
    where = np.flatnonzero(at)
    rows = gpu.iloc[where]
    seconds = rows["observed_seconds"].fillna(rows["interval_seconds"]).to_numpy(float)
    end = rows["ts"].to_numpy(float)
    begin = end - rows["interval_seconds"].to_numpy(float)
    doubts = []
    for (node, uuid), positions in rows.groupby(["node", "gpu_uuid"], sort=True).indices.items():  # type: ignore[misc]
        hours, start = float(seconds[positions].sum()) / 3600, float(begin[positions].min())
        said = sentence if isinstance(sentence, str) else sentence(where[positions])
        text = f"{said} over {span(hours * 3600)} from {minute(start)}."
        doubts.append(Doubt(str(node), str(uuid), metric, code, hours, start, float(end[positions].max()), text))
    return doubts


def percent(values: Floats) -> str:
    """The mean of what is known, as in ``97 %``."""
    value = values[~np.isnan(values)]
    return f"{value.mean() * 100:.0f} %" if len(value) else "unknown"


@dataclass(frozen=True, slots=True)
class FabricFacts:
    """What a node's compute fabric carried. `ports_compute`: ports as ``device/port``, of which alone the figures are.
    `readable`: whether it could be judged; if not, `reason` says why. `util_p995`: 99.5th percentile of seconds of
    max(tx, rx) over line rate, the largest of the ports, an upper bound; `util_max`: the highest second. `hours`:
    observed in the window (least observed port); `hours_known`: with data at all. `last_active_ts`: end (Unix seconds)
    of the last interval above 1 % of line rate, as far back as hours reach; None: never. `line_rate_bytes_per_second`:
    one way, of all ports. `still_share`: share of the observed time without a byte on some port."""

    ports_compute: tuple[str, ...]
    readable: bool
    reason: str | None
    util_p995: float | None
    util_max: float | None
    hours: float
    last_active_ts: float | None
    line_rate_bytes_per_second: float | None
    link_layer: str | None = None
    hours_known: float = 0.0
    still_share: float = 0.0
    code: str | None = None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node in the window. `gpu_sku`: the catalog's name (None: none; `gpu_name`: the driver's). `hours_observed`:
    observed GPU-hours over its GPU count. `span_hours`: hours it is accounted for (`NodeInventory`). `pool_hours`:
    observed hours of its pool (nodes of its cluster and type) where nodes of it were replaced; 0: none was. `fabric`
    None: no fabric port at all. `without_nvlink`: no GPU has it. `driver_version`: None: unknown, or they differ."""

    node: str
    cluster: str
    provider: str | None
    region: str | None
    node_sku: str | None
    node_sku_source: str | None
    gpu_sku: str | None
    gpu_count: int
    first_seen: float
    last_seen: float
    hours_observed: float
    fabric: FabricFacts | None
    span_hours: float = 0.0
    gpu_name: str | None = None
    nvlink_util_p995: float | None = None
    without_nvlink: bool = False
    driver_version: str | None = None
    pool_hours: float = 0.0

    @property
    def evidence_hours(self) -> float:
        """Hours of data that a verdict on waste may rest on: the node's own, or its pool's where nodes live shortly."""
        return max(self.hours_observed, self.pool_hours)


@dataclass(frozen=True, slots=True)
class BareGpu:
    """A GPU's hours, or a MIG instance's, that no workload accounts for. `part`: the part of a GPU that it is. `hours`:
    observed GPU-hours without a workload; `idle_hours`: of them idle. `engine_mean`, `dram_mean`: ratios
    over those hours; None: not measured. `power_mean_watts`, `idle_power_watts`: drawn, and the idle level.
    `busy_hours`: in which it worked for somebody whom nothing names; `held_hours`: in which memory was held.
    `telemetry_fault`: why its signals contradict one another, if they do."""

    node: str
    gpu_uuid: str
    gpu_sku: str | None
    hours: float
    idle_hours: float
    engine_mean: float | None
    dram_mean: float | None
    power_mean_watts: float | None
    idle_power_watts: float | None
    last_ts: float
    telemetry_fault: str | None = None
    busy_hours: float = 0.0
    held_hours: float = 0.0
    part: float = 1.0
    parent_uuid: str | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class RestLevel:
    """What one whole GPU draws at rest in the window, and at which SM clock over the clock behind its peak: while
    somebody holds memory of it, and with nothing resident. None: it was not seen so, or it was not measured."""

    node: str
    gpu_uuid: str
    gpu_sku: str | None
    held_watts: float | None
    free_watts: float | None
    held_clock_ratio: float | None
    free_clock_ratio: float | None


@dataclass(frozen=True, slots=True)
class MigInstance:
    """One MIG instance that was there at the window's end. `compute`, `memory`: its slices; None: not known. `held`:
    ids of the workloads that held it then."""

    node: str
    gpu_uuid: str
    parent_uuid: str
    profile: str
    compute: int | None
    memory: int | None
    held: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RestingGpu:
    """A GPU, or a MIG instance, at rest throughout what was observed of the newest hour of the window. `part`: the part
    of a GPU that it is. `held`: whether a workload held it in its last row."""

    node: str
    gpu_uuid: str
    part: float
    held: bool
    parent_uuid: str | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class TokenEnergy:
    """Of one workload: `tokens` generated and `joules` drawn by all its GPUs in the same `hours` of the clock."""

    tokens: float
    joules: float
    hours: float


@dataclass(frozen=True, slots=True)
class NodePower:
    """Watts of all GPUs of a node at once; None: never was all their power measured, or a limit is not known. `mean`,
    `p95`, `highest`: over intervals of up to `interval_seconds`, each by its length. `rated`: the sum of the GPUs'
    power limits."""

    mean: float | None
    p95: float | None
    highest: float | None
    rated: float | None
    interval_seconds: float | None


@dataclass(frozen=True)
class Verdicts:
    """All that is known of a window before any move is thought of. `workloads`: one each (`series_id` joins restarts),
    the largest first. `occupancy`: ``node, gpu_uuid, class, workload_id, gpu_hours`` (`accounting/energy.py`); class is
    workload, shared, allocated_idle, unallocated, drained or unobserved; a node's rows sum to GPU count x `span_hours`.
    `energy`: the joules of the same hours; `tokens`: by workload, `power`: by node. `waste_ready`: workload id ->
    whether the hours of its series reach the coverage floor. `doubts`: readings that were not believed. `resting`: of
    nodes in service.

    `usage`: one row per workload, GPU and interval: ``workload_id, node, gpu_uuid, ts``, ``seconds`` (observed), ``u_c,
    u_m, u_n, u_i, u_p`` (use over what the SKU sustains, NaN: unknown), ``c, m`` (over the peak), ``g, g_max`` (engine
    active, mean and highest), ``sm``, ``idle``, ``rests``, ``clock_ratio``, ``lost`` (share of time its waiting ranks
    lose to a late one), ``tensor_nvlink_correlation``, ``tensor_fabric_correlation``, ``bottleneck``,
    ``mem_used_ratio``, ``power_watts``.
    """

    window: Window
    workloads: tuple[WorkloadVerdict, ...]
    nodes: tuple[NodeFacts, ...]
    bare: tuple[BareGpu, ...]
    occupancy: pd.DataFrame
    usage: ColumnRows
    waste_ready: Mapping[str, bool]
    notes: tuple[CodedText, ...] = ()
    energy: pd.DataFrame = field(default_factory=pd.DataFrame)
    tokens: Mapping[str, TokenEnergy] = field(default_factory=dict)
    power: Mapping[str, NodePower] = field(default_factory=dict)
    inventory: Inventory = field(default_factory=Inventory)
    doubts: tuple[Doubt, ...] = ()
    instances: tuple[MigInstance, ...] = ()
    rest_levels: tuple[RestLevel, ...] = ()
    resting: tuple[RestingGpu, ...] = ()

    def node(self, name: str) -> NodeFacts | None:
        return self._nodes.get(name)

    def usage_of(self, ids: Iterable[str], *names: str) -> pd.DataFrame:
        """These columns of the rows of `usage` of these workloads, in its order."""
        rows = self.used(ids)
        return rows.taken(np.sort(rows.at)).frame(names)

    def used(self, ids: Iterable[str]) -> ColumnRows:
        parts = [self._usage_rows[key] for key in ids if key in self._usage_rows]
        return self.usage.taken(np.concatenate([np.empty(0, dtype=np.intp), *parts]))

    @cached_property
    def _nodes(self) -> dict[str, NodeFacts]:
        return {n.node: n for n in reversed(self.nodes)}

    @cached_property
    def _usage_rows(self) -> dict[str, npt.NDArray[np.intp]]:
        """Workload id -> positions of its rows: looked up for each workload, where a search would take all rows."""
        return {key: rows.at for key, rows in self.usage.groups("workload_id").items()}
