"""Training of other kinds than the large dense one; and what happens to it: late ranks, other phases, throttling."""

from collections.abc import Sequence

import numpy as np
from skuwise.advisor.demo.hardware import PER_GPU, Floats, Load, Model, SimGpu
from skuwise.advisor.demo.seeded_rng import drawn, salt, smooth, uniform_at
from skuwise.advisor.demo.training import Training, draw
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel

from ..builder import TruePhase
from ..ranges import RANGES


def on_one_gpu(rng: np.random.Generator, start: float) -> Training:
    """A model that fits one GPU: no collective, steps of a second or so, checkpoints of some GB on the local disk."""
    return draw(rng, start, **drawn(rng, RANGES["training-variants"]["on-one-gpu"]))


def starved(rng: np.random.Generator, start: float) -> Training:
    """Days of training whose loaders do not keep up: either storage is slow (IO wait) or decoding takes all cores."""
    by_cores = rng.random() < 0.5
    return draw(rng, start, **drawn(rng, RANGES["training-variants"]["starved"], "by_cores" if by_cores else "other"))


def over_ethernet(rng: np.random.Generator, start: float, *, over_pcie: float) -> Training:
    """Data-parallel training over a network that is too slow for it, on PCIe nodes: the ring also crosses the bus, at
    the network's pace (`over_pcie`: share of the bus's line rate while it waits)."""
    return draw(rng, start, **drawn(rng, RANGES["training-variants"]["over-ethernet"]), pcie_exposed=over_pcie)


def between_gpus(rng: np.random.Generator, start: float) -> Training:
    """Tensor- or expert-parallel training within a node: all-reduces and all-to-alls over NVLink that nothing hides."""
    return draw(rng, start, **drawn(rng, RANGES["training-variants"]["between-gpus"]))


def small_kernels(rng: np.random.Generator, start: float) -> Training:
    """A small model in eager mode: kernels of some microseconds, launched one by one by a core that is never done."""
    return draw(rng, start, **drawn(rng, RANGES["training-variants"]["small-kernels"]))


def with_heavy_checkpoints(rng: np.random.Generator, start: float) -> Training:
    """Synchronous checkpoints of 0.5-2 TB every half hour to hour: minutes in which the GPUs stand still."""
    exposed = rng.uniform(0.02, 0.06)
    return draw(rng, start, exposed_share=exposed, **drawn(rng, RANGES["training-variants"]["with-heavy-checkpoints"]))


class Straggling(Model):
    """The node that holds the late rank. `waiting` is what the other ranks do, `slow` the index among the workload's
    GPUs on this node.

    clock: its clock is low (a warm spot, a bad power stage), and it says so. silent: it is as slow, and no counter says
    why. host: its own loader is late.
    """

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        others = self.waiting.load(t, age, gpus, gpu)
        late = self._late().load(t, age, gpus, gpu)
        load = Load(gpus, len(t))
        load.place(others, list(range(gpus)), slice(None))
        for name in PER_GPU:
            getattr(load, name)[self.slow] = getattr(late, name)[0]
        if self.cause == "clock":
            # The same work takes longer because each second does less of it.
            load.clock_loss[self.slow] = self._slower()
            load.throttle[self.slow] = np.where(load.engine[self.slow] > 0.05, SW_THERMAL, 0)
            load.heat[self.slow] = 20
            load.compute[self.slow] = np.minimum(late.compute[0] / (1 - self._slower()), 1.0)
        return load

    def _late(self) -> Training:
        model = self.waiting
        if self.cause == "host":
            return model.but(input_share=model.input_share + model.spin_share, spin_share=0.0)
        return model.but(
            spin_share=0.0,
            compute_level=model.compute_level * (1 - self._slower()),
            memory_level=model.memory_level * (1 - self._slower()),
        )

    def _slower(self) -> float:
        model = self.waiting
        work = 1 - model.input_share - model.exposed_share - model.update_share - model.spin_share
        return model.spin_share / (work + model.spin_share)


def waiting_for_one(rng: np.random.Generator, start: float, *, fabric: bool) -> Training:
    """Data-parallel training in which every rank but one waits for more than half of each step."""
    few = rng.random() < 0.5  # a ring with a few channels, or kernels that fill the GPU and poll
    exposed = rng.uniform(0.02, 0.05)
    cases = "few" if few else "other", "fabric" if fabric else "other"
    return draw(rng, start, **drawn(rng, RANGES["stragglers"]["waiting-for-one"], *cases), exposed_share=exposed)


