"""One piece of simulated work, told in three ways: with Kubernetes' labels, with Slurm's job ids, and with none.

    fleet = work_to_tell()
    for way in WAYS:
        found = series(told(fleet, way), np.random.default_rng(1))
    table = job_table(told(fleet, "slurm"))

What the GPUs do is the same to the last bit: the ways differ in labels and in kube-state-metrics alone.
"""

from __future__ import annotations

from dataclasses import replace

from . import hardware as hw
from .blocks import AXOLOTL, JUPYTER, PYTORCH, VLLM, gpus
from .description import Fleet, KubeState, Node, Observed, Workload

WAYS = ("kubernetes", "slurm", "none")
_OBSERVED = {
    "kubernetes": Observed(),
    "slurm": Observed(kube=False, pods="none", hpc_job=True),
    "none": Observed(kube=False, pods="none"),
}


def work_to_tell(days: float = 4.0, interval_s: float = 60.0) -> Fleet:
    """Six nodes: a training on two of them, a service whose fabric is silent, shorter jobs, notebooks, GPUs that are
    held and do nothing, and a node that nobody uses."""
    train = tuple(Node(f"gpu-{n:03d}", hw.ND_H100) for n in (1, 2))
    serve, mixed = Node("gpu-003", hw.ND_H100), Node("gpu-004", hw.ND_A100)
    desk, spare = Node("gpu-005", hw.P4DE), Node("gpu-006", hw.G2)
    both = tuple(hold for node in train for hold in gpus(node))

    def job(number: int, name: str, behavior: str, holds: tuple, owner: str, image: str, team: str, **more) -> Workload:
        return Workload(name, behavior, holds, team, owner, image, str(number), team=team, **more)

    work = (
        job(70001, "pretrain-base", "train_network", both, "PyTorchJob", PYTORCH, "language", begin_day=0.4,
            end_day=2.9),
        job(70002, "chat-api-a", "decode_together", gpus(serve, 0, 1, 2, 3), "Deployment", VLLM, "assistant"),
        job(70003, "chat-api-b", "decode_together", gpus(serve, 4, 5, 6, 7), "Deployment", VLLM, "assistant"),
        job(70004, "sft-support", "finetune", gpus(mixed, 0, 1, 2, 3), "Job", AXOLOTL, "assistant", begin_day=0.9,
            end_day=2.2),
        job(70005, "embed-corpus", "batch_compute", gpus(mixed, 4), "Job", PYTORCH, "search", begin_day=0.2,
            end_day=1.9),
        job(70007, "score-docs", "batch_decode", gpus(mixed, 5, 6), "Job", VLLM, "search", begin_day=2.1, end_day=3.6),
        job(70008, "ana-notebook", "interactive", gpus(desk, 0), "Notebook", JUPYTER, "language"),
        job(70009, "ben-notebook", "interactive", gpus(desk, 1), "Notebook", JUPYTER, "search"),
        job(70010, "demo-server", "held_full", gpus(desk, 2, 3), "Deployment", VLLM, "assistant"),
    )  # fmt: skip
    return Fleet("retold", (*train, serve, mixed, desk, spare), work, days, interval_s)


def told(fleet: Fleet, way: str) -> Fleet:
    """The same work as one of WAYS tells it."""
    nodes = tuple(replace(node, observed=_OBSERVED[way]) for node in fleet.nodes)
    keep = {
        "kubernetes": lambda one: replace(one, hpc_job=""),
        "slurm": lambda one: replace(one, namespace=""),
        "none": lambda one: replace(one, namespace="", hpc_job=""),
    }[way]
    state = KubeState(labels=True) if way == "kubernetes" else KubeState()
    return replace(fleet, nodes=nodes, workloads=tuple(map(keep, fleet.workloads)), kube=state)
