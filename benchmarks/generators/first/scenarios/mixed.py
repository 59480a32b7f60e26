"""One small fleet in which every kind of move pays: what is idle, misplaced, oversized, half empty, starved or hot."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from skuwise.advisor.demo import identities, training
from skuwise.advisor.demo.fleet_builder import Builder, Places, whole
from skuwise.advisor.demo.fleet_plan import Placed, Truth
from skuwise.advisor.demo.hardware import SimNode
from skuwise.advisor.demo.load import Model
from skuwise.advisor.demo.seeded_rng import stream
from skuwise.advisor.demo.skus import A100_ETHERNET, A100_IB, A100_PCIE, H100_ETHERNET, H100_IB, H200_IB, L40S_EFA
from skuwise.agent.model import Workload
from skuwise.rules.policy.labels import BottleneckLabel

from ..loads import light_serving as light
from ..loads import notebooks
from ..loads import training_variants as jobs
from .training import slurm

_DAY = 86400.0


def mixed(b: Builder) -> None:
    # Serving on a silent fabric, and training that starves without one, in the same region.
    b.service(b.nodes("mix-serve", 2, H100_IB))
    starved = b.nodes("mix-train", 2, H100_ETHERNET, tcp_port_counted=True)
    _job(b, "network", [(n, whole(n)) for n in starved], _waits_for_network, "network", ("under-tier",))
    # A small model over many GPUs; single GPUs each read by a model of its own; memory-bound decoding.
    b.service(b.nodes("mix-wide", 2, L40S_EFA), replicas_per_node=4, over_provisioned=True)
    b.service(b.nodes("mix-decode", 1, H200_IB))
    b.service(b.nodes("mix-single", 1, L40S_EFA), replicas_per_node=8)
    # GPUs that nobody holds, and GPUs that nobody uses.
    b.bare(b.nodes("mix-spare", 1, A100_IB))
    (left,) = b.nodes("mix-left", 1, H100_ETHERNET)
    b.held(left, whole(left))
    # Training that its loaders starve, and training at the power limit of its GPUs.
    (slow,) = b.nodes("mix-input", 1, H100_ETHERNET)
    _job(b, "input", [(slow, whole(slow))], jobs.starved, "host-input", ("fix-first",))
    (hot,) = b.nodes("mix-hot", 1, A100_ETHERNET)
    _job(b, "hot", [(hot, whole(hot))], _hot, "compute", ("energy",))
    # Two nodes that are half empty, a notebook on a node of its own, and notebooks that a slice would hold.
    for node in b.nodes("mix-half", 2, H100_ETHERNET):
        _light(b, node, (0, 1, 2, 3))
    (own,) = b.nodes("mix-desk", 1, A100_PCIE)
    _notebook(b, own, 0)
    (many,) = b.nodes("mix-desks", 1, A100_ETHERNET)
    for gpu in whole(many):
        _notebook(b, many, gpu)


def _job(
    b: Builder,
    what: str,
    places: Places,
    drawn: Callable[[np.random.Generator, float], Model],
    bottleneck: BottleneckLabel,
    waste: tuple[str, ...],
) -> None:
    """One training job that began before the window and goes on beyond it."""
    rng = stream(b.seed, places[0][0].node.node, what)
    begin = b.start - rng.uniform(0.5, 2) * _DAY
    model = drawn(rng, begin)
    command = f"torchrun --nnodes={len(places)} --nproc-per-node={len(places[0][1])} train.py"
    workload: Workload = slurm(places[0][0], ("pretrain-7b", "vit-huge", "video-encoder"), command)(rng)
    runs = b.runs(rng, begin, b.end, restarts=0, pause=(0, 0))
    truth = Truth(workload.workload_id, "training", bottleneck, waste)
    b.add(Placed(workload, model, {n.node.node: gpus for n, gpus in places}, runs, "allocation", truth))


def _waits_for_network(rng: np.random.Generator, start: float) -> Model:
    return training.network_bound(rng, start, nvlink_exposed=rng.uniform(0.005, 0.04))


def _hot(rng: np.random.Generator, start: float) -> Model:
    """Dense products that hide their communication: a GPU gives all the power it may draw."""
    return training.draw(
        rng,
        start,
        input_share=0.004,
        exposed_share=0.004,
        update_share=0.01,
        compute_level=rng.uniform(0.96, 0.99),
        memory_level=rng.uniform(0.5, 0.6),
        nvlink_hidden=rng.uniform(0.4, 0.6),
    )


def _light(b: Builder, node: SimNode, gpus: tuple[int, ...]) -> None:
    def drawn(rng: np.random.Generator, number: int) -> Model:  # noqa: ARG001 - one replica
        return light.lightly_loaded(rng, len(gpus), node.gpu)

    b.deployment("half", [(node, gpus)], drawn, bottleneck="hbm-bandwidth", restarts=0)


def _notebook(b: Builder, node: SimNode, gpu: int) -> None:
    rng = stream(b.seed, node.node.node, "desk", str(gpu))
    since = b.start - rng.uniform(1, 4) * _DAY
    # Tables, not models: kernels of microseconds that leave SMs and memory idle.
    model = dataclasses.replace(
        notebooks.small_cells(rng),
        mem_share=rng.uniform(0.05, 0.12),
        level=rng.uniform(0.005, 0.02),
        memory_level=rng.uniform(0.01, 0.03),
        sm=rng.uniform(0.06, 0.12),
    )
    workload = identities.notebook(rng, node.node.cluster, since)
    truth = Truth(workload.workload_id, "interactive", "latency", ("memory-unused",))
    runs = b.runs(rng, since, b.end, restarts=0, pause=(0, 0))
    b.add(Placed(workload, model, {node.node.node: (gpu,)}, runs, "process", truth))
