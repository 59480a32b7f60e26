"""The agent's vocabulary: metrics, devices, readings, workloads, and why a value is missing.

Everything here is a frozen value. Units are base units and stand in the names (see docs/metrics.md); a missing value is
simply not in a mapping, never 0, -1 or NaN, and an `Absence` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Scope = Literal["gpu", "fabric", "host", "source"]
Role = Literal["compute", "storage", "management", "unknown"]
LinkLayer = Literal["InfiniBand", "Ethernet", "EFA"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing that is measured.

    `quantum` is the step in which the store keeps it: the stored integer times `quantum` is the value in `unit`.
    `sources` are the fields it may come from, best first.
    """

    name: str
    unit: str
    quantum: float
    meaning: str
    sources: tuple[str, ...]
    rolled_up: bool = True


_RATIO = 1e-4
_KIB = 1024.0

GPU_METRICS: tuple[Metric, ...] = (
    Metric(
        "gpu_util",
        "ratio",
        _RATIO,
        "share of time at least one kernel ran; says nothing about how much of the GPU it used",
        ("nvmlDeviceGetUtilizationRates.gpu",),
    ),
    Metric(
        "sm_active",
        "ratio",
        _RATIO,
        "share of time an SM had a warp resident, averaged over the SMs",
        ("GPM SM_UTIL", "DCGM 1002"),
    ),
    Metric(
        "sm_occupancy",
        "ratio",
        _RATIO,
        "resident warps over the most that fit, averaged over the SMs",
        ("GPM SM_OCCUPANCY", "DCGM 1003"),
    ),
    Metric(
        "tensor_active", "ratio", _RATIO, "share of cycles the tensor pipe was active", ("GPM ANY_TENSOR", "DCGM 1004")
    ),
    Metric(
        "dram_active", "ratio", _RATIO, "HBM or GDDR bandwidth used over its peak", ("GPM DRAM_BW_UTIL", "DCGM 1005")
    ),
    Metric("fp64_active", "ratio", _RATIO, "share of cycles the FP64 pipe was active", ("GPM FP64", "DCGM 1006")),
    Metric("fp32_active", "ratio", _RATIO, "share of cycles the FP32 pipe was active", ("GPM FP32", "DCGM 1007")),
    Metric(
        "fp16_active",
        "ratio",
        _RATIO,
        "share of cycles the FP16 pipe was active (tensor not included)",
        ("GPM FP16", "DCGM 1008"),
    ),
    Metric(
        "mem_used_bytes",
        "bytes",
        _KIB,
        "memory allocated, the driver's reserve not included",
        ("nvmlDeviceGetMemoryInfo_v2.used",),
    ),
    Metric(
        "power_watts",
        "watts",
        0.1,
        "mean power over the interval (energy counter), else the driver's power reading",
        ("NVML field 83", "nvmlDeviceGetPowerUsage"),
    ),
    Metric("energy_joules", "joules", 0.1, "energy drawn in the interval", ("NVML field 83",)),
    Metric("sm_clock_hertz", "hertz", 1e6, "SM clock", ("nvmlDeviceGetClockInfo SM",)),
    Metric("mem_clock_hertz", "hertz", 1e6, "memory clock", ("nvmlDeviceGetClockInfo MEM",)),
    Metric("temperature_celsius", "celsius", 1.0, "GPU temperature", ("nvmlDeviceGetTemperature",)),
    Metric(
        "throttle_reasons",
        "bitmask",
        1.0,
        "NVML's clocks-event-reasons bitmask at the end of the interval",
        ("nvmlDeviceGetCurrentClocksEventReasons",),
        rolled_up=False,
    ),
    Metric(
        "pcie_tx_bytes_per_second",
        "bytes per second",
        _KIB,
        "PCIe traffic sent by the GPU",
        ("GPM PCIE_TX", "NVML field 197", "DCGM 1009"),
    ),
    Metric(
        "pcie_rx_bytes_per_second",
        "bytes per second",
        _KIB,
        "PCIe traffic received by the GPU",
        ("GPM PCIE_RX", "NVML field 198", "DCGM 1010"),
    ),
    Metric(
        "nvlink_tx_bytes_per_second",
        "bytes per second",
        _KIB,
        "NVLink traffic sent, all links",
        ("GPM NVLINK_TOTAL_TX", "NVML field 138", "DCGM 1011"),
    ),
    Metric(
        "nvlink_rx_bytes_per_second",
        "bytes per second",
        _KIB,
        "NVLink traffic received, all links",
        ("GPM NVLINK_TOTAL_RX", "NVML field 139", "DCGM 1012"),
    ),
)

