"""Writes one node's devices, ticks, workloads and absences. What it knows it keeps in memory; the file follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from ..model import Absence, AgentStats, Event, FabricPort, Gpu, Node, ServingSample, Tick, Workload, WorkloadUse
from ..statistics.burst_stats import Burst
from .codec import (
    DEVICES,
    FABRIC_STEPS,
    GPU_STEPS,
    HOST_STEPS,
    SERVING_STEPS,
    TABLES,
    Cell,
    RollupTable,
    encode_values,
    kept,
    minute_row,
    rollup_kind,
    row_encoder,
    write_rollups,
)
from .device_rows import DeviceRows
from .event_rows import EventRows
from .latency_rows import LatencyRows
from .write_batch import Batch

_ROLLUP_BATCH = 5000
_TICK_BATCH = 500
_NO_VALUES: Mapping[str, float] = {}


class Schedule:
    """When to commit: every so many ticks, or when the first of them is so many seconds old."""

    def __init__(self, every_ticks: int, every_seconds: float) -> None:
        self.every_ticks = every_ticks
        self.every_seconds = every_seconds
        self._ticks = 0
        self._first_ts = 0.0

    def is_due(self, ts: float) -> bool:
        """Count one tick; whether it is time."""
        if not self._ticks:
            self._first_ts = ts
        self._ticks += 1
        return self._ticks >= self.every_ticks or abs(ts - self._first_ts) >= self.every_seconds

    def restart(self) -> None:
        self._ticks = 0


@dataclasses.dataclass(slots=True)
class _Use:
    """A row of ``workload_use``, in the order of its columns."""

    id: int
    workload_ref: Cell
    node_id: int
    gpu_uuid: str
    ts_start: float
    ts_end: float
    basis: str
    shared: bool
    mem_used_bytes: int | None = None

    @property
    def row(self) -> tuple[Cell, ...]:
        return dataclasses.astuple(self)


class NodeWriter:
    """One node's road into the database. `ts` is Unix seconds everywhere; values are in base units.

    Values of GPUs and ports that `set_gpus` and `set_ports` never named are not kept: nothing says what they are.
    """

    def __init__(self, batch: Batch, schedule: Schedule, node: Node, ts: float) -> None:
        self._batch = batch
        self._schedule = schedule
        connection = batch.connection
        found = connection.execute("SELECT id, first_seen FROM node WHERE node = ?", (node.node,)).fetchone()
        self.id: int = found[0] if found else batch.next_id("node")
        self._first_seen: float = found[1] if found else ts
        self._events = EventRows(batch, self.id)
        self._latency = LatencyRows(batch)
        self._last_seen = ts
        self._written_last_seen: float | None = None
        self.node = node
        self._unpacked = batch.unpacked.setdefault(self.id, [])
        self._gpus = DeviceRows(batch, self.id, "gpu")
        self._ports = DeviceRows(batch, self.id, "port")
        self._absences: dict[tuple[str, str, str, str], list[Cell]] = {}
        self._absence_set: frozenset[Absence] | None = None
        self._uses: dict[tuple[str, str, str, bool], _Use] | None = None
        self._servers: dict[tuple[str, str], int] = {}
        self._load()
        self.set_node(node, ts)
        batch.before_write.append(self._touch)

    def set_node(self, node: Node, ts: float) -> None:
        """What the node is now; the last word counts."""
        self.node = node
        self._last_seen = max(self._last_seen, ts)
        self._written_last_seen = None

    def set_gpus(self, gpus: Iterable[Gpu], ts: float) -> None:
        """The GPUs that are here from `ts` on. A changed GPU gets a new row, a GPU not named any more is closed."""
        self._pack()
        self._gpus.set({gpu.uuid: gpu for gpu in gpus}, ts)

    def set_ports(self, ports: Iterable[FabricPort], ts: float) -> None:
        """The fabric ports that are here from `ts` on, as `set_gpus`."""
        self._pack()
        self._ports.set({port.key: port for port in ports}, ts)

    def set_absences(self, absences: Iterable[Absence], ts: float) -> None:
        """All that is missing at `ts`, and why: what is new opens, what is no longer named ends. Idempotent."""
        wanted_set = frozenset(absences)
        if wanted_set == self._absence_set:
            return
        self._absence_set = wanted_set
        wanted = {(a.scope, a.subject, a.metric, a.reason): a for a in wanted_set}
        for key in [key for key in self._absences if key not in wanted]:
            row = self._absences.pop(key)
            row[-1] = max(ts, float(row[-2] or 0))  # a clock that was put back must not end it before it began
            self._batch.put_row("absence", row[0], row)
        for key, absence in wanted.items():
            if key not in self._absences:
                self._absences[key] = self._put_absence(absence, ts, None)

    def note(self, absence: Absence, ts: float, until: float | None = None) -> None:
        """Record something that is over: an absence without length at `ts`, or one that ended at `until`."""
        self._put_absence(absence, ts, ts if until is None else until)

    def set_workloads(
        self,
        workloads: Iterable[Workload],
        uses: Iterable[WorkloadUse],
        ts: float,
        *,
        scan_interval_seconds: float = 10.0,
    ) -> None:
        """Who works on which GPU at `ts`. A use goes on where it was last seen less than two scans ago.

        Where a scheduler told them, a use begins at `since`, but not before an earlier one of the same ended, and ends
        at `until`: what came and went between two calls has both. `mem_used_bytes` of a use is the most that was seen.
        A use of a workload that nobody named is not kept.
        """
        uses = tuple(uses)
        first: dict[str, float] = {}
        last: dict[str, float] = {}
        for use in uses:
            name, until = use.workload_id, ts if use.until is None else min(use.until, ts)
            first[name] = min(first.get(name, ts), until if use.since is None else min(use.since, until))
            last[name] = max(last.get(name, 0.0), until)
        for workload in workloads:
            self._put_workload(workload, first.get(workload.workload_id, ts), last.get(workload.workload_id, ts))
        known = self._open_uses(ts - 2 * scan_interval_seconds)
        for use in uses:
            workload_row = self._batch.workload(use.workload_id)
            if workload_row is None:
                continue
            key = (use.workload_id, use.gpu_uuid, use.basis, use.shared)
            current = known.get(key)
            # A clock that was put back begins a new use, so that none ends before it began.
            end = ts if use.until is None else min(use.until, ts)
            if current is None or not 0 <= ts - current.ts_end < 2 * scan_interval_seconds:
                start = ts if use.since is None else self._start_of(workload_row[0], use, min(use.since, end))
                if use.until is not None and start >= end:
                    continue  # it is written already
                current = known[key] = self._new_use(workload_row, use, min(start, end), end)
            current.ts_end = max(end, current.ts_start)
            if use.until is not None:
                del known[key]
            if use.mem_used_bytes is not None:
                current.mem_used_bytes = max(use.mem_used_bytes, current.mem_used_bytes or 0)
            self._batch.put_row("workload_use", current.id, current.row)
        for key in [key for key, use in known.items() if use.ts_end <= ts - 2 * scan_interval_seconds]:
            del known[key]

    def add_tick(self, tick: Tick) -> None:
        """Keep one tick. It waits in memory and is committed in batches (`Writer.open`)."""
        self._hold(tick)
        if self._schedule.is_due(tick.ts):
            self._schedule.restart()
            self._pack()
            self._batch.commit()

    def add_agent_stats(self, stats: AgentStats) -> None:
        """Keep what watching cost."""
        self._batch.put_row("agent_stat", (stats.ts, self.id), (*kept(stats), self.id))

    def add_event(self, event: Event) -> None:
        """Keep what the driver told of its own accord; what happens again and again is counted."""
        self._events.add(event)

    def add_burst(self, burst: Burst) -> None:
        """Keep what a burst told. That of a GPU nobody named is not kept."""
        device = self._gpus.ids.get(burst.gpu_uuid)
        if device is None:
            return
        row = minute_row(burst, device)
        self._batch.put_sample("gpu_burst", int(str(row[0])), row)

    def add_serving(self, sample: ServingSample) -> None:
        """Keep what an inference server told. Where nobody named its `workload_id`, the sample is the node's."""
        key = (sample.engine, sample.endpoint)
        server = self._servers.get(key)
        if server is None:
            server = self._servers[key] = self._batch.next_id("server")
            self._batch.put_row("server", server, (server, self.id, *key))
        held = self._batch.workload(sample.workload_id) if sample.workload_id is not None else None
        number = self._batch.next_id("serving_sample")
        values = encode_values(sample.values.get, SERVING_STEPS)
        row = (number, server, held[0] if held else None, sample.ts, round(sample.interval_seconds * 1000), *values)
        self._batch.put_sample("serving_sample", number, row)
        self._latency.add(sample, server, held[0] if held else None)

    # The bulk roads, for simulators and importers: written at once, in transactions of some thousand rows.

    def put_ticks(self, ticks: Iterable[Tick]) -> None:
        """Many ticks, in order of time."""
        source = iter(ticks)
        while batch := list(islice(source, _TICK_BATCH)):
            for tick in batch:
                self._hold(tick)
            self._batch.commit_or_raise()

    def put_rollups(self, table: RollupTable, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Many rollup rows, as sequences in the order of `columns`: the view's column names, values in base units.

        Two columns name the row: ``ts`` (the period's end) and ``device`` (a gpu_uuid, or ``device/port``; left out
        for the host). None and NaN are missing; columns left out too. Bins are sequences of seconds per bin, or JSON.
        A row of the same period and device is replaced.
        """
        kind = rollup_kind(table)
        named = [name for name in columns if name not in ("ts", "device")]
        places = [columns.index(name) for name in named]
        ts_at = columns.index("ts")
        device_at = columns.index("device") if kind != "host" else -1
        if "observed_seconds" not in named:
            raise ValueError(f"{table} needs observed_seconds")
        encode = row_encoder(table, named)
        known = self._gpus if kind == "gpu" else self._ports

        def device_id(row: Sequence[object], ts: float) -> int:
            if kind == "host":
                return self.id
            device = known.at(str(row[device_at]), ts)
            if device is None:
                raise ValueError(
                    f"{table}: unknown device {row[device_at]!r}; name it with set_gpus or set_ports first"
                )
            return device

        def encoded() -> Iterable[tuple[float, int, list[Cell]]]:
            for row in rows:
                ts = round(float(row[ts_at]))  # type: ignore[arg-type]
                self._last_seen = max(self._last_seen, ts)
                yield ts, device_id(row, ts), encode([row[place] for place in places])

        source = iter(encoded())
        while batch := list(islice(source, _ROLLUP_BATCH)):
            self._batch.put_now(lambda connection, batch=batch: write_rollups(connection, table, batch))

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
        row = self._put_workload(workload, ts_start, ts_end)
        number = self._batch.next_id("workload_use")
        use = _Use(number, row[0], self.id, gpu_uuid, ts_start, ts_end, basis, shared, mem_used_bytes)
        self._batch.put_row("workload_use", number, use.row)

    def _hold(self, tick: Tick) -> None:
        self._unpacked.append(tick)
        self._last_seen = max(self._last_seen, tick.ts)

    def _touch(self) -> None:
        """Let the ticks wait as rows, and the node's row where the node was seen since it was last written."""
        self._pack()
        if self._written_last_seen == self._last_seen:
            return
        self._written_last_seen = self._last_seen
        self._batch.put_row("node", self.id, (self.id, *kept(self.node), self._first_seen, self._last_seen))

    def _pack(self) -> None:
        """Make rows of the ticks held, of the devices that are here: to be done before other devices are."""
        for tick in self._unpacked:
            self._put_tick(tick)
        self._unpacked.clear()

    def _put_tick(self, tick: Tick) -> None:
        number = self._batch.next_id("tick")
        base = number * DEVICES
        gpus: list[list[Cell]] = []
        for uuid, values in tick.gpus.items():
            device = self._gpus.ids.get(uuid)
            if device is not None and values:
                gpus.append([base + device, *encode_values(values.get, GPU_STEPS)])
        states, fabric = tick.port_states, tick.fabric
        ports: list[list[Cell]] = []
        for key in states if states.keys() >= fabric.keys() else {**states, **fabric}:
            device = self._ports.ids.get(key)
            if device is None:
                continue
            state = states.get(key)
            active = None if state is None else int(state == "ACTIVE")
            values = fabric.get(key, _NO_VALUES)
            said = None if active else state  # the usual word is not kept with every sample
            ports.append([base + device, active, said, *encode_values(values.get, FABRIC_STEPS)])
        host = encode_values(tick.host.get, HOST_STEPS)
        self._batch.put_tick([number, self.id, tick.ts, round(tick.interval_seconds * 1000), *host], gpus, ports)

    def _put_absence(self, absence: Absence, since: float, until: float | None) -> list[Cell]:
        number = self._batch.next_id("absence")
        row: list[Cell] = [number, self.id, *kept(absence), since, until]
        self._batch.put_row("absence", number, row)
        return row

    def _put_workload(self, workload: Workload, first: float, last: float) -> list[Cell]:
        held = self._batch.workload(workload.workload_id)
        number: Cell = self._batch.next_id("workload") if held is None else held[0]
        if held is not None:
            first, last = min(first, float(held[-2] or 0)), max(last, float(held[-1] or 0))
        row: list[Cell] = [number, *kept(workload), first, last]
        self._batch.put_workload(workload.workload_id, row)
        return row

    def _new_use(self, workload_row: Sequence[Cell], use: WorkloadUse, ts_start: float, ts_end: float) -> _Use:
        number = self._batch.next_id("workload_use")
        return _Use(number, workload_row[0], self.id, use.gpu_uuid, ts_start, ts_end, use.basis, use.shared)

    def _start_of(self, workload_row_id: Cell, use: WorkloadUse, since: float) -> float:
        """`since`, or where the last use of the same ended if that was later (the agent was restarted under it)."""
        same = (workload_row_id, use.gpu_uuid, use.basis)
        open_uses = (self._uses or {}).values()
        ends = [one.ts_end for one in open_uses if (one.workload_ref, one.gpu_uuid, one.basis) == same]
        (last,) = self._batch.connection.execute(
            "SELECT max(ts_end) FROM workload_use WHERE workload_ref = ? AND node_id = ? AND gpu_uuid = ? AND basis = ?"
            " AND ts_end > ?",
            (workload_row_id, self.id, use.gpu_uuid, use.basis, since),
        ).fetchone()
        return max(since, float(last or 0), *ends)

    def _open_uses(self, since: float) -> dict[tuple[str, str, str, bool], _Use]:
        """The uses last seen after `since`; from the file when this writer begins."""
        if self._uses is None:
            columns = ", ".join(f"u.{name}" for name in TABLES["workload_use"])
            self._uses = {}
            for *row, workload_id in self._batch.connection.execute(
                f"SELECT {columns}, w.workload_id FROM workload_use u JOIN workload w ON w.id = u.workload_ref "  # noqa: S608
                "WHERE u.node_id = ? AND u.ts_end > ? ORDER BY u.ts_end",
                (self.id, since),
            ):
                one = _Use(*row)
                self._uses[(workload_id, one.gpu_uuid, one.basis, bool(one.shared))] = one
        return self._uses

    def _load(self) -> None:
        """What the file knows of this node's servers and open absences."""
        connection = self._batch.connection
        servers = connection.execute("SELECT engine, endpoint, id FROM server WHERE node_id = ?", (self.id,))
        self._servers = {(engine, endpoint): number for engine, endpoint, number in servers}
        absence_columns = ", ".join(TABLES["absence"])
        for row in connection.execute(
            f"SELECT {absence_columns} FROM absence WHERE node_id = ? AND until IS NULL",  # noqa: S608
            (self.id,),
        ):
            self._absences[(row[2], row[3], row[4], row[5])] = list(row)
