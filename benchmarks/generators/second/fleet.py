"""Who runs where: one fleet a seed, every kind and limit in it, with the truth about each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np
from skuwise.agent.inventory.identity.ids import series_id, workload_id
from skuwise.agent.inventory.processes.frameworks import framework_of
from skuwise.agent.model import Workload

from . import serving, training
from .activity import Activity
from .hardware import HOSTS, Host, Machine, machine
from .serving import Mix

Rng = np.random.Generator
HOUR = 3600
# Below 30 h of data nothing may be claimed of waste; an hour more, for its first and last are seen in part.
FLOOR_HOURS = 31


@dataclass(frozen=True, slots=True)
class Truth:
    """What a workload is. `bottleneck` None: it has no one answer and is not scored. `fabric_waste`: True where its
    node's fabric is silent and it is no training, False where idle-fabric must not be said, None where either is fair.
    """

    workload_id: str
    kind: str
    bottleneck: str | None
    fabric_waste: bool | None
    archetype: str
    light: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """A workload's activity on some GPUs of a node, from second `at` on; `since`: seconds it ran before the window."""

    workload: Workload
    activity: Activity
    gpus: tuple[int, ...]
    at: int
    since: float = 0.0


@dataclass(slots=True)
class Fleet:
    start: float
    seconds: int
    machines: list[Machine] = field(default_factory=list)
    placements: dict[str, list[Placement]] = field(default_factory=dict)
    truths: list[Truth] = field(default_factory=list)


_SILENT = ("main", "job", "task", "worker", "app", "proc", "exp")
_TRAIN = (
    ("torchrun --nnodes={n} --nproc-per-node=8 pretrain.py", "gpt-pretrain"),
    ("deepspeed train.py --deepspeed z3.json", "encoder-train"),
    ("python -m torch.distributed.run train_vit.py", "vit-train"),
)
_TUNE = (
    ("torchrun --nproc-per-node={g} sft.py", "sft-assistant"),
    ("accelerate launch lora_finetune.py", "lora-support"),
)
_SERVE = (
    ("python3 -m vllm.entrypoints.openai.api_server", "chat"),
    ("python3 -m sglang.launch_server", "rag"),
    ("text-generation-launcher", "complete"),
)
_BATCH = (("python batch_infer.py --input shards/", "score-corpus"), ("python embed_offline.py", "embed-docs"))
_NOTE = (("jupyter-lab --no-browser", "notebook"), ("python -m ipykernel_launcher -f k.json", "jupyter"))


class Builder:
    """Builds one fleet. Every choice comes from the seed and the archetype's own stream."""

    def __init__(self, seed: int, start: float, hours: int) -> None:
        self.seed, self.fleet = seed, Fleet(start, hours * HOUR)
        self._count = 0

    def rng(self, *parts: str) -> Rng:
        digest = sha256("/".join((str(self.seed), "second", *parts)).encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "big"))

    def node(self, kind: str) -> Machine:
        self._count += 1
        made = machine(f"{kind}-s{self.seed}-{self._count:03d}", HOSTS[kind], "second")
        self.fleet.machines.append(made)
        self.fleet.placements[made.name] = []
        return made

    def put(
        self,
        rng: Rng,
        machines: list[Machine],
        gpus: tuple[int, ...],
        activity: Activity,
        names: tuple[tuple[str, str], ...],
        truth: tuple[str, str | None, bool | None, str],
        *,
        at: int = 0,
        since: float = 0.0,
        slurm: bool = True,
        light: bool = False,
    ) -> None:
        self._count += 1
        silent = rng.random() < 0.5
        command, name = names[int(rng.integers(0, len(names)))]
        command = command.format(n=len(machines), g=len(gpus))
        if silent:
            command, name = "python main.py", _SILENT[int(rng.integers(0, len(_SILENT)))]
        number = f"{self.seed}{self._count:04d}"
        scheduler = "slurm" if slurm and rng.random() < 0.7 else "kubernetes"
        workload = Workload(
            workload_id("second", scheduler, number), series_id("second", "team", f"u{number}", name), name, scheduler,
            job_id=number if scheduler == "slurm" else None, namespace=None if scheduler == "slurm" else "ns",
            pod=None if scheduler == "slurm" else f"{name}-{number}", user=f"u{number}", account="team",
            framework=None if silent else framework_of(command.split()), command=command,
        )  # fmt: skip
        self.fleet.truths.append(Truth(workload.workload_id, truth[0], truth[1], truth[2], truth[3], light))
        for made in machines:
            self.fleet.placements[made.name].append(Placement(workload, activity, gpus, at, since))


def _all(host: Host) -> tuple[int, ...]:
    return tuple(range(host.gpus))


