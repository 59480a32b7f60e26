"""The agent's vocabulary: metrics, devices, readings, workloads, and why a value is missing.

Everything here is a frozen value. Units are base units and part of the names (see docs/metrics.md); a missing value is
simply not in a mapping, never 0, -1 or NaN, and an `Absence` says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Scope = Literal["gpu", "fabric", "host", "source"]
Role = Literal["compute", "storage", "management", "unknown"]
LinkLayer = Literal["InfiniBand", "Ethernet", "EFA"]


@dataclass(frozen=True, slots=True)
class Instant:
    """A moment: `wall_seconds` is Unix time (UTC), `monotonic_seconds` is for intervals only."""

    wall_seconds: float
    monotonic_seconds: float


@dataclass(frozen=True, slots=True)
class Absence:
    """Why a value is missing.

    `subject` is a GPU's uuid, a fabric port as ``device/port``, or a source's name; empty for the host.
    `metric` is a metric's name or ``*`` for all of the subject's. `reason` is a stable kebab-case code
    (``no-driver``, ``not-supported``, ``no-permission``, ``gpu-lost``, ``counter-reset``, ``counter-wrap``,
    ``long-gap``, ``port-not-active``, ``no-pma``, ``no-fabric``, ...), `detail` the sentence a person reads, `remedy`
    what to do.
    """

    scope: Scope
    subject: str
    metric: str
    reason: str
    detail: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU or MIG instance. None: the driver does not say."""

    uuid: str
    index: int
    name: str
    sku: str | None = None
    kind: Literal["gpu", "mig"] = "gpu"
    parent_uuid: str | None = None
    slices: int | None = None
    mig_profile: str | None = None
    pci_bus_id: str | None = None
    mem_total_bytes: int | None = None
    power_limit_watts: float | None = None
    nvlink_links: int | None = None
    nvlink_bytes_per_second: float | None = None
    driver_version: str | None = None
    # The N of /dev/nvidiaN, by which Slurm names GPUs. It may change with a reboot, so it is not kept and not compared.
    minor: int | None = field(default=None, compare=False)
    # The id of a MIG instance's GPU instance on its parent; as `minor`, not kept and not compared.
    gpu_instance: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class FabricPort:
    """One port of a NIC. `line_rate_bytes_per_second` is one way; None: the port does not say."""

    device: str
    port: int
    role: Role = "unknown"
    link_layer: LinkLayer = "InfiniBand"
    line_rate_bytes_per_second: float | None = None

    @property
    def key(self) -> str:
        return f"{self.device}/{self.port}"


@dataclass(frozen=True, slots=True)
class Node:
    """What this node is. `node_sku_source` says where the SKU came from (config, metadata, dmi, label, shape)."""

    node: str
    cluster: str = ""
    machine_id: str | None = None
    boot_id: str | None = None
    provider: str | None = None
    region: str | None = None
    instance_type: str | None = None
    node_sku: str | None = None
    node_sku_source: str | None = None
    gpu_count: int | None = None
    agent_version: str | None = None


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds a context on a GPU, as the driver reports it (host PID)."""

    gpu_uuid: str
    pid: int
    mem_used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Whose work it is; identities are as in docs/architecture.md. `command`: what may be kept of a command line.
    `restarts`: how often Slurm requeued the job before this run. `controller_kind`: the kind of Kubernetes object that
    `name` names. `team`: by a label that the site named. None: unknown."""

    workload_id: str
    series_id: str
    name: str
    scheduler: Literal["slurm", "kubernetes", "docker", "process"]
    job_id: str | None = None
    namespace: str | None = None
    pod: str | None = None
    user: str | None = None
    account: str | None = None
    framework: str | None = None
    command: str | None = None
    partition: str | None = None
    qos: str | None = None
    array_job_id: str | None = None
    array_task_id: str | None = None
    restarts: int | None = None
    controller_kind: str | None = None
    image: str | None = None
    team: str | None = None


