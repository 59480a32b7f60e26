"""Possible values of a telemetry table, in base units: times, coverage and measures.

A value out of its range becomes missing; it is not cut to the range, because the true value is unknown. A row with an
impossible time or coverage is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

MAX_NUMBER = 1e18  # no measure in base units comes near
LAST_DAY = 253_370_764_800.0  # begin of the last year that can be written
_STATISTICS = ("_mean", "_p95", "_max")
# Lowest, highest, and the columns, without a statistic. Others are not negative.
_RANGES = (
    (0.0, LAST_DAY, "ts first_seen last_seen ts_start ts_end valid_from valid_to since until last_active_ts first_ts"
                    " latency_ts submitted_at started_at ended_at"),
    # Shares of time or of all cores; stored in steps of 1e-4.
    (-0.001, 1.01, "active_fraction cpu_util io_wait duty throttled_fraction"),
    (-1.01, 1.01, "period_strength tensor_nvlink_correlation tensor_fabric_correlation"),
    (0.0, 2.0, "util"),  # a counter that is refreshed late has two intervals' bytes in one
    # Ports of 1.6 Tb/s (0.2 TB/s) are the fastest announced; the disks of a node read as much together.
    (0.0, 1e12, "tx_bytes_per_second rx_bytes_per_second line_rate_bytes_per_second disk_read_bytes_per_second"
                " disk_write_bytes_per_second"),
    (0.0, 4e12, "nvlink_bytes_per_second"),  # NVLink 5: 0.9 TB/s one way
    (0.0, 1e11, "xmit_wait_per_second"),  # ticks of a clock of some GHz
    (0.0, 2e7, "energy_joules"),  # the largest board draws 5 MJ in an hour
    (0.0, 3700.0, "idle_run_seconds period_seconds"),
    (0.0, 1e13, "mem_used_bytes"),  # the largest board has 0.3 TB, the largest host some TB
    (0.0, 1e7, "gpu_index gpu_count slices nvlink_links gpus hours"),
)  # fmt: skip
# Of samples of GPUs alone: for longer rows the verdicts check these, with words about each GPU.
_OF_SAMPLES = (
    # Counted against a part of the GPU on MIG, activity may exceed 1 (DCGM#152).
    (0.0, 8.0, "gpu_util sm_active sm_occupancy tensor_active dram_active fp64_active fp32_active"),
    (0.0, 3000.0, "power_watts"),  # the largest board draws 1.4 kW
    (0.0, 1e10, "sm_clock_hertz mem_clock_hertz"),
    (0.0, 2e11, "pcie_tx_bytes_per_second pcie_rx_bytes_per_second"),  # PCIe 6 x16: 0.13 TB/s one way
    (0.0, 4e12, "nvlink_tx_bytes_per_second nvlink_rx_bytes_per_second"),
    (0.0, 2.0**53, "throttle_reasons"),
)  # fmt: skip
_SAMPLES = {name: (low, high) for low, high, names in _OF_SAMPLES for name in names.split()}
_OF_ROWS = {name: (low, high) for low, high, names in _RANGES for name in names.split()}
_OF_ROWS |= dict.fromkeys(_SAMPLES, (-MAX_NUMBER, MAX_NUMBER))
# Columns without which a row is meaningless.
NEEDED = frozenset(
    {"node", "workload_id", "port", "ts", "interval_seconds", "observed_seconds", "ts_start", "ts_end", "since",
     "started_at"}
)  # fmt: skip
_BEGIN_END = (("ts_start", "ts_end"), ("since", "until"), ("valid_from", "valid_to"), ("started_at", "ended_at"))


def impossible(names: Sequence[str], block: Floats) -> tuple[Mask, Mask]:
    """Rows with an impossible time or coverage (too many seconds, an end before its begin), and rows with impossible
    values, which become NaN in `block`. `block`: a line for each of `names`."""
    columns = dict(zip(names, block, strict=True))
    gone, wrong = (np.zeros(block.shape[1], dtype=np.bool_) for _ in range(2))
    length, seconds = columns.get("interval_seconds"), columns.get("observed_seconds")
    if length is not None:
        gone |= (length <= 0) | (length > (7200.0 if seconds is None else 3600.0))
        if seconds is not None:
            gone |= (seconds < 0) | (seconds > observed_most(length))
    for begin, end in _BEGIN_END:
        if begin in columns and end in columns:
            gone |= columns[end] < columns[begin]
    ranges = _OF_ROWS if seconds is not None else _OF_ROWS | _SAMPLES
    for name, values in columns.items():
        base = next((name.removesuffix(end) for end in _STATISTICS if name.endswith(end)), name)
        low, high = ranges.get(base, (0.0, MAX_NUMBER))
        outside = (values < low) | (values > high)
        values[outside] = np.nan
        wrong |= outside
    return gone, wrong


def observed_most(interval_seconds: Floats) -> Floats:
    """The most seconds that an interval can have been observed. Clocks are corrected by some parts in a thousand, and a
    tick (60 s at most) that ended just within the interval may have begun before it."""
    return interval_seconds * 1.01 + 60.0
