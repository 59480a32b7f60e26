"""Running totals of one device: each metric's integral over time, and what only second-by-second data can tell."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import Any, Self

from ..metrics import BIN_EDGES, THROTTLE_MASK
from ..model import Gpu
from ..statistics.rollup_stats import ACTIVE_SM, SILENT_LINK
from ..store.codec import FABRIC_STEPS, GPU_STEPS, HOST_STEPS, encode_number

# Upper edges (le) of the distributions: the bins of the database, the last of which is open.
EDGES: tuple[float, ...] = BIN_EDGES[1:]
RATIOS = ("gpu_util", "sm_active", "tensor_active", "dram_active")
# Beyond this a device's values hold something that is no measurement (the largest, byte rates, stay below 1e13).
_PLAUSIBLE = 1e18
_STEPS = {**dict(GPU_STEPS), **dict(HOST_STEPS), **dict(FABRIC_STEPS)}
_MAX_GROUPS = 64
_MAX_MASKS = 256
Cell = tuple[float, float]  # integral, seconds
Stamp = tuple[int, float, float]  # a tick's number, its ts, its seconds


@dataclass(slots=True, eq=False)
class Integrals:
    """Of one device: each metric's integral over time and the seconds in which it had a value.

    Ticks that bring the same metrics share one count of seconds and one list of sums: a tick is one pass over it.
    """

    observed_seconds: float = 0.0
    last: Mapping[str, float] = field(default_factory=dict)
    last_tick: int = -1
    last_ts: float = 0.0
    _done: dict[str, Cell] = field(default_factory=dict)
    # Metrics -> [seconds], sums.
    _groups: dict[tuple[str, ...], tuple[list[float], list[float]]] = field(default_factory=dict)

    def add(self, values: Mapping[str, float], seconds: float) -> Mapping[str, float]:
        """Add one tick's values and return them as they were added: what is no number, or what the database would
        not keep either, is missing."""
        try:
            if not -_PLAUSIBLE < sum(values.values()) < _PLAUSIBLE:
                values = _sound(values)
        except TypeError:
            values = _sound(values)
        self.observed_seconds += seconds
        self.last = values
        names = tuple(values)
        group = self._groups.get(names)
        if group is None:
            group = self._new_group(names)
        group[0][0] += seconds
        sums = group[1]
        sums[:] = [total + value * seconds for total, value in zip(sums, values.values(), strict=True)]
        return values

    def cells(self) -> dict[str, Cell]:
        """Per metric that ever had a value: its integral over time, and the seconds behind it."""
        cells = dict(self._done)
        for names, ((seconds,), sums) in self._groups.items():
            for name, total in zip(names, sums, strict=True):
                known = cells.get(name, (0.0, 0.0))
                cells[name] = known[0] + total, known[1] + seconds
        return cells

    def _new_group(self, names: tuple[str, ...]) -> tuple[list[float], list[float]]:
        if len(self._groups) >= _MAX_GROUPS:
            self._done = self.cells()
            self._groups.clear()
        group = self._groups[names] = [0.0], [0.0] * len(names)
        return group

    def copy(self) -> Self:
        """The same totals, which share nothing that is added to later."""
        own = {one.name: _copied(getattr(self, one.name)) for one in fields(self)}
        return replace(self, **(own | {"_done": self.cells(), "_groups": {}, "last": self.last}))


def _copied(value: Any) -> Any:  # noqa: ANN401 - whatever totals are made of
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    if isinstance(value, (Distribution, Moments)):
        return replace(value, **{one.name: _copied(getattr(value, one.name)) for one in fields(value)})
    return value.copy() if isinstance(value, (list, deque)) else value


def _sound(values: Mapping[str, float]) -> dict[str, float]:
    return {
        name: value
        for name, value in values.items()
        if encode_number(value, _STEPS.get(name, 1.0)) is not None and isfinite(value)
    }


@dataclass(slots=True)
class Distribution:
    """How many ticks lay in each of the bins that `EDGES` part, and the sum of their values."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(EDGES) + 1))
    total: float = 0.0

    def add(self, ratio: float) -> None:
        self.counts[bisect_left(EDGES, ratio)] += 1
        self.total += ratio


@dataclass(slots=True)
class Moments:
    """Of two signals, over the time in which both are known: what a correlation over any window is made from."""

    seconds: float = 0.0
    first: float = 0.0
    second: float = 0.0
    first_squared: float = 0.0
    second_squared: float = 0.0
    product: float = 0.0

    def add(self, first: float, second: float, seconds: float) -> None:
        weighted_first, weighted_second = first * seconds, second * seconds
        self.seconds += seconds
        self.first += weighted_first
        self.second += weighted_second
        self.first_squared += first * weighted_first
        self.second_squared += second * weighted_second
        self.product += first * weighted_second


