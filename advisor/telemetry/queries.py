"""The SELECTs that the advisor reads with, of the public views; ``:start`` and ``:end`` bound `ts` as (start, end]."""

from dataclasses import dataclass

from ...agent.store.codec import GPU_DYNAMICS

_SPAN = "ts > :start AND ts <= :end"


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT and the columns it gives: first `text`, then `numbers`, then `bins` (JSON arrays). `grouped`: what
    follows its conditions."""

    sql: str
    text: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    bins: tuple[str, ...] = ()
    grouped: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        return self.text + self.numbers + self.bins


def _select(view: str, text: str, numbers: str, bins: str = "", where: str = _SPAN) -> Query:
    groups = tuple(text.split()), tuple(numbers.split()), tuple(bins.split())
    columns = ", ".join(name for group in groups for name in group)
    return Query(f"SELECT {columns} FROM {view} WHERE {where}", *groups)  # noqa: S608 - constants of this file


def _folded(view: str, text: str, numbers: str) -> Query:
    """Minutes as rows of :step seconds that end at its multiples: observed seconds and samples are summed, maxima and
    p95 are the largest, other numbers means weighted by the seconds in which they are known."""

    def folded(name: str) -> str:
        if name == "ts":
            return "(CAST((ts - 0.001) / :step AS INTEGER) + 1) * :step"
        if name == "interval_seconds":
            return ":step"
        if name == "port":
            return name
        if name.endswith(("observed_seconds", "_n")):
            return f"sum({name})"
        if name.endswith(("_max", "_p95")):
            return f"max({name})"
        known_seconds = f"total(observed_seconds) FILTER (WHERE {name} IS NOT NULL)"
        return f"total({name} * observed_seconds) / nullif({known_seconds}, 0)"

    names = [*text.split(), *numbers.split()]
    columns = ", ".join([*text.split(), *map(folded, numbers.split())])
    keys = ", ".join(str(n) for n, name in enumerate(names, 1) if name in {*text.split(), "port", "ts"})
    sql = f"SELECT {columns} FROM {view} WHERE {_SPAN} AND observed_seconds BETWEEN 0 AND 121"  # noqa: S608 - constants
    return Query(sql, tuple(text.split()), tuple(numbers.split()), grouped=f" GROUP BY {keys}")


def _each(measures: str, statistic: str) -> str:
    return " ".join(f"{measure}_{statistic}" for measure in measures.split())


_LINKS = "pcie_tx_bytes_per_second pcie_rx_bytes_per_second nvlink_tx_bytes_per_second nvlink_rx_bytes_per_second"
_PIPES = "gpu_util sm_active sm_occupancy tensor_active dram_active fp64_active fp32_active"
_CLOCKS = "mem_used_bytes power_watts sm_clock_hertz mem_clock_hertz"
_GPU = "node gpu_uuid"
# `energy_joules`: joules a sample; times the samples, what the GPU's own counter grew by.
_GPU_NUMBERS = (
    f"gpu_index ts interval_seconds observed_seconds {_each(f'{_PIPES} {_CLOCKS} {_LINKS}', 'mean')}"
    f" {_each(f'gpu_util sm_active tensor_active dram_active power_watts {_LINKS}', 'p95')}"
    f" {_each('gpu_util sm_active tensor_active dram_active mem_used_bytes', 'max')}"
    f" {_each('gpu_util tensor_active dram_active power_watts', 'n')} {' '.join(GPU_DYNAMICS)} mem_total_bytes"
    " energy_joules_mean energy_joules_n"
)
_PORT, _TRAFFIC = "node device role link_layer", "tx_bytes_per_second rx_bytes_per_second xmit_wait_per_second"
_PORT_NUMBERS = (
    "port ts interval_seconds line_rate_bytes_per_second observed_seconds util_mean util_max util_p95 util_n"
    f" {_each(_TRAFFIC, 'mean')} active_fraction idle_run_seconds"
)
_HOST = "cpu_util io_wait mem_used_bytes disk_read_bytes_per_second disk_write_bytes_per_second"
_HOST_NUMBERS = f"ts interval_seconds observed_seconds {' '.join(_each(_HOST, end) for end in ('mean', 'p95', 'max'))}"

GPU_HOURS = _select("gpu_hours", _GPU, _GPU_NUMBERS, "sm_active_bins tensor_active_bins dram_active_bins nvlink_bins")
GPU_MINUTES = _select("gpu_minutes", _GPU, _GPU_NUMBERS)
FABRIC_HOURS = _select("fabric_hours", _PORT, _PORT_NUMBERS, "util_bins")
FABRIC_MINUTES = _select("fabric_minutes", _PORT, _PORT_NUMBERS)
HOST_HOURS = _select("host_hours", "node", _HOST_NUMBERS)
HOST_MINUTES = _select("host_minutes", "node", _HOST_NUMBERS)
_SAMPLE = "ts interval_seconds"
_GPU_SAMPLE = f"gpu_index {_SAMPLE} {_PIPES} {_CLOCKS} throttle_reasons {_LINKS} mem_total_bytes energy_joules"
GPU_SAMPLES = _select("gpu_samples", _GPU, _GPU_SAMPLE)
FABRIC_SAMPLES = _select("fabric_samples", f"{_PORT} state", f"port {_SAMPLE} line_rate_bytes_per_second {_TRAFFIC}")
HOST_SAMPLES = _select("host_samples", "node", f"{_SAMPLE} {_HOST}")
# What the watch and the judges of soundness and rest need: of rows of a minute, of five, and of past hours.
_ROW = "ts interval_seconds observed_seconds"
_SHORT = (
    f"{_ROW} {_each('gpu_util sm_active tensor_active dram_active', 'mean')}"
    f" {_each('gpu_util sm_active tensor_active dram_active', 'max')} {_each('gpu_util sm_active', 'p95')}"
    " gpu_util_n fp64_active_mean fp32_active_mean mem_used_bytes_mean power_watts_mean mem_total_bytes"
)
_SHORT_LONG = f"{_SHORT} tensor_active_p95 dram_active_p95 tensor_active_n"
_SHORT_PORT = (
    f"port {_ROW} line_rate_bytes_per_second tx_bytes_per_second_mean rx_bytes_per_second_mean active_fraction"
)
_SHORT_HOST = f"{_ROW} {_each('cpu_util disk_read_bytes_per_second disk_write_bytes_per_second', 'mean')}"
GPU_SHORT = _select("gpu_minutes", _GPU, f"{_SHORT} {_each(f'sm_clock_hertz {_LINKS}', 'mean')} throttled_fraction")
FABRIC_SHORT = _select("fabric_minutes", "node device role", _SHORT_PORT)
HOST_SHORT = _select("host_minutes", "node", _SHORT_HOST)
GPU_FIVE = _folded("gpu_minutes", _GPU, _SHORT_LONG)
FABRIC_FIVE = _folded("fabric_minutes", "node device role", _SHORT_PORT)
HOST_FIVE = _folded("host_minutes", "node", _SHORT_HOST)
GPU_PAST = _select("gpu_hours", _GPU, _SHORT_LONG)
# Whether a GPU works, of one of :every minutes.
ACTIVITY = _select(
    "gpu_minutes", _GPU, "ts gpu_util_mean sm_active_mean mem_used_bytes_mean",
    where=f"{_SPAN} AND CAST(ts / 60 AS INTEGER) % CAST(:every AS INTEGER) = 0",
)  # fmt: skip
NODES_SEEN = "SELECT node, last_seen FROM nodes"
GPUS_SEEN = "SELECT DISTINCT gpu_uuid FROM gpus"
NODES = _select(
    "nodes", "node cluster machine_id provider region instance_type node_sku node_sku_source",
    "gpu_count first_seen last_seen", where="1",
)  # fmt: skip
GPUS = _select(
    "gpus", "node gpu_uuid name sku kind parent_uuid mig_profile driver_version",
    "gpu_index slices mem_total_bytes power_limit_watts nvlink_links nvlink_bytes_per_second valid_from valid_to",
    where="valid_from <= :end AND (valid_to IS NULL OR valid_to >= :start)",
)  # fmt: skip
USES = _select(
    "workload_gpus", "workload_id node gpu_uuid basis", "ts_start ts_end shared mem_used_bytes",
    where="ts_start < :end AND ts_end > :start",
)  # fmt: skip
WORKLOADS = _select(
    "workloads",
    "workload_id series_id name scheduler job_id namespace pod user account framework command partition qos"
    " array_job_id array_task_id controller_kind image team",
    "first_seen last_seen restarts", where="first_seen < :end AND last_seen > :start",
)  # fmt: skip
SLURM_JOBS = _select(
    "slurm_jobs", "cluster job_id name user account partition qos array_job_id array_task_id state nodes",
    "restarts submitted_at started_at ended_at gpus cpus mem_bytes",
    where="started_at < :end AND (ended_at IS NULL OR ended_at > :start)",
)  # fmt: skip
ABSENCES = _select(
    "absences", "node gpu_uuid device scope metric reason detail remedy", "since until",
    where="since < :end AND (until IS NULL OR until > :start)",
)  # fmt: skip
# When each port last carried anything: the last hour in which some second exceeded :level of its line rate.
FABRIC_HISTORY = Query(
    "SELECT node, device, role, port, max(CASE WHEN util_max >= :level THEN ts END) AS last_active_ts,"
    " min(ts) - 3600.0 AS first_ts, sum(observed_seconds) / 3600.0 AS hours FROM fabric_hours WHERE ts <= :end"
    # An hour, one per cent for clocks, and one tick of a minute.
    " AND observed_seconds BETWEEN 0 AND 3696 GROUP BY node, device, role, port",
    ("node", "device", "role"),
    ("port", "last_active_ts", "first_ts", "hours"),
)
# What inference servers report, by the percent of the KV cache in use (NULL: unknown), which is a hundred rows of a
# workload at most. Rows without samples have the latency of requests, by the hour (`latency_ts`).
SERVING = Query(
    "SELECT node, workload_id, engine, NULL AS first_token_bins, NULL AS output_token_bins,"  # noqa: S608 - constants
    " CAST(kv_cache_usage * 100 AS INTEGER) AS kv_percent, count(*) AS samples,"
    " sum(preemptions_per_second * interval_seconds) AS preemptions, sum(interval_seconds) AS seconds,"
    " sum(generation_tokens_per_second * interval_seconds) AS generated_tokens,"
    " sum(prompt_tokens_per_second * interval_seconds) AS prompt_tokens,"
    " sum(requests_running * interval_seconds) AS running_seconds, max(requests_running) AS running_max,"
    " sum(requests_waiting * interval_seconds) AS waiting_seconds, max(requests_waiting) AS waiting_max,"
    " sum(requests_per_second * interval_seconds) AS requests,"
    f" NULL AS latency_ts FROM serving_samples WHERE {_SPAN} AND workload_id IS NOT NULL"
    " GROUP BY node, workload_id, engine, kv_percent"
    " UNION ALL SELECT node, workload_id, engine, first_token_bins, output_token_bins,"
    f" NULL, 0, NULL, 0.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, ts FROM serving_hours WHERE {_SPAN}"
    " AND workload_id IS NOT NULL",
    ("node", "workload_id", "engine", "first_token_bins", "output_token_bins"),
    ("kv_percent", "samples", "preemptions", "seconds", "generated_tokens", "prompt_tokens", "running_seconds",
     "running_max", "waiting_seconds", "waiting_max", "requests", "latency_ts"),
)  # fmt: skip
# Tokens and the queue by rows of :step seconds (`ts`: their end). `seconds` count where tokens are known,
# `queue_seconds` where requests at work are.
TOKENS = Query(
    "SELECT node, workload_id, engine, (CAST((ts - 0.001) / :step AS INTEGER) + 1) * :step AS ts,"  # noqa: S608
    " sum(CASE WHEN generation_tokens_per_second IS NULL THEN 0.0 ELSE interval_seconds END) AS seconds,"
    " sum(generation_tokens_per_second * interval_seconds) AS generated_tokens,"
    " sum(CASE WHEN requests_running IS NULL THEN 0.0 ELSE interval_seconds END) AS queue_seconds,"
    " sum(requests_running * interval_seconds) AS running_seconds,"
    " sum(requests_waiting * interval_seconds) AS waiting_seconds"
    f" FROM serving_samples WHERE {_SPAN} AND workload_id IS NOT NULL"
    " AND (generation_tokens_per_second IS NOT NULL OR requests_running IS NOT NULL) GROUP BY 1, 2, 3, 4",
    ("node", "workload_id", "engine"),
    ("ts", "seconds", "generated_tokens", "queue_seconds", "running_seconds", "waiting_seconds"),
)
MINUTES_BEGIN = "SELECT min(ts) - 60.0 FROM minute"  # NULL without any; they are kept for less long than the hours
# Starts and ends of the data, and when the newest node was last seen: an unfinished hour may end later than that.
DATA_SPAN = (
    "SELECT (SELECT min(ts) - 3600.0 FROM hour), (SELECT max(ts) FROM hour), (SELECT min(ts) - 60.0 FROM minute),"
    " (SELECT max(ts) FROM minute), (SELECT min(ts) FROM tick), (SELECT max(ts) FROM tick),"
    " (SELECT max(last_seen) FROM nodes)"
)
