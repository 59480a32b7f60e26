"""Plausibility of telemetry: readings that cannot be measurements become missing, and are reported. Uses no SKU: power
beyond rest is judged where the power at rest is known (`resting_power`)."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ...core.column_rows import BinsArray
from ...core.frame import Frame
from ...core.segments import Floats, Mask
from ..types import Doubt, Sentence, doubts_of, percent

# Codes of a `Doubt`.
BLANK, BEYOND, CLIPPED, FROZEN, STUCK, SILENT, NO_PIPE, POWER = (
    "blank", "beyond-limit", "clipped", "frozen", "stuck-zero", "counters-silent", "compute-unknown",
    "power-without-activity",
)  # fmt: skip
# Two signals that cannot both be right, so that nothing is concluded from the hour; the others cost one metric.
CONTRADICTIONS = (SILENT, POWER)

RATIOS = ("gpu_util", "sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active")
_PROFILED = tuple(name for name in RATIOS if name != "gpu_util")
_LINKS = tuple(f"{link}_{direction}_bytes_per_second" for link in ("pcie", "nvlink") for direction in ("tx", "rx"))
_CLOCKS = ("sm_clock_hertz", "mem_clock_hertz")
_NAMES = {
    "gpu_util": "GPU_UTIL", "sm_active": "SM activity", "sm_occupancy": "SM occupancy",
    "tensor_active": "tensor activity", "dram_active": "DRAM activity", "fp64_active": "FP64 activity",
    "fp32_active": "FP32 activity", "power_watts": "power", "mem_used_bytes": "memory in use",
    "mem_total_bytes": "memory size", "sm_clock_hertz": "SM clock", "mem_clock_hertz": "memory clock",
}  # fmt: skip
_BINS = {
    "sm_active": "sm_active_bins", "tensor_active": "tensor_active_bins", "dram_active": "dram_active_bins",
    "nvlink_tx_bytes_per_second": "nvlink_bins", "nvlink_rx_bytes_per_second": "nvlink_bins",
}  # fmt: skip
# Formed of a metric within the row, and gone with it.
_FORMED = {"gpu_util": ("duty", "idle_run_seconds"), "sm_active": ("sm_active_cv",)}
_STATISTICS = ("mean", "p95", "max")
# Rounding lifts a ratio this far above 1. Up to 8, which counting against a part of the GPU can give on MIG (DCGM#152),
# it is taken for 1: busy, which claims least.
_ROUNDED, _RATIO_MOST = 1.001, 8.0
# What rounding of a stored mean can leave of a row whose other samples are 0.
_LEFT_OVER = 2e-4
# The most that can be a reading. The largest board draws 1.2 kW; PCIe 6 carries 0.13 TB/s one way, NVLink 5 0.9 TB/s.
WATTS_MOST, _BYTES_MOST = 3000.0, 1e13
_MOST = {
    **dict.fromkeys(RATIOS, _RATIO_MOST), "power_watts": WATTS_MOST,
    **dict.fromkeys(("mem_used_bytes", "mem_total_bytes"), _BYTES_MOST),
    **dict.fromkeys(_CLOCKS, 1e10), **dict.fromkeys(_LINKS[:2], 2e11), **dict.fromkeys(_LINKS[2:], 4e12),
}  # fmt: skip
# A GPU under power never draws 0 W, and its clocks and its memory are never 0.
_NEVER_ZERO = frozenset({"power_watts", "mem_total_bytes", *_CLOCKS})
# DCGM's blanks and what becomes of them in narrower or wider numbers, in the units that a metric may be kept in; each
# is followed by "not found", "not supported".
_PLAIN_BLANKS = np.array([2.0**31, 2.0**32, 2.0**47, 2.0**63, 2.0**64, float(0x7FFFFFF0)])
_UNITS = np.array([1.0, 1e3, 1e6, 1024.0, 1024.0**2])
_EACH = np.outer(_UNITS, _PLAIN_BLANKS).ravel(), np.outer(_UNITS, np.maximum(32.0, 1e-12 * _PLAIN_BLANKS)).ravel()
_BLANKS, _BLANK_NEAR = (values[np.argsort(_EACH[0])] for values in _EACH)

# An engine this busy leaves a trace in every counter of the profiler.
WORKS_MIN = 0.05
# Where all of them stand at zero, an engine this busy is no sampling error of a utilization read once a minute.
CONTRADICTS_MIN = 0.2
# The profiler's smallest sign of work: one block on one of 132 SMs for a quarter of the time.
TRACE = 0.002
# Bytes per second one way beside which those of the other way cannot be 0.
ONE_WAY_MOST = 1e6
# A repeated value: seconds, samples in each row and samples in all without a change in the last digit. A steady load
# can repeat a whole percent for some minutes.
_FROZEN_SECONDS, _FROZEN_SAMPLES, _FROZEN_IN_ALL = 3 * 3600.0, 3.0, 10.0
# A utilization in whole percent stands at its top for hours while the GPU is saturated.
_SATURATED = 0.97
# The agent's tables keep ratios in steps of 1e-4 and their percentiles in 1e-3: there, only a row whose percentile and
# maximum are its mean stands still, for longer, at a level whose noise would show in such steps.
_STORED_STEP, _STORED_SECONDS, _STORED_LEVEL = 1e-3, 6 * 3600.0, 0.05


@dataclass(frozen=True)
class Soundness:
    """`frame`: without what was not believed. `contradicted`: rows of its `gpu` with counters at odds."""

    frame: Frame
    doubts: tuple[Doubt, ...]
    contradicted: Mask


def examine(frame: Frame) -> Soundness:
    """The frame without readings that cannot be measurements, doubts, and rows with contradictions."""
    if frame.gpu.empty:
        return Soundness(frame, (), np.zeros(len(frame.gpu), dtype=np.bool_))
    table = _Table(frame)
    _outliers(table)
    _impossible(table)
    _frozen(table)
    # Nothing one way, and traffic the other: both carry requests and headers (DCGM's field reference).
    for link, called in (("pcie", "PCIe"), ("nvlink", "NVLink")):
        for direction, other, said, beside in (("tx", "rx", "sent", "received"), ("rx", "tx", "received", "sent")):
            metric = f"{link}_{direction}_bytes_per_second"
            at = table.is_zero(metric) & (table.get(f"{link}_{other}_bytes_per_second_mean") > ONE_WAY_MOST)
            table.reject(metric, STUCK, at, f"{called} traffic {said} 0 but {beside} above 0")
    contradicted, gpus = _zeros(table), frame.gpus
    for name, most in (("mem_total_bytes", _BYTES_MOST), ("power_limit_watts", WATTS_MOST)):
        if name in gpus.columns and len(gpus):
            values = gpus[name].to_numpy(float)
            bad = _is_blank(values) | (values > most) | (values <= 0)
            gpus = gpus.assign(**{name: np.where(bad, np.nan, values)}) if bad.any() else gpus
    same = table.gpu is frame.gpu and gpus is frame.gpus
    return Soundness(frame if same else replace(frame, gpu=table.gpu, gpus=gpus), tuple(table.doubts), contradicted)


class _Table:
    """The frame's rows while values are taken out of them; columns that are not touched are the frame's own."""

    def __init__(self, frame: Frame) -> None:
        self.gpu = frame.gpu
        self.doubts: list[Doubt] = []
        self.device = frame.gpu_keys.number
        mig = frame.gpus[frame.gpus["kind"] == "mig"] if len(frame.gpus) else frame.gpus
        self.instance = frame.gpu_keys.among(zip(mig["node"], mig["gpu_uuid"], strict=True))
        self.stored = frame.source.get("kind") == "sqlite"

    def get(self, name: str) -> Floats:
        return self.gpu[name].to_numpy(float) if name in self.gpu.columns else np.full(len(self.gpu), np.nan)

    def put(self, name: str, at: Mask, value: float | Floats) -> None:
        if name in self.gpu.columns and at.any():
            self._set(name, np.where(at, value, self.get(name)))

    def _set(self, name: str, column: Floats | pd.Series) -> None:
        self.gpu = self.gpu.copy(deep=False)
        self.gpu[name] = column

    def remove(self, metric: str, at: Mask) -> None:
        for name in (metric, *(f"{metric}_{statistic}" for statistic in _STATISTICS), *_FORMED.get(metric, ())):
            self.put(name, at, np.nan)
        if (name := _BINS.get(metric, "")) in self.gpu.columns and at.any():
            column = self.gpu[name]
            bins = column.array if isinstance(column.array, BinsArray) else BinsArray.of(column)
            if (at & ~bins.isna()).any():
                matrix = np.where(at[:, None], np.float32(np.nan), bins.matrix)
                self._set(name, pd.Series(BinsArray(matrix), index=column.index, copy=False))

    def doubt(self, metric: str, code: str, at: Mask, sentence: Sentence) -> None:
        if at.any():
            self.doubts += doubts_of(self.gpu, at, metric=metric, code=code, sentence=sentence)

    def reject(self, metric: str, code: str, at: Mask, sentence: Sentence) -> None:
        self.doubt(metric, code, at, sentence)
        self.remove(metric, at)

    def is_zero(self, metric: str) -> Mask:
        """Zero all along; where the maximum is missing, a mean of zero is enough."""
        most = self.get(f"{metric}_max")
        return (self.get(f"{metric}_mean") == 0) & (np.isnan(most) | (most == 0))


def _is_blank(values: Floats) -> Mask:
    out = values >= _PLAIN_BLANKS.min() - 32.0
    value = values[out]
    above = np.searchsorted(_BLANKS, value).clip(1, len(_BLANKS) - 1)
    out[out] = np.any([np.abs(value - _BLANKS[at]) <= _BLANK_NEAR[at] for at in (above - 1, above)], axis=0)
    return out


def _outliers(table: _Table) -> None:
    """One sample of the driver's utilization above 1 is none, and costs its row no more than that sample."""
    most, count = table.get("gpu_util_max"), table.get("gpu_util_n")
    at = (most > _ROUNDED) & ~table.instance & ~_is_blank(most)
    if not at.any():
        return
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (table.get("gpu_util_mean") * count - most) / (count - 1)
    # What rounding of the mean leaves over; more of them leave no mean.
    mean = np.where(np.abs(mean) <= _LEFT_OVER, 0.0, mean)
    mean = np.where((count > 1) & (mean >= 0) & (mean <= _ROUNDED), mean, np.nan)
    table.put("gpu_util_mean", at, mean)
    table.put("gpu_util_max", at, np.nan)
    table.put("gpu_util_p95", at & (table.get("gpu_util_p95") > _ROUNDED), np.nan)
    table.doubt("gpu_util", BEYOND, at, "GPU_UTIL: a sample above 100 %, left out,")


