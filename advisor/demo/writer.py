"""One node's seconds on their way into the store: made stretch by stretch, rolled up, written in columns.

Fourteen days of seconds are too many to make for every GPU. An hour that only survives as a rollup is made from one
contiguous window of four minutes at a random minute of it (contiguous, because a period or a run cannot be seen in
scattered seconds) and scaled to the hour. Hours are made whole where minutes are kept, where a workload starts or ends
in them, and where the agent was away for a part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...agent.model import Period
from ...agent.store.file.codec import RollupTable
from ...agent.store.writing.node_writer import NodeWriter
from . import rollup
from .builder import Placed, PlannedNode
from .counters import Counters, observe
from .hardware import SimNode
from .load import Floats, Load
from .seeded_rng import stream

HOUR, MINUTE, WINDOW_SECONDS = 3600, 60, 240
_Columns = Callable[..., rollup.Columns]
_HOURS_AT_ONCE = {WINDOW_SECONDS: 36, HOUR: 3}  # so that one array of 8 GPUs stays within the caches


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some hours made alike. `hours`: their ends (h,). `seconds`: the ends of the seconds made (h, s). `observed`: the
    seconds that each hour stands for (h,). `whole`: nothing was left out but what the agent did not see."""

    hours: Floats
    seconds: Floats
    observed: Floats
    whole: bool


def write_node(
    writer: NodeWriter, planned: PlannedNode, placed: Sequence[Placed], *, seed: int, start: float, end: float,
    minutes_from: float,
) -> None:  # fmt: skip
    """Everything of one node over [start, end): inventory, hours, and minutes from `minutes_from` on."""
    sim = planned.sim
    write_inventory(writer, planned, placed, start, end)
    rng = stream(seed, sim.node.node, "signals")
    for stretch in stretches(planned, placed, seed=seed, start=start, end=end, whole_from=minutes_from):
        counters = observe(demand(sim, placed, stretch.seconds.ravel()), sim, rng, stretch.seconds.shape[1])
        write_stretch(writer, sim, stretch, counters, minutes_from=minutes_from)
    writer.set_node(sim.node, end)


def write_inventory(
    writer: NodeWriter, planned: PlannedNode, placed: Sequence[Placed], start: float, end: float
) -> None:
    """The node's devices, who used them, and what could not be read."""
    sim = planned.sim
    writer.set_gpus(sim.gpus, start)
    writer.set_ports(sim.ports, start)
    for workload in placed:
        gpus = workload.nodes[sim.node.node]
        for begin, stop in workload.runs:
            last = np.array([min(stop, end)])
            used = int(workload.model.load(last, last - begin, len(gpus), sim.gpu).mem_used_bytes.max())
            for index in gpus:
                uuid = sim.gpus[index].uuid
                writer.put_workload_use(workload.workload, uuid, begin, stop, workload.basis, False, used)
    # Absences are repeated at every moment at which the set changes.
    moments = {start, *(moment for _, *span in planned.missing for moment in span if moment)}
    for moment in sorted(moment for moment in moments if moment <= end):
        held = [what for what, since, until in planned.missing if since <= moment and (not until or moment < until)]
        writer.set_absences(held, moment)


