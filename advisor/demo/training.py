"""Training: steps of input, forward and backward, exposed communication and update, with checkpoints and stalls.

A step's phases follow from the step model: the shares of its time in which each resource is the one waited for. A
counter read once a second sees the mean of the phases in that second, so short steps blur and long ones show their
shape.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .hardware import SimGpu
from .load import Load
from .seeded_rng import log_uniform, salt, smooth, uniform_at

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Training:
    """One training or fine-tuning job. Shares are of a step's time; what is left of 1 is forward and backward."""

    seed: int
    start: float
    step_seconds: float
    input_share: float
    exposed_share: float  # communication that nothing hides
    update_share: float  # the optimizer: reads and writes all state once, bound by memory
    compute_level: float  # of what the SKU sustains, while in forward and backward
    memory_level: float
    fabric_exposed: float  # of the ports' line rate, while communication is exposed
    fabric_hidden: float  # and while it is hidden behind the backward pass
    nvlink_exposed: float  # of what NVLink sustains
    nvlink_hidden: float
    pcie_exposed: float  # of the PCIe line rate: state offloaded to the host
    waiting_sm: float  # SMs that the collective's kernels hold while they wait
    checkpoint_interval_seconds: float
    checkpoint_seconds: float
    checkpoint_bytes: float  # this node's share
    checkpoint_over_network: bool
    input_io_wait: float  # share of all CPU time that loaders spend waiting for storage, while a step waits for them
    stall_chance: float  # that a slot of ten minutes holds a data stall
    mem_share: float
    mem_growth: float
    context_power: float
    cpu: float
    dataset_bytes_per_second: float
    warmup_seconds: float
    spin_share: float = 0.0  # waiting in a collective for a rank that is late: nothing moves
    spin_sm: float = 0.0  # SMs whose warps poll meanwhile
    sm_level: float = 0.92  # SMs that hold a warp in forward and backward
    occupancy_level: float = 0.24
    engine_level: float = 1.0  # of that time a kernel runs at all: the rest is between launches

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = Load.none(1, len(t))
        busy, saving, stalled = self._interruptions(t, age)
        step = self._steps(t)
        before = self._steps(t - 1)
        ends = np.cumsum(
            [
                self.input_share,
                1 - self.input_share - self.spin_share - self.exposed_share - self.update_share,
                self.spin_share,
                self.exposed_share,
            ]
        )
        fetch = busy * _share(before, step, 0.0, ends[0])
        work = busy * _share(before, step, ends[0], ends[1])
        spin = busy * _share(before, step, ends[1], ends[2]) if self.spin_share else 0.0
        wait = busy * _share(before, step, ends[2], ends[3])
        update = busy * _share(before, step, ends[3], 1.0)
        # Sequence lengths differ from step to step, and so do FLOPs.
        vary = 1 + 0.05 * (2 * uniform_at(self.seed, np.floor(step).astype(np.int64)) - 1)
        level = self.compute_level * vary
        load.compute[:] = np.minimum(work * level, 1.0)
        load.memory[:] = work * self.memory_level * vary + 0.9 * update + 0.12 * wait + 0.015 * spin
        load.vector[:] = 0.12 * work + 0.35 * update
        load.sm[:] = self.sm_level * work + 0.9 * update + self.waiting_sm * wait + self.spin_sm * spin + 0.01 * busy
        load.occupancy[:] = (
            self.occupancy_level * work + 0.55 * update + 0.4 * self.waiting_sm * wait + 0.25 * self.spin_sm * spin
        )
        load.engine[:] = self.engine_level * work + update + wait + spin + 0.15 * fetch + 0.05 * saving
        sustained_nvlink = gpu.nvlink * gpu.eta_link
        load.nvlink[:] = sustained_nvlink * (self.nvlink_exposed * wait + self.nvlink_hidden * work)
        fabric = self.fabric_exposed * wait + self.fabric_hidden * work
        load.fabric_tx[:] = fabric
        load.fabric_rx[:] = fabric
        pcie = gpu.sku.pcie_bytes_per_second
        offload = self.pcie_exposed * pcie * wait
        load.pcie_tx[:] = offload + 2e7 * busy + 0.25 * pcie * saving
        load.pcie_rx[:] = offload + self.dataset_bytes_per_second / 8 * (fetch + work) + 5e7 * busy
        settled = 1 - np.exp(-age / 1800)
        share = (self.mem_share + self.mem_growth * settled) * np.minimum(1.0, age / max(self.warmup_seconds, 1.0))
        load.mem_used_bytes[:] = share * gpu.sku.mem_bytes
        load.resident[:] = 1.0
        # Polling keeps issue slots busy: a spinning H100 draws some 150 W more than one that only holds a context.
        load.context_power[:] = self.context_power + 2.2 * self.spin_sm * spin
        load.cpu[:] = self.cpu * (0.6 + 0.4 * busy) * (gpus / gpu.node_gpus)
        load.io_wait[:] = 0.03 * saving + self.input_io_wait * (fetch + stalled)
        load.disk_read[:] = self.dataset_bytes_per_second * busy * (0.4 if self.checkpoint_over_network else 1.0)
        written = self.checkpoint_bytes / self.checkpoint_seconds * saving
        load.disk_write[:] = (0.1 if self.checkpoint_over_network else 1.0) * written + 2e6
        if self.checkpoint_over_network:
            load.storage_tx[:] = written
            load.storage_rx[:] = 0.6 * self.dataset_bytes_per_second * busy
        load.host_mem[:] = 0.12 + 0.02 * gpus
        return load

    def _steps(self, t: Floats) -> Floats:
        """Steps done by `t`, with a slow wander of the step time of some per cent."""
        return (t - self.start) / self.step_seconds + 0.4 * smooth(self.seed + 10, t, 30 * self.step_seconds)

    def _interruptions(self, t: Floats, age: Floats) -> tuple[Floats, Floats, Floats]:
        """Shares of each second at work, in a checkpoint, and in a data stall."""
        since = (t - self.start) % self.checkpoint_interval_seconds
        saving = since >= self.checkpoint_interval_seconds - self.checkpoint_seconds
        slot = np.floor(t / 600).astype(np.int64)
        begin = uniform_at(self.seed + 21, slot) * 540
        length = 4 + 40 * uniform_at(self.seed + 22, slot) ** 2
        within = t - slot * 600
        stalled = (uniform_at(self.seed + 20, slot) < self.stall_chance) & (within > begin) & (within < begin + length)
        started = age > self.warmup_seconds
        saving &= started
        stalled &= started & ~saving
        busy = started & ~saving & ~stalled
        return busy.astype(np.float64), saving.astype(np.float64), stalled.astype(np.float64)


