"""The SELECTs that the advisor reads with: named, against the public views, only the columns that verdicts need.

Each query lists its columns in the order text, numbers, bins, so that a reader can turn each group into arrays at once.
Parameters are named: ``:start`` and ``:end`` bound `ts` as (start, end].
"""

from __future__ import annotations

from dataclasses import dataclass

from ..file.codec import GPU_DYNAMICS

# Measures kept by the rollups that verdicts read, and which of their statistics.
_LINKS = (
    "pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second", "nvlink_tx_bytes_per_second", "nvlink_rx_bytes_per_second",
)  # fmt: skip
_PIPES = ("gpu_util", "sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active")
_CLOCKS = ("mem_used_bytes", "power_watts", "sm_clock_hertz", "mem_clock_hertz")
_GPU_MEAN = (*_PIPES, *_CLOCKS, *_LINKS)
_GPU_P95 = ("gpu_util", "sm_active", "tensor_active", "dram_active", "power_watts", *_LINKS)
_GPU_MAX = ("gpu_util", "sm_active", "tensor_active", "dram_active", "mem_used_bytes")
_DYNAMICS = tuple(GPU_DYNAMICS)
_FABRIC = ["tx_bytes_per_second", "rx_bytes_per_second", "xmit_wait_per_second"]
_HOST = ["cpu_util", "io_wait", "mem_used_bytes", "disk_read_bytes_per_second", "disk_write_bytes_per_second"]