@dataclass(slots=True, eq=False)
class GpuTotals(Integrals):
    """One GPU's totals. `recent` holds (ts, tensor activity or power) of the last minute, for its rhythm."""

    recent: deque[tuple[float, float | None]] = field(default_factory=deque)
    energy_joules: float = 0.0
    energy_seconds: float = 0.0
    busy_seconds: float = 0.0
    sm_squared: float = 0.0
    idle_run_seconds: float = 0.0
    tensor_nvlink: Moments = field(default_factory=Moments)
    tensor_fabric: Moments = field(default_factory=Moments)
    distributions: dict[str, Distribution] = field(default_factory=lambda: defaultdict(Distribution))
    _seconds_by_mask: dict[int, float] = field(default_factory=dict)

    def add_tick(self, tick: Stamp, raw: Mapping[str, float], gpu: Gpu | None, fabric: float | None) -> None:
        """`fabric`: traffic of the node's compute ports in this tick; None: not known."""
        number, ts, seconds = tick
        values = self.add(raw, seconds)
        get = values.get
        if self.last_tick != number - 1:
            self.idle_run_seconds = 0.0  # a hole: what was not seen is not counted
        self.last_tick, self.last_ts = number, ts
        tensor, power = get("tensor_active"), get("power_watts")
        self._work(get("sm_active"), seconds)
        spread = self.distributions
        for name in RATIOS:
            ratio = get(name)
            if ratio is not None:
                spread[name].add(ratio)
        self._traffic(values, gpu, tensor, seconds)
        if tensor is not None and fabric is not None:
            self.tensor_fabric.add(tensor, fabric, seconds)
        used = get("mem_used_bytes")
        if used is not None and gpu is not None and gpu.mem_total_bytes:
            spread["mem_used"].add(used / gpu.mem_total_bytes)
        joules = get("energy_joules")
        if joules is not None:
            self.energy_joules += joules
            # The counter may step more rarely than we look; its mean power tells how long this step took.
            self.energy_seconds += joules / power if power else seconds
        reasons = get("throttle_reasons")
        if reasons:
            mask = int(reasons)
            if mask not in self._seconds_by_mask and len(self._seconds_by_mask) >= _MAX_MASKS:
                mask &= THROTTLE_MASK  # a driver that sets bits at random does not fill the memory
            self._seconds_by_mask[mask] = self._seconds_by_mask.get(mask, 0.0) + seconds
        self.recent.append((ts, power if tensor is None else tensor))

    def _work(self, sm: float | None, seconds: float) -> None:
        if sm is None:
            self.idle_run_seconds = 0.0
            return
        self.sm_squared += sm * sm * seconds
        if sm >= ACTIVE_SM:
            self.busy_seconds += seconds
            self.idle_run_seconds = 0.0
        else:
            self.idle_run_seconds += seconds

    def _traffic(self, values: Mapping[str, float], gpu: Gpu | None, tensor: float | None, seconds: float) -> None:
        sent, received = values.get("nvlink_tx_bytes_per_second"), values.get("nvlink_rx_bytes_per_second")
        if sent is None or received is None:
            return
        nvlink = sent if sent > received else received
        if tensor is not None:
            self.tensor_nvlink.add(tensor, nvlink, seconds)
        if gpu is not None and gpu.nvlink_bytes_per_second:
            self.distributions["nvlink"].add(nvlink / gpu.nvlink_bytes_per_second)

    @property
    def throttled_seconds(self) -> float:
        """Time with a reason that costs speed."""
        return sum(seconds for mask, seconds in self._seconds_by_mask.items() if mask & THROTTLE_MASK)

    @property
    def throttled_seconds_by_bit(self) -> dict[int, float]:
        """Time with each reason, also those that are choices."""
        by_bit: dict[int, float] = {}
        for mask, seconds in self._seconds_by_mask.items():
            for place in range(mask.bit_length()):
                bit = 1 << place
                if mask & bit:
                    by_bit[bit] = by_bit.get(bit, 0.0) + seconds
        return by_bit


@dataclass(slots=True, eq=False)
class PortTotals(Integrals):
    """One port's totals. It was ACTIVE for `active_seconds` of the `state_seconds` in which its state was known."""

    active_seconds: float = 0.0
    state_seconds: float = 0.0
    silent_seconds: float = 0.0
    util_seconds: float = 0.0
    util: Distribution = field(default_factory=Distribution)

    def add_state(self, state: str, seconds: float) -> None:
        self.state_seconds += seconds
        if state == "ACTIVE":
            self.active_seconds += seconds

    def add_tick(self, tick: Stamp, raw: Mapping[str, float], line_rate: float | None) -> float | None:
        """The larger direction's traffic; None where either is missing. `line_rate`: bytes per second, one way."""
        self.last_tick, self.last_ts, seconds = tick
        values = self.add(raw, seconds)
        sent, received = values.get("tx_bytes_per_second"), values.get("rx_bytes_per_second")
        if sent is None or received is None:
            return None
        traffic = sent if sent > received else received
        if line_rate:
            util = traffic / line_rate
            self.util.add(util)
            self.util_seconds += seconds
            if util < SILENT_LINK:
                self.silent_seconds += seconds
        return traffic