def _impossible(table: _Table) -> None:
    for metric, most in _MOST.items():
        gone = blank = clipped = np.zeros(len(table.gpu), dtype=np.bool_)
        for name in [metric] if metric == "mem_total_bytes" else [f"{metric}_{statistic}" for statistic in _STATISTICS]:
            values = table.get(name)
            empty = _is_blank(values)
            if "bytes" in metric:
                empty &= values % 1024 != 0  # 2 and 4 GiB are sizes that there are, and steps in which rates are kept
            wrong = empty | (values < 0) | (values > most)
            wrong |= (values == 0) & (metric in _NEVER_ZERO)
            if metric in RATIOS:
                above = ~wrong & (values > 1.0)
                clipped = clipped | (above & (values > _ROUNDED))
                table.put(name, above, 1.0)
            table.put(name, wrong, np.nan)
            if not name.endswith(("_p95", "_max")):
                gone, blank = wrong, empty
        called = _NAMES.get(metric, metric)
        table.remove(metric, gone)
        table.doubt(metric, BLANK, gone & blank, f"{called}: DCGM blank value, not a reading,")
        table.doubt(metric, BEYOND, gone & ~blank, f"{called}: outside the range that a GPU can report")
        table.doubt(metric, CLIPPED, clipped, f"{called}: above 1, counted as 1,")
    over = table.get("mem_used_bytes_mean") > 1.05 * table.get("mem_total_bytes")
    table.reject("mem_used_bytes", BEYOND, over, "Memory in use above the memory size of the GPU")