def _share(before: Floats, after: Floats, begin: float, end: float) -> Floats:
    """Share of the time between two positions (in steps) spent in the part [begin, end) of a step."""

    def done(position: Floats) -> Floats:
        whole = np.floor(position)
        return whole * (end - begin) + np.clip(position - whole - begin, 0.0, end - begin)

    return np.clip((done(after) - done(before)) / np.maximum(after - before, 1e-9), 0.0, 1.0)


def draw(rng: np.random.Generator, start: float, **given: float | bool) -> Training:
    """What all jobs have in common, from ranges seen in the field."""
    step = log_uniform(rng, 3, 40)  # large global batches: seconds to tens of seconds a step
    interval = rng.uniform(3600, 7200)  # checkpoints every 1-2 h
    size = log_uniform(rng, 5e10, 5e11)  # 500 GB-2 TB over a job's nodes
    values: dict[str, float | bool] = {
        "step_seconds": step,
        "input_share": rng.uniform(0.005, 0.04),
        "exposed_share": rng.uniform(0.02, 0.07),
        "update_share": rng.uniform(0.02, 0.06),
        "compute_level": rng.uniform(0.66, 0.92),  # model-FLOPs utilisation of 38-60 % once the phases are counted
        "memory_level": rng.uniform(0.18, 0.42),
        "fabric_exposed": 0.0,
        "fabric_hidden": 0.0,
        "nvlink_exposed": rng.uniform(0.3, 0.75),
        "nvlink_hidden": rng.uniform(0.03, 0.22),
        "pcie_exposed": 0.0,
        "waiting_sm": rng.uniform(0.12, 0.4),  # 16-48 of 132 SMs run the collective
        "checkpoint_interval_seconds": interval,
        "checkpoint_seconds": rng.uniform(25, 120),
        "checkpoint_bytes": size,
        "checkpoint_over_network": bool(rng.random() < 0.5),
        "input_io_wait": rng.uniform(0.02, 0.08),
        "stall_chance": rng.uniform(0.0, 0.08),
        "mem_share": rng.uniform(0.5, 0.84),
        "mem_growth": rng.uniform(0.03, 0.1),
        "context_power": rng.uniform(0.3, 0.6),
        "cpu": rng.uniform(0.06, 0.22),
        "dataset_bytes_per_second": log_uniform(rng, 2e7, 8e8),
        "warmup_seconds": rng.uniform(60, 300),
    }
    values.update(given)
    return Training(seed=salt(rng), start=start, **values)  # type: ignore[arg-type]


