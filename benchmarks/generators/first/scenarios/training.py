"""Which training runs where: on one GPU, starved, between nodes and GPUs, in small kernels, late, in phases."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from skuwise.advisor.demo import training
from skuwise.advisor.demo.builder import Placed
from skuwise.advisor.demo.hardware import Model, SimNode
from skuwise.advisor.demo.seeded_rng import stream
from skuwise.rules.policy.labels import BottleneckLabel, KindLabel

from .. import skus
from ..builder import Builder, Places, Told, Truth, kubernetes, slurm
from ..loads import jobs, offline
from ..nodes import Sensing

_DAY = 86400.0
_DAYS: tuple[float, float] = (32.0, 150.0)  # hours of a training job
_SMALL = ("train-unet", "gnn-v2", "yolo-train", "tabular-net", "asr-small", "reward-1b", "detector", "segmenter")
_LARGE = ("pretrain-7b", "pretrain-1b", "moe-stage-2", "vit-huge", "video-encoder", "retrieval-encoder", "world-model")
_EXAMPLES = ("exp-lr", "ablation", "baseline")


def single_gpu(b: Builder) -> None:
    read: tuple[tuple[str, Sensing | None], ...] = (
        (skus.A10G_1, None),
        (skus.T4_1, "dcgm-default"),
        (skus.L4_4, "dcgm"),
        (skus.A100_PCIE, None),
        (skus.A10G_1, "nvml"),
    )
    for sku, sensing in read:
        (node,) = b.nodes(skus.PREFIXES[sku], 1, sku, sensing=sensing)
        metadata = slurm(node, (*_SMALL, *_EXAMPLES), "python3 train.py --epochs 40")
        for gpu in node.whole:
            _train(b, "single", [(node, (gpu,))], jobs.on_one_gpu, metadata, "compute")


def input_bound(b: Builder) -> None:
    _over(b, "starved", skus.H100_ETHERNET, jobs.starved, "host-input", ("fix-first",))
    (node,) = b.nodes("gpu-a10g-x4", 1, skus.A10G_4, sensing="dcgm")
    metadata = kubernetes(node, _SMALL, "torchrun --nproc-per-node=4 train.py")
    _train(b, "starved", [(node, node.whole)], jobs.starved, metadata, "host-input", ("fix-first",))


def ethernet(b: Builder) -> None:
    nodes = b.nodes("gpu-a10g-x4", 2, skus.A10G_4)
    # A ring's hop carries what the node's NIC carries: 5 GB/s over a bus of 32 GB/s.
    share = nodes[0].ports[0].line_rate_bytes_per_second or 0.0
    over_pcie = 0.9 * share / nodes[0].gpu.sku.pcie_bytes_per_second
    drawn = partial(jobs.over_ethernet, over_pcie=over_pcie)
    _over(b, "ethernet", nodes, drawn, "network", ("under-tier",), hours=(14.0, 120.0))


def nvlink_bound(b: Builder) -> None:
    for sku in (skus.A100_ETHERNET, skus.B200_EFA):
        _over(b, "nvlink", sku, jobs.between_gpus, "nvlink", script="pretrain_gpt.py")


def launch_bound(b: Builder) -> None:
    for sku in (skus.A10G_1, skus.T4_4):
        (node,) = b.nodes(skus.PREFIXES[sku], 1, sku)
        metadata = slurm(node, (*_SMALL, *_EXAMPLES), "python3 train.py")
        for gpu in node.whole:
            _train(b, "launches", [(node, (gpu,))], jobs.small_kernels, metadata, "latency", ("fix-first",))


def straggler(b: Builder) -> None:
    for nodes in (b.nodes("gpu-h100-ib", 2, skus.H100_IB), b.nodes("gpu-a100", 1, skus.A100_ETHERNET)):
        _straggle(b, nodes, slurm(nodes[0], (*_LARGE, *_EXAMPLES), _torchrun(nodes)), fabric=len(nodes) > 1)


def throttled(b: Builder) -> None:
    def drawn(rng: np.random.Generator, at: float) -> Model:
        exposed = rng.uniform(0.02, 0.05)
        return jobs.throttled(rng, training.draw(rng, at, exposed_share=exposed))

    for sku in (skus.H100_ETHERNET, skus.A100_ETHERNET):
        _over(b, "throttled", sku, drawn, "throttled", ("fix-first",))


def rdma_storage(b: Builder) -> None:
    def drawn(rng: np.random.Generator, at: float) -> Model:
        return jobs.rdma_storage(rng, training.draw(rng, at, checkpoint_over_network=False))

    _over(b, "rdma", b.nodes("gpu-h100-ib", 1, skus.H100_IB), drawn, "compute")


def telemetry_fault(b: Builder) -> None:
    """The counters die with an XID soon after a job begins, and stay so."""

    def drawn(rng: np.random.Generator, at: float) -> Model:
        dies = max(at, b.start) + rng.uniform(0.3, 3) * 3600
        return jobs.Blinded(inner=training.draw(rng, at), since=dies)

    for sku in (skus.A100_ETHERNET, skus.L4_4):
        _over(b, "blind", sku, drawn, "unknown", ("telemetry-fault",), names=_LARGE)


def checkpoints(b: Builder) -> None:
    nodes = b.nodes("gpu-a100-ib", 2, skus.A100_IB)
    _over(b, "checkpoints", nodes, jobs.with_heavy_checkpoints, "compute", hours=(20.0, 150.0))


def evaluating(b: Builder) -> None:
    """Training that stops for half an hour or more, some times a day, to generate from what it has learnt."""
    (node,) = b.nodes("gpu-a100", 1, skus.A100_ETHERNET)
    metadata = slurm(node, (*_LARGE, *_EXAMPLES), "torchrun --nproc-per-node=8 train.py --eval-interval 2000")

    def drawn(rng: np.random.Generator, at: float) -> jobs.Alternating:
        cycle = rng.uniform(5, 10) * 3600
        taken = rng.uniform(0.08, 0.16) * cycle
        usual = training.draw(rng, at)
        asked = offline.generating(rng, 8, node.gpu)
        # Within the job the model is there already, and so is its memory.
        asked = asked.but(load_seconds=1.0, mem_share=usual.mem_share + usual.mem_growth)
        return jobs.Alternating(
            usual=usual, other=asked, cycle_seconds=cycle, offset_seconds=rng.uniform(0, cycle), other_seconds=taken
        )

    _change(b, "evaluating", node, drawn, metadata, other=("batch-inference", "hbm-bandwidth"))


def day_and_night(b: Builder) -> None:
    """One long-lived container that trains for most of the day and serves at night."""
    (node,) = b.nodes("gpu-h100", 1, skus.H100_ETHERNET)

    def drawn(rng: np.random.Generator, at: float) -> jobs.Alternating:
        serves = offline.generating(rng, 8, node.gpu)
        serves = serves.but(
            burstiness=rng.uniform(0.15, 0.35),
            night_share=0.3,
            peak_hour_utc=rng.uniform(0, 4),
            load_seconds=1.0,
        )
        hours = rng.uniform(7, 9.5)
        return jobs.Alternating(
            usual=training.draw(rng, at),
            other=serves,
            cycle_seconds=_DAY,
            offset_seconds=rng.uniform(19, 23) * 3600,  # after midnight UTC of the first day of 1970
            other_seconds=hours * 3600,
        )

    metadata = kubernetes(node, ("lab", "shared-node", "research"), "python3 /opt/run.py")
    _change(b, "turns", node, drawn, metadata, other=("online-inference", "hbm-bandwidth"))


Draw = Callable[[np.random.Generator, float], Model]


def _torchrun(nodes: Sequence[SimNode], script: str = "train.py") -> str:
    several = f"--nnodes={len(nodes)} " if len(nodes) > 1 else ""
    return f"torchrun {several}--nproc-per-node={len(nodes[0].gpus)} {script}"


def _over(
    b: Builder,
    what: str,
    where: str | Sequence[SimNode],
    drawn: Draw,
    bottleneck: BottleneckLabel,
    waste: tuple[str, ...] = (),
    *,
    script: str = "train.py",
    names: tuple[str, ...] = (*_LARGE, *_EXAMPLES),
    hours: tuple[float, float] = _DAYS,
) -> None:
    """Training on whole nodes of Slurm. `where`: the nodes, or the SKU of one."""
    nodes = b.nodes(skus.PREFIXES[where], 1, where) if isinstance(where, str) else where
    metadata = slurm(nodes[0], names, _torchrun(nodes, script))
    _train(b, what, [(n, n.whole) for n in nodes], drawn, metadata, bottleneck, waste, hours=hours)


def _train(
    b: Builder,
    what: str,
    places: Places,
    drawn: Draw,
    metadata: Told,
    bottleneck: BottleneckLabel,
    waste: tuple[str, ...] = (),
    *,
    hours: tuple[float, float] = _DAYS,
) -> None:
    b.jobs(what, places, drawn, metadata, kind="training", bottleneck=bottleneck, hours=hours, waste=waste, restarts=1)


def _change(
    b: Builder,
    what: str,
    node: SimNode,
    drawn: Callable[[np.random.Generator, float], jobs.Alternating],
    metadata: Told,
    *,
    other: tuple[KindLabel, BottleneckLabel],
) -> None:
    """One job over the whole window on all of a node that trains, bound by compute, and in its phases is `other`."""
    rng = stream(b.seed, node.node.node, what)
    begin = b.start - rng.uniform(0.1, 2) * _DAY
    model, workload = drawn(rng, begin), metadata(rng)
    runs = b.runs(rng, begin, b.end, restarts=0, pause=(0, 0))
    seen = [(max(start, b.start), stop) for start, stop in runs]
    spans = model.phases(seen, ("training", "compute"), other)
    truth = Truth(workload.workload_id, "training", "compute", (), spans)
    b.add(Placed(workload, model, {node.node.node: node.whole}, runs, "allocation", truth))


def _straggle(b: Builder, nodes: list[SimNode], metadata: Told, *, fabric: bool) -> None:
    """One job on all of `nodes` for most of the window, with one GPU of the last node late."""
    rng = stream(b.seed, nodes[0].node.node, "straggler")
    begin = b.start - rng.uniform(0.1, 2) * _DAY
    model, workload = jobs.waiting_for_one(rng, begin, fabric=fabric), metadata(rng)
    slow = int(rng.integers(0, len(nodes[-1].gpus)))
    cause = ("clock", "silent", "host")[int(rng.integers(0, 3))]
    late = jobs.Straggling(waiting=model, slow=slow, cause=cause)
    truth = Truth(workload.workload_id, "training", "straggler", ("fix-first",), suspect=nodes[-1].gpus[slow].uuid)
    runs = b.runs(rng, begin, b.end, restarts=1, pause=(300, 1500))
    if nodes[:-1]:
        b.add(Placed(workload, model, {n.node.node: n.whole for n in nodes[:-1]}, runs, "allocation", truth))
    b.add(Placed(workload, late, {nodes[-1].node.node: nodes[-1].whole}, runs, "allocation", truth))
