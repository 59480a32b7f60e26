"""Machines of which no label tells who works there: every GPU second by second, and what is true of it.

    fleet = bare_fleet(seed=5, nodes=12, hours=24)
    lived = live(fleet)
    known = truths(fleet)

Nodes of eight GPUs; some lack telemetry for minutes, single scrapes fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from skuwise.tests.server_metrics.prometheus_series import Series

from . import hardware as hw
from .dcgm import base_labels
from .description import START, Node, Observed
from .generate import by_name
from .hardware import Machine
from .jobs import GPUS, HOUR, LEAST, Device, Job, work
from .node import identity
from .seconds import signals
from .world import Mask, Target

Floats = npt.NDArray[np.float32]
MINUTE = 60
BUSY = 0.05
"""A minute in which a kernel ran for so much of the time is busy."""
_MACHINES = (hw.DGX_H100, hw.XE9680, hw.DGX_A100, hw.SUPERMICRO_A100, hw.LAMBDA_H100)
_SIGNALS = ("util", "engine", "tensor", "dram", "memory", "power")


@dataclass(frozen=True)
class BareFleet:
    """`start`: Unix seconds; `jobs` count theirs from there."""

    seed: int
    machine: Machine
    nodes: tuple[Node, ...]
    start: float
    seconds: int
    jobs: tuple[Job, ...]

    @property
    def end(self) -> float:
        return self.start + self.seconds

    def key(self, device: Device) -> tuple[str, str]:
        """Name of the node and UUID."""
        node = self.nodes[device[0]]
        return node.name, node.uuid(device[1])


@dataclass(frozen=True)
class Lived:
    """Rows are GPUs (node after node), columns seconds; `wire`: rows are nodes, share of the fabric's line rate.
    `seen`: rows are nodes, whether its telemetry is there."""

    util: Floats
    engine: Floats
    tensor: Floats
    dram: Floats
    memory: Floats
    power: Floats
    context: Mask
    wire: Floats
    seen: Mask

    def busy(self) -> Mask:
        """Which minutes of each GPU are busy, observed or not."""
        minutes = self.util.shape[1] // MINUTE
        return self.util[:, : minutes * MINUTE].reshape(len(self.util), minutes, MINUTE).mean(axis=2) >= BUSY


@dataclass(frozen=True)
class JobTruth:
    """`start`, `end`: Unix seconds within the window. `asked`: whether it must be found; what only holds memory and
    what ran for less than ten minutes need not be, and may be."""

    gpus: frozenset[tuple[str, str]]
    start: float
    end: float
    kind: str
    scenes: frozenset[str]
    asked: bool


def bare_fleet(seed: int, nodes: int = 12, hours: float = 24) -> BareFleet:
    rng = np.random.default_rng([seed, 7])
    machine = _MACHINES[int(rng.integers(len(_MACHINES)))]
    observed = Observed(kube=False, pods="none", more_prof=bool(rng.random() < 0.3))
    made = tuple(Node(f"bare{number:03d}", machine, observed) for number in range(1, nodes + 1))
    seconds = int(hours * HOUR)
    start = START + int(rng.integers(0, 24)) * HOUR
    return BareFleet(seed, machine, made, start, seconds, tuple(work(seed, nodes, seconds)))


def live(fleet: BareFleet) -> Lived:
    """What happens on every GPU."""
    rows, count = len(fleet.nodes) * GPUS, fleet.seconds
    arrays = {name: np.zeros((rows, count), dtype=np.float32) for name in _SIGNALS}
    context, wire = np.zeros((rows, count), dtype=bool), np.zeros((len(fleet.nodes), count), dtype=np.float32)
    for job in fleet.jobs:
        first, last = max(0, int(np.ceil(job.start))), min(count, int(job.end))
        if first >= last:
            continue
        made = signals(job, first, last, fleet.start)
        places = [node * GPUS + gpu for node, gpu in job.devices]
        for name, array in arrays.items():
            array[places, first:last] = getattr(made, name)
        context[places, first:last] = made.context
        for node in job.nodes:
            own = [place for place, device in enumerate(job.devices) if device[0] == node]
            wire[node, first:last] += made.wire[own].sum(axis=0) / GPUS
    rng = np.random.default_rng([fleet.seed, 11])
    # A health check touches a GPU that nobody uses for a second, every half an hour or so.
    for row in range(rows):
        touched = rng.integers(0, count, max(1, count // 2000))
        arrays["util"][row, touched] = np.maximum(arrays["util"][row, touched], rng.uniform(0, 0.03))
    return Lived(**arrays, context=context, wire=np.clip(wire, 0, 0.97), seen=_seen(rng, len(fleet.nodes), count))


def _seen(rng: np.random.Generator, nodes: int, count: int) -> Mask:
    seen = np.ones((nodes, count), dtype=bool)
    for node in range(nodes):
        for _ in range(rng.poisson(count / (2 * 86400))):
            first = int(rng.integers(count))
            seen[node, first : first + int(rng.uniform(90, 900))] = False
    return seen


def truths(fleet: BareFleet) -> tuple[JobTruth, ...]:
    """Of every job, as far as it lies within the window."""
    found: list[JobTruth] = []
    for job in fleet.jobs:
        start, end = max(job.start, 0.0), min(job.end, float(fleet.seconds))
        if end > start:
            gpus = frozenset(fleet.key(device) for device in job.devices)
            asked = job.kind != "held" and end - start > LEAST
            found.append(JobTruth(gpus, fleet.start + start, fleet.start + end, job.kind, job.scenes, asked))
    return tuple(found)


def watts(fleet: BareFleet, lived: Lived) -> Floats:
    """Power of every GPU: at rest, with a context, at work; each board has its own levels."""
    gpu, rng = fleet.machine.gpu, np.random.default_rng([fleet.seed, 17])
    rows = len(lived.util)
    rest, held = rng.uniform(*gpu.rest_watts, (rows, 1)), rng.uniform(*gpu.context_watts, (rows, 1))
    held = np.maximum(held, rest + 1)
    drawn = np.where(lived.context, held + (gpu.limit_watts - held) * lived.power, rest)
    noise = np.random.default_rng([fleet.seed, 19]).standard_normal(drawn.shape, dtype=np.float32)
    return np.clip(drawn * (1 + 0.006 * noise), 0.95 * rest, 1.01 * gpu.limit_watts).astype(np.float32)


def used_bytes(fleet: BareFleet, lived: Lived) -> Floats:
    """Memory in use; a context takes some hundred MiB."""
    gpu = fleet.machine.gpu
    mib = np.where(lived.context, 430 + lived.memory * (gpu.memory_mib - gpu.reserved_mib - 440), 1)
    return (np.round(mib) * 2**20).astype(np.float32)


def scraped(fleet: BareFleet, lived: Lived, interval_s: int = MINUTE) -> Iterator[Series]:
    """What a Prometheus holds of it that scrapes dcgm-exporter and node_exporter: gauges as they are at a scrape,
    profiling fields as means of DCGM's 30 seconds before."""
    rng = np.random.default_rng([fleet.seed, 23])
    power, used = watts(fleet, lived), used_bytes(fleet, lived)
    found: list[Series] = []
    for number, node in enumerate(fleet.nodes):
        offset = int(rng.integers(0, interval_s))
        at = np.arange(offset, fleet.seconds, interval_s)
        up = lived.seen[number, at] & (rng.random(len(at)) > 0.002)
        scrapes = (fleet.start + at).astype(np.float64)
        gpus = Target({"job": "dcgm", "instance": f"{node.name}:9400"}, scrapes, up)
        for gpu in range(GPUS):
            found += _gpu(fleet, lived, node, gpu, number * GPUS + gpu, at, gpus, power, used)
        host = Target({"job": "node", "instance": f"{node.name}:9100"}, scrapes, up)
        found += identity(node, host)
        if node.machine.fabric == "infiniband":
            found += _fabric(lived, node, number, at, host, rng)
    yield from by_name(found)