def _frozen(table: _Table) -> None:
    """Values that repeat to the last digit: the exporter says again what it read long ago. Repeated rest is rest."""
    order = np.lexsort((table.gpu["ts"].to_numpy(float), table.device))
    new_gpu = np.diff(table.device[order], prepend=-1) != 0
    counts = [table.get(f"{name}_n") for name in ("gpu_util", "tensor_active", "dram_active", "power_watts")]
    samples = np.nan_to_num(np.fmax.reduce(counts))  # without a count nothing is called frozen
    unused = np.fmax.reduce([table.get(f"{name}_{statistic}") for name in RATIOS for statistic in ("mean", "max")]) == 0
    length = table.gpu["interval_seconds"].to_numpy(float)
    least = _STORED_SECONDS if table.stored else _FROZEN_SECONDS
    for metric in RATIOS if table.stored else ("power_watts", *RATIOS):
        values = table.get(f"{metric}_mean")
        if np.isnan(values).all():
            continue
        v = values[order]
        is_same = np.abs(np.diff(v, prepend=np.nan)) <= 1e-9 * np.abs(v)
        run = np.empty(len(order), dtype=np.intp)
        run[order] = np.cumsum(new_gpu | ~is_same) - 1
        at = (np.bincount(run, weights=length)[run] >= least) & (samples >= _FROZEN_SAMPLES) & (values > 0) & ~unused
        at &= np.bincount(run, weights=samples)[run] >= _FROZEN_IN_ALL
        if metric in RATIOS:
            at &= values < (_SATURATED if metric == "gpu_util" else 0.999)
        near = _STORED_STEP if table.stored else 1e-9 * np.maximum(np.abs(values), 1.0)
        for which in ("p95", "max"):
            at &= ~(np.abs(table.get(f"{metric}_{which}") - values) > near)
        if table.stored:
            at &= ~np.isnan(table.get(f"{metric}_p95")) & (values >= _STORED_LEVEL)
        table.reject(metric, FROZEN, at, f"{_NAMES[metric]}: the same value repeated to the last digit")


