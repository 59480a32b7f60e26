"""What of the telemetry can be believed: readings that cannot be measurements become missing, and are told.

The one step before everything else: what follows sees a missing value instead of a wrong one. It knows no SKU; whether
a GPU draws more than any rest explains is asked where its power at rest is known (`resting_power`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...core.frame import Frame
from ...core.histogram_array import BinsArray
from ..doubts import Doubt, by_gpu, doubts_of, percent

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.intp]

# Codes of a `Doubt`.
BLANK, BEYOND, CLIPPED, FROZEN, STUCK, SILENT, NO_PIPE, POWER = (
    "blank", "beyond-limit", "clipped", "frozen", "stuck-zero", "counters-silent", "compute-unknown",
    "power-without-activity",
)  # fmt: skip
# Two signals that cannot both be right, so that nothing is concluded from the hour; the others cost one metric.
CONTRADICTIONS = (SILENT, POWER)

RATIOS = ("gpu_util", "sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active")
_PROFILED = tuple(name for name in RATIOS if name != "gpu_util")
_LINKS = tuple(f"{link}_{way}_bytes_per_second" for link in ("pcie", "nvlink") for way in ("tx", "rx"))
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
_MOST = {
    **dict.fromkeys(RATIOS, _RATIO_MOST), "power_watts": 3000.0, "mem_used_bytes": 1e13, "mem_total_bytes": 1e13,
    **dict.fromkeys(_CLOCKS, 1e10), **dict.fromkeys(_LINKS[:2], 2e11), **dict.fromkeys(_LINKS[2:], 4e12),
}  # fmt: skip
# A GPU under power never draws 0 W, and its clocks and its memory are never 0.
_NEVER_ZERO = frozenset({"power_watts", "mem_total_bytes", *_CLOCKS})
# DCGM's blanks and what becomes of them in narrower or wider numbers, in the units that a metric may be kept in; each
# is followed by "not found", "not supported".
_PLAIN_BLANKS = np.array([2.0**31, 2.0**32, 2.0**47, 2.0**63, 2.0**64, float(0x7FFFFFF0)])
_UNITS = np.array([1.0, 1e3, 1e6, 1024.0, 1024.0**2])
_BLANKS = np.sort(np.outer(_UNITS, _PLAIN_BLANKS).ravel())
_BLANK_NEAR = np.outer(_UNITS, np.maximum(32.0, 1e-12 * _PLAIN_BLANKS)).ravel()[
    np.argsort(np.outer(_UNITS, _PLAIN_BLANKS).ravel())
]

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
    """The frame without readings that cannot be measurements, what they were, and the rows in which two signals
    contradict one another."""
    if frame.gpu.empty:
        return Soundness(frame, (), np.zeros(len(frame.gpu), dtype=np.bool_))
    table = _Table(frame)
    _outliers(table)
    _impossible(table)
    _frozen(table)
    _one_way(table)
    contradicted = _zeros(table)
    return Soundness(table.frame(), tuple(table.doubts), contradicted)


class _Table:
    """The frame's rows while values are taken out of them; what is not touched is not copied."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self.gpu = frame.gpu
        self.columns: dict[str, Floats] = {}
        self._touched: set[str] = set()
        self._no_bins: dict[str, Mask] = {}
        self.doubts: list[Doubt] = []
        self.device = frame.gpu_keys.number
        mig = frame.gpus[frame.gpus["kind"] == "mig"] if len(frame.gpus) else frame.gpus
        self.instance = frame.gpu_keys.among(zip(mig["node"], mig["gpu_uuid"], strict=True))
        self.stored = frame.source.get("kind") == "sqlite"

    def get(self, name: str) -> Floats:
        """A column; NaN where the frame lacks it."""
        if name not in self.columns:
            known = name in self.gpu.columns
            self.columns[name] = self.gpu[name].to_numpy(float) if known else np.full(len(self.gpu), np.nan)
        return self.columns[name]

    def put(self, name: str, at: Mask, value: float | Floats) -> None:
        values = self.get(name)
        if name in self.gpu.columns and at.any():
            self.columns[name] = np.where(at, value, values)
            self._touched.add(name)

    def remove(self, metric: str, at: Mask) -> None:
        """Make a metric, and what was formed of it, missing in these rows."""
        for name in (metric, *(f"{metric}_{one}" for one in _STATISTICS), *_FORMED.get(metric, ())):
            self.put(name, at, np.nan)
        if metric in _BINS and _BINS[metric] in self.gpu.columns:
            none = self._no_bins.setdefault(_BINS[metric], np.zeros(len(self.gpu), dtype=np.bool_))
            self._no_bins[_BINS[metric]] = none | at

    def doubt(self, metric: str, code: str, at: Mask, sentence: str | Mapping[int, str]) -> None:
        """One doubt for each GPU with rows `at`. `sentence`: of all, or by each GPU's first such row."""
        if at.any():
            said = dict.fromkeys(map(int, np.flatnonzero(at)), sentence) if isinstance(sentence, str) else sentence
            self.doubts += doubts_of(self.gpu, at, metric=metric, code=code, sentences=said)

    def frame(self) -> Frame:
        gpus = self._sizes()
        if not self._touched and not self._no_bins and gpus is self._frame.gpus:
            return self._frame
        changed: dict[str, Any] = {name: self.columns[name] for name in sorted(self._touched)}
        for name, at in self._no_bins.items():
            column = self.gpu[name]
            bins = column.array if isinstance(column.array, BinsArray) else BinsArray.of(column)
            told = at & ~bins.isna()
            if told.any():
                matrix = np.where(told[:, None], np.float32(np.nan), bins.matrix)
                changed[name] = pd.Series(BinsArray(matrix), index=self.gpu.index, copy=False)
        # The other columns are the frame's own, not a copy of all of them.
        gpu = self.gpu.copy(deep=False)
        for name, column in changed.items():
            gpu[name] = column
        return replace(self._frame, gpu=gpu, gpus=gpus)

    def _sizes(self) -> pd.DataFrame:
        """The GPUs, without sizes and limits that are blanks."""
        gpus = self._frame.gpus
        for name, most in (("mem_total_bytes", 1e13), ("power_limit_watts", 3000.0)):
            if name not in gpus.columns or gpus.empty:
                continue
            values = gpus[name].to_numpy(float)
            bad = _is_blank(values) | (values > most) | (values <= 0)
            if bad.any():
                gpus = gpus.assign(**{name: np.where(bad, np.nan, values)})
        return gpus


