"""One node's seconds on their way into the store: made stretch by stretch, rolled up, written in columns.

An hour that only survives as a rollup is made from one contiguous window of four minutes at a random minute of it.
Hours are made whole where minutes are kept, where a workload starts or ends in them, and where the agent was away for a
part of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt

from ...agent.model import Period
from ...agent.store.codec import RollupTable
from ...agent.store.node_writer import NodeWriter
from . import rollup
from .builder import Placed, PlannedNode
from .hardware import Floats, Load, SimNode
from .seeded_rng import TABLES, stream

Array = npt.NDArray[np.float32]

_C = SimpleNamespace(**TABLES["counters"])
_SW_POWER_CAP, _GPU_IDLE = 0x4, 0x1  # NVML's clocks event reasons


@dataclass(frozen=True, slots=True)
class Counters:
    """Values by metric: GPUs (g, n), fabric ports (p, n), host (n,). A metric that is not there is missing."""

    gpus: dict[str, Array]
    fabric: dict[str, Array]
    host: dict[str, Array]

    def each(self, change: Callable[[Array], Array]) -> "Counters":
        """The same with every array changed."""
        return Counters(*({k: change(v) for k, v in part.items()} for part in (self.gpus, self.fabric, self.host)))


def observe(load: Load, node: SimNode, rng: np.random.Generator, window_seconds: int) -> Counters:
    """The counters of one node under `load`; `window_seconds`: length of each contiguous stretch in it."""
    return Counters(_gpus(load, node, rng, window_seconds), _fabric(load, node, rng), _host(load, node, rng))


def _gpus(load: Load, node: SimNode, rng: np.random.Generator, window_seconds: int) -> dict[str, Array]:
    gpu, sku = node.gpu, node.gpu.sku
    shape = load.compute.shape
    first, second, third = (rng.standard_normal(shape, dtype=np.float32) for _ in range(3))
    # GPUs of a node differ a little in silicon and cooling, and stay as they are.
    silicon = stream(0, node.node.node, "silicon")
    gain = (1 + 0.012 * silicon.standard_normal((shape[0], 1))).astype(np.float32)
    cooling = silicon.uniform(25, 33, (shape[0], 1)).astype(np.float32)

    compute = np.clip(load.compute * (1 + 0.02 * first) * gain, 0, 1) * (1 - load.clock_loss)
    memory = np.clip(load.memory * (1 + 0.02 * second), 0, _C.dram_max / gpu.eta_memory)
    nvlink_tx = load.nvlink * (1 + 0.01 * third)
    nvlink_rx = load.nvlink * (1 + 0.01 * second)
    limit = np.float32(sku.tdp_watts) * (1 - load.cap_loss)
    link = nvlink_tx / np.float32(gpu.nvlink) if gpu.nvlink else np.float32(0)
    wanted = (
        np.float32(gpu.idle_watts) * (1 + load.context_power * load.resident) * gain
        + np.float32(sku.tdp_watts * gpu.power_scale)
        * (_C.power_compute * compute + _C.power_memory * memory + _C.power_vector * load.vector + _C.power_link * link)
        + np.float32(0.0115 * gpu.idle_watts) * third
    )
    # Share of the clock that is left where somebody set the limit below the SKU's: 1 elsewhere, because the sustained
    # rate of a SKU already holds what its own limit takes.
    idle_watts = np.float32(gpu.idle_watts)
    over = np.maximum((wanted - idle_watts) / np.maximum(limit - idle_watts, 1), 1)
    squeezed = np.where(load.cap_loss > 0, over ** np.float32(-1 / _C.power_of_clock), 1).astype(np.float32)
    compute, power = compute * squeezed, np.clip(wanted, 1, limit)
    clock = np.float32(sku.boost_hertz) * (1 - _C.clock_drop * np.clip(2 * power / limit - 1, 0, 1))
    resting = np.float32(_C.idle_clock_share * sku.boost_hertz)
    clock = np.where(load.resident > 0, clock * (squeezed * (1 - load.clock_loss)), resting)
    clock = np.round(clock / _C.clock_step_hertz) * np.float32(_C.clock_step_hertz)
    tensor = np.clip(compute * np.float32(gpu.eta_compute * sku.tensor_reference_hertz) / clock, 0, _C.tensor_max)
    throttle = np.where(wanted > limit, _SW_POWER_CAP, 0) | load.throttle.astype(np.int32)
    warmth, seen = _lagged(power / np.float32(sku.tdp_watts), window_seconds), 1 - load.blind
    counters = {
        "gpu_util": np.round(np.clip(load.engine * (1 + 0.005 * first), 0, 1), 2),
        "sm_active": np.clip(load.sm * (1 + 0.015 * first), 0, 1) * seen,
        "sm_occupancy": np.clip(load.occupancy * (1 + 0.02 * second), 0, 1) * seen,
        "tensor_active": tensor * seen,
        "dram_active": memory * np.float32(gpu.eta_memory) * seen,
        "fp64_active": np.zeros(shape, dtype=np.float32),
        "fp32_active": np.clip(load.vector * (1 + 0.02 * second), 0, 1) * seen,
        "fp16_active": np.clip(0.2 * load.vector * (1 + 0.02 * first), 0, 1) * seen,
        "mem_used_bytes": load.mem_used_bytes,
        "power_watts": power,
        "energy_joules": power * np.float32(1.0),
        "sm_clock_hertz": clock,
        "mem_clock_hertz": np.full(shape, gpu.mem_clock_hertz, dtype=np.float32),
        "temperature_celsius": np.round(cooling + load.heat + 42 * warmth),
        "throttle_reasons": np.where(load.engine <= 0.001, _GPU_IDLE, throttle),
        "pcie_tx_bytes_per_second": load.pcie_tx * np.clip(1 + 0.03 * third, 0, 1.1) + 1e5,
        "pcie_rx_bytes_per_second": load.pcie_rx * np.clip(1 + 0.03 * first, 0, 1.1) + 1e5,
    }
    if gpu.nvlink:
        counters["nvlink_tx_bytes_per_second"] = np.clip(nvlink_tx, 0, None)
        counters["nvlink_rx_bytes_per_second"] = np.clip(nvlink_rx, 0, None)
    return {name: values.astype(np.float32, copy=False) for name, values in counters.items()}


def _lagged(values: npt.NDArray[np.floating], window_seconds: int) -> Array:
    """The mean over the last seconds of each stretch; before its first second the stretch's first value held."""
    stretch = values.reshape(len(values), -1, window_seconds).astype(np.float64)
    lag = min(_C.thermal_lag_seconds, window_seconds)
    padded = np.concatenate([np.repeat(stretch[..., :1], lag, axis=2), stretch], axis=2)
    total = np.cumsum(padded, axis=2)
    return ((total[..., lag:] - total[..., :-lag]) / lag).reshape(values.shape).astype(np.float32)


