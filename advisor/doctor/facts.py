"""What a source tells about its nodes, as both readers (databases, a server) give it and the diagnosis reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ..core.coded_text import CodedText
from ..core.frame import Window

if TYPE_CHECKING:
    from ...agent.base.slurm_job import SlurmJob
from ...rules.catalog.loader import Catalog

Scope = Literal["gpu", "node"]

# Below this share of a window something is said of its holes.
WINDOW_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class CoverageMeasure:
    """Something that advice rests on. `scope`: of each GPU, or of each node."""

    name: str
    title: str
    scope: Scope


MEASURES = (
    CoverageMeasure("engine_active", "GPU engine", "gpu"),
    CoverageMeasure("sm_active", "SM activity", "gpu"),
    CoverageMeasure("tensor_active", "tensor activity", "gpu"),
    CoverageMeasure("dram_active", "DRAM activity", "gpu"),
    CoverageMeasure("mem_used", "memory used", "gpu"),
    CoverageMeasure("power", "power", "gpu"),
    CoverageMeasure("clocks", "SM clock", "gpu"),
    CoverageMeasure("nvlink", "NVLink traffic", "gpu"),
    CoverageMeasure("pcie", "PCIe traffic", "gpu"),
    CoverageMeasure("infiniband", "InfiniBand", "node"),
    CoverageMeasure("ethernet", "Ethernet", "node"),
    CoverageMeasure("host", "host CPU", "node"),
)
GPU_MEASURES = tuple(one.name for one in MEASURES if one.scope == "gpu")
NODE_MEASURES = tuple(one.name for one in MEASURES if one.scope == "node")
# Below this use of the engine nobody works on a GPU whose holder could be asked for.
BUSY_LEVEL = 0.05
# Of an instance no driver tells these.
_WHOLE_ONLY = ("nvlink", "pcie")


@dataclass(frozen=True, slots=True)
class ExpectedGpu:
    """What was told of one physical GPU; of a sliced one, what all of its instances tell.

    `hours`: hours of the window in which anything was observed; `known`: measure -> hours in which it was measured.
    `first_ts`, `last_ts`: Unix seconds, NaN where nothing was observed. `busy_hours`: with an engine above
    `BUSY_LEVEL`; `labeled_hours`: those of them that name a workload. `instances`: MIG instances of any time.
    """

    gpu_uuid: str
    sku: str | None
    hours: float
    first_ts: float
    last_ts: float
    known: Mapping[str, float]
    busy_hours: float = 0.0
    labeled_hours: float = 0.0
    instances: int = 0


@dataclass(frozen=True, slots=True)
class Absent:
    """Why something of a node cannot be read, in the agent's own words. `metric` ``*``: all that its subject tells."""

    metric: str
    reason: str
    detail: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class NodeCoverage:
    """What was told of one node. `declared`, `requested`: how many GPUs it says it has, and pods asked for at once.

    `known`: measure of the node -> hours. `agent`: whether our agent runs there. `renamed_from`: what the exporter
    calls it, where that is not its name.
    """

    node: str
    gpus: tuple[ExpectedGpu, ...] = ()
    declared: int | None = None
    requested: int = 0
    node_sku: str | None = None
    node_sku_source: str | None = None
    provider: str | None = None
    region: str | None = None
    known: Mapping[str, float] = field(default_factory=dict)
    fabric_ports: int = 0
    absences: tuple[Absent, ...] = ()
    agent: bool = False
    renamed_from: str | None = None


@dataclass(frozen=True, slots=True)
class SeenExporter:
    """Something that feeds the source. `versions`: empty where none is told; `nodes`: on how many it is seen, None
    where it is no program of a node."""

    name: str
    versions: tuple[str, ...] = ()
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class PodCoverage:
    """Pods that hold GPUs at the end of the window, and of how many kube-state-metrics tells the owner. `missing`:
    series of it that would tell more."""

    on_gpus: int
    owned: int
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A job of Slurm that held GPUs between two moments. `named`: its name or owner is known beside its number."""

    job_id: str
    first: float
    last: float
    named: bool = False


@dataclass(frozen=True, slots=True)
class SlurmCoverage:
    """Jobs of Slurm that held GPUs, how many of them have names, and how many Slurm's job table tells."""

    jobs: int = 0
    named: int = 0
    in_table: int = 0


@dataclass(frozen=True)
class SourceCoverage:
    """All that a source tells in a window. `begin`: where its telemetry of GPUs begins, Unix seconds.

    `observed_hours`: hours of the window with any telemetry of GPUs. `sampled`: at how many moments of the window the
    source was looked at, None where all of it was. `slack_seconds`: how exact first and last moments are.
    `resolution`: measure -> seconds between samples. `kubernetes`: whether pods are named; `pods`: whose they are, None
    where no series of a GPU names one. `jobs_seen`: of Slurm; `job_table`: the source's own of them; `slurm`: the two
    and --jobs together, counted.
    """

    source: Mapping[str, object]
    window: Window
    begin: float
    observed_hours: float
    nodes: tuple[NodeCoverage, ...]
    exporters: tuple[SeenExporter, ...]
    resolution: Mapping[str, float]
    sampled: int | None = None
    slack_seconds: float = 3600.0
    kubernetes: bool = False
    pods: PodCoverage | None = None
    notes: tuple[CodedText, ...] = ()
    jobs_seen: tuple[JobSeen, ...] = ()
    job_table: tuple[SlurmJob, ...] = ()
    slurm: SlurmCoverage = field(default_factory=SlurmCoverage)


def applies(measure: str, gpu: ExpectedGpu, catalog: Catalog) -> bool:
    """Whether a GPU can have a measure at all: none tells links of instances, nor links that its model lacks."""
    if measure not in _WHOLE_ONLY:
        return True
    if gpu.instances:
        return False
    sku = catalog.gpu(gpu.sku) if gpu.sku else None
    return measure != "nvlink" or sku is None or bool(sku.nvlink_bytes_per_second)