FABRIC_METRICS: tuple[Metric, ...] = (
    Metric(
        "tx_bytes_per_second",
        "bytes per second",
        64.0,
        "traffic sent by the port (RDMA only on RoCE)",
        ("port_xmit_data x 4", "EFA hw_counters"),
    ),
    Metric(
        "rx_bytes_per_second",
        "bytes per second",
        64.0,
        "traffic received by the port (RDMA only on RoCE)",
        ("port_rcv_data x 4", "EFA hw_counters"),
    ),
    Metric(
        "xmit_wait_per_second",
        "ticks per second",
        1.0,
        "ticks in which the port had data to send but no credit (congestion)",
        ("port_xmit_wait",),
    ),
)

HOST_METRICS: tuple[Metric, ...] = (
    Metric("cpu_util", "ratio", _RATIO, "share of all CPU time not idle and not waiting for IO", ("/proc/stat",)),
    Metric("io_wait", "ratio", _RATIO, "share of all CPU time spent waiting for IO", ("/proc/stat",)),
    Metric("mem_used_bytes", "bytes", _KIB, "MemTotal - MemAvailable", ("/proc/meminfo",)),
    Metric("disk_read_bytes_per_second", "bytes per second", _KIB, "read from physical disks", ("/proc/diskstats",)),
    Metric("disk_write_bytes_per_second", "bytes per second", _KIB, "written to physical disks", ("/proc/diskstats",)),
)

# What local inference servers tell of themselves, each over the time between two readings of their page.
SERVING_METRICS: tuple[Metric, ...] = (
    Metric("kv_cache_usage", "ratio", _RATIO, "share of the KV cache's blocks in use", ("the server's page",), False),
    Metric("requests_running", "requests", 1.0, "requests being worked on", ("the server's page",), False),
    Metric("requests_waiting", "requests", 1.0, "requests waiting to be taken up", ("the server's page",), False),
    Metric(
        "prompt_tokens_per_second", "tokens per second", 0.1, "prompt tokens taken in", ("the server's page",), False
    ),
    Metric("generation_tokens_per_second", "tokens per second", 0.1, "tokens generated", ("the server's page",), False),
    Metric(
        "time_to_first_token_seconds",
        "seconds",
        1e-4,
        "mean over the requests that got their first token in the interval",
        ("the server's page",),
        False,
    ),
    Metric(
        "preemptions_per_second",
        "requests per second",
        1e-3,
        "requests thrown out of the KV cache for want of room",
        ("the server's page",),
        False,
    ),
)

# Lower edges of the fixed bins in which the hours count seconds per ratio; the last bin is [1, inf).
# Fine near zero, where the silence of a link is judged; 5 % steps above.
_NEAR_ZERO = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.035, 0.05)
BIN_EDGES: tuple[float, ...] = (*_NEAR_ZERO, *(step / 20 for step in range(2, 21)))

# What the hours keep in bins: name -> how the ratio is formed.
GPU_BINS: Mapping[str, str] = {
    "gpu_util": "gpu_util",
    "sm_active": "sm_active",
    "sm_occupancy": "sm_occupancy",
    "tensor_active": "tensor_active",
    "dram_active": "dram_active",
    "mem_used": "mem_used_bytes / mem_total_bytes",
    "power": "power_watts / power_limit_watts",
    "nvlink": "max(nvlink_tx, nvlink_rx) / nvlink_bytes_per_second (one way)",
}
FABRIC_BINS: Mapping[str, str] = {"util": "max(tx, rx) / line_rate_bytes_per_second"}
HOST_BINS: Mapping[str, str] = {"cpu_util": "cpu_util"}