def stretches(
    planned: PlannedNode, placed: Sequence[Placed], *, seed: int, start: float, end: float, whole_from: float
) -> Iterator[Stretch]:
    """The hours of [start, end) in order of time; those from `whole_from` on are made whole."""
    rng, gaps = stream(seed, planned.sim.node.node, "grid"), planned.gaps
    ends = np.arange(start + HOUR, end + 1, HOUR)
    whole = ends > whole_from
    # Where in its hour each window lies: on a full minute.
    offsets = rng.integers(0, (HOUR - WINDOW_SECONDS) // MINUTE + 1, len(ends)) * float(MINUTE)
    for moment in [*(m for p in placed for run in p.runs for m in run), *(m for gap in gaps for m in gap)]:
        whole |= (ends - HOUR < moment) & (moment < ends)
    dark = np.array([any(a <= e - HOUR and e <= b for a, b in gaps) for e in ends], dtype=bool)
    torn = np.array([any(a < e and e - HOUR < b for a, b in gaps) for e in ends], dtype=bool) & ~dark
    index = 0
    while index < len(ends):
        stop = index + 1
        if not torn[index]:
            most = index + _HOURS_AT_ONCE[HOUR if whole[index] else WINDOW_SECONDS]
            alike = (whole == whole[index]) & ~torn & (dark == dark[index])
            while stop < min(len(ends), most) and alike[stop]:
                stop += 1
        hours = ends[index:stop]
        if dark[index]:
            pass
        elif whole[index]:
            seconds = hours[:, None] - HOUR + np.arange(1, HOUR + 1)
            for a, b in gaps if torn[index] else ():
                seconds = seconds[:, (seconds[0] <= a) | (seconds[0] > b)]
            yield Stretch(hours, seconds, np.full(len(hours), float(seconds.shape[1])), True)
        else:
            seconds = hours[:, None] - HOUR + offsets[index:stop, None] + np.arange(1, WINDOW_SECONDS + 1)
            yield Stretch(hours, seconds, np.full(len(hours), float(HOUR)), False)
        index = stop


def demand(sim: SimNode, placed: Sequence[Placed], t: Floats) -> Load:
    """The load of a node at the seconds that end at `t` (rising)."""
    load = Load(len(sim.gpus), len(t))
    for workload in placed:
        gpus = workload.nodes[sim.node.node]
        for begin, stop in workload.runs:
            where = slice(*np.searchsorted(t, [begin, stop], side="right").tolist())
            if where.start < where.stop:
                load.place(workload.model.load(t[where], t[where] - begin, len(gpus), sim.gpu), list(gpus), where)
    return load


def write_stretch(
    writer: NodeWriter, sim: SimNode, stretch: Stretch, counters: Counters, *, minutes_from: float, **how: _Columns
) -> None:
    """The rollups of a stretch: its hours, and its minutes from `minutes_from` on."""
    write_rollups(writer, sim, counters, ends=stretch.hours, observed=stretch.observed, period="hour", **how)
    if stretch.whole and stretch.hours[-1] > minutes_from:
        t = stretch.seconds.ravel()
        wanted = t > minutes_from
        ends = np.ceil(t[wanted] / MINUTE)[::MINUTE] * MINUTE
        kept, each = counters.each(lambda values: values[..., wanted]), np.full(len(ends), float(MINUTE))
        write_rollups(writer, sim, kept, ends=ends, observed=each, period="minute", **how)


def write_rollups(
    writer: NodeWriter, sim: SimNode, counters: Counters, *, ends: Floats, observed: Floats, period: Period,
    gpu_columns: _Columns = rollup.gpu_columns,
) -> None:  # fmt: skip
    """Rows of `len(ends)` equal periods that follow one another in `counters`."""
    periods = len(ends)
    seen = counters.each(lambda values: values.reshape(-1, values.shape[-1] // periods))
    gpus, gpu, fabric = len(sim.gpus), sim.gpu.sku, None
    if sim.compute_ports:
        traffic = np.maximum(counters.fabric["tx_bytes_per_second"], counters.fabric["rx_bytes_per_second"])
        fabric = np.tile(traffic[sim.compute_ports].sum(axis=0).reshape(periods, -1), (gpus, 1))
    columns = gpu_columns(
        seen.gpus,
        np.tile(observed, gpus),
        period,
        mem_total_bytes=np.repeat([float(g.mem_total_bytes or gpu.mem_bytes) for g in sim.gpus], periods),
        power_limit_watts=gpu.tdp_watts,
        nvlink_bytes_per_second=sim.gpu.nvlink,
        fabric=fabric,
    )
    put_columns(writer, ("gpu", period), ends, [g.uuid for g in sim.gpus], columns)
    if sim.ports:
        rates = np.repeat([port.line_rate_bytes_per_second or np.nan for port in sim.ports], periods)
        columns = rollup.fabric_columns(seen.fabric, np.tile(observed, len(sim.ports)), period, rates)
        put_columns(writer, ("fabric", period), ends, [port.key for port in sim.ports], columns)
    columns = rollup.host_columns(seen.host, observed, period, sim.host_mem_bytes)
    put_columns(writer, ("host", period), ends, None, columns)


def put_columns(
    writer: NodeWriter, of: tuple[str, Period], ends: Floats, devices: Sequence[str] | None, columns: rollup.Columns
) -> None:
    """Write columns whose rows are those of `ends` for one device after the other; None: the table has no devices."""
    named: dict[str, Sequence[object]] = {"ts": np.tile(ends, len(devices or "1")).tolist()}
    if devices:
        named["device"] = [device for device in devices for _ in ends]
    named |= {name: values.tolist() for name, values in columns.items()}
    table: RollupTable = f"{of[0]}_{of[1]}"  # type: ignore[assignment]
    writer.put_rollups(table, list(named), zip(*named.values(), strict=True))
