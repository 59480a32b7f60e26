"""One node's seconds on their way into the store: made stretch by stretch, rolled up, written in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from zlib import crc32

import numpy as np
import numpy.typing as npt

from ...agent.model import Absence, Period, Tick
from ...agent.store.file.codec import RollupTable
from ...agent.store.writing.node_writer import NodeWriter
from . import rollup
from .counters import Counters, host_memory, observe
from .fleet_plan import Placed, PlannedNode
from .hardware import SimNode
from .load import Load
from .seeded_rng import stream
from .time_grid import HOUR, SECONDS_OF_SCRAPE, scraped_hours, stretches

Rows = npt.NDArray[np.floating]
_MINUTE = 60


def write_node(
    writer: NodeWriter, planned: PlannedNode, placed: Sequence[Placed], *, seed: int, start: float, end: float,
    minutes_from: float, samples_from: float, scraped: bool = False,
) -> None:  # fmt: skip
    """Everything of one node over [start, end): identity, rollups, samples of the newest seconds, workloads, absences.

    Minutes are kept from `minutes_from`, raw samples from `samples_from` on. `scraped`: hours alone, each of the 60
    values that a scrape a minute would leave.
    """
    sim = planned.sim
    writer.set_gpus(sim.gpus, start)
    writer.set_ports(sim.ports, start)
    _write_uses(writer, sim, placed, end)
    _write_absences(writer, planned, start, end)
    edges = [moment for p in placed for run in p.runs for moment in run]
    whole_from = min(minutes_from, np.floor(samples_from / HOUR) * HOUR)
    grid_rng = stream(seed, sim.node.node, "grid")
    rng = stream(seed, sim.node.node, "signals")
    if scraped:
        for stretch in scraped_hours(start, end, grid_rng, gaps=planned.gaps):
            load = demand(sim, placed, stretch.seconds.ravel())
            seen = _as_scraped(observe(load, sim, rng, stretch.seconds.shape[1], scraped=True), sim)
            _write_rollups(
                writer, sim, seen, ends=stretch.hours, observed=stretch.observed, period="hour", scraped=True
            )
        writer.set_node(sim.node, end)
        return
    hours = stretches(start, end, grid_rng, whole_from=whole_from, edges=edges, gaps=planned.gaps)
    for stretch in hours:
        t = stretch.seconds.ravel()
        load = demand(sim, placed, t)
        counters = observe(load, sim, rng, stretch.seconds.shape[1])
        _write_rollups(writer, sim, counters, ends=stretch.hours, observed=stretch.observed, period="hour")
        if not stretch.whole:
            continue
        if stretch.hours[-1] > minutes_from:
            wanted = t > max(minutes_from, start)
            kept = Counters(*({k: v[..., wanted] for k, v in part.items()} for part in _parts(counters)))
            ends = np.ceil(t[wanted] / _MINUTE)[::_MINUTE] * _MINUTE
            minute = np.full(len(ends), float(_MINUTE))
            _write_rollups(writer, sim, kept, ends=ends, observed=minute, period="minute")
        if t[-1] > samples_from:
            writer.put_ticks(_ticks(sim, counters, t, samples_from))
    writer.set_node(sim.node, end)


def demand(sim: SimNode, placed: Sequence[Placed], t: npt.NDArray[np.float64]) -> Load:
    """The load of a node at the seconds that end at `t` (rising)."""
    load = Load.none(len(sim.gpus), len(t))
    for workload in placed:
        gpus = workload.nodes[sim.node.node]
        for begin, stop in workload.runs:
            where = slice(int(np.searchsorted(t, begin, side="right")), int(np.searchsorted(t, stop, side="right")))
            if where.start < where.stop:
                age = t[where] - begin
                load.place(workload.model.load(t[where], age, len(gpus), sim.gpu), list(gpus), where)
    return load


def _as_scraped(counters: Counters, sim: SimNode) -> Counters:
    """One value a scrape: the exporter's mean of what it counts, and the last of what it merely reads.

    Some exporters read GPU use as the driver has it at that moment, others as their own mean.
    """
    read = {"mem_used_bytes", "power_watts", "throttle_reasons", "sm_clock_hertz", "temperature_celsius"}
    if crc32(sim.node.node.encode()) % 2:
        read.add("gpu_util")

    def scrapes(name: str, values: Rows) -> Rows:
        groups = values.reshape(*values.shape[:-1], -1, SECONDS_OF_SCRAPE)
        return groups[..., -1] if name in read else groups.mean(axis=-1, dtype=np.float64).astype(np.float32)

    return Counters(*({name: scrapes(name, values) for name, values in part.items()} for part in _parts(counters)))


def _parts(counters: Counters) -> tuple[dict[str, Rows], dict[str, Rows], dict[str, Rows]]:
    return counters.gpus, counters.fabric, counters.host  # type: ignore[return-value]


def _write_rollups(
    writer: NodeWriter, sim: SimNode, counters: Counters, *, ends: Rows, observed: Rows, period: Period,
    scraped: bool = False,
) -> None:  # fmt: skip
    """Rows of `len(ends)` equal periods that follow one another in `counters`."""
    periods = len(ends)

    def rows(values: Rows) -> Rows:
        return values.reshape(-1, values.shape[-1] // periods)

    gpus = len(sim.gpus)
    fabric = None
    compute = list(sim.compute_ports)
    if compute:
        traffic = np.maximum(counters.fabric["tx_bytes_per_second"], counters.fabric["rx_bytes_per_second"])
        fabric = np.tile(rows(traffic[compute].sum(axis=0)), (gpus, 1))
    gpu = sim.gpu.sku
    columns = rollup.gpu_columns(
        {name: rows(values) for name, values in counters.gpus.items()},
        np.tile(observed, gpus),
        period,
        mem_total_bytes=np.repeat([float(g.mem_total_bytes or gpu.mem_bytes) for g in sim.gpus], periods),
        power_limit_watts=gpu.tdp_watts,
        nvlink_bytes_per_second=sim.gpu.nvlink,
        fabric=fabric,
    )
    if scraped:
        columns = rollup.as_scraped(columns, counters.gpus["mem_used_bytes"].shape[1] // periods)
    _put(writer, f"gpu_{period}", ends, [g.uuid for g in sim.gpus], columns)  # type: ignore[arg-type]
    if sim.ports:
        ports = len(sim.ports)
        rates = np.array([port.line_rate_bytes_per_second or np.nan for port in sim.ports])
        columns = rollup.fabric_columns(
            {name: rows(values) for name, values in counters.fabric.items()},
            np.tile(observed, ports),
            period,
            np.repeat(rates, periods),
        )
        _put(writer, f"fabric_{period}", ends, [port.key for port in sim.ports], columns)  # type: ignore[arg-type]
    columns = rollup.host_columns(
        {name: rows(values) for name, values in counters.host.items()}, observed, period, host_memory(sim)
    )
    _put(writer, f"host_{period}", ends, None, columns)  # type: ignore[arg-type]


def _put(
    writer: NodeWriter, table: RollupTable, ends: Rows, devices: Sequence[str] | None, columns: rollup.Columns
) -> None:
    names = ["ts", *(["device"] if devices else []), *columns]
    copies = len(devices) if devices else 1
    lists: list[Sequence[object]] = [np.tile(ends, copies).tolist()]
    if devices:
        lists.append([device for device in devices for _ in range(len(ends))])
    lists += [values.tolist() for values in columns.values()]
    writer.put_rollups(table, names, zip(*lists, strict=True))


def _ticks(sim: SimNode, counters: Counters, t: npt.NDArray[np.float64], samples_from: float) -> Iterator[Tick]:
    states = {port.key: "ACTIVE" for port in sim.ports}
    total = host_memory(sim)
    for index in np.flatnonzero(t > samples_from).tolist():
        gpus = {
            gpu.uuid: {name: float(values[g, index]) for name, values in counters.gpus.items()}
            for g, gpu in enumerate(sim.gpus)
        }
        fabric = {
            port.key: {name: float(values[p, index]) for name, values in counters.fabric.items()}
            for p, port in enumerate(sim.ports)
        }
        host = {name: float(values[index]) for name, values in counters.host.items()}
        yield Tick(float(t[index]), 1.0, gpus, fabric, states, {**host, "mem_total_bytes": total})


def _write_uses(writer: NodeWriter, sim: SimNode, placed: Sequence[Placed], end: float) -> None:
    for workload in placed:
        for begin, stop in workload.runs:
            last = np.array([min(stop, end)])
            most = workload.model.load(last, last - begin, len(workload.nodes[sim.node.node]), sim.gpu)
            for index in workload.nodes[sim.node.node]:
                writer.put_workload_use(
                    workload.workload, sim.gpus[index].uuid, begin, stop, workload.basis, False,
                    int(most.mem_used_bytes.max()),
                )  # fmt: skip


def _write_absences(writer: NodeWriter, planned: PlannedNode, start: float, end: float) -> None:
    """What was missing, and from when to when: said again at every moment at which the set changes."""
    moments = sorted({start, *(m.since for m in planned.missing), *(m.until for m in planned.missing if m.until)})
    for moment in moments:
        if moment <= end:
            held: list[Absence] = [
                m.absence for m in planned.missing if m.since <= moment and (m.until is None or moment < m.until)
            ]
            writer.set_absences(held, moment)
