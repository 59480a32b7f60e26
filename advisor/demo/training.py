"""Training: steps of input, forward and backward, exposed communication and update, with checkpoints and stalls.

A step's phases follow from the step model: the shares of its time in which each resource is the one waited for. A
counter read once a second sees the mean of the phases in that second: short steps blur, long ones show their shape.
"""

import numpy as np

from .hardware import Floats, Load, Model, SimGpu
from .seeded_rng import TABLES, drawn, salt, smooth, uniform_at

_RANGES = TABLES["training"]


class Training(Model):
    """One training or fine-tuning job."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.with_context(len(t))
        busy, saving, stalled = self._interruptions(t, age)
        step = self._steps(t)
        before = self._steps(t - 1)
        working = 1 - self.input_share - self.spin_share - self.exposed_share - self.update_share
        ends = np.cumsum([self.input_share, working, self.spin_share, self.exposed_share])
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
        load.fabric_tx[:] = load.fabric_rx[:] = self.fabric_exposed * wait + self.fabric_hidden * work
        pcie = gpu.sku.pcie_bytes_per_second
        offload = self.pcie_exposed * pcie * wait
        load.pcie_tx[:] = offload + 2e7 * busy + 0.25 * pcie * saving
        load.pcie_rx[:] = offload + self.dataset_bytes_per_second / 8 * (fetch + work) + 5e7 * busy
        settled = 1 - np.exp(-age / 1800)
        share = (self.mem_share + self.mem_growth * settled) * np.minimum(1.0, age / max(self.warmup_seconds, 1.0))
        load.mem_used_bytes[:] = share * gpu.sku.mem_bytes
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
        return (t - self.start) / self.step_seconds + 0.4 * smooth(self.seed + 10, t, 30 * self.step_seconds)

    def _interruptions(self, t: Floats, age: Floats) -> tuple[Floats, Floats, Floats]:
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


def draw(rng: np.random.Generator, start: float, **given: float) -> Training:
    """What all jobs have in common, and what is `given`."""
    return Training(**(drawn(rng, _RANGES["common"]) | given), seed=salt(rng), start=start)


def of_kind(rng: np.random.Generator, start: float, kind: str) -> Training:
    """A job of one of the kinds of `fleets.toml`."""
    return draw(rng, start, **drawn(rng, _RANGES[kind]))


def pretraining(rng: np.random.Generator, start: float, kind: str, *, starved: bool) -> Training:
    """Training that waits for `kind`: compute, network or pcie. `starved`: it has no fabric between nodes."""
    if kind == "network":
        # Over plain Ethernet the ring's NVLink hops wait for the network and stay nearly silent.
        return network_bound(rng, start, nvlink_exposed=rng.uniform(0.005, 0.04) if starved else None)
    return compute_bound(rng, start) if kind == "compute" else of_kind(rng, start, kind)


def compute_bound(rng: np.random.Generator, start: float) -> Training:
    """Multi-node data-parallel pretraining on a fabric that keeps up: most communication hides behind the backward."""
    exposed = rng.uniform(0.015, 0.07)
    total = rng.uniform(0.08, 0.25)  # communication at full rate, as a share of the step: 15-30 % at scale, less here
    level = rng.uniform(0.75, 0.93)
    hidden = level * max(total - exposed, 0.02) / (1 - exposed)
    # A ring over 8 rails crosses 7 NVLink hops for each hop on the fabric, so NVLink runs close to its rate too.
    nvlink = rng.uniform(0.7, 0.95)
    return draw(rng, start, exposed_share=exposed, fabric_exposed=level, fabric_hidden=hidden, nvlink_exposed=nvlink)


def network_bound(rng: np.random.Generator, start: float, *, nvlink_exposed: float | None = None) -> Training:
    """More communication than the network carries: a step waits for the network longer than for anything else."""
    given = drawn(rng, _RANGES["network"])
    nvlink = rng.uniform(0.05, 0.25) if nvlink_exposed is None else nvlink_exposed
    return draw(rng, start, **given, nvlink_exposed=nvlink)


def input_bound(rng: np.random.Generator, start: float) -> Training:
    """Fine-tuning whose loaders wait for slow storage."""
    return of_kind(rng, start, "tuning").but(**drawn(rng, _RANGES["starved-tuning"]))