def _is_blank(values: Floats) -> Mask:
    """Which values are one of DCGM's blanks, in any unit."""
    out = np.zeros(len(values), dtype=np.bool_)
    large = np.nonzero(values >= _BLANKS[0] - _BLANK_NEAR[0])[0]
    plain = values[large]
    above = np.minimum(np.searchsorted(_BLANKS, plain), len(_BLANKS) - 1)
    for at in (above, np.maximum(above - 1, 0)):
        out[large] |= np.abs(plain - _BLANKS[at]) <= _BLANK_NEAR[at]
    return out


def _outliers(table: _Table) -> None:
    """One sample of the driver's utilization above 1 is none, and costs its row no more than that sample."""
    most, count = table.get("gpu_util_max"), table.get("gpu_util_n")
    with np.errstate(invalid="ignore"):
        at = (most > _ROUNDED) & ~table.instance & ~_is_blank(most)
        if not at.any():
            return
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
        for name in [metric] if metric == "mem_total_bytes" else [f"{metric}_{one}" for one in _STATISTICS]:
            values = table.get(name)
            if np.isnan(values).all():
                continue
            empty = _is_blank(values)
            if "bytes" in metric:
                empty &= values % 1024 != 0  # 2 and 4 GiB are sizes that there are, and steps in which rates are kept
            with np.errstate(invalid="ignore"):
                wrong = (values < 0) | (values > most) | np.isinf(values)
                if metric in _NEVER_ZERO:
                    wrong |= values == 0
                above = ~wrong & ~empty & (values > 1.0) & (metric in RATIOS)
            clipped = clipped | (above & (values > _ROUNDED))
            table.put(name, above, 1.0)
            table.put(name, empty | wrong, np.nan)
            if not name.endswith(("_p95", "_max")):
                gone, blank = empty | wrong, empty
        called = _NAMES.get(metric, metric)
        if gone.any():
            table.remove(metric, gone)
        table.doubt(metric, BLANK, gone & blank, f"{called}: DCGM blank value, not a reading,")
        table.doubt(metric, BEYOND, gone & ~blank, f"{called}: outside the range that a GPU can report")
        table.doubt(metric, CLIPPED, clipped, f"{called}: above 1, counted as 1,")
    with np.errstate(invalid="ignore"):
        over = table.get("mem_used_bytes_mean") > 1.05 * table.get("mem_total_bytes")
    if over.any():
        table.remove("mem_used_bytes", over)
        table.doubt("mem_used_bytes", BEYOND, over, "Memory in use above the memory size of the GPU")


