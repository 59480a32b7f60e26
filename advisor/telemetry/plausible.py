"""What can be a reading at all: one range for each column, with where it comes from.

A value outside becomes missing; it is never cut to the range, because what was written there is not known. A row whose
time or coverage cannot be is left out and counted (`Lost`): nothing says what of it would be true. What a GPU measures
is bounded here for samples alone; of longer rows and of boards the verdicts judge it, with words about each GPU
(`soundness`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

# The last year that dates can be written of begins here.
LAST_DAY = 253_370_764_800.0
# The agent's longest interval (agent/config.py): a tick that ended just within a period began so much before it.
TICK_MOST_SECONDS = 60.0
# Clocks are corrected by some parts in a thousand.
CLOCK_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`, both inside, in `unit`. `why`: physics, a standard, or how the value is counted."""

    low: float
    high: float
    unit: str
    why: str


_SHARE = Range(-0.001, 1.01, "ratio", "a share of time or of all cores; stored in steps of 1e-4")
_ACTIVITY = Range(0.0, 8.0, "ratio", "counted against a part of the GPU on MIG it may exceed 1 (DCGM#152)")
_CORRELATION = Range(-1.01, 1.01, "ratio", "a correlation; stored in steps of 0.01")
_USE_OF_LINE = Range(0.0, 2.0, "ratio", "a counter that is refreshed late gives two intervals' bytes in one")
_PCIE = Range(0.0, 2e11, "bytes per second", "PCIe 6 x16 carries 0.13 TB/s one way")
_NVLINK = Range(0.0, 4e12, "bytes per second", "NVLink 5 carries 0.9 TB/s one way")
_LINE = Range(0.0, 1e12, "bytes per second", "ports of 1.6 Tb/s (0.2 TB/s) are the fastest announced")
_DISKS = Range(0.0, 1e12, "bytes per second", "the disks of a node read some 0.2 TB/s together")
_MEMORY = Range(0.0, 1e13, "bytes", "the largest board has 0.3 TB, the largest host some TB")
_CLOCK = Range(0.0, 1e10, "hertz", "no clock of a GPU reaches 10 GHz")
_ENERGY = Range(0.0, 2e7, "joules", "the largest board draws 5 MJ in an hour")
_POWER = Range(0.0, 3000.0, "watts", "the largest board draws 1.4 kW")
_SAMPLES = Range(0.0, 1e5, "samples", "an hour at the agent's shortest interval (0.1 s) has 36,000")
_COUNT = Range(0.0, 4096.0, "devices", "the store's limit of devices in a file")
_SECONDS = Range(0.0, 3e10, "seconds", "no longer than dates reach")
_AMOUNT = Range(0.0, 1e15, "events", "a million a second for thirty years")