# Throttle reasons that cost speed, from nvml.h (nvmlClocksEventReasons): SW power cap 0x4, HW slowdown 0x8,
# sync boost 0x10, SW thermal 0x20, HW thermal 0x40, HW power brake 0x80. GpuIdle 0x1 and the clock settings
# 0x2 and 0x100 are choices, not slowdowns.
THROTTLE_MASK = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80


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
    # The N of /dev/nvidiaN, by which Slurm names GPUs. It may change with a reboot, so it is neither kept nor compared.
    minor: int | None = field(default=None, compare=False)
    # The id of a MIG instance's GPU instance on its parent; as `minor`, neither kept nor compared.
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
    """Whose work it is. `command` is redacted before it gets here; identities are as in docs/architecture.md.

    `restarts`: how often Slurm requeued the job before this run. `controller_kind`: the kind of Kubernetes object that
    `name` names (Deployment, PyTorchJob ...). `team`: by a label that the site named. None: not told.
    """

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
    """One workload on one GPU, and how we know.

    `since` and `until` (Unix seconds): where the scheduler told when it was given and taken back. `until` None: it is
    so right now; otherwise it is over.
    """

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
    """What a source found when it looked once: devices, and what it can read of them."""

    gpus: tuple[Gpu, ...] = ()
    ports: tuple[FabricPort, ...] = ()
    capabilities: tuple[Capability, ...] = ()


@dataclass(frozen=True, slots=True)
class ServingSample:
    """What one local inference server told of itself, over the interval that ends at `ts` (Unix seconds).

    `endpoint` is the page's address, `engine` what speaks there (vllm, sglang, tgi, triton, tensorrt-llm). `values` are
    keyed by SERVING_METRICS; what is not in it the engine does not tell. `pids` listen there, as far as can be seen;
    whose work they are is found out later (`workload_id`; None: not known, so the sample is the node's).
    """

    ts: float
    interval_seconds: float
    endpoint: str
    engine: str
    values: Mapping[str, float]
    pids: frozenset[int] = frozenset()
    workload_id: str | None = None


EventKind = Literal[
    "xid", "ecc-single-bit", "ecc-double-bit", "ecc-single-bit-storm", "dram-retirement", "dram-retirement-failure",
    "poison-nonfatal", "poison-fatal", "gpu-unavailable", "recovery-action", "mig-change", "other",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the driver told of its own accord: `count` times between `ts` and `last_ts` (Unix seconds).

    `gpu_uuid` is the whole GPU, None where the driver named none. `code` is the XID's number, None for other kinds.
    """

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
    """What one source read at one tick. Keys: gpu uuid, ``device/port``; inner keys are metric names.

    `absences` is the whole set that holds now for this source (not a difference). `port_states` maps a port's key to
    its state text (``ACTIVE``, ``DOWN``, ...). `processes` is None where this tick did not look. `provides` names the
    (subject, metric) pairs that this source gives at a slower pace than the ticks: between two of its values they are
    not absent, whatever another source says of them.
    """

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


@dataclass(frozen=True, slots=True)
class AgentStats:
    """What watching cost: CPU of the whole process since the last record, and how late the ticks were.

    `clock_offset_seconds` is how far the wall clock was moved against the monotonic one since the agent started.
    """

    ts: float
    cpu_seconds: float
    rss_bytes: int
    tick_seconds: float
    late_seconds: float
    missed_ticks: int
    clock_offset_seconds: float | None = None


Period = Literal["minute", "hour"]


PERIOD_SECONDS: Mapping[Period, int] = {"minute": 60, "hour": 3600}
