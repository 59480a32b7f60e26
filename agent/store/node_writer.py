"""Writes one node's devices, ticks, workloads and absences.

What is marked ``@_waits`` waits in the `Writer` when it is called, and runs later, within a transaction.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from itertools import islice
from math import ceil, inf
from typing import Any, Concatenate, Literal, ParamSpec, Protocol

from ..model import Absence, AgentStats, Event, FabricPort, Gpu, Node, ServingSample, Tick, Workload, WorkloadUse
from ..statistics.burst_stats import Burst
from ..statistics.latency_bins import MEASURES, Counts, added, encode
from . import codec
from .codec import Cell, RollupTable

# What the driver says again within a minute is one row: a broken GPU repeats itself many times a second.
_AGAIN_SECONDS = 60.0

_SEEN_SECONDS = 20.0  # a use goes on that was seen less than two scans ago
_ROLLUP_BATCH = 5000
_DeviceTable = Literal["gpu", "port"]
# Each row of a node's devices: what names the device, its id, and from when it holds.
_DEVICES_OF: Mapping[_DeviceTable, str] = {
    "gpu": "SELECT gpu_uuid, id, valid_from FROM gpu WHERE node_id = ?",
    "port": "SELECT device || '/' || port, id, valid_from FROM port WHERE node_id = ?",
}
_P = ParamSpec("_P")


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """A statement about a node; `write` puts it into the file, within a transaction. `size`: how many things of
    `MOST_OTHERS` it holds; `tick`: it is one; `state`: what it holds until it is said again: the last of each is
    kept."""

    node: NodeWriter
    write: Callable[[], None]
    size: int = 0
    tick: Tick | None = None
    state: str = ""


class Waiting(Protocol):
    """What a node needs of the `Writer`."""

    connection: sqlite3.Connection
    tell: Callable[[Told], None]
    flush: Callable[[Tick], None]
    put_now: Callable[..., None]


def _waits(write: Callable[Concatenate[NodeWriter, _P], None]) -> Callable[Concatenate[NodeWriter, _P], None]:
    """A method whose call waits in the writer. What a ``set_`` says holds until it is said again."""

    @wraps(write)
    def tell(self: NodeWriter, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        fixed = [tuple(arg) if isinstance(arg, Iterable) and not isinstance(arg, str) else arg for arg in args]
        size = 1 + sum(len(argument) for argument in fixed if isinstance(argument, tuple))
        state = write.__name__ if write.__name__.startswith("set_") else ""
        self.writer.tell(Told(self, partial(write, self, *fixed, **kwargs), size=size, state=state))

    return tell


class NodeWriter:
    """One node's path into the database. `ts` is Unix seconds everywhere; values are in base units. Values of GPUs and
    ports that `set_gpus` and `set_ports` never named are not kept: nothing says what they are."""

    def __init__(self, writer: Waiting, node: Node, ts: float) -> None:
        self.writer = writer
        self.node = node
        self.begun = ts
        self.forget()

    def forget(self) -> None:
        """What the file holds is asked again: a transaction failed. An hour of servers goes on in a new row."""
        self._id = 0
        self._ended: set[int] = set()  # rows of uses that do not go on, though they were seen a moment ago
        self._devices: dict[_DeviceTable, dict[str, int]] = {}
        self._hours: dict[tuple[int, int | None], tuple[int, float, float, dict[str, Counts]]] = {}

    @_waits
    def set_node(self, node: Node, ts: float) -> None:
        """What the node is now; the last word counts."""
        self._put_node(node, ts)

    @_waits
    def set_gpus(self, gpus: Iterable[Gpu], ts: float) -> None:
        """The GPUs that are here from `ts` on. A changed GPU gets a new row, a GPU not named any more is closed."""
        self._set_devices("gpu", {gpu.uuid: gpu for gpu in gpus}, ts)

    @_waits
    def set_ports(self, ports: Iterable[FabricPort], ts: float) -> None:
        self._set_devices("port", {port.key: port for port in ports}, ts)

    @_waits
    def set_absences(self, absences: Iterable[Absence], ts: float) -> None:
        """All that is missing at `ts`, and why: what is new opens, what is no longer named ends. Idempotent."""
        wanted = {(a.scope, a.subject, a.metric, a.reason): a for a in absences}
        sql = "SELECT scope, subject, metric, reason, id, since FROM absence WHERE node_id = ? AND until IS NULL"
        rows = {row[:4]: row[4:] for row in self._run(sql, self._number)}
        for key in rows.keys() - wanted.keys():
            number, since = rows[key]
            # A clock that was put back must not end it before it began.
            self._run("UPDATE absence SET until = ? WHERE id = ?", max(ts, since), number)
        for key, absence in wanted.items():
            if key not in rows:
                self.put_absence(absence, ts, None)

    @_waits
    def note(self, absence: Absence, ts: float) -> None:
        """Record something that happened at `ts` and is over."""
        self.put_absence(absence, ts, ts)

    @_waits
    def set_workloads(self, workloads: Iterable[Workload], uses: Iterable[WorkloadUse], ts: float) -> None:
        """Who works on which GPU at `ts`. A use goes on where it was last seen less than two scans ago. Where a
        scheduler reported them, a use begins at `since`, but not before an earlier one of the same ended, and ends at
        `until`. `mem_used_bytes` of a use is the most that was seen. A use of an unnamed workload is not kept."""
        timed = [(use, ts if use.until is None else min(use.until, ts)) for use in uses]
        spans: dict[str, tuple[float, float]] = {}
        for use, end in timed:
            first, last = spans.get(use.workload_id, (ts, 0.0))
            spans[use.workload_id] = (min(first, end, inf if use.since is None else use.since), max(last, end))
        refs = {w.workload_id: self._put_workload(w, *spans.get(w.workload_id, (ts, ts))) for w in workloads}
        # A clock that was put back begins a new use, so that none ends before it began.
        sql = (
            "SELECT workload_ref, gpu_uuid, basis, shared, id, ts_start, mem_used_bytes FROM workload_use"
            " WHERE node_id = ? AND ts_end > ? AND ts_end <= ? ORDER BY ts_end"
        )
        going_on = {row[:4]: row[4:] for row in self._run(sql, self._number, ts - _SEEN_SECONDS, ts)}
        for use, end in timed:
            if (ref := refs.get(use.workload_id) or self._workload(use.workload_id)[0]) is None:
                continue
            key = (ref, use.gpu_uuid, use.basis, int(use.shared))
            number, start, memory = going_on.get(key, (0, end, None))
            if not number or number in self._ended:
                start = end
                if use.since is not None:
                    # Not before the last use of the same ended: the agent was restarted under it.
                    of_same = "workload_ref = ? AND node_id = ? AND gpu_uuid = ? AND basis = ? AND ts_end > ?"
                    sql = f"SELECT max(ts_end) FROM workload_use WHERE {of_same}"  # noqa: S608
                    (before,) = self._run(sql, ref, self._number, use.gpu_uuid, use.basis, use.since)[0]
                    start = min(max(use.since, before or 0.0), end)
                if use.until is not None and start >= end:
                    continue  # it is written already
                number, memory = self._next_id("workload_use"), None
            most = max((size for size in (memory, use.mem_used_bytes) if size is not None), default=None)
            going_on[key] = (number, start, most)
            about = (number, ref, self._number, use.gpu_uuid, start, max(end, start), use.basis, use.shared, most)
            self._put("workload_use", about)
            if use.until is not None:
                self._ended.add(number)

    @_waits
    def put_workload_use(  # noqa: PLR0917
        self,
        workload: Workload,
        gpu_uuid: str,
        ts_start: float,
        ts_end: float,
        basis: str,
        shared: bool = False,
        mem_used_bytes: int | None = None,
    ) -> None:
        """One use that is already over, with the workload it belongs to."""
        ref = self._put_workload(workload, ts_start, ts_end)
        number = self._next_id("workload_use")
        about = (number, ref, self._number, gpu_uuid, ts_start, ts_end, basis, shared, mem_used_bytes)
        self._put("workload_use", about)

    def add_tick(self, tick: Tick) -> None:
        """Keep one tick. It is written within a second, or with the next tick where those are slower."""
        self.writer.tell(Told(self, partial(self._put_tick, tick), tick=tick))
        self.writer.flush(tick)

    @_waits
    def add_agent_stats(self, stats: AgentStats) -> None:
        self._put("agent_stat", (*codec.kept(stats), self._number))

    @_waits
    def add_event(self, event: Event) -> None:
        """Keep what the driver reported unasked; the same again within a minute is counted."""
        columns, (gpu_uuid, kind, code) = ", ".join(codec.TABLES["event"]), event.key
        recent = self._run(
            f"SELECT {columns} FROM event WHERE node_id = ? AND gpu_uuid IS ? AND kind = ? AND code IS ?"  # noqa: S608
            " AND last_ts > ? AND last_ts <= ? ORDER BY id DESC LIMIT 1",
            self._number, gpu_uuid, kind, code, event.ts - _AGAIN_SECONDS, event.ts,
        )  # fmt: skip
        number = recent[0][0] if recent else self._next_id("event")
        if recent:
            before = Event(*recent[0][2:])
            last = max(before.last_ts, event.last_ts)
            event = dataclasses.replace(before, count=before.count + event.count, last_ts=last)
        self._put("event", (number, self._number, *codec.kept(event)))

    @_waits
    def add_burst(self, burst: Burst) -> None:
        """Keep what a burst reported. That of an unnamed GPU is not kept."""
        if (device := self._devices_here("gpu").get(burst.gpu_uuid)) is not None:
            # By the minute in which it ended; of several the last is kept.
            number = codec.row_id("minute", ceil(burst.ts / 60) * 60, device)
            values = codec.encode_values(partial(getattr, burst), codec.BURST_STEPS)
            self._put("gpu_burst", (number, burst.n, *values))

    @_waits
    def add_serving(self, sample: ServingSample) -> None:
        """Keep what an inference server reported. Without a `workload_id`, the sample is the node's."""
        sql = "SELECT id FROM server WHERE node_id = ? AND engine = ? AND endpoint = ?"
        rows = self._run(sql, self._number, sample.engine, sample.endpoint)
        server = rows[0][0] if rows else self._next_id("server")
        self._put("server", (server, self._number, sample.engine, sample.endpoint))
        ref = self._workload(sample.workload_id)[0]
        values = codec.encode_values(sample.values.get, codec.SERVING_STEPS)
        number = self._next_id("serving_sample")
        self._put("serving_sample", (number, server, ref, sample.ts, round(sample.interval_seconds * 1000), *values))
        if not sample.latency:
            return
        # One row an hour for each server and each work that held it; after a restart in its own row.
        hour = sample.ts // 3600
        number, begun, seconds, counts = self._hours.get((server, ref), (0, 0.0, 0.0, {}))
        if begun != hour:
            number, seconds, counts = self._next_id("serving_hour"), 0.0, {}
        seconds += sample.interval_seconds
        for measure, more in sample.latency.items():
            counts[measure] = added([counts[measure], more]) or more if measure in counts else more
        self._hours[server, ref] = (number, hour, seconds, counts)
        bins = [encode(counts[measure]) if measure in counts else None for measure in MEASURES]
        self._put("serving_hour", (number, server, ref, sample.ts, round(seconds * 1000), *bins))

    def put_rollups(self, table: RollupTable, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Many rollup rows, in the order of `columns`: the view's column names, values in base units. Two columns name
        the row: ``ts`` (the period's end) and ``device`` (a gpu_uuid, or ``device/port``; left out for the host). None,
        NaN and columns left out are missing. Bins are sequences of seconds. A row of the same period and device is
        replaced."""
        kind = codec.rollup_kind(table)
        self.writer.put_now()
        # Of each device ever named, from when which row held, in order.
        history: dict[str, list[tuple[float, int]]] = {"": [(0.0, self._number)]}
        if kind != "host":
            what = _DEVICES_OF["gpu" if kind == "gpu" else "port"]
            for key, number, valid_from in self._run(f"{what} ORDER BY valid_from, id", self._number):
                history.setdefault(key, []).append((valid_from, number))
        source = iter(rows)
        while batch := list(islice(source, _ROLLUP_BATCH)):
            named = dict(zip(columns, zip(*batch, strict=True), strict=True))
            encoded: list[tuple[float, int, list[Cell]]] = []
            devices = named.get("device", [""] * len(batch))
            for ts, device, row in zip(named["ts"], devices, codec.encode_rollups(table, named), strict=True):
                end = round(float(ts))
                if device not in history:
                    raise ValueError(f"{table}: unknown device {device!r}; name it with set_gpus or set_ports first")
                begun = [number for since, number in history[device] if since < end] or [history[device][0][1]]
                encoded.append((end, begun[-1], row))
            self.writer.put_now(partial(codec.write_rollups, self.writer.connection, table, encoded))
            self.writer.put_now(partial(self._see, max(ts for ts, _, _ in encoded)))

    # What is written, within a transaction.

    def put_absence(self, absence: Absence, since: float, until: float | None) -> None:
        """Write a row of an absence; `until` None: it holds on."""
        self._put("absence", (self._next_id("absence"), self._number, *codec.kept(absence), since, until))

    def _run(self, sql: str, *values: Cell) -> list[tuple[Any, ...]]:
        return self.writer.connection.execute(sql, codec.storable(values)).fetchall()

    def _put(self, table: str, row: Sequence[Cell]) -> None:
        self.writer.connection.execute(codec.upsert(table), codec.storable(row))

    def _next_id(self, table: str) -> int:
        """Ids below zero are those of retention's own notes."""
        return self._run(f"SELECT max(coalesce(max(id), 0), 0) + 1 FROM {table}")[0][0]  # noqa: S608

    @property
    def _number(self) -> int:
        if not self._id:
            self._put_node(self.node, self.begun)
        return self._id

    def _put_node(self, node: Node, ts: float) -> None:
        rows = self._run("SELECT id, first_seen, last_seen FROM node WHERE node = ?", node.node)
        self._id, first, last = rows[0] if rows else (self._next_id("node"), ts, ts)
        self._put("node", (self._id, *codec.kept(node), first, max(last, ts)))

    def _see(self, ts: float) -> None:
        self._run("UPDATE node SET last_seen = max(last_seen, ?) WHERE id = ?", ts, self._number)

    def _put_workload(self, workload: Workload, first: float, last: float) -> int:
        row_id, begun, seen = self._workload(workload.workload_id)
        number = row_id or self._next_id("workload")
        self._put("workload", (number, *codec.kept(workload), min(first, begun), max(last, seen)))
        return number

    def _workload(self, workload_id: str | None) -> tuple[int | None, float, float]:
        """A workload's id, and when it was first and last seen; None: never named."""
        rows = self._run("SELECT id, first_seen, last_seen FROM workload WHERE workload_id = ?", workload_id)
        return rows[0] if rows else (None, inf, -inf)

    def _set_devices(self, table: _DeviceTable, wanted: Mapping[str, Gpu | FabricPort], ts: float) -> None:
        left = {key: codec.storable(codec.kept(device)) for key, device in wanted.items()}
        columns = ", ".join(codec.TABLES[table][2:-2])
        for key, number, valid_from in self._run(f"{_DEVICES_OF[table]} AND valid_to IS NULL", self._number):
            (about,) = self._run(f"SELECT {columns} FROM {table} WHERE id = ?", number)  # noqa: S608
            if left.get(key) == about:
                del left[key]
            elif key in left and self._free_id(table) is None:
                # No id is free for another row: the change is kept, its history is not.
                self._put(table, (number, self._number, *left.pop(key), valid_from, None))
            else:
                self._put(table, (number, self._number, *about, valid_from, max(ts, valid_from)))
        for about in left.values():
            if (number := self._free_id(table)) is not None:
                self._put(table, (number, self._number, *about, ts, None))
        self._devices.pop(table, None)

    def _free_id(self, table: _DeviceTable) -> int | None:
        """The next id, or one that retention took out; None: ids of samples hold `DEVICES` of them."""
        used = {number for (number,) in self._run(f"SELECT id FROM {table}")}  # noqa: S608
        numbers = (max(used, default=0) + 1, *range(1, codec.DEVICES))
        return next((free for free in numbers if free < codec.DEVICES and free not in used), None)

    def _devices_here(self, table: _DeviceTable) -> dict[str, int]:
        if table not in self._devices:
            rows = self._run(f"{_DEVICES_OF[table]} AND valid_to IS NULL ORDER BY id", self._number)
            self._devices[table] = {key: number for key, number, _ in rows}
        return self._devices[table]

    def _put_tick(self, tick: Tick) -> None:
        number = self._next_id("tick")
        base, gpus, ports = number * codec.DEVICES, self._devices_here("gpu"), self._devices_here("port")
        host = codec.encode_values(tick.host.get, codec.HOST_STEPS)
        rows: dict[str, list[Sequence[Cell]]] = {"gpu_sample": [], "fabric_sample": []}
        rows["tick"] = [(number, self._number, tick.ts, round(tick.interval_seconds * 1000), *host)]
        for uuid, gpu in gpus.items():
            if values := tick.gpus.get(uuid):
                rows["gpu_sample"].append((base + gpu, *codec.encode_values(values.get, codec.GPU_STEPS)))
        for key, port in ports.items():
            if key in tick.port_states or key in tick.fabric:
                state = tick.port_states.get(key)
                active = None if state is None else int(state == "ACTIVE")
                values = codec.encode_values(tick.fabric.get(key, {}).get, codec.FABRIC_STEPS)
                # The usual word is not kept with every sample.
                rows["fabric_sample"].append((base + port, active, None if active else state, *values))
        for table, of_table in rows.items():
            self.writer.connection.executemany(codec.INSERTS[table], map(codec.storable, of_table))
        self._see(tick.ts)
