"""Every kind on any node and any number of its GPUs: what the model of kinds learns from.

The other scenarios are scenes: batch inference sits where it usually sits. A model that learnt from them alone would
learn the stage. Here kind, SKU, number of GPUs, memory and length are drawn apart from one another.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from skuwise.advisor.demo import builder, serving, training
from skuwise.advisor.demo.builder import Placed
from skuwise.advisor.demo.hardware import Load, Model, SimGpu, SimNode
from skuwise.advisor.demo.seeded_rng import log_uniform, stream

from .. import skus
from ..builder import Builder, Places, Truth, notebook, slurm
from ..loads import jobs, offline, online

_NODES = (
    skus.A10G_1,
    skus.A10G_4,
    skus.L4_4,
    skus.L40S_4,
    skus.T4_4,
    skus.A100_PCIE,
    skus.A100_ETHERNET,
    skus.H100_ETHERNET,
    skus.L40S_PCIE,
)
Floats = npt.NDArray[np.float64]

_COUNT = 6
_DAY = 86400.0
_KINDS = ("training", "training", "batch-inference", "batch-inference", "online-inference", "online-inference",
          "fine-tuning", "interactive", "interactive", "idle")  # fmt: skip

Draw = Callable[[np.random.Generator, float], Model]


class _Still(Model):
    """`inner` with its memory as it was taken at the start."""

    def load(self, t: Floats, age: Floats, gpus: int, gpu: SimGpu) -> Load:
        load = self.inner.load(t, age, gpus, gpu)
        load.mem_used_bytes[:] = gpu.sku.mem_bytes * self.mem_share
        return load


def assorted(b: Builder) -> None:
    rng = stream(b.seed, "assorted", "layout")
    for sku in rng.choice(len(_NODES), _COUNT, replace=False).tolist():
        (node,) = b.nodes(f"any-{sku}", 1, _NODES[sku])
        gpus = node.whole
        width = int(rng.choice([w for w in (1, 2, 4, 8) if w <= len(gpus)]))
        for first in range(0, len(gpus), width):
            places = [(node, gpus[first : first + width])]
            _place(b, _KINDS[int(rng.integers(0, len(_KINDS)))], places)


def _place(b: Builder, kind: str, places: Places) -> None:
    node, gpus = places[0]
    metadata = slurm(node, ("run",), "python3 main.py")
    rng = stream(b.seed, node.node.node, "assorted", str(gpus[0]))
    if kind == "training":
        hours = (30.0, 200.0)
        b.jobs("any", places, _training(node, len(gpus)), metadata, kind="training", bottleneck="mixed", hours=hours)
    elif kind == "fine-tuning":
        b.jobs("any", places, _tuning(len(gpus)), metadata, kind="fine-tuning", bottleneck="mixed", hours=(3.0, 20.0))
    elif kind == "batch-inference":
        hours = ((3.0, 14.0), (8.0, 60.0), (40.0, 200.0))[int(rng.choice(3, p=[0.45, 0.35, 0.2]))]
        b.jobs(
            "any", places, _batch(node, len(gpus)), metadata, kind="batch-inference", bottleneck="mixed", hours=hours
        )
    elif kind == "online-inference":
        b.deployment("any", places, _service(node, len(gpus)), bottleneck="mixed")
    else:
        _person(b, kind, places, rng)


def _person(b: Builder, kind: str, places: Places, rng: np.random.Generator) -> None:
    """A notebook, or what somebody left behind."""
    node, gpus = places[0]
    since = b.start - rng.uniform(0, 4) * _DAY
    if kind == "interactive":
        model: Model = offline.small_cells(rng) if rng.random() < 0.5 else offline.heavy_cells(rng)
        if rng.random() < 0.5:
            model = _Still(inner=model, mem_share=rng.uniform(0.05, 0.7))
        truth = Truth((workload := notebook(rng, node.node.cluster, since)).workload_id, kind, "mixed")
    else:
        model = serving.held(rng)
        truth = Truth((workload := builder.leftover(rng, node.node.cluster, since)).workload_id, "idle", "idle")
    runs = b.runs(rng, since, b.end, restarts=0, pause=(0, 0))
    b.add(Placed(workload, model, {node.node.node: gpus}, runs, "process", truth))


def _training(node: SimNode, gpus: int) -> Draw:
    def drawn(rng: np.random.Generator, at: float) -> Model:
        sorts: list[Draw] = [
            training.draw, jobs.on_one_gpu, jobs.starved, jobs.small_kernels, partial(training.of_kind, kind="pcie"),
        ]  # fmt: skip
        if gpus > 1 and node.gpu.nvlink:
            sorts.append(jobs.between_gpus)
        pick = sorts[int(rng.integers(0, len(sorts)))]
        if rng.random() < 0.06:
            pick = _memory_bound
        return _varied(rng, pick(rng, at), gpus)  # type: ignore[arg-type]

    return drawn


def _memory_bound(rng: np.random.Generator, start: float) -> training.Training:
    """Embedding tables: little compute, most of a step spent reading and writing rows."""
    compute, memory = rng.uniform(0.05, 0.25), rng.uniform(0.65, 0.95)
    step = log_uniform(rng, 0.1, 8)
    return training.draw(rng, start, step_seconds=step, compute_level=compute, memory_level=memory)


def _tuning(gpus: int) -> Draw:
    def drawn(rng: np.random.Generator, at: float) -> Model:
        pick = training.input_bound if rng.random() < 0.25 else partial(training.of_kind, kind="tuning")
        return _varied(rng, pick(rng, at), gpus)

    return drawn


def _varied(rng: np.random.Generator, model: training.Training, gpus: int) -> training.Training:
    """Steps of any length, memory that an allocator took once or that still moves, checkpoints small and large."""
    still = rng.random() < 0.5
    model = model.but(
        step_seconds=model.step_seconds * log_uniform(rng, 0.2, 1.5),
        mem_share=rng.uniform(0.15, 0.95) if still else rng.uniform(0.15, 0.85),
        mem_growth=0.0 if still else model.mem_growth,
        checkpoint_interval_seconds=log_uniform(rng, 900, 14400),
        checkpoint_bytes=log_uniform(rng, 2e9, 3e11),
        checkpoint_seconds=log_uniform(rng, 4, 90),
        checkpoint_over_network=False,
    )
    return model.but(nvlink_exposed=0.0, nvlink_hidden=0.0) if gpus == 1 else model


def _batch(node: SimNode, gpus: int) -> Draw:
    def drawn(rng: np.random.Generator, at: float) -> Model:  # noqa: ARG001
        sort = int(rng.integers(0, 4))
        if sort == 0:
            made: Model = offline.generating(rng, gpus, node.gpu)
        elif sort == 1:
            made = online.encoding(rng).but(mem_share=rng.uniform(0.1, 0.95), mem_grows=False)
        elif sort == 2:
            made = offline.decoding_media(rng).but(duty=rng.uniform(0.2, 0.9))
        else:
            made = offline.offloaded(rng)
        # Results are mostly small; here and there a shard's output is written in one go.
        return offline.sharded(rng, made) if rng.random() < 0.2 else made

    return drawn


def _service(node: SimNode, gpus: int) -> Callable[[np.random.Generator, int], Model]:
    def drawn(rng: np.random.Generator, number: int) -> Model:  # noqa: ARG001 - one replica
        sort = int(rng.integers(0, 4))
        fits = serving.MODELS[0][0] * 2 <= 0.7 * gpus * node.gpu.sku.mem_bytes
        if sort == 0 or (sort == 3 and not fits):
            return online.lightly_loaded(rng, gpus, node.gpu)
        if sort == 1:
            return online.prefill_heavy(rng, gpus, node.gpu)
        if sort == 2:
            return serving.over_provisioned(rng, node.gpu)
        return serving.decode(rng, gpus, node.gpu)

    return drawn