def build(seed: int, *, start: float, hours: int = 48) -> Fleet:
    """The fleet of a seed over `hours` hours from `start` (Unix seconds)."""
    b = Builder(seed, start, hours)
    seconds = b.fleet.seconds
    trainings(b, seconds)
    services(b, seconds, start)
    others(b, seconds, start)
    return b.fleet


def trainings(b: Builder, seconds: int) -> None:
    week = 86400.0

    def long(kind: str, count: int, name: str, bottleneck: str, make: Callable[[Rng, Host], Activity]) -> None:
        rng = b.rng(name, kind)
        machines = [b.node(kind) for _ in range(count)]
        b.put(rng, machines, _all(machines[0].host), make(rng, machines[0].host), _TRAIN,
              ("training", bottleneck, False, name), since=rng.uniform(1, 5) * week)  # fmt: skip

    rng = b.rng("draw")
    for kind in ("h100", "h200", "a100", "b200"):
        long(
            kind, int(rng.integers(2, 4)), "pretrain", "compute", lambda r, h: training.compute_bound(r, h, seconds, 2)
        )
    pick = ("h100", "h200", "a100")[int(rng.integers(0, 3))]
    long(pick, 1, "train-node", "compute", lambda r, h: training.compute_bound(r, h, seconds, 1))
    long("h100-eth", 2, "train-ethernet", "network", lambda r, h: training.network_bound(r, h, seconds))
    long(pick, 2, "train-congested", "network", lambda r, h: training.network_bound(r, h, seconds))
    long(
        ("h100", "a100", "h200")[int(rng.integers(0, 3))],
        1,
        "train-experts",
        "nvlink",
        lambda r, h: training.nvlink_bound(r, h, seconds),
    )
    long(
        ("l40s", "a100", "l4")[int(rng.integers(0, 3))],
        1,
        "train-offload",
        "pcie",
        lambda r, h: training.pcie_bound(r, h, seconds),
    )
    long(
        ("h100", "a100", "l40s")[int(rng.integers(0, 3))],
        1,
        "train-input",
        "host-input",
        lambda r, h: training.input_bound(r, h, seconds),
    )
    long(
        ("a100", "h100", "l40s")[int(rng.integers(0, 3))],
        1,
        "train-recommender",
        "hbm-bandwidth",
        lambda r, h: training.memory_bound(r, h, seconds),
    )
    long(
        ("l40s", "a100", "t4")[int(rng.integers(0, 3))],
        1,
        "train-small",
        "latency",
        lambda r, h: training.launch_bound(r, h, seconds),
    )
    long(
        ("l40s", "a100", "h100")[int(rng.integers(0, 3))],
        1,
        "train-hot",
        "throttled",
        lambda r, h: training.throttled(r, h, seconds),
    )
    long(
        ("h100", "a100", "h200")[int(rng.integers(0, 3))],
        1,
        "train-straggler",
        "straggler",
        lambda r, h: training.straggler(r, h, seconds),
    )
    # One GPU each, four jobs to a node, each of its own sort.
    for kind in ("a10g", "l40s"):
        made = b.node(kind)
        for slot, (name, bottleneck) in enumerate(
            (("single-compute", "compute"), ("single-input", "host-input"), ("single-small", "latency"))
        ):
            rng = b.rng(name, kind)
            make = {
                "compute": training.compute_bound,
                "host-input": training.input_bound,
                "latency": training.launch_bound,
            }[bottleneck]
            activity = (
                training.compute_bound(rng, made.host, seconds, 1)
                if bottleneck == "compute"
                else make(rng, made.host, seconds)
            )  # type: ignore[call-arg,operator]
            b.put(
                rng,
                [made],
                (2 * slot,),
                activity,
                _TRAIN,
                ("training", bottleneck, None, name),
                since=rng.uniform(1, 3) * week,
            )
    for kind in ("h100", "a100", "l40s"):
        made = b.node(kind)
        for slot in range(2):
            rng = b.rng("tune", kind, str(slot))
            lasts, at = int(rng.uniform(3, 18) * HOUR), int(rng.uniform(0, 20) * HOUR)
            gpus = tuple(range(4 * slot, 4 * slot + 4))
            starved = rng.random() < 0.2
            activity = (
                training.input_bound(rng, made.host, lasts)
                if starved
                else training.compute_bound(rng, made.host, lasts, 1, tuned=True)
            )
            b.put(
                rng,
                [made],
                gpus,
                activity,
                _TUNE,
                ("fine-tuning", "host-input" if starved else "compute", False, "tune"),
                at=at,
            )