def _frozen(table: _Table) -> None:
    """Values that repeat to the last digit: the exporter says again what it read long ago. Repeated rest is rest."""
    order = np.lexsort((table.gpu["ts"].to_numpy(float), table.device))
    new_gpu = np.diff(table.device[order], prepend=-1) != 0
    counts = [table.get(f"{name}_n") for name in ("gpu_util", "tensor_active", "dram_active", "power_watts")]
    samples = np.nan_to_num(np.fmax.reduce(counts))  # without a count nothing is called frozen
    unused = np.fmax.reduce([table.get(f"{name}_{one}") for name in RATIOS for one in ("mean", "max")]) == 0
    length = table.gpu["interval_seconds"].to_numpy(float)
    least = _STORED_SECONDS if table.stored else _FROZEN_SECONDS
    for metric in ("power_watts", *RATIOS):
        if metric == "power_watts" and (table.stored or table.instance.all()):
            continue
        values = table.get(f"{metric}_mean")
        if np.isnan(values).all():
            continue
        v = values[order]
        with np.errstate(invalid="ignore"):
            is_same = np.abs(np.diff(v, prepend=np.nan)) <= 1e-9 * np.abs(v)
        run = np.empty(len(order), dtype=np.intp)
        run[order] = np.cumsum(new_gpu | ~is_same) - 1
        at = (np.bincount(run, weights=length)[run] >= least) & (samples >= _FROZEN_SAMPLES) & (values > 0) & ~unused
        at &= np.bincount(run, weights=samples)[run] >= _FROZEN_IN_ALL
        if metric in RATIOS:
            at &= values < (_SATURATED if metric == "gpu_util" else 0.999)
        near = _STORED_STEP if table.stored else 1e-9 * np.maximum(np.abs(values), 1.0)
        for one in ("p95", "max"):
            other = table.get(f"{metric}_{one}")
            at &= np.isnan(other) | (np.abs(other - values) <= near)
        if table.stored:
            at &= ~np.isnan(table.get(f"{metric}_p95")) & (values >= _STORED_LEVEL)
        if at.any():
            table.remove(metric, at)
            table.doubt(metric, FROZEN, at, f"{_NAMES[metric]}: the same value repeated to the last digit")


def _one_way(table: _Table) -> None:
    """Nothing at all one way, and traffic the other: what is sent is asked for or acknowledged, and the profiler counts
    headers with the payload (DCGM's field reference)."""
    for link, called in (("pcie", "PCIe"), ("nvlink", "NVLink")):
        ways = tuple(f"{link}_{way}_bytes_per_second" for way in ("tx", "rx"))
        for metric, other in (ways, ways[::-1]):
            with np.errstate(invalid="ignore"):
                at = _zero(table, metric) & (table.get(f"{other}_mean") > ONE_WAY_MOST)
            if at.any():
                table.remove(metric, at)
                said, beside = ("sent", "received") if metric == ways[0] else ("received", "sent")
                table.doubt(metric, STUCK, at, f"{called} traffic {said} 0 but {beside} above 0")


