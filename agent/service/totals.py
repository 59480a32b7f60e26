"""Running totals of all that was sampled, for a page that is read now and then: what a rare look must not lose.

Each tick is added once; a mean over any window is the difference of an integral over the difference of its observed
seconds. The loop adds and the page's thread reads, each under `Totals.lock`.
"""

import time
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil
from threading import Lock
from typing import Any

from ..metrics import BIN_EDGES, THROTTLE_MASK
from ..model import Absence, AgentStats, FabricPort, Gpu, Node, Probe, Tick, Workload, WorkloadUse
from ..statistics.rollup_stats import ACTIVE_SM, SILENT_LINK

# Upper edges (le) of the distributions: the bins of the database, the last of which is open.
EDGES: tuple[float, ...] = BIN_EDGES[1:]
# Of tensor activity and traffic (bytes per second), summed over the time in which both are known: what a correlation
# over any window is made from.
_MOMENTS = ("seconds", "tensor_seconds", "traffic_bytes", "tensor_squared_seconds", "traffic_squared_seconds",
            "product_bytes")  # fmt: skip
MOMENTS = {pair: [f"gpu_tensor_{pair}_{ending}" for ending in _MOMENTS] for pair in ("nvlink", "fabric")}
_RATIOS = ("gpu_util", "sm_active", "tensor_active", "dram_active")
# Devices and workloads that went away stay this long, so that their last seconds are scraped, and not for ever.
FORGET_SECONDS = 3600.0
RHYTHM_SECONDS = 60.0

EventKey = tuple[str, str, str]  # gpu uuid (empty: the driver named none), kind, XID (empty: no XID; "other")
Key = tuple[tuple[str, str], ...]  # labels and their values


@dataclass(slots=True)
class Distribution:
    """How many ticks lay in each of the bins that `EDGES` part, and the sum of their values."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(EDGES) + 1))
    total: float = 0.0

    def add(self, ratio: float) -> None:
        self.counts[bisect_left(EDGES, ratio)] += 1
        self.total += ratio


@dataclass(slots=True, eq=False)
class DeviceTotals:
    """Of one device: each metric's integral over time, and the seconds in which it had a value. `last`: the values of
    the tick `last_tick`, which ended at `last_ts` (Unix seconds). `sums`: what else is counted, by its series."""

    observed_seconds: float = 0.0
    integrals: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    distributions: dict[str, Distribution] = field(default_factory=lambda: defaultdict(Distribution))
    last: Mapping[str, float] = field(default_factory=dict)
    last_tick: int = -1
    last_ts: float = 0.0

    def add(self, number: int, tick: Tick, values: Mapping[str, float]) -> None:
        interval, integrals, seconds = tick.interval_seconds, self.integrals, self.seconds
        self.observed_seconds += interval
        for name, value in values.items():
            integrals[name] += value * interval
            seconds[name] += interval
        self.last, self.last_tick, self.last_ts = values, number, tick.ts


@dataclass(slots=True, eq=False)
class GpuTotals(DeviceTotals):
    """`recent`: (ts, tensor activity or power) of the last minute, for its rhythm; `throttle_reasons`: seconds by
    bit."""

    recent: deque[tuple[float, float | None]] = field(default_factory=deque)
    idle_run_seconds: float = 0.0
    throttle_reasons: dict[int, float] = field(default_factory=lambda: defaultdict(float))

    def add_gpu(
        self, number: int, tick: Tick, values: Mapping[str, float], gpu: Gpu | None, fabric: float | None
    ) -> None:
        """`fabric`: bytes per second of the node's compute ports in this tick; None: not known."""
        seconds, sums, get = tick.interval_seconds, self.sums, values.get
        if self.last_tick != number - 1:
            self.idle_run_seconds = 0.0  # a hole: what was not seen is not counted
        self.add(number, tick, values)
        sm, tensor, power = get("sm_active"), get("tensor_active"), get("power_watts")
        idle = sm is not None and sm < ACTIVE_SM
        self.idle_run_seconds = self.idle_run_seconds + seconds if idle else 0.0
        if sm is not None:
            sums["gpu_sm_active_squared"] += sm * sm * seconds
            sums["gpu_busy"] += 0.0 if idle else seconds
        for name in _RATIOS:
            if (ratio := get(name)) is not None:
                self.distributions[name].add(ratio)
        sent, received = get("nvlink_tx_bytes_per_second"), get("nvlink_rx_bytes_per_second")
        links = None if sent is None or received is None else max(sent, received)
        for pair, traffic in (("nvlink", links), ("fabric", fabric)):
            if tensor is not None and traffic is not None:
                squares = tensor * tensor, traffic * traffic, tensor * traffic
                for series, value in zip(MOMENTS[pair], (1.0, tensor, traffic, *squares), strict=True):
                    sums[series] += value * seconds
        if links is not None and gpu is not None and gpu.nvlink_bytes_per_second:
            self.distributions["nvlink"].add(links / gpu.nvlink_bytes_per_second)
        used = get("mem_used_bytes")
        if used is not None and gpu is not None and gpu.mem_total_bytes:
            self.distributions["mem_used"].add(used / gpu.mem_total_bytes)
        joules = get("energy_joules")
        if joules is not None:
            sums["gpu_energy"] += joules
            # The counter may step more rarely than we look; its mean power shows how long this step took.
            sums["gpu_energy_observed"] += joules / power if power else seconds
        if (mask := get("throttle_reasons")) is not None:
            reasons = int(mask)
            sums["gpu_throttle_reasons_observed"] += seconds
            sums["gpu_throttled"] += seconds if reasons & THROTTLE_MASK else 0.0
            for bit in [1 << place for place in range(reasons.bit_length()) if reasons >> place & 1]:
                self.throttle_reasons[bit] += seconds
        self.recent.append((tick.ts, power if tensor is None else tensor))