def compute_bound(rng: np.random.Generator, start: float) -> Training:
    """Multi-node data-parallel pretraining on a fabric that keeps up: most communication hides behind the backward."""
    exposed = rng.uniform(0.015, 0.07)
    total = rng.uniform(0.08, 0.25)  # communication at full rate, as a share of the step: 15-30 % at scale, less here
    level = rng.uniform(0.75, 0.93)
    hidden = level * max(total - exposed, 0.02) / (1 - exposed)
    # A ring over 8 rails crosses 7 NVLink hops for each hop on the fabric, so NVLink runs close to its rate too.
    return draw(
        rng,
        start,
        exposed_share=exposed,
        fabric_exposed=level,
        fabric_hidden=hidden,
        nvlink_exposed=rng.uniform(0.7, 0.95),
    )


def network_bound(rng: np.random.Generator, start: float, *, nvlink_exposed: float | None = None) -> Training:
    """More communication than the network carries: a step waits for the network longer than for anything else.

    Expert-parallel training over a fabric (all-to-all: NVLink carries about what the fabric does), or data-parallel
    training over plain Ethernet.
    """
    return draw(
        rng,
        start,
        exposed_share=rng.uniform(0.54, 0.72),
        fabric_exposed=rng.uniform(0.78, 0.95),
        fabric_hidden=rng.uniform(0.02, 0.15),
        nvlink_exposed=rng.uniform(0.05, 0.25) if nvlink_exposed is None else nvlink_exposed,
    )


def pcie_bound(rng: np.random.Generator, start: float) -> Training:
    """Training with its optimizer state offloaded to the host (ZeRO-Offload): the step waits for copies over PCIe."""
    return draw(
        rng,
        start,
        exposed_share=rng.uniform(0.55, 0.72),
        pcie_exposed=rng.uniform(0.72, 0.88),  # pinned copies reach 80-90 % of the line rate
        nvlink_exposed=0.0,
        nvlink_hidden=0.0,
        cpu=rng.uniform(0.2, 0.5),
        waiting_sm=rng.uniform(0.02, 0.1),  # copy engines, not SMs
    )


def fine_tuning(rng: np.random.Generator, start: float) -> Training:
    """One node, hours: shorter steps, smaller checkpoints, no traffic between nodes."""
    return draw(
        rng,
        start,
        step_seconds=log_uniform(rng, 3, 15),
        compute_level=rng.uniform(0.62, 0.9),
        checkpoint_seconds=rng.uniform(10, 60),
        checkpoint_bytes=log_uniform(rng, 5e8, 1e11),
        checkpoint_over_network=False,
        warmup_seconds=rng.uniform(40, 180),
    )


def input_bound(rng: np.random.Generator, start: float) -> Training:
    """Fine-tuning whose loaders wait for slow storage: for most of a step the GPUs wait for their next batch."""
    return dataclasses.replace(
        fine_tuning(rng, start),
        input_share=rng.uniform(0.52, 0.7),
        input_io_wait=rng.uniform(0.18, 0.4),
        cpu=rng.uniform(0.1, 0.4),
        dataset_bytes_per_second=log_uniform(rng, 2e8, 2e9),
    )