def services(b: Builder, seconds: int, start: float) -> None:
    def serve(
        kind: str,
        gpus: tuple[int, ...],
        name: str,
        mix: Mix,
        *,
        waste: bool | None,
        least: float = 0.0,
        change: Callable[[Rng, Activity], Activity] = lambda _, a: a,
        made: Machine | None = None,
        light: bool = False,
    ) -> Machine:
        made = made or b.node(kind)
        rng = b.rng(name, kind, str(gpus[0]), made.name)
        model = serving.fitting(rng, made.host, len(gpus), least=least)
        activity, bottleneck = serving.replica(rng, made.host, len(gpus), seconds, start, mix, model)
        b.put(rng, [made], gpus, change(rng, activity), _SERVE, ("online-inference", bottleneck, waste, name),
              since=rng.uniform(2, 40) * 86400, slurm=False, light=light)  # fmt: skip
        return made

    rng = b.rng("services")
    u = rng.uniform
    eight = tuple(range(8))
    for kind in ("h100", "h200", "a100", "b200"):
        serve(kind, eight, "decode", Mix(u(300, 2500), u(250, 900), u(0.3, 0.75)), waste=True, least=0.08)
    for kind in ("l40s", "l4", "a10g"):
        made = serve(kind, (0, 1), "decode-small", Mix(u(200, 1000), u(250, 600), u(0.3, 0.7)), waste=None, least=0.25)
        serve(
            kind, (2, 3), "decode-small", Mix(u(200, 1000), u(250, 600), u(0.3, 0.7)), waste=None, least=0.25, made=made
        )
        serve(
            kind,
            (4,),
            "light",
            Mix(u(200, 1500), u(50, 300), u(0.01, 0.04)),
            waste=None,
            least=0.25,
            made=made,
            light=True,
        )
    for kind in ("h100", "a100"):
        serve(kind, eight, "prefill", Mix(u(6000, 24000), u(8, 40), u(0.45, 0.75)), waste=True, least=0.04)
        made = serve(
            kind, (0, 1, 2, 3), "light", Mix(u(300, 2000), u(80, 400), u(0.01, 0.05)), waste=True, least=0.1, light=True
        )
        serve(
            kind,
            (4, 5),
            "light",
            Mix(u(300, 2000), u(80, 400), u(0.01, 0.05)),
            waste=True,
            least=0.1,
            made=made,
            light=True,
        )
    for kind in ("h200", "b200"):
        rate = u(0.05, 0.35)
        for _ in range(2):
            serve(kind, eight, "experts", Mix(u(500, 2500), u(250, 900), u(0.35, 0.75)), waste=False, least=0.08,
                  change=lambda r, a, rate=rate: serving.experts(r, a, rate))  # fmt: skip
    serve("h100", eight, "split-prefill", Mix(u(5000, 16000), u(6, 20), u(0.45, 0.7)), waste=False, least=0.08,
          change=lambda r, a: serving.transfer(r, a, r.uniform(0.04, 0.2), out=True))  # fmt: skip
    serve("h200", eight, "split-decode", Mix(20, u(300, 900), u(0.35, 0.75)), waste=False, least=0.08,
          change=lambda r, a: serving.transfer(r, a, r.uniform(0.04, 0.2), out=False))  # fmt: skip
    for kind in ("h100", "a100"):
        serve(kind, eight, "rdma-storage", Mix(u(300, 2000), u(250, 800), u(0.35, 0.75)), waste=False, least=0.08,
              change=serving.storage_traffic)  # fmt: skip


def others(b: Builder, seconds: int, start: float) -> None:
    for kind, prefill in (("h100", False), ("a100", True), ("l40s", False), ("l4", True)):
        made, rng = b.node(kind), b.rng("offline", kind)
        lasts = int(rng.uniform(8, 30) * HOUR)
        gpus = tuple(range(int(rng.choice([1, 2, 4, 8]))))
        b.put(
            rng,
            [made],
            gpus,
            serving.offline(rng, made.host, len(gpus), lasts, prefill=prefill),
            _BATCH,
            (
                "batch-inference",
                "compute" if prefill else "hbm-bandwidth",
                True if made.host.nics > 1 and lasts >= FLOOR_HOURS * HOUR else None,
                "offline",
            ),
            at=int(rng.uniform(0, 12) * HOUR),
        )
    for kind in ("a100", "t4", "l40s"):
        made, rng = b.node(kind), b.rng("notebook", kind)
        for slot in range(2):
            b.put(rng, [made], (slot,), serving.notebook(rng, made.host, seconds, start), _NOTE,
                  ("interactive", None, None, "notebook"), since=rng.uniform(0, 5) * 86400, slurm=False)  # fmt: skip
    for kind in ("h100", "a100"):
        made, rng = b.node(kind), b.rng("standby", kind)
        b.put(rng, [made], _all(made.host), serving.standby(rng, made.host, seconds), _SERVE,
              ("idle", "idle", False, "standby"), since=rng.uniform(2, 20) * 86400, slurm=False)  # fmt: skip
        rng = b.rng("held", kind)
        made = b.node(kind)
        b.put(
            rng,
            [made],
            (0, 1),
            training.idle_process(rng, made.host, seconds),
            (("python3", "python3"),),
            ("idle", "idle", None, "held"),
        )
