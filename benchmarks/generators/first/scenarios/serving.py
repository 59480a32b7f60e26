"""Which services, batch jobs and people use which nodes."""

from typing import Any

import numpy as np
from skuwise.advisor.demo import builder, serving, training
from skuwise.advisor.demo.builder import Placed
from skuwise.advisor.demo.hardware import Model, SimNode
from skuwise.advisor.demo.seeded_rng import salt, stream

from .. import skus
from ..builder import Builder, Places, Truth, kubernetes, notebook, silent_fabric, slurm
from ..loads import jobs, offline, online
from ..nodes import Sliced, slice_of

_DAY = 86400.0
_DOCUMENTS = ("extract", "classify-tickets", "rerank", "moderation", "doc-qa", "embed-api")
_BATCH = ("embed-corpus", "score-all", "label-images", "transcribe", "nightly", "backfill", "export")


def prefill_heavy(b: Builder) -> None:
    (node,) = b.nodes("gpu-l40s-x4", 1, skus.L40S_4)

    def drawn(rng: np.random.Generator, number: int) -> Model:
        # One GPU each: over PCIe the all-reduces of long prompts would rule.
        return _own(online.prefill_heavy(rng, 1, node.gpu), number)

    for gpu in node.whole:
        b.deployment(
            "prefill", [(node, (gpu,))], drawn, bottleneck="compute", waste=silent_fabric(node), names=_DOCUMENTS
        )


def lightly_loaded(b: Builder) -> None:
    (node,) = b.nodes("gpu-l4-x4", 1, skus.L4_4, sensing="dcgm")
    for gpu in node.whole:
        _light(b, [(node, (gpu,))])
    (node,) = b.nodes("gpu-h100", 1, skus.H100_ETHERNET)
    _light(b, [(node, (0, 1, 2, 3)), (node, (4, 5, 6, 7))])
    (node,) = b.nodes("gpu-a10g", 1, skus.A10G_1)
    _light(b, [(node, (0,))])


def standby(b: Builder) -> None:
    """Warm replicas: on L4 they are unused, on the fabric the group takes over for a drill every few days."""
    (node,) = b.nodes("gpu-l4", 1, skus.L4_1)

    def waits(rng: np.random.Generator, number: int) -> Model:
        usual = online.lightly_loaded(rng, 1, node.gpu).inner
        return _own(online.standby(rng, usual, load_seconds=usual.load_seconds, drills=False), number)

    b.deployment("standby", [(node, (0,))], waits, kind="idle", bottleneck="idle", restarts=0)
    nodes = b.nodes("gpu-h200-ib", 2, skus.H200_IB)

    def drills(rng: np.random.Generator, number: int) -> Model:  # noqa: ARG001 - the group acts as one
        usual = _experts(rng, nodes)
        return online.standby(rng, usual, load_seconds=usual.load_seconds, drills=True)

    b.deployment("standby", [(n, n.whole) for n in nodes], drills, kind="idle", bottleneck="idle", restarts=0)


def mixture_of_experts(b: Builder) -> None:
    for prefix, sku in (("gpu-h200-ib", skus.H200_IB), ("gpu-b200", skus.B200_EFA)):
        nodes = b.nodes(prefix, 2, sku)

        def drawn(rng: np.random.Generator, number: int, nodes: list[SimNode] = nodes) -> Model:
            return _own(_experts(rng, nodes), number)

        b.deployment("experts", [(n, n.whole) for n in nodes], drawn, bottleneck="hbm-bandwidth")


def disaggregated(b: Builder) -> None:
    """Prefill on one node, decode on the other; the cache of each prompt crosses the fabric."""
    nodes = b.nodes("gpu-h100-ib", 2, skus.H100_IB)
    line = _line_rate(nodes[0])

    def first(rng: np.random.Generator, number: int) -> Model:
        return _own(online.prefill_heavy(rng, 4, nodes[0].gpu, sends_line_rate=line), number)

    def then(rng: np.random.Generator, number: int) -> Model:
        decoding = serving.decode(rng, 4, nodes[1].gpu)
        decoding = decoding.but(prefill_share=0.0)
        cache = 2 * decoding.layers * decoding.kv_width * 2 * decoding.context_tokens / 4  # bytes a request and GPU
        arrivals = decoding.peak_in_flight / rng.uniform(6, 20)  # requests a second: each stays for so long
        return _own(online.Receiving(inner=decoding, seed=salt(rng), share=float(cache * arrivals / line)), number)

    halves = ((0, 1, 2, 3), (4, 5, 6, 7))
    b.deployment("prefill", [(nodes[0], half) for half in halves], first, bottleneck="compute", names=("llm-p", "chat"))
    b.deployment(
        "decode", [(nodes[1], half) for half in halves], then, bottleneck="hbm-bandwidth", names=("llm-d", "chat")
    )