class Alternating(Model):
    """`usual`, and `other` for `other_seconds` in every `cycle_seconds`, beginning `offset_seconds` after midnight UTC
    of the first day of 1970 and a whole number of cycles."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        # A second belongs to what ran at its end.
        turned = (t - self.offset_seconds) % self.cycle_seconds < self.other_seconds
        load = Load(1, len(t))
        for model, where in ((self.usual, ~turned), (self.other, turned)):
            if where.any():
                load.place(model.load(t[where], age[where], gpus, gpu), [0], where)
        return load

    def phases(
        self,
        runs: Sequence[tuple[float, float]],
        usual: tuple[KindLabel, BottleneckLabel],
        other: tuple[KindLabel, BottleneckLabel],
    ) -> tuple[TruePhase, ...]:
        """The truth about each span of `runs`."""
        phases: list[TruePhase] = []
        for begin, stop in runs:
            first = int(np.floor((begin - self.offset_seconds) / self.cycle_seconds))
            last = int(np.ceil((stop - self.offset_seconds) / self.cycle_seconds))
            for number in range(first, last):
                at = self.offset_seconds + number * self.cycle_seconds
                turn, again = at + self.other_seconds, at + self.cycle_seconds
                for a, z, (kind, bottleneck) in ((at, turn, other), (turn, again, usual)):
                    start, end = max(a, begin), min(z, stop)
                    if start < end:
                        phases.append(TruePhase(start, end, kind, bottleneck))
        return tuple(phases)


# NVML's clocks event reasons.
HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x8, 0x20, 0x40, 0x80


class Throttled(Model):
    """`inner` on GPUs that are slowed down.

    power: somebody set the limit far below the SKU's. thermal: intake air too warm, worst in the afternoon. brake: the
    power supply asks for less (half of the clock at once).
    """

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        if self.cause == "power":
            load.cap_loss[:] = self.depth
            return load
        if self.cause == "thermal":
            # Afternoons are warmest: the share is that of the day, moved by some hours of weather.
            warmth = 0.5 + 0.5 * np.cos(2 * np.pi * (t / 86400 - 0.62)) + 0.12 * smooth(self.seed, t, 7000.0)
            held = warmth > (0.5 + 0.5 * np.cos(np.pi * self.share))
            depth = self.depth * (0.85 + 0.15 * smooth(self.seed + 1, t, 40.0))
            bits = np.where(uniform_at(self.seed + 2, np.floor(t / 30).astype(np.int64)) < 0.3, HW_THERMAL, SW_THERMAL)
        else:
            slot = np.floor(t / 5400).astype(np.int64)
            held = uniform_at(self.seed, slot) < self.share
            depth = self.depth * np.ones_like(t)
            bits = np.full(len(t), HW_SLOWDOWN | POWER_BRAKE)
        load.clock_loss[:] = np.clip(held * depth, 0, 0.9)
        load.throttle[:] = np.where(held, bits, 0)
        load.heat[:] = np.where(held, 24 if self.cause == "thermal" else 0, 0)
        # What memory delivers depends on the SMs that ask for it.
        load.memory *= (1 - 0.6 * load.clock_loss).astype(np.float32)
        return load


class Blinded(Model):
    """`inner` at work while the profiling counters stand at zero: seen after an XID, until the driver is reloaded
    (NVIDIA/DCGM#303). GPU-Util, power, clocks and memory go on."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        load.blind[:] = t > self.since
        return load


class RdmaStorage(Model):
    """`inner` with its storage behind the compute ports: data comes in and checkpoints or cache blocks go out there."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        slot = np.floor(t / 3).astype(np.int64)
        reading = uniform_at(self.seed, slot) < self.read_duty
        level = self.read_share * (0.5 + uniform_at(self.seed + 1, slot))
        writing = load.disk_write > 5e7
        at_work = np.minimum(1.0, load.engine.mean(axis=0) * 3)
        load.fabric_rx += np.clip(reading * level * at_work, 0, 0.9).astype(np.float32)
        load.fabric_tx += np.clip(0.01 * reading * level + self.write_share * writing, 0, 0.9).astype(np.float32)
        np.clip(load.fabric_rx, 0, 0.95, out=load.fabric_rx)
        np.clip(load.fabric_tx, 0, 0.95, out=load.fabric_tx)
        return load


def throttled(rng: np.random.Generator, inner: Model) -> Throttled:
    cause = ("power", "thermal", "brake")[int(rng.integers(0, 3))]
    return Throttled(
        inner=inner,
        seed=salt(rng),
        cause=cause,  # type: ignore[arg-type]
        depth=rng.uniform(0.4, 0.55) if cause == "power" else rng.uniform(0.25, 0.5),
        share=rng.uniform(0.72, 0.95),  # of the time
    )


def rdma_storage(rng: np.random.Generator, inner: Model) -> RdmaStorage:
    return RdmaStorage(
        inner=inner,
        seed=salt(rng),
        read_share=rng.uniform(0.05, 0.3),  # of the line rate, while a read runs
        read_duty=rng.uniform(0.05, 0.4),
        write_share=rng.uniform(0.1, 0.4),
    )
