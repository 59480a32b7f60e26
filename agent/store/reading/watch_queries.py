"""The SELECTs of the watch: the last hours by the minute, those before by five minutes, and who holds what now.

Columns are in the order text, numbers, as in `queries`. Parameters: ``:start``, ``:end`` bound `ts` as (start, end];
``:step`` is the length of a row in seconds.
"""

from __future__ import annotations

from .queries import Query

_FINE = (
    "ts", "observed_seconds", "gpu_util_mean", "gpu_util_max", "sm_active_mean", "sm_active_max", "tensor_active_mean",
    "dram_active_mean", "power_watts_mean", "mem_used_bytes_mean", "mem_total_bytes",
    "pcie_tx_bytes_per_second_mean", "pcie_rx_bytes_per_second_mean", "nvlink_tx_bytes_per_second_mean",
    "nvlink_rx_bytes_per_second_mean", "sm_clock_hertz_mean", "throttled_fraction",
)  # fmt: skip
_SPAN = "ts > :start AND ts <= :end"
# Before the last two hours links and clocks are not asked for: what a job usually shows stands in those hours.
_COARSE = _FINE[:11]
# Rows end at whole steps before the end of the reading.
_BUCKET = ":end - CAST((:end - ts) / :step AS INTEGER) * :step"
_SUMMED = frozenset({"observed_seconds"})


def _folded(name: str) -> str:
    if name == "ts":
        return f"{_BUCKET} AS ts"
    how = "sum" if name in _SUMMED else "max" if name.endswith("_max") else "avg"
    return f"{how}({name}) AS {name}"


def _by_step(view: str, text: tuple[str, ...], numbers: tuple[str, ...]) -> Query:
    columns = ", ".join((*text, *map(_folded, numbers)))
    group = ", ".join(str(n + 1) for n in range(len(text) + 1))
    sql = f"SELECT {columns} FROM {view} WHERE {_SPAN} GROUP BY {group}"  # noqa: S608 - constants of this file
    return Query(sql, text, numbers)


GPU_FINE = Query(
    f"SELECT node, gpu_uuid, {', '.join(_FINE)} FROM gpu_minutes WHERE {_SPAN}",  # noqa: S608
    ("node", "gpu_uuid"),
    _FINE,
)
GPU_COARSE = _by_step("gpu_minutes", ("node", "gpu_uuid"), _COARSE)
_PORT = ("ts", "port", "line_rate_bytes_per_second", "tx_bytes_per_second_mean", "rx_bytes_per_second_mean",
         "active_fraction")  # fmt: skip


def _ports(where: str = "") -> Query:
    folded = ", ".join(_folded(name) for name in _PORT[2:])
    sql = (
        f"SELECT node, device, role, {_BUCKET} AS ts, port, {folded}"  # noqa: S608 - constants of this file
        f" FROM fabric_minutes WHERE {_SPAN}{where} GROUP BY 1, 2, 3, 4, 5"
    )
    return Query(sql, ("node", "device", "role"), _PORT)


# By port: what all ports of a node carry is summed by the reader, which knows when one of them was not read.
PORTS = _ports()
# Before the last two hours a compute fabric is read by the hour, for what it usually carries, and other ports by the
# minute, for what hosts load and write.
OTHER_PORTS = _ports(" AND role <> 'compute'")
FABRIC_HOURS = Query(
    f"SELECT node, device, role, {', '.join(_PORT)} FROM fabric_hours WHERE {_SPAN} AND role = 'compute'",  # noqa: S608
    ("node", "device", "role"),
    _PORT,
)
HOSTS = _by_step(
    "host_minutes", ("node",),
    ("ts", "cpu_util_mean", "disk_read_bytes_per_second_mean", "disk_write_bytes_per_second_mean"),
)  # fmt: skip
ENGINES = Query(
    f"SELECT workload_id, {_BUCKET} AS ts, max(requests_running) AS running_max, max(requests_waiting) AS waiting_max,"  # noqa: S608
    f" avg(generation_tokens_per_second) AS generated_tokens FROM serving_samples WHERE {_SPAN}"
    " AND workload_id IS NOT NULL GROUP BY 1, 2",
    ("workload_id",),
    ("ts", "running_max", "waiting_max", "generated_tokens"),
)
# Hardware slowdown, its thermal and power-brake forms, by the minute (NVML: nvmlClocksEventReasons).
FAULT_REASONS = 0x8 | 0x40 | 0x80
THROTTLED = Query(
    f"SELECT node, gpu_uuid, {_BUCKET} AS ts, avg((throttle_reasons & {FAULT_REASONS}) <> 0) AS throttled_fraction"  # noqa: S608
    f" FROM gpu_samples WHERE {_SPAN} AND throttle_reasons IS NOT NULL GROUP BY 1, 2, 3",
    ("node", "gpu_uuid"),
    ("ts", "throttled_fraction"),
)