def cache_over_rdma(b: Builder) -> None:
    """A service that keeps the caches of past conversations on storage behind the compute ports."""
    (node,) = b.nodes("gpu-a100-ib", 1, skus.A100_IB)

    def drawn(rng: np.random.Generator, number: int) -> Model:
        return _own(jobs.rdma_storage(rng, serving.decode(rng, 8, node.gpu)), number)

    b.deployment("cache", [(node, node.whole)], drawn, bottleneck="hbm-bandwidth")


def batch_inference(b: Builder) -> None:
    (node,) = b.nodes("gpu-h100", 1, skus.H100_ETHERNET)
    metadata = kubernetes(node, _BATCH, "python3 -m vllm.entrypoints.openai.run_batch -i in.jsonl")

    def generates(rng: np.random.Generator, at: float) -> Model:  # noqa: ARG001
        return offline.sharded(rng, offline.generating(rng, 4, node.gpu))

    queue: dict[str, Any] = {"kind": "batch-inference", "bottleneck": "hbm-bandwidth", "hours": (4, 60)}
    for half in ((0, 1, 2, 3), (4, 5, 6, 7)):
        b.jobs("batch", [(node, half)], generates, metadata, **queue)
    (node,) = b.nodes("gpu-a10g-x4", 1, skus.A10G_4)
    metadata = slurm(node, _BATCH, "python3 embed.py --input corpus")
    for gpu, bottleneck in enumerate(("compute", "compute", "host-input", "host-input")):

        def works(rng: np.random.Generator, at: float, bottleneck: str = bottleneck) -> Model:  # noqa: ARG001
            if bottleneck == "compute":
                return offline.sharded(rng, online.encoding(rng))
            return offline.decoding_media(rng)

        b.jobs(
            "batch", [(node, (gpu,))], works, metadata, kind="batch-inference", bottleneck=bottleneck, hours=(3, 40),
            waste=(*silent_fabric(node), *(("fix-first",) if bottleneck == "host-input" else ())),
        )  # fmt: skip


def pcie_bound(b: Builder) -> None:
    """Training with its optimizer on the host, and models larger than the GPU read over the bus for every step."""
    (node,) = b.nodes("gpu-l4-x4", 1, skus.L4_4)
    metadata = slurm(node, _BATCH, "python3 generate.py --offload")
    for gpu in node.whole:
        b.jobs(
            "offload", [(node, (gpu,))], lambda rng, _: offline.offloaded(rng), metadata, kind="batch-inference",
            bottleneck="pcie", hours=(6, 70), waste=silent_fabric(node),
        )  # fmt: skip


def interactive(b: Builder) -> None:
    for prefix, sku in (("gpu-a100-pcie", skus.A100_PCIE), ("gpu-t4-x4", skus.T4_4), ("gpu-a10g", skus.A10G_1)):
        (node,) = b.nodes(prefix, 1, sku)
        for gpu in node.whole:
            _notebook(b, node, gpu)


def sliced(b: Builder) -> None:
    """A GPU cut into instances: notebooks and small services on each, one of them with work for days."""
    nodes = b.nodes("gpu-a100-mig", 2, skus.A100_PCIE, instances=(2, 2, 1, 1, 1))
    for number, node in enumerate(nodes):
        at = len(node.gpus) - 5
        for index in (at + 2, at + 3):
            _notebook(b, node, index, slices_of_gpu=1)
        for index in (at, at + 1):

            def serves(rng: np.random.Generator, number: int, node: SimNode = node) -> Model:
                part = slice_of(node.gpu, 2)
                return Sliced(inner=_own(online.lightly_loaded(rng, 1, part), number), slices=2)

            b.deployment("slice", [(node, (index,))], serves, bottleneck="hbm-bandwidth")
        if number == 0:
            metadata = slurm(node, ("train-small", "gnn-v2"), "python3 train.py")
            b.jobs(
                "slice", [(node, (at + 4,))], lambda rng, s: Sliced(inner=jobs.on_one_gpu(rng, s), slices=1), metadata,
                kind="training", bottleneck="compute", hours=(32, 120),
            )  # fmt: skip