GPU_TEXT = ("node", "gpu_uuid")
GPU_NUMBERS = (
    "gpu_index", "ts", "interval_seconds", "observed_seconds",
    *(f"{m}_mean" for m in _GPU_MEAN), *(f"{m}_p95" for m in _GPU_P95), *(f"{m}_max" for m in _GPU_MAX),
    "gpu_util_n", "tensor_active_n", "dram_active_n", "power_watts_n", *_DYNAMICS, "mem_total_bytes",
    # Joules a sample: times the samples, what the GPU's own counter grew by.
    "energy_joules_mean", "energy_joules_n",
)  # fmt: skip
GPU_BIN_COLUMNS = ("sm_active_bins", "tensor_active_bins", "dram_active_bins", "nvlink_bins")
FABRIC_TEXT = ("node", "device", "role", "link_layer")
FABRIC_NUMBERS = (
    "port", "ts", "interval_seconds", "line_rate_bytes_per_second", "observed_seconds", "util_mean", "util_max",
    "util_p95", "util_n", *(f"{m}_mean" for m in _FABRIC), "active_fraction", "idle_run_seconds",
)  # fmt: skip
FABRIC_BIN_COLUMNS = ("util_bins",)
HOST_TEXT = ("node",)
HOST_NUMBERS = (
    "ts", "interval_seconds", "observed_seconds", *(f"{m}_mean" for m in _HOST), *(f"{m}_p95" for m in _HOST),
    *(f"{m}_max" for m in _HOST),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT and the columns it gives: first `text`, then `numbers`, then `bins` (JSON arrays)."""

    sql: str
    text: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    bins: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return self.text + self.numbers + self.bins


def _over_span(
    view: str,
    text: tuple[str, ...],
    numbers: tuple[str, ...],
    bins: tuple[str, ...] = (),
    where: str = " WHERE ts > :start AND ts <= :end",
) -> Query:
    sql = f"SELECT {', '.join(text + numbers + bins)} FROM {view}{where}"  # noqa: S608 - constants of this file
    return Query(sql, text, numbers, bins)


GPU_HOURS = _over_span("gpu_hours", GPU_TEXT, GPU_NUMBERS, GPU_BIN_COLUMNS)
GPU_MINUTES = _over_span("gpu_minutes", GPU_TEXT, GPU_NUMBERS)
FABRIC_HOURS = _over_span("fabric_hours", FABRIC_TEXT, FABRIC_NUMBERS, FABRIC_BIN_COLUMNS)
FABRIC_MINUTES = _over_span("fabric_minutes", FABRIC_TEXT, FABRIC_NUMBERS)
HOST_HOURS = _over_span("host_hours", HOST_TEXT, HOST_NUMBERS)
HOST_MINUTES = _over_span("host_minutes", HOST_TEXT, HOST_NUMBERS)

GPU_SAMPLES = _over_span(
    "gpu_samples",
    GPU_TEXT,
    (
        "gpu_index", "ts", "interval_seconds", *_PIPES, *_CLOCKS, "throttle_reasons", *_LINKS, "mem_total_bytes",
        "energy_joules",
    ),
)  # fmt: skip
FABRIC_SAMPLES = _over_span(
    "fabric_samples",
    (*FABRIC_TEXT, "state"),
    ("port", "ts", "interval_seconds", "line_rate_bytes_per_second", *_FABRIC),
)
HOST_SAMPLES = _over_span("host_samples", HOST_TEXT, ("ts", "interval_seconds", *_HOST))

# What tells whether a GPU works and for how long: every minute, or one of several (``:every``, whole minutes) where
# there are many.
ACTIVITY = _over_span(
    "gpu_minutes",
    GPU_TEXT,
    ("ts", "gpu_util_mean", "sm_active_mean", "mem_used_bytes_mean"),
    where=" WHERE ts > :start AND ts <= :end AND CAST(ts / 60 AS INTEGER) % CAST(:every AS INTEGER) = 0",
)


def _of_node(view: str, columns: tuple[str, ...]) -> str:
    return f"SELECT {', '.join(columns)} FROM {view} WHERE ts > :start AND ts <= :end AND node = :node"  # noqa: S608


# One node's newest seconds, for whoever looks on. Parameters: ``:node``, ``:start`` and ``:end``.
def live_gpus(columns: tuple[str, ...]) -> str:
    """Samples of GPUs: uuid, ts and `columns`."""
    return _of_node("gpu_samples", ("gpu_uuid", "ts", *columns))


def live_ports(columns: tuple[str, ...]) -> str:
    """Samples of ports: ``device/port``, ts, `columns`, role, link layer, state and line rate."""
    return _of_node(
        "fabric_samples",
        ("device || '/' || port", "ts", *columns, "role", "link_layer", "state", "line_rate_bytes_per_second"),
    )


def live_hosts(columns: tuple[str, ...]) -> str:
    """Samples of the host: nothing, ts and `columns`."""
    return _of_node("host_samples", ("''", "ts", *columns))


LIVE_DEVICES = (
    "SELECT gpu_uuid, gpu_index, sku, mig_profile, parent_uuid, mem_total_bytes, power_limit_watts,"
    " nvlink_bytes_per_second FROM gpus WHERE node = :node AND valid_to IS NULL ORDER BY gpu_index, gpu_uuid"
)
LIVE_WORK = (
    "SELECT u.gpu_uuid, u.workload_id, w.name FROM workload_gpus u JOIN workloads w ON w.workload_id = u.workload_id"
    " WHERE u.node = :node AND u.ts_end > :start ORDER BY u.ts_end DESC, u.ts_start DESC"
)
NODES_SEEN = "SELECT node, last_seen FROM nodes"
GPUS_SEEN = "SELECT DISTINCT gpu_uuid FROM gpus"
LIVE_NODE = "SELECT last_seen FROM nodes WHERE node = :node"

NODES = _over_span(
    "nodes",
    ("node", "cluster", "machine_id", "provider", "region", "instance_type", "node_sku", "node_sku_source"),
    ("gpu_count", "first_seen", "last_seen"),
    where="",
)
GPUS = _over_span(
    "gpus",
    ("node", "gpu_uuid", "name", "sku", "kind", "parent_uuid", "mig_profile", "driver_version"),
    ("gpu_index", "slices", "mem_total_bytes", "power_limit_watts", "nvlink_links", "nvlink_bytes_per_second",
     "valid_from", "valid_to"),
    where=" WHERE valid_from <= :end AND (valid_to IS NULL OR valid_to >= :start)",
)  # fmt: skip
USES = _over_span(
    "workload_gpus",
    ("workload_id", "node", "gpu_uuid", "basis"),
    ("ts_start", "ts_end", "shared", "mem_used_bytes"),
    where=" WHERE ts_start < :end AND ts_end > :start",
)
WORKLOADS = _over_span(
    "workloads",
    ("workload_id", "series_id", "name", "scheduler", "job_id", "namespace", "pod", "user", "account", "framework",
     "command", "partition", "qos", "array_job_id", "array_task_id", "controller_kind", "image", "team"),
    ("first_seen", "last_seen", "restarts"),
    where=" WHERE first_seen < :end AND last_seen > :start",
)  # fmt: skip
# The runs of Slurm's job table that any of a window may be.
SLURM_JOBS = _over_span(
    "slurm_jobs",
    ("cluster", "job_id", "name", "user", "account", "partition", "qos", "array_job_id", "array_task_id", "state",
     "nodes"),
    ("restarts", "submitted_at", "started_at", "ended_at", "gpus", "cpus", "mem_bytes"),
    where=" WHERE started_at < :end AND (ended_at IS NULL OR ended_at > :start)",
)  # fmt: skip
ABSENCES = _over_span(
    "absences",
    ("node", "gpu_uuid", "device", "scope", "metric", "reason", "detail", "remedy"),
    ("since", "until"),
    where=" WHERE since < :end AND (until IS NULL OR until > :start)",
)
# When each port last carried anything, as far back as the hours reach. A port is active in an hour in which some second
# exceeded :level of its line rate.
FABRIC_HISTORY = Query(
    "SELECT node, device, role, port, max(CASE WHEN util_max >= :level THEN ts END) AS last_active_ts,"
    " min(ts) - 3600.0 AS first_ts, sum(observed_seconds) / 3600.0 AS hours FROM fabric_hours WHERE ts <= :end"
    # As rows are believed elsewhere: an hour, one per cent for clocks, and one tick of a minute.
    " AND observed_seconds BETWEEN 0 AND 3696"
    " GROUP BY node, device, role, port",
    ("node", "device", "role"),
    ("port", "last_active_ts", "first_ts", "hours"),
)
_SERVING_TEXT = ("node", "workload_id", "engine", "first_token_bins", "output_token_bins")
_SERVING_NUMBERS = (
    "kv_percent", "samples", "preemptions", "seconds", "generated_tokens", "prompt_tokens", "running_seconds",
    "running_max", "waiting_seconds", "waiting_max", "latency_ts",
)  # fmt: skip
# What inference servers told of themselves, counted by the percent of the KV cache in use (NULL: not told), so that a
# percentile over 14 days takes no more than a hundred rows of a workload.
_SERVING_SAMPLES = (
    "SELECT node, workload_id, engine, NULL AS first_token_bins, NULL AS output_token_bins,"
    " CAST(kv_cache_usage * 100 AS INTEGER) AS kv_percent, count(*) AS samples,"
    " sum(preemptions_per_second * interval_seconds) AS preemptions, sum(interval_seconds) AS seconds,"
    " sum(generation_tokens_per_second * interval_seconds) AS generated_tokens,"
    " sum(prompt_tokens_per_second * interval_seconds) AS prompt_tokens,"
    " sum(requests_running * interval_seconds) AS running_seconds, max(requests_running) AS running_max,"
    " sum(requests_waiting * interval_seconds) AS waiting_seconds, max(requests_waiting) AS waiting_max,"
    " NULL AS latency_ts"
    " FROM serving_samples WHERE ts > :start AND ts <= :end AND workload_id IS NOT NULL"
    " GROUP BY node, workload_id, engine, kv_percent"
)
# Rows of their own, with no sample and no second, tell how long requests waited, hour by hour (`latency_ts`).
_SERVING_HOURS = (
    "SELECT node, workload_id, engine, first_token_bins, output_token_bins,"
    " NULL, 0, NULL, 0.0, NULL, NULL, NULL, NULL, NULL, NULL, ts"
    " FROM serving_hours WHERE ts > :start AND ts <= :end AND workload_id IS NOT NULL"
)
SERVING = Query(
    " UNION ALL ".join((_SERVING_SAMPLES, _SERVING_HOURS)),
    _SERVING_TEXT,
    _SERVING_NUMBERS,
)


# Tokens and the queue by rows of :step seconds (`ts`: their end), to be held against the energy of the same hours or
# another replica. `seconds` count where tokens were told, `queue_seconds` where requests at work were.
TOKENS = Query(
    "SELECT node, workload_id, engine, (CAST((ts - 0.001) / :step AS INTEGER) + 1) * :step AS ts,"
    " sum(CASE WHEN generation_tokens_per_second IS NULL THEN 0.0 ELSE interval_seconds END) AS seconds,"
    " sum(generation_tokens_per_second * interval_seconds) AS generated_tokens,"
    " sum(CASE WHEN requests_running IS NULL THEN 0.0 ELSE interval_seconds END) AS queue_seconds,"
    " sum(requests_running * interval_seconds) AS running_seconds,"
    " sum(requests_waiting * interval_seconds) AS waiting_seconds"
    " FROM serving_samples WHERE ts > :start AND ts <= :end AND workload_id IS NOT NULL"
    " AND (generation_tokens_per_second IS NOT NULL OR requests_running IS NOT NULL) GROUP BY 1, 2, 3, 4",
    ("node", "workload_id", "engine"),
    ("ts", "seconds", "generated_tokens", "queue_seconds", "running_seconds", "waiting_seconds"),
)
# When the newest node was last seen. An hour that was rolled up before it was over ends later than that.
LAST_SEEN = "SELECT max(last_seen) FROM nodes"
# Where the minutes begin; NULL without any. They are kept for less long than the hours.
MINUTES_BEGIN = "SELECT min(ts) - 60.0 FROM minute"
# The span that a database has data for. Asked of each table apart: min and max alone use the key.
DATA_SPANS = (
    "SELECT (SELECT min(ts) - 3600.0 FROM hour), (SELECT max(ts) FROM hour)",
    "SELECT (SELECT min(ts) - 60.0 FROM minute), (SELECT max(ts) FROM minute)",
    "SELECT (SELECT min(ts) FROM tick), (SELECT max(ts) FROM tick)",
)