class HeldSeconds:
    """How long each of some things held, by its labels. `since`: what holds now, and from when on."""

    def __init__(self) -> None:
        self.since: dict[Key, float] = {}
        self._ended: dict[Key, tuple[float, float]] = {}  # key -> (seconds, when it ended), the oldest first

    def replace(self, keys: Iterable[Key], now: float) -> None:
        """From `now` on (seconds observed so far) these hold and no others."""
        wanted = dict.fromkeys(keys)
        for key in [key for key in self.since if key not in wanted]:
            seconds = self._seconds(key, now)
            del self.since[key]
            self._ended.pop(key, None)
            self._ended[key] = (seconds, now)
        for key in wanted:
            self.since.setdefault(key, now)
        for key, (_, ended) in list(self._ended.items()):
            if now - ended > FORGET_SECONDS:
                del self._ended[key]

    def all(self, now: float) -> dict[Key, float]:
        """Seconds of everything that holds, or held within the last hour."""
        gone = [key for key, (_, ended) in self._ended.items() if now - ended <= FORGET_SECONDS]
        return {key: self._seconds(key, now) for key in dict.fromkeys((*gone, *self.since))}

    def _seconds(self, key: Key, now: float) -> float:
        before, _ = self._ended.get(key, (0.0, 0.0))
        return before + (now - self.since[key] if key in self.since else 0.0)