@dataclass(frozen=True, slots=True)
class WorkloadUse:
    """One workload on one GPU, and how we know. `since` and `until` (Unix seconds): where the scheduler reported when
    it was given and taken back. `until` None: it is so right now; otherwise it is over."""

    workload_id: str
    gpu_uuid: str
    basis: Literal["allocation", "process", "activity"]
    shared: bool = False
    mem_used_bytes: int | None = None
    since: float | None = None
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Capability:
    """One line of `doctor`: a source's metric on a subject, read from `origin`, or absent and why."""

    source: str
    scope: Scope
    subject: str
    metric: str
    origin: str
    absence: Absence | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """What a source, or all of them, found when they looked once: devices, and what can be read of them.
    `unnamed_gpus`: how many GPUs the driver counts that are not in `gpus`, because they do not answer (yet). `node`:
    what the node is now, where that was checked again."""

    gpus: tuple[Gpu, ...] = ()
    ports: tuple[FabricPort, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    unnamed_gpus: int = 0
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class ServingSample:
    """What one local inference server reported, over the interval that ends at `ts` (Unix seconds). `endpoint` is the
    page's address, `engine` what speaks there (vllm, sglang, tgi, triton, tensorrt-llm). `values` are keyed by
    SERVING_METRICS; what is not in it the engine does not show. `pids` listen there, as far as can be seen;
    `workload_id`: whose work they are (None: not known, so the sample is the node's). `latency`: what its histograms of
    latency counted, by what they are of (first_token, output_token), in the bins of `statistics/latency_bins.py`."""

    ts: float
    interval_seconds: float
    endpoint: str
    engine: str
    values: Mapping[str, float]
    pids: frozenset[int] = frozenset()
    workload_id: str | None = None
    latency: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A run of a Slurm job, by Slurm's accounting. A job that was requeued, and one with a recycled id, are several.
    `job_id`: the id that cgroups and ``SLURM_JOB_ID`` bear (sacct's JobIDRaw); where only ``22_7`` is given, that.
    Times are Unix seconds; `ended_at` None: it runs, or its end is unknown. `nodes`: as Slurm writes them
    (``gpu-[001-004]``). `gpus`, `cpus`, `mem_bytes`: what was allocated, else what was requested. None: unknown."""

    job_id: str
    started_at: float
    ended_at: float | None = None
    submitted_at: float | None = None
    cluster: str | None = None
    name: str | None = None
    user: str | None = None
    account: str | None = None
    partition: str | None = None
    qos: str | None = None
    array_job_id: str | None = None
    array_task_id: str | None = None
    state: str | None = None
    restarts: int | None = None
    nodes: str | None = None
    gpus: int | None = None
    cpus: int | None = None
    mem_bytes: float | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """What distinguishes a run from every other: cluster, id and start."""
        return self.cluster or "", self.job_id, int(self.started_at)


EventKind = Literal[
    "xid", "ecc-single-bit", "ecc-double-bit", "ecc-single-bit-storm", "dram-retirement", "dram-retirement-failure",
    "poison-nonfatal", "poison-fatal", "gpu-unavailable", "recovery-action", "mig-change", "other",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the driver reported unasked: `count` times between `ts` and `last_ts` (Unix seconds). `gpu_uuid`
    is the whole GPU, None where the driver named none. `code` is the XID's number, None for other kinds."""

    ts: float
    gpu_uuid: str | None
    kind: EventKind
    code: int | None = None
    detail: str = ""
    count: int = 1
    last_ts: float = 0.0

    @property
    def key(self) -> tuple[str | None, str, int | None]:
        """What makes two events the same thing happening again."""
        return (self.gpu_uuid, self.kind, self.code)


@dataclass(frozen=True, slots=True)
class Reading:
    """What one source read at one tick. Keys: gpu uuid, ``device/port``; inner keys are metric names. `absences` is the
    whole set that holds now for this source. `port_states`: by port (``ACTIVE``, ``DOWN``, ...). `processes` is None
    where this tick did not look. `provides` names the (subject, metric) pairs that this source gives at a slower pace
    than the ticks: between two of its values they are not absent, whatever another source says."""

    gpus: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    fabric: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    port_states: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, float] = field(default_factory=dict)
    processes: tuple[GpuProcess, ...] | None = None
    absences: frozenset[Absence] = frozenset()
    provides: frozenset[tuple[str, str]] = frozenset()
    serving: tuple[ServingSample, ...] = ()
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Tick:
    """All sources' readings, merged: `ts` (Unix seconds) ends an interval of `interval_seconds` (monotonic)."""

    ts: float
    interval_seconds: float
    gpus: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    fabric: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    port_states: Mapping[str, str] = field(default_factory=dict)
    host: Mapping[str, float] = field(default_factory=dict)
    processes: tuple[GpuProcess, ...] | None = None
    absences: frozenset[Absence] = frozenset()
    serving: tuple[ServingSample, ...] = ()
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentStats:
    """What watching cost: CPU of the whole process since the last record, and how late the ticks were.
    `clock_offset_seconds`: by how much the wall clock was moved against the monotonic one since the agent started."""

    ts: float
    cpu_seconds: float
    rss_bytes: int
    tick_seconds: float
    late_seconds: float
    missed_ticks: int
    clock_offset_seconds: float | None = None


Period = Literal["minute", "hour"]
PERIOD_SECONDS: Mapping[Period, int] = {"minute": 60, "hour": 3600}

_HOUR, _DAY = 3600.0, 86400.0
# The least that a person may ask for: rollups need the whole hour before, verdicts at least some days.
MIN_RAW_SECONDS, MIN_MINUTES_SECONDS, MIN_HOURS_SECONDS, MIN_BYTES = 2 * _HOUR, _DAY, _DAY, 64_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Ages in seconds, sizes in bytes (the database and its log together). 512 MB hold 90 days of a node of eight GPUs;
    where two years of hours need more, raw samples go first, to a quarter of their age, then the oldest minutes."""

    raw_seconds: float = 48 * _HOUR
    minutes_seconds: float = 90 * _DAY
    hours_seconds: float = 730 * _DAY
    max_bytes: int = 512_000_000
    # What grows with events, not with time, has its own limit: the oldest beyond it go first.
    max_uses: int = 200_000
    max_absences: int = 50_000
    max_events: int = 50_000
    max_slurm_jobs: int = 200_000

    @property
    def log_bytes(self) -> int:
        """How large the write-ahead log may grow while a reader holds it; beyond it, ticks wait in memory."""
        return min(self.max_bytes // 4, max(8_000_000, self.max_bytes // 16))

    @property
    def file_bytes(self) -> int:
        """How large the file itself may be after retention: the rest is the log's, and growth up to the next run."""
        return max(1, self.max_bytes - self.log_bytes - self.max_bytes // 64)