def _zero(table: _Table, metric: str) -> Mask:
    """Zero all along; where nobody told the maximum, a mean of zero says as much."""
    mean, most = table.get(f"{metric}_mean"), table.get(f"{metric}_max")
    return (mean == 0) & (np.isnan(most) | (most == 0))


def _zeros(table: _Table) -> Mask:
    """Zeros beside work. Gives the rows in which all counters of the profiler stand at zero beside a busy engine."""
    util = table.get("gpu_util_mean")
    profiled = [table.get(f"{name}_mean") for name in ("sm_active", "tensor_active", "dram_active", "fp32_active")]
    most = np.fmax.reduce(profiled)
    # The engine is at least as active as its SMs. A utilization read once in a while can miss some, not most of it.
    with np.errstate(invalid="ignore"):
        stuck = _zero(table, "gpu_util") & (most >= TRACE)
        low = ~stuck & (2 * util + WORKS_MIN < most)
        works = np.fmax(util, most) >= WORKS_MIN
        silent = (util >= CONTRADICTS_MIN) & works
    for name in ("sm_active", "tensor_active", "dram_active"):
        silent &= _zero(table, name) | np.isnan(table.get(f"{name}_mean"))
    silent &= _zero(table, "dram_active") & (_zero(table, "tensor_active") | _zero(table, "sm_active"))
    silent &= ~(table.get("fp32_active_mean") > 0) & ~(table.get("fp64_active_mean") > 0)
    if stuck.any() or low.any():
        table.remove("gpu_util", stuck | low)
        clear = stuck & (most >= WORKS_MIN)
        against = _PROFILED[:1] + _PROFILED[2:4]
        words = {
            first: f"GPU_UTIL 0 %, but {_against(table, at, against)}" for first, at in by_gpu(table.gpu, clear).items()
        }
        table.doubt("gpu_util", STUCK, clear, words)
    if silent.any():
        words = {
            first: f"GPU_UTIL {percent(util[at])} (mean), but {_listed(table, first)} 0"
            for first, at in by_gpu(table.gpu, silent).items()
        }
        table.doubt("tensor_active, dram_active, sm_active", SILENT, silent, words)
        for metric in _PROFILED:
            table.remove(metric, silent)
    for metric in ("sm_active", "dram_active"):
        at = _zero(table, metric) & works
        if at.any():
            table.remove(metric, at)
            table.doubt(metric, STUCK, at, f"{_NAMES[metric]}: 0 while the engine is active")
    other_pipes = np.fmax(table.get("fp32_active_mean"), table.get("fp64_active_mean"))
    unknown = _zero(table, "tensor_active") & works & np.isnan(other_pipes)
    if unknown.any():
        table.remove("tensor_active", unknown)
        sentence = "Tensor activity 0 while the engine is active, and no other pipe is exported: compute use is unknown"
        table.doubt("tensor_active", NO_PIPE, unknown, sentence)
    return silent


def _against(table: _Table, rows: Ints, names: Sequence[str]) -> str:
    shown = [f"{_NAMES[n]} {percent(v)}" for n in names if not np.isnan(v := table.get(f"{n}_mean")[rows]).all()]
    return _joined(shown)


def _listed(table: _Table, row: int) -> str:
    """The counters that are known in a row, as in ``tensor, DRAM and SM activity``."""
    names = [n for n in ("tensor_active", "dram_active", "sm_active") if not np.isnan(table.get(f"{n}_mean")[row])]
    return f"{_joined([_NAMES[name].removesuffix(' activity') for name in names])} activity"


def _joined(words: Sequence[str]) -> str:
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)