class Totals:
    """What was sampled since the settings were read. Feed it each tick once; read it under `lock`."""

    def __init__(self, node: Node, interval_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.lock = Lock()
        self.node = node
        self.gpus_known: dict[str, Gpu] = {}
        self.ports_known: dict[str, FabricPort] = {}
        self.ticks, self.missed_ticks = 0, 0
        self.observed_seconds, self.last_ts = 0.0, 0.0
        self.gpus: dict[str, GpuTotals] = {}
        self.ports: dict[str, DeviceTotals] = {}
        self.host = DeviceTotals()
        self.events: dict[EventKey, int] = {}
        self.absences, self.uses = HeldSeconds(), HeldSeconds()
        self._monotonic = monotonic
        self._ticked_at = monotonic()
        self._recent_most = ceil(RHYTHM_SECONDS / interval_seconds) + 1

    def set_survey(self, survey: Probe) -> None:
        with self.lock:
            self.node = survey.node or self.node
            self.gpus_known = {gpu.uuid: gpu for gpu in survey.gpus}
            self.ports_known = {port.key: port for port in survey.ports}

    def set_absences(self, absences: Iterable[Absence]) -> None:
        with self.lock:
            keys = [_key(absence, "scope", "subject", "metric", "reason") for absence in absences]
            self.absences.replace(keys, self.observed_seconds)

    def set_uses(self, workloads: Iterable[Workload], uses: Iterable[WorkloadUse]) -> None:
        """Whose work is on which GPU from now on. No name, user or command: more people read a page than a database."""
        named = {
            workload.workload_id: _key(workload, "series_id", "scheduler", "job_id", "namespace", "pod", "framework")
            for workload in workloads
        }
        keys = [
            (*_key(use, "gpu_uuid", "workload_id", "basis"), *named[use.workload_id], ("shared", str(int(use.shared))))
            for use in uses
            if use.workload_id in named
        ]
        with self.lock:
            self.uses.replace(keys, self.observed_seconds)

    def add_stats(self, stats: AgentStats) -> None:
        with self.lock:
            self.missed_ticks += stats.missed_ticks

    def add_tick(self, tick: Tick) -> None:
        """One kept tick. Devices that left an hour ago are forgotten."""
        with self.lock:
            self._ticked_at = self._monotonic()
            self.ticks += 1
            self.observed_seconds += tick.interval_seconds
            self.last_ts = tick.ts
            fabric = self._add_fabric(tick)
            for uuid, values in tick.gpus.items():
                totals = self.gpus.get(uuid)
                if totals is None:
                    totals = self.gpus[uuid] = GpuTotals(recent=deque(maxlen=self._recent_most))
                totals.add_gpu(self.ticks, tick, values, self.gpus_known.get(uuid), fabric)
            if tick.host:
                self.host.add(self.ticks, tick, tick.host)
            for event in tick.events:
                code = "" if event.kind != "xid" else str(event.code) if event.code is not None else "other"
                key = (event.gpu_uuid or "", event.kind, code)
                self.events[key] = self.events.get(key, 0) + event.count
            self._forget(self.gpus_known, self.gpus)
            self._forget(self.ports_known, self.ports)

    def seconds_since_tick(self) -> float:
        return self._monotonic() - self._ticked_at

    def _add_fabric(self, tick: Tick) -> float | None:
        seconds, compute = tick.interval_seconds, list[float]()
        for key, state in tick.port_states.items():
            sums = self.ports.setdefault(key, DeviceTotals()).sums
            sums["fabric_state_observed"] += seconds
            sums["fabric_active"] += seconds if state == "ACTIVE" else 0.0
        for key, values in tick.fabric.items():
            totals, port = self.ports.setdefault(key, DeviceTotals()), self.ports_known.get(key)
            totals.add(self.ticks, tick, values)
            sent, received = values.get("tx_bytes_per_second"), values.get("rx_bytes_per_second")
            if sent is None or received is None or port is None:
                continue
            traffic = max(sent, received)
            if port.line_rate_bytes_per_second:
                util = traffic / port.line_rate_bytes_per_second
                totals.distributions["util"].add(util)
                totals.sums["fabric_util_observed"] += seconds
                totals.sums["fabric_silent"] += seconds if util < SILENT_LINK else 0.0
            if port.role == "compute":
                compute.append(traffic)
        return sum(compute) if compute else None

    def _forget(self, present: Mapping[str, object], totals: dict[str, Any]) -> None:
        for key in [key for key in totals if key not in present]:
            if totals[key].last_ts < self.last_ts - FORGET_SECONDS:
                del totals[key]
                self.events = {event: count for event, count in self.events.items() if event[0] != key}


def _key(thing: object, *names: str) -> Key:
    return tuple((name, getattr(thing, name) or "") for name in names)