def _fabric(load: Load, node: SimNode, rng: np.random.Generator) -> dict[str, Array]:
    """Traffic of every port: the GPUs' on compute ports (GPU k's on the ports beside it), storage on the others."""
    if not node.ports:
        return {}
    gpus, seconds = load.compute.shape
    compute = node.compute_ports
    chatter = rng.uniform(0, 2000, (len(node.ports), seconds)).astype(np.float32)  # keep-alives and monitoring
    noise = 1 + 0.01 * rng.standard_normal((2, len(node.ports), seconds), dtype=np.float32)
    tx, rx, wait = (np.zeros((len(node.ports), seconds), dtype=np.float32) for _ in range(3))
    for position, port in enumerate(node.ports):
        rate = np.float32(port.line_rate_bytes_per_second or 0)
        if position in compute:
            beside = slice(None)  # all GPUs share the ports
            if len(compute) >= gpus:
                beside = slice(first := compute.index(position) * gpus // len(compute), first + 1)
            sent, received = load.fabric_tx[beside].mean(axis=0), load.fabric_rx[beside].mean(axis=0)
            wait[position] = np.clip(sent - 0.6, 0, None) * 2e8 * np.abs(noise[0, position])
            flows = sent * rate * noise[0, position], received * rate * noise[1, position]
        else:
            most = 0.9 * rate
            storage = (load.storage_tx, load.storage_rx)
            flows = [
                np.minimum(flow, most) * noise[direction, position] + 2e5 for direction, flow in enumerate(storage)
            ]
        tx[position], rx[position] = (np.clip(flow + chatter[position], 0, rate) for flow in flows)
    counters = {"tx_bytes_per_second": tx, "rx_bytes_per_second": rx}
    if all(port.link_layer != "EFA" for port in node.ports):  # EFA has no port_xmit_wait
        counters["xmit_wait_per_second"] = wait
    return counters


def _host(load: Load, node: SimNode, rng: np.random.Generator) -> dict[str, Array]:
    total = node.host_mem_bytes
    noise = 1 + 0.05 * rng.standard_normal((4, len(load.cpu)), dtype=np.float32)
    return {
        "cpu_util": np.clip((load.cpu + 0.004) * noise[0], 0, 1),
        "io_wait": np.clip((load.io_wait + 0.0005) * noise[1], 0, 1),
        "mem_used_bytes": np.clip((load.host_mem + 0.03) * total, 0, 0.98 * total).astype(np.float32),
        "disk_read_bytes_per_second": np.clip(load.disk_read * noise[2], 0, None),
        "disk_write_bytes_per_second": np.clip((load.disk_write + 3e5) * noise[3], 0, None),
    }


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
    dark = [any(a <= e - HOUR and e <= b for a, b in gaps) for e in ends]
    torn = [not dark[n] and any(a < e and e - HOUR < b for a, b in gaps) for n, e in enumerate(ends)]
    alike = [(bool(whole[n]), dark[n], n if torn[n] else -1) for n in range(len(ends))]  # a torn hour is made alone
    for (is_whole, is_dark, _), group in groupby(range(len(ends)), alike.__getitem__):
        positions, most = list(group), _HOURS_AT_ONCE[HOUR if is_whole else WINDOW_SECONDS]
        for first in () if is_dark else range(0, len(positions), most):
            at = positions[first : first + most]
            hours = ends[at]
            if is_whole:
                seconds = hours[:, None] - HOUR + np.arange(1, HOUR + 1)
                for a, b in gaps if torn[at[0]] else ():
                    seconds = seconds[:, (seconds[0] <= a) | (seconds[0] > b)]
                yield Stretch(hours, seconds, np.full(len(hours), float(seconds.shape[1])), True)
            else:
                seconds = hours[:, None] - HOUR + offsets[at, None] + np.arange(1, WINDOW_SECONDS + 1)
                yield Stretch(hours, seconds, np.full(len(hours), float(HOUR)), False)


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
