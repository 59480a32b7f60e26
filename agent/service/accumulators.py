"""Running totals of all that was sampled, for a page that is read now and then: what a rare look must not lose.

Each tick is added once; a mean over any window is the difference of an integral over the difference of its observed
seconds. Some ticks wait and are added together, before anybody sees the totals: one alone, after a second of sleep,
costs twice as much, because its code and data left the CPU's caches. The loop writes and the exporter's thread reads; a
lock that is held for a millisecond parts them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from threading import Lock
from typing import Generic, TypeVar

from ..model import Absence, AgentStats, Event, FabricPort, Gpu, Node, Tick, Workload, WorkloadUse
from ..sampler import Survey
from .device_totals import GpuTotals, Integrals, PortTotals, Stamp

# Devices and workloads that went away stay this long, so that their last seconds are scraped, and not for ever.
FORGET_SECONDS = 3600.0
MAX_HELD = 1024  # absences, and uses of GPUs by workloads: what is beyond is left out and counted
RHYTHM_SECONDS = 60.0
# Kinds and codes of events that are told apart for each GPU; NVIDIA's catalog has fewer XIDs that matter.
MAX_EVENT_CODES = 64
# Ticks that wait to be added: what waits is memory, and the loop is held up by all of them at once.
_TOGETHER = 10
EventKey = tuple[str, str, str]  # gpu uuid (empty: the driver named none), kind, XID (empty: no XID; "other")


_K = TypeVar("_K")


class HeldSeconds(Generic[_K]):
    """How long each of some things held, by key: counted when the set changes, not at each tick."""

    def __init__(self) -> None:
        self.left_out = 0
        self._since: dict[_K, float] = {}
        self._ended: dict[_K, tuple[float, float]] = {}  # key -> (seconds, when it ended), the oldest first

    def replace(self, keys: Iterable[_K], now: float) -> None:
        """From `now` on (seconds observed so far) these hold and no others."""
        wanted = dict.fromkeys(keys)
        for key in [key for key in self._since if key not in wanted]:
            seconds = self.seconds(key, now)
            del self._since[key]
            self._ended.pop(key, None)
            self._ended[key] = (seconds, now)
        for key in wanted:
            if key not in self._since and len(self._since) < MAX_HELD:
                self._since[key] = now
        self.left_out = len(wanted) - len(self._since)
        self._forget(now)

    def _forget(self, now: float) -> None:
        for key, (_, ended) in list(self._ended.items()):
            if len(self._ended) <= MAX_HELD and now - ended <= FORGET_SECONDS:
                break
            if key not in self._since:
                del self._ended[key]

    def seconds(self, key: _K, now: float) -> float:
        before = self._ended[key][0] if key in self._ended else 0.0
        return before + (now - self._since[key] if key in self._since else 0.0)

    def all(self, now: float) -> dict[_K, float]:
        """Seconds of everything that holds, or held within the last hour."""
        self._forget(now)
        return {key: self.seconds(key, now) for key in {**self._ended, **self._since}}

    def current(self) -> tuple[_K, ...]:
        return tuple(self._since)


AbsenceKey = tuple[str, str, str, str]  # scope, subject, metric, reason


@dataclass(frozen=True, slots=True)
class UseKey:
    """One workload on one GPU. No name, user or command: a page is read by more people than a database."""

    gpu_uuid: str
    workload_id: str
    series_id: str
    scheduler: str
    job_id: str
    namespace: str
    pod: str
    framework: str
    basis: str
    shared: bool


@dataclass(slots=True)
class Snapshot:
    """All totals at one moment. `ports` by their keys."""

    node: Node
    survey: Survey = field(default_factory=lambda: Survey((), (), ()))
    ticks: int = 0
    observed_seconds: float = 0.0
    last_ts: float = 0.0
    gpus: dict[str, GpuTotals] = field(default_factory=dict)
    ports: dict[str, PortTotals] = field(default_factory=dict)
    host: Integrals = field(default_factory=Integrals)
    events: dict[EventKey, int] = field(default_factory=dict)
    stats: AgentStats | None = None
    missed_ticks: int = 0
    absent_now: Sequence[AbsenceKey] = ()
    absent_seconds: Mapping[AbsenceKey, float] = field(default_factory=dict)
    use_seconds: Mapping[UseKey, float] = field(default_factory=dict)
    left_out: int = 0


class Totals:
    """What was sampled since the process began. Feed it each tick once; `read` from any thread."""

    def __init__(self, node: Node, interval_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._now = Snapshot(node)
        self._monotonic = monotonic
        self._ticked_at = monotonic()
        self._lock = Lock()
        self._waiting: list[Tick] = []
        self._recent_ticks = _ticks_of_a_rhythm(interval_seconds)
        self._version = 0
        self._gpus_known: dict[str, Gpu] = {}
        self._ports_known: dict[str, FabricPort] = {}
        self._absences: HeldSeconds[AbsenceKey] = HeldSeconds()
        self._uses: HeldSeconds[UseKey] = HeldSeconds()

    def go_on(self, node: Node, interval_seconds: float) -> bool:
        """After the agent took new settings: the same totals go on, so that nothing is lost between two looks.

        False where this is another node now: its series are others, and begin at 0.
        """
        with self._lock:
            self._add_waiting()
            now = self._now
            if (node.node, node.cluster) != (now.node.node, now.node.cluster):
                return False
            now.node = node
            self._ticked_at = self._monotonic()
            self._recent_ticks = _ticks_of_a_rhythm(interval_seconds)
            # Nobody looked in between: no run of idleness reaches over it, and what was last seen is no longer now.
            for one in (*now.gpus.values(), *now.ports.values(), now.host):
                one.last_tick = -1
            for gpu in now.gpus.values():
                gpu.recent = deque(gpu.recent, maxlen=self._recent_ticks)
            return True

    def set_survey(self, survey: Survey) -> None:
        """What is here from now on."""
        with self._lock:
            self._add_waiting()
            self._now.survey = survey
            self._now.node = survey.node or self._now.node
            self._gpus_known = {gpu.uuid: gpu for gpu in survey.gpus}
            self._ports_known = {port.key: port for port in survey.ports}

    def set_absences(self, absences: Iterable[Absence]) -> None:
        """The whole set that holds from now on."""
        with self._lock:
            self._add_waiting()
            keys = ((a.scope, a.subject, a.metric, a.reason) for a in absences)
            self._absences.replace(keys, self._now.observed_seconds)

    def set_uses(self, workloads: Iterable[Workload], uses: Iterable[WorkloadUse]) -> None:
        """Whose work is on which GPU from now on."""
        named = {workload.workload_id: workload for workload in workloads}
        keys = [_use_key(named[use.workload_id], use) for use in uses if use.workload_id in named]
        with self._lock:
            self._add_waiting()
            self._uses.replace(keys, self._now.observed_seconds)

    def add_stats(self, stats: AgentStats) -> None:
        """What watching cost since the last call."""
        with self._lock:
            self._now.stats = stats
            self._now.missed_ticks += stats.missed_ticks

    def add_events(self, events: Iterable[Event]) -> None:
        """What the driver told. Beyond `MAX_EVENT_CODES` of a GPU further XIDs count as ``other``."""
        with self._lock:
            counts = self._now.events
            for event in events:
                uuid = event.gpu_uuid or ""
                code = "" if event.kind != "xid" else str(event.code) if event.code is not None else "other"
                if (uuid, event.kind, code) not in counts and code:
                    told_apart = sum(one[0] == uuid and one[2] != "" for one in counts)
                    code = code if told_apart < MAX_EVENT_CODES else "other"
                key = (uuid, event.kind, code)
                counts[key] = counts.get(key, 0) + event.count

    def add_tick(self, tick: Tick) -> None:
        """One kept tick."""
        with self._lock:
            self._ticked_at = self._monotonic()
            self._waiting.append(tick)
            self._version += 1
            if len(self._waiting) >= _TOGETHER:
                self._add_waiting()

    @property
    def version(self) -> int:
        """Another one after each tick: what was read before is no longer all."""
        return self._version

    def seconds_since_tick(self) -> float:
        """How long ago the last tick was added, or the agent began."""
        return self._monotonic() - self._ticked_at

    def read(self) -> Snapshot:
        """A copy of everything. Devices that left an hour ago are forgotten here."""
        with self._lock:
            self._add_waiting()
            self._forget()
            now = self._now
            return replace(
                now,
                gpus={uuid: totals.copy() for uuid, totals in now.gpus.items()},
                ports={key: totals.copy() for key, totals in now.ports.items()},
                host=now.host.copy(),
                events=dict(now.events),
                absent_now=self._absences.current(),
                absent_seconds=self._absences.all(now.observed_seconds),
                use_seconds=self._uses.all(now.observed_seconds),
                left_out=self._absences.left_out + self._uses.left_out,
            )

    def _add_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        now = self._now
        for tick in waiting:
            seconds = tick.interval_seconds
            now.ticks += 1
            now.observed_seconds += seconds
            now.last_ts = tick.ts
            stamp = (now.ticks, tick.ts, seconds)
            fabric = self._add_fabric(tick, stamp)
            for uuid, values in tick.gpus.items():
                totals = now.gpus.get(uuid)
                if totals is None:
                    totals = now.gpus[uuid] = GpuTotals(recent=deque(maxlen=self._recent_ticks))
                totals.add_tick(stamp, values, self._gpus_known.get(uuid), fabric)
            if tick.host:
                now.host.add(tick.host, seconds)
                now.host.last_tick, now.host.last_ts = now.ticks, tick.ts

    def _add_fabric(self, tick: Tick, stamp: Stamp) -> float | None:
        """Adds the ports; the compute ports' traffic, None where none of them has any."""
        compute: float | None = None
        for key in (*tick.port_states, *tick.fabric):
            self._now.ports.setdefault(key, PortTotals())
        for key, state in tick.port_states.items():
            self._now.ports[key].add_state(state, stamp[2])
        for key, values in tick.fabric.items():
            port = self._ports_known.get(key)
            traffic = self._now.ports[key].add_tick(stamp, values, port.line_rate_bytes_per_second if port else None)
            if traffic is not None and port is not None and port.role == "compute":
                compute = (compute or 0.0) + traffic
        return compute

    def _forget(self) -> None:
        now = self._now
        edge = now.last_ts - FORGET_SECONDS
        for known, totals in ((self._gpus_known, now.gpus), (self._ports_known, now.ports)):
            for key in [k for k, one in totals.items() if k not in known and one.last_ts < edge]:
                del totals[key]
                for gone in [event for event in now.events if event[0] == key]:
                    del now.events[gone]


def _ticks_of_a_rhythm(interval_seconds: float) -> int:
    return ceil(RHYTHM_SECONDS / interval_seconds) + 1


def _use_key(workload: Workload, use: WorkloadUse) -> UseKey:
    return UseKey(
        use.gpu_uuid, workload.workload_id, workload.series_id, workload.scheduler, workload.job_id or "",
        workload.namespace or "", workload.pod or "", workload.framework or "", use.basis, use.shared,
    )  # fmt: skip