def turns(b: Builder) -> None:
    """Two nodes that train together by day and serve, each for itself, at night."""
    nodes = b.nodes("gpu-h100-ib", 2, skus.H100_IB)
    rng = stream(b.seed, nodes[0].node.node, "turns")
    morning, evening = rng.uniform(6.5, 8.5), rng.uniform(18.5, 20.5)
    day = np.floor(b.start / _DAY) * _DAY
    metadata = slurm(nodes[0], ("pretrain-daily", "continue-7b"), "torchrun --nnodes=2 --nproc-per-node=8 train.py")
    nights: list[tuple[float, float]] = []
    while day < b.end:
        begin, stop = round(day + morning * 3600), round(day + evening * 3600)
        nights.append((round(day + evening * 3600 + 300), round(day + (24 + morning) * 3600 - 300)))
        if min(stop, b.end) - max(begin, b.start) > 2 * 3600:
            workload = metadata(rng)
            truth = Truth(workload.workload_id, "training", "compute")
            runs = ((float(begin), float(min(stop, b.end))),)
            model = training.compute_bound(rng, begin)
            b.add(Placed(workload, model, {n.node.node: n.whole for n in nodes}, runs, "allocation", truth))
        day += _DAY
    seen = [(float(a), float(min(z, b.end))) for a, z in nights if a < b.end - 3600 and z > b.start + 3600]
    name, namespace, silent = builder.deployment_name(rng)
    drawn = serving.decode(rng, 8, nodes[0].gpu)
    # The night's traffic is another continent's day.
    drawn = drawn.but(peak_hour_utc=rng.uniform(0, 4), night_share=rng.uniform(0.2, 0.4))
    for number, node in enumerate(nodes, start=1):
        pod = builder.pod(rng, node.node.cluster, namespace, name, replica=number, silent=silent)
        truth = Truth(pod.workload_id, "online-inference", "hbm-bandwidth")
        b.add(Placed(pod, drawn.replica(number), {node.node.node: node.whole}, tuple(seen), "allocation", truth))


def _light(b: Builder, places: Places) -> None:
    node, gpus = places[0]

    def drawn(rng: np.random.Generator, number: int) -> Model:
        return _own(online.lightly_loaded(rng, len(gpus), node.gpu), number)

    b.deployment("light", places, drawn, bottleneck="hbm-bandwidth", waste=silent_fabric(node))


def _notebook(b: Builder, node: SimNode, index: int, *, slices_of_gpu: int | None = None) -> None:
    rng = stream(b.seed, node.node.node, "notebook", str(index))
    since = b.start - rng.uniform(-0.2, 4) * min(_DAY, b.end - b.start)
    small = rng.random() < 0.7
    model: Model = offline.small_cells(rng) if small else offline.heavy_cells(rng)
    if slices_of_gpu:
        model = Sliced(inner=model, slices=slices_of_gpu)
    workload = notebook(rng, node.node.cluster, since)
    truth = Truth(workload.workload_id, "interactive", "latency" if small else "compute")
    runs = b.runs(rng, since, b.end, restarts=0, pause=(0, 0))
    b.add(Placed(workload, model, {node.node.node: (index,)}, runs, "process", truth))


def _experts(rng: np.random.Generator, nodes: list[SimNode]) -> online.Experts:
    gpus = sum(node.sku.gpu_count for node in nodes)
    return online.experts(rng, gpu=nodes[0].gpu, gpus=gpus, nodes=len(nodes), line_rate=_line_rate(nodes[0]))


def _own(model: Model, number: int) -> Model:
    """The model of one replica: drawn alike for all, with separate noise."""
    replica_model = model.but(seed=model.seed + 1000 * number)
    return (
        replica_model.but(inner=_own(replica_model.inner, number)) if hasattr(replica_model, "inner") else replica_model
    )


def _line_rate(node: SimNode) -> float:
    """The compute ports' line rate for each GPU, bytes per second."""
    return sum(node.ports[i].line_rate_bytes_per_second or 0.0 for i in node.compute_ports) / node.sku.gpu_count