# Of what a column is called without its statistic (_mean, _max, _p95). Ranges that samples of GPUs alone are held to.
OF_SAMPLES = MappingProxyType(
    {
        **dict.fromkeys(
            ("gpu_util", "sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active"),
            _ACTIVITY,
        ),
        "mem_used_bytes": _MEMORY, "power_watts": _POWER, "sm_clock_hertz": _CLOCK, "mem_clock_hertz": _CLOCK,
        "pcie_tx_bytes_per_second": _PCIE, "pcie_rx_bytes_per_second": _PCIE,
        "nvlink_tx_bytes_per_second": _NVLINK, "nvlink_rx_bytes_per_second": _NVLINK,
        "energy_joules": _ENERGY,
        "throttle_reasons": Range(0.0, 2.0**53, "bitmask", "no bit has a sign"),
    }
)  # fmt: skip
# Every other number. What stands in neither is no measure: an identity, or a moment.
RANGES = MappingProxyType(
    {
        "util": _USE_OF_LINE, "tx_bytes_per_second": _LINE, "rx_bytes_per_second": _LINE,
        "line_rate_bytes_per_second": _LINE,
        "xmit_wait_per_second": Range(0.0, 1e11, "ticks per second", "ticks of a clock of some GHz"),
        "active_fraction": _SHARE, "cpu_util": _SHARE, "io_wait": _SHARE,
        "disk_read_bytes_per_second": _DISKS, "disk_write_bytes_per_second": _DISKS,
        "duty": _SHARE, "throttled_fraction": _SHARE, "period_strength": _CORRELATION,
        "tensor_nvlink_correlation": _CORRELATION, "tensor_fabric_correlation": _CORRELATION,
        "sm_active_cv": Range(0.0, 1e4, "ratio", "a deviation over its mean"),
        "idle_run_seconds": Range(0.0, 3700.0, "seconds", "within an hour"),
        "period_seconds": Range(0.0, 3700.0, "seconds", "within an hour"),
        "gpu_util_n": _SAMPLES, "tensor_active_n": _SAMPLES, "dram_active_n": _SAMPLES, "power_watts_n": _SAMPLES,
        "energy_joules": _ENERGY, "energy_joules_n": _SAMPLES,
        "util_n": _SAMPLES,
        "gpu_index": _COUNT, "gpu_count": _COUNT, "slices": _COUNT, "nvlink_links": _COUNT,
        "gpus": Range(0.0, 1e7, "GPUs", "of one job"),
        "cpus": Range(0.0, 1e9, "cores", "of one job"), "mem_bytes": Range(0.0, 1e18, "bytes", "of one job"),
        "nvlink_bytes_per_second": _NVLINK,
        "shared": Range(0.0, 1.0, "flag", "no or yes"), "restarts": Range(0.0, 1e9, "restarts", "a count"),
        "kv_percent": Range(0.0, 101.0, "percent", "of the KV cache"), "samples": _AMOUNT, "preemptions": _AMOUNT,
        "generated_tokens": _AMOUNT, "seconds": _SECONDS, "queue_seconds": _SECONDS,
        "hours": Range(0.0, 1e7, "hours", "a thousand years"),
    }
)  # fmt: skip
# What a use of a GPU tells has the name of a measure.
_OF_USES = MappingProxyType({"mem_used_bytes": _MEMORY})
_STATISTICS = ("_mean", "_p95", "_max")
_MOMENTS = frozenset(
    {"ts", "first_seen", "last_seen", "ts_start", "ts_end", "valid_from", "valid_to", "since", "until",
     "last_active_ts", "first_ts", "latency_ts", "submitted_at", "started_at", "ended_at"}
)  # fmt: skip
# Without these a row says nothing, or nothing of when.
_NEEDED = frozenset(
    {"node", "workload_id", "port", "ts", "interval_seconds", "observed_seconds", "ts_start", "ts_end", "since",
     "started_at"}
)  # fmt: skip
_BEGIN_END = (("ts_start", "ts_end"), ("since", "until"), ("valid_from", "valid_to"), ("started_at", "ended_at"))


@dataclass(slots=True)
class Lost:
    """What was not believed: rows left out and values made missing, by node (empty where a row names none)."""

    rows: Counter[str] = field(default_factory=Counter)
    values: Counter[str] = field(default_factory=Counter)

    def count(self, rows: pd.Series, values: pd.Series) -> None:
        """Add what was lost, given the node of each."""
        for nodes, into in ((rows, self.rows), (values, self.values)):
            into.update(node if isinstance(node, str) else "" for node in nodes)


def is_needed(name: str) -> bool:
    """Whether a row without this column is none."""
    return name in _NEEDED


def range_of(name: str, *, sample: bool) -> Range | None:
    """The range of a column; None: it has none of its own. `sample`: whether the row is one reading of a GPU."""
    if name in _MOMENTS:
        return Range(0.0, LAST_DAY, "seconds", "Unix time, up to the last year that dates can be written of")
    base = next((name.removesuffix(one) for one in _STATISTICS if name.endswith(one)), name)
    if sample and base in OF_SAMPLES:
        return OF_SAMPLES[base]
    return RANGES.get(base) or RANGES.get(name) or _OF_USES.get(name)


def outside(names: Sequence[str], block: Floats) -> Iterator[tuple[int, Mask]]:
    """Row of `block` (one for each of `names`) and where it holds what cannot be; rows without such are passed over."""
    sample = "interval_seconds" in names and "observed_seconds" not in names
    for n, name in enumerate(names):
        allowed = range_of(name, sample=sample)
        if allowed is not None:
            with np.errstate(invalid="ignore"):
                wrong = (block[n] < allowed.low) | (block[n] > allowed.high)
            if wrong.any():
                yield n, wrong


def impossible_rows(names: Sequence[str], block: Floats) -> Mask:
    """Which rows tell of a time, or of a share of it, that cannot be: coverage outside its interval, an interval that
    is none, an end before its begin."""
    at = {name: block[n] for n, name in enumerate(names)}
    out = np.zeros(block.shape[1], dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        length, seconds = at.get("interval_seconds"), at.get("observed_seconds")
        if length is not None:
            out |= (length <= 0) | (length > (3600.0 if seconds is not None else 2 * 3600.0))
        if length is not None and seconds is not None:
            out |= (seconds < 0) | (seconds > observed_most(length))
        for begin, end in _BEGIN_END:
            if begin in at and end in at:
                out |= at[end] < at[begin]
    return out


def observed_most(interval_seconds: Floats) -> Floats:
    """The most seconds that an interval can have been observed."""
    return interval_seconds * (1 + CLOCK_SHARE) + TICK_MOST_SECONDS