def _gpu(
    fleet: BareFleet, lived: Lived, node: Node, gpu: int, row: int, at: npt.NDArray[np.int64], target: Target,
    power: Floats, used: Floats,
) -> Iterator[Series]:  # fmt: skip
    model, labels = node.gpu, base_labels(node, gpu)
    free = model.memory_mib - model.reserved_mib - used[row, at] / 2**20
    busy = lived.context[row, at]
    values = {
        "DCGM_FI_DEV_GPU_UTIL": np.round(100 * lived.util[row, at]),
        "DCGM_FI_DEV_FB_USED": used[row, at] / 2**20, "DCGM_FI_DEV_FB_FREE": free,
        "DCGM_FI_DEV_POWER_USAGE": np.round(power[row, at], 3),
        "DCGM_FI_DEV_SM_CLOCK": np.where(busy, model.sm_mhz[1] - 60 * lived.power[row, at], model.sm_mhz[0]),
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _means(lived.engine[row], at),
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _means(lived.tensor[row], at),
        "DCGM_FI_PROF_DRAM_ACTIVE": _means(lived.dram[row], at),
    }  # fmt: skip
    if node.observed.more_prof:
        values["DCGM_FI_PROF_SM_ACTIVE"] = 0.85 * values["DCGM_FI_PROF_GR_ENGINE_ACTIVE"]
    for name, each in values.items():
        yield target.series(name, labels, each.astype(np.float64))


def _means(values: Floats, at: npt.NDArray[np.int64], over: int = 30) -> npt.NDArray[np.float64]:
    total = np.concatenate(([0.0], np.cumsum(values, dtype=np.float64)))
    first = np.maximum(at + 1 - over, 0)
    return np.round((total[at + 1] - total[first]) / (at + 1 - first), 6)


def _fabric(
    lived: Lived, node: Node, number: int, at: npt.NDArray[np.int64], target: Target, rng: np.random.Generator
) -> Iterator[Series]:
    machine = node.machine
    for port in range(machine.fabric_ports):
        labels = {"device": f"mlx5_{port}", "port": "1"}
        total = np.cumsum(lived.wire[number].astype(np.float64) * machine.port_bytes_per_second + 40.0)[at]
        for way in ("received", "transmitted"):
            counter = np.floor(total * rng.uniform(0.98, 1.02) + rng.uniform(1e9, 1e12))
            yield target.series(f"node_infiniband_port_data_{way}_bytes_total", labels, counter)
        yield target.series("node_infiniband_rate_bytes_per_second", labels, machine.port_bytes_per_second)
        yield target.series("node_infiniband_state_id", labels, 4.0)
