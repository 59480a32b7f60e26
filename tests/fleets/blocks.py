"""Small parts of fleets: a few nodes with what runs on them. Tests put them together with `compose`.

Images and owners are those that people use: vllm/vllm-openai behind a Deployment, a PyTorchJob of NGC's pytorch, a
Kubeflow notebook, a Job of a fine-tuning image; profiles and instance ids are those that nvidia-smi gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from . import hardware as hw
from .description import Fleet, Hold, Node, Observed, Slice, Workload
from .hardware import GpuModel, Machine

VLLM, SGLANG = "vllm/vllm-openai:v0.6.3", "lmsysorg/sglang:v0.3.5-cu124"
TRITON, PYTORCH = "nvcr.io/nvidia/tritonserver:24.08-py3", "nvcr.io/nvidia/pytorch:24.08-py3"
JUPYTER, AXOLOTL = "kubeflownotebookswg/jupyter-pytorch-cuda-full:v1.9.0", "winglian/axolotl:main-latest"
_INSTANCE_IDS = {7: (0,), 3: (1, 2), 2: (3, 4, 5), 1: (7, 8, 9, 10, 11, 12, 13)}


@dataclass(frozen=True)
class Part:
    nodes: tuple[Node, ...]
    workloads: tuple[Workload, ...] = ()


def compose(name: str, *parts: Part, days: float = 4.0, interval_s: float = 120.0) -> Fleet:
    nodes = tuple(node for part in parts for node in part.nodes)
    return Fleet(name, nodes, tuple(one for part in parts for one in part.workloads), days, interval_s)


def gpus(node: Node, *indexes: int) -> tuple[Hold, ...]:
    """Some GPUs of a node, or all of them."""
    return tuple(Hold(node.name, index) for index in indexes or range(node.machine.gpus))


def layout(
    gpu: GpuModel, index: int, sevenths: str, begin_day: float = 0.0, end_day: float | None = None
) -> list[Slice]:
    """Instances of one GPU, from digits: "3211" is 3g, 2g, 1g, 1g."""
    profiles = {share: name for name, (share, _) in gpu.slices.items()}
    free = {share: iter(ids) for share, ids in _INSTANCE_IDS.items()}
    return [Slice(index, next(free[int(s)]), profiles[int(s)], begin_day, end_day) for s in sevenths]


def training(
    name: str, behavior: str, machine: Machine, nodes: int = 1, count: int | None = None,
    observed: Observed = Observed(), job: str = "", namespace: str = "research", owner: str = "PyTorchJob",
    begin_day: float = 0.0, end_day: float | None = None,
) -> Part:  # fmt: skip
    """One job on all (or the first `count`) GPUs of its nodes; `job` is its Slurm id, which takes it out of Kubernetes."""
    made = tuple(Node(f"{name}-{number:02d}", machine, observed) for number in range(1, nodes + 1))
    holds = tuple(hold for node in made for hold in gpus(node, *range(count or machine.gpus)))
    outside = job or not observed.kube
    work = Workload(
        f"{name}-job", behavior, holds, "" if outside else namespace, owner, PYTORCH, job, begin_day=begin_day,
        end_day=end_day,
    )  # fmt: skip
    return Part(made, (work,))


def serving(
    name: str, behavior: str, machine: Machine, replica_gpus: int = 1, replicas: int | None = None,
    observed: Observed = Observed(), image: str = VLLM, namespace: str = "serving",
) -> Part:  # fmt: skip
    """Replicas on one node: a Deployment each where a replica has several GPUs, else one Deployment of all."""
    node = Node(name, machine, observed)
    number = replicas or machine.gpus // replica_gpus
    space = namespace if observed.kube else ""
    if replica_gpus == 1:
        return Part((node,), (Workload(f"{name}-api", behavior, gpus(node, *range(number)), space, "Deployment", image,
                                       pod_per="hold"),))  # fmt: skip
    work = tuple(
        Workload(f"{name}-api-{n}", behavior, gpus(node, *range(n * replica_gpus, (n + 1) * replica_gpus)), space,
                 "Deployment", image)
        for n in range(number)
    )  # fmt: skip
    return Part((node,), work)


def founding(name: str, machine: Machine = hw.ND_H100, observed: Observed = Observed()) -> Part:
    """The founding case: decode in two replicas of four GPUs on an InfiniBand H100 node, its fabric silent."""
    return serving(name, "decode", machine, replica_gpus=4, observed=observed)


def idle(name: str, machine: Machine, observed: Observed = Observed()) -> Part:
    return Part((Node(name, machine, observed),))


def office(name: str, machine: Machine, observed: Observed = Observed()) -> Part:
    """A node of small things: notebooks, GPUs held and idle in three ways, a fine-tuning, work bound by launches and
    by its input; what is left is free."""
    node = Node(name, machine, observed)
    kinds = (("nb-ana", "interactive", "Notebook", JUPYTER), ("nb-ben", "interactive", "Notebook", JUPYTER),
             ("held-small", "held_idle", "Pod", PYTORCH), ("held-full", "held_full", "Deployment", VLLM),
             ("held-bare", "held_bare", "StatefulSet", PYTORCH), ("tune-lora", "finetune", "Job", AXOLOTL),
             ("launch-one", "train_launch", "Job", PYTORCH))  # fmt: skip
    space = "office" if observed.kube else ""
    work = tuple(
        Workload(f"{name}-{title}", behavior, gpus(node, number), space, owner, image,
                 begin_day=1.0 if behavior == "finetune" else 0.0, end_day=1.5 if behavior == "finetune" else None)
        for number, (title, behavior, owner, image) in enumerate(kinds[: machine.gpus])
    )  # fmt: skip
    return Part((node,), work)


def workshop(name: str, machine: Machine, observed: Observed = Observed()) -> Part:
    """Trainings of some GPUs each on one node: launches (4 GPUs), input (2), a nightly batch job (1); one is free."""
    node = Node(name, machine, observed)
    space = "research" if observed.kube else ""
    return Part((node,), (
        Workload(f"{name}-launch-four", "train_launch", gpus(node, 0, 1, 2, 3), space, "PyTorchJob", PYTORCH),
        Workload(f"{name}-input", "train_input", gpus(node, 4, 5), space, "Job", PYTORCH),
        Workload(f"{name}-nightly", "batch_compute", gpus(node, 6), space, "CronJob", PYTORCH, begin_day=0.9,
                 end_day=2.6),
    ))  # fmt: skip


def shared(name: str, machine: Machine = hw.G6, pods: int = 3, observed: Observed = Observed()) -> Part:
    """Time slicing: each GPU is given to several pods, and the exporter repeats its values for each."""
    node = Node(name, machine, observed)
    work = tuple(
        Workload(f"{name}-share-{letter}", "light", gpus(node), "serving", "Deployment", TRITON, pod_per="hold")
        for letter in "abcdef"[:pods]
    )  # fmt: skip
    return Part((node,), work)


def dark(name: str, machine: Machine = hw.P5) -> Part:
    """A node without any exporter: kube-state-metrics alone knows that pods hold its GPUs."""
    part = serving(name, "decode", machine, 4, 1, Observed(dcgm=False, node_exporter=False))
    node = part.nodes[0]
    train = Workload(f"{name}-train", "train_compute", gpus(node, 4, 5), "research", "PyTorchJob", PYTORCH)
    return Part(part.nodes, (*part.workloads, train))


_BUSY = (("api", "light", "Deployment", TRITON), ("llm", "decode", "Deployment", VLLM),
         ("embed", "batch_compute", "Job", PYTORCH), ("train", "train_compute", "Job", PYTORCH),
         ("rank", "light", "Deployment", TRITON), ("nb", "interactive", "Notebook", JUPYTER))  # fmt: skip


def instances(
    name: str, machine: Machine, layouts: Sequence[str], busy: int, held: int = 0,
    observed: Observed = Observed(), whole: str = "", job: int = 0, later: Sequence[tuple[int, str, float]] = (),
) -> Part:  # fmt: skip
    """A node with MIG: one text of digits for each GPU ("" is a whole one). The first `busy` instances work, the next
    `held` are held and idle for the whole time, the others are nobody's. `whole` is the behavior of whole GPUs
    together. `later`: (GPU, digits, day) divides a GPU anew. `job`: the first Slurm id, which takes the work out of
    Kubernetes."""
    changes = {gpu: day for gpu, _, day in later}
    slices = [s for gpu, digits in enumerate(layouts) for s in layout(machine.gpu, gpu, digits, 0.0, changes.get(gpu))]
    anew = [s for gpu, digits, day in later for s in layout(machine.gpu, gpu, digits, day)]
    node = Node(name, machine, observed, (*slices, *anew))
    work = list(_tenants(node, slices, anew, busy, held, job))
    if whole:
        mine = gpus(node, *(gpu for gpu, digits in enumerate(layouts) if not digits))
        space = "" if job else "serving"
        work.append(Workload(f"{name}-whole", whole, mine, space, "Deployment", SGLANG, str(job - 1) if job else ""))
    return Part((node,), tuple(work))


def _tenants(node: Node, slices: list[Slice], anew: list[Slice], busy: int, held: int, job: int) -> Iterator[Workload]:
    # One instance of each GPU after the other, so that busy, held and free ones lie beside each other.
    rank = {
        id(one): place
        for gpu in range(node.machine.gpus)
        for place, one in enumerate(s for s in slices if s.gpu == gpu)
    }
    turn = [*sorted(slices, key=lambda one: (rank[id(one)], one.gpu)), *anew]
    kinds = [*islice(cycle(_BUSY), busy), *[("held", "held_idle", "Deployment", VLLM)] * held]
    kinds += [("late", "light", "Deployment", TRITON)] * len(anew)
    places = [*turn[: busy + held], *anew]
    for number, (one, (title, behavior, owner, image)) in enumerate(zip(places, kinds, strict=True)):
        hold = (Hold(node.name, one.gpu, one.instance),)
        space, slurm = ("", str(job + number)) if job else ("shared", "")
        yield Workload(
            f"{node.name}-{title}-{number:02d}", behavior, hold, space, owner, image, slurm,
            begin_day=one.begin_day, end_day=one.end_day,
        )  # fmt: skip