def _zeros(table: _Table) -> Mask:
    """Zeros beside work. Gives the rows in which all counters of the profiler stand at zero beside a busy engine."""
    profiled = ("sm_active", "tensor_active", "dram_active", "fp32_active")
    util, most = table.get("gpu_util_mean"), np.fmax.reduce([table.get(f"{name}_mean") for name in profiled])
    # The engine is at least as active as its SMs. A utilization read once in a while can miss some, not most of it.
    stuck = table.is_zero("gpu_util") & (most >= TRACE)
    low = ~stuck & (2 * util + WORKS_MIN < most)
    works = np.fmax(util, most) >= WORKS_MIN
    silent = (util >= CONTRADICTS_MIN) & works
    for name in ("sm_active", "tensor_active", "dram_active"):
        silent &= table.is_zero(name) | np.isnan(table.get(f"{name}_mean"))
    silent &= table.is_zero("dram_active") & (table.is_zero("tensor_active") | table.is_zero("sm_active"))
    silent &= ~(table.get("fp32_active_mean") > 0) & ~(table.get("fp64_active_mean") > 0)
    table.remove("gpu_util", stuck | low)
    active, metrics = stuck & (most >= WORKS_MIN), "tensor_active, dram_active, sm_active"
    table.doubt("gpu_util", STUCK, active, lambda rows: f"GPU_UTIL 0 %, but other counters show {percent(most[rows])}")
    table.doubt(metrics, SILENT, silent, lambda rows: f"GPU_UTIL {percent(util[rows])} (mean), but other counters 0")
    for metric in _PROFILED:
        table.remove(metric, silent)
    for metric in ("sm_active", "dram_active"):
        at = table.is_zero(metric) & works
        table.reject(metric, STUCK, at, f"{_NAMES[metric]}: 0 while the engine is active")
    other_pipes = np.fmax(table.get("fp32_active_mean"), table.get("fp64_active_mean"))
    unknown = table.is_zero("tensor_active") & works & np.isnan(other_pipes)
    sentence = "Tensor activity 0 while the engine is active, and no other pipe is exported: compute use is unknown"
    table.reject("tensor_active", NO_PIPE, unknown, sentence)
    return silent
