"""Kubernetes clusters at random: controllers of every kind, gangs on several nodes, rolling updates, scaled replicas,
pods made anew under their names, runs of CronJobs, shared GPUs; how kube-state-metrics runs is drawn, too.

    fleet = cluster(7)
    found = series(fleet, np.random.default_rng(7))
    known = pod_truths(fleet)

A GPU that passes from one pod to the next rests for some minutes, as where an image is pulled first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from . import hardware as hw
from .blocks import AXOLOTL, JUPYTER, PYTORCH, SGLANG, TRITON, VLLM
from .description import DAY, Fleet, Hold, KubeState, Node, Observed, Workload
from .names import generated
from .owners import GANGS

Rng = np.random.Generator
TEAMS = ("vision", "speech", "search", "ads", "robotics")
_FIRST = (
    "amber", "brisk", "cobalt", "dapper", "ember", "fable", "garnet", "hazel", "indigo", "jolly", "karma", "lunar",
    "mellow", "nimbus", "onyx", "pebble", "quartz", "russet", "sable", "topaz", "umber", "velvet", "willow", "zephyr",
)  # fmt: skip
_SECOND = (
    "otter", "falcon", "maple", "comet", "badger", "heron", "cedar", "lynx", "marten", "osprey", "poplar", "raven",
    "salmon", "tapir", "viper", "walrus",
)  # fmt: skip
_MACHINES = (hw.ND_H100, hw.DGX_A100, hw.P4DE, hw.XE9680, hw.SUPERMICRO_L40S)
_REST_DAYS = 240 / DAY
"""Between two pods on one GPU: pulled images, a drained queue."""


@dataclass
class Floor:
    """The nodes and when each GPU is taken."""

    nodes: tuple[Node, ...]
    days: float
    taken: dict[Hold, list[tuple[float, float]]] = field(default_factory=dict)

    def find(self, rng: Rng, begin: float, end: float, nodes: int, gpus: int) -> tuple[Hold, ...] | None:
        """`gpus` GPUs on each of `nodes` nodes that are free from `begin` to `end` (days), and takes them."""
        holds: list[Hold] = []
        for place in rng.permutation(len(self.nodes)):
            node = self.nodes[int(place)]
            free = [hold for gpu in range(node.machine.gpus) if self._free(hold := Hold(node.name, gpu), begin, end)]
            if len(free) >= gpus:
                holds += free[:gpus]
            if len(holds) == nodes * gpus:
                for hold in holds:
                    self.taken.setdefault(hold, []).append((begin, end))
                return tuple(holds)
        return None

    def _free(self, hold: Hold, begin: float, end: float) -> bool:
        return all(end + _REST_DAYS <= first or last + _REST_DAYS <= begin for first, last in self.taken.get(hold, ()))


class Draw:
    """Draws what stands in a cluster, a scene at a time."""

    def __init__(self, rng: Rng, floor: Floor) -> None:
        self.rng, self.floor, self.works = rng, floor, list[Workload]()
        names = [f"{a}-{b}" for a in _FIRST for b in _SECOND]
        self._names = iter([names[int(n)] for n in rng.permutation(len(names))])
        self._spaces = {team: f"team-{team}" if rng.random() < 0.5 else team for team in TEAMS}

    def name(self) -> str:
        """Names that people and tools give: some end like generated ones, some in digits, some are very long."""
        name, chance = next(self._names), self.rng.random()
        if chance < 0.12:
            return f"{name}-{generated(5, name)}"
        if chance < 0.24:
            return f"{name}-{self.rng.choice(['v2', '70b', '8x7b', '0', '2026'])}"
        if chance < 0.34:
            return f"{name}-{'-'.join(('distributed', 'inference', 'endpoint', 'production'))}"[:46]
        return name

    def owner(self) -> dict[str, str]:
        team = str(self.rng.choice(TEAMS))
        return {"namespace": self._spaces[team], "team": team}

    def span(self, least_h: float, most_h: float) -> tuple[float, float]:
        """A time of that length within the days, sometimes cut off by an end of them."""
        length = float(np.exp(self.rng.uniform(np.log(least_h), np.log(most_h)))) / 24
        begin = float(self.rng.uniform(-0.1 * length, max(self.floor.days - 0.7 * length, 0.01)))
        return max(begin, 0.0), min(begin + length, self.floor.days + 1)

    def put(self, begin: float, end: float, nodes: int, gpus: int, **more: object) -> Workload | None:
        """Some work on free GPUs; None where there are too few."""
        holds = self.floor.find(self.rng, begin, end, nodes, gpus)
        if holds is None:
            return None
        last = None if end >= self.floor.days else end
        work = Workload(holds=holds, begin_day=begin, end_day=last, **more)  # type: ignore[arg-type]
        self.works.append(work)
        return work


def gang(draw: Draw, owner: str | None = None, nodes: int | None = None) -> None:
    """One piece of work on two to eight nodes; of a LeaderWorkerSet some groups of it."""
    rng = draw.rng
    owner = owner or str(rng.choice(GANGS))
    count = nodes or int(rng.choice([2, 2, 3, 4, 4, 6, 8]))
    gpus = int(rng.choice([2, 4, 8, 8]))
    name, begin_end = draw.name(), draw.span(2, 14)
    if owner == "LeaderWorkerSet":
        own = draw.owner()
        begin, end = (0.0, draw.floor.days + 1) if rng.random() < 0.7 else begin_end
        for group in range(int(rng.integers(1, 4))):
            draw.put(begin, end, min(count, 3), gpus, name=f"{name}-{group}", called_by=name, behavior="decode",
                     owner=owner, image=SGLANG, group=group, **own)  # fmt: skip
        return
    behavior = str(rng.choice(["train_network", "train_compute", "train_nvlink"]))
    draw.put(*begin_end, count, gpus, name=name, behavior=behavior, owner=owner, image=PYTORCH, **draw.owner())


def twins(draw: Draw) -> None:
    """Two gangs of one user that start in the same minute, on as many nodes each."""
    rng = draw.rng
    owner, (begin, end), own = str(rng.choice(GANGS[:3])), draw.span(4, 20), draw.owner()
    count = int(rng.choice([2, 3]))
    for _ in range(2):
        draw.put(begin, end, count, 8, name=draw.name(), behavior="train_compute", owner=owner, image=PYTORCH, **own)


def service(draw: Draw) -> None:
    """Replicas, some of which come later or go earlier; rolling updates replace them one ReplicaSet by the next, old
    and new side by side for a while."""
    rng, days = draw.rng, draw.floor.days
    owner = str(rng.choice(["Deployment", "Deployment", "Deployment", "InferenceService", "KnativeService"]))
    name, own, gpus = draw.name(), draw.owner(), int(rng.choice([1, 1, 2, 4]))
    replicas = int(rng.integers(2, 7 if gpus == 1 else 4))
    updates = sorted(rng.uniform(0.1, 0.9, int(rng.integers(0, 3))) * days)
    image, behavior = (VLLM, "decode") if rng.random() < 0.6 else (TRITON, "light")
    common = {"called_by": name, "behavior": behavior, "owner": owner, "image": image, **own}
    edges = [0.0, *(float(one) for one in updates), days + 1]
    for revision in range(len(edges) - 1):
        begin, last = edges[revision], edges[revision + 1]
        for number in range(replicas):
            # A rolling update replaces one pod after the other; the new one is ready before the old one goes.
            wait = number * float(rng.uniform(60, 400)) / DAY if revision else 0.0
            over = (number + 1) * float(rng.uniform(90, 400)) / DAY
            draw.put(begin + wait, last + over, 1, gpus, name=f"{name}-r{revision}-{number}", revision=revision,
                     first=number, **common)  # fmt: skip
    if rng.random() < 0.5:
        begin, end = draw.span(2, 10)
        last_revision = sum(one <= begin for one in updates)
        for number in range(int(rng.integers(1, 4))):
            draw.put(begin, end, 1, gpus, name=f"{name}-more-{number}", revision=last_revision,
                     first=replicas + number, **common)  # fmt: skip


def anew(draw: Draw) -> None:
    """A StatefulSet whose pods are deleted and made anew under their names, on whatever GPU is free."""
    rng, days = draw.rng, draw.floor.days
    name, own = draw.name(), draw.owner()
    for number in range(int(rng.integers(1, 4))):
        edges = [0.0, *sorted(rng.uniform(0.1, 0.9, int(rng.integers(1, 4))) * days), days + 1]
        for revision in range(len(edges) - 1):
            begin = edges[revision] + (rng.uniform(120, 900) / DAY if revision else 0.0)
            draw.put(float(begin), float(edges[revision + 1]), 1, 1, name=f"{name}-{number}-{revision}", called_by=name,
                     first=number, revision=revision, behavior="batch_compute", owner="StatefulSet", image=PYTORCH,
                     **own)  # fmt: skip


def nightly(draw: Draw) -> None:
    """A CronJob's runs."""
    rng = draw.rng
    name, own, every = draw.name(), draw.owner(), float(rng.choice([6, 8, 12])) / 24
    begin, length = float(rng.uniform(0, every)), float(rng.uniform(1, 4)) / 24
    gpus = int(rng.choice([1, 2, 4]))
    run = 0
    while begin < draw.floor.days:
        draw.put(begin, begin + length * float(rng.uniform(0.8, 1.2)), 1, gpus, name=f"{name}-run{run}", called_by=name,
                 behavior="batch_decode", owner="CronJob", image=VLLM, **own)  # fmt: skip
        run, begin = run + 1, begin + every


def small(draw: Draw) -> None:
    """A notebook, a bare pod or a Job of one node."""
    rng = draw.rng
    kind = str(rng.choice(["Notebook", "Pod", "Job"]))
    behavior, image = {"Notebook": ("interactive", JUPYTER), "Pod": ("train_launch", PYTORCH),
                       "Job": ("finetune", AXOLOTL)}[kind]  # fmt: skip
    begin, end = (0.0, draw.floor.days + 1) if kind == "Notebook" else draw.span(2, 16)
    gpus = 1 if kind != "Job" else int(rng.choice([1, 2, 4, 8]))
    draw.put(begin, end, 1, gpus, name=draw.name(), behavior=behavior, owner=kind, image=image, **draw.owner())


def shared(draw: Draw, node: Node) -> None:
    """Time slicing (MPS looks the same to dcgm-exporter): several Deployments have a replica on each GPU of a node."""
    own = draw.owner()
    holds = tuple(Hold(node.name, gpu) for gpu in range(node.machine.gpus))
    for hold in holds:
        draw.floor.taken.setdefault(hold, []).append((0.0, draw.floor.days + 1))
    for _ in range(int(draw.rng.integers(2, 4))):
        draw.works.append(Workload(draw.name(), "light", holds, own["namespace"], "Deployment", TRITON, pod_per="hold",
                                   team=own["team"]))  # fmt: skip


SCENES: tuple[tuple[Callable[[Draw], None], float], ...] = (
    (gang, 0.34), (twins, 0.08), (service, 0.24), (anew, 0.08), (nightly, 0.1), (small, 0.16),
)  # fmt: skip


def cluster(seed: int, nodes: int = 16, days: float = 1.25, interval_s: float = 60.0) -> Fleet:
    """The cluster of a seed. Each kind of gang is tried once before chance fills it."""
    rng = np.random.default_rng([seed, 13])
    observed = Observed(pods=str(rng.choice(["honored", "exported"])), hostname=str(rng.choice(["node", "pod"])))
    machines = [_MACHINES[int(n)] for n in rng.integers(0, len(_MACHINES), 2)]
    made = tuple(
        Node(f"gpu-{number:03d}", machines[number % 2], observed) for number in rng.permutation(np.arange(nodes) + 1)
    )
    slicing = Node("slice-001", hw.G6, observed)
    draw = Draw(rng, Floor(made, days))
    if nodes >= 8:
        gang(draw, str(rng.choice(GANGS[:3])), 8)
    for owner in rng.permutation(np.array(2 * GANGS)):
        gang(draw, str(owner), int(rng.choice([2, 2, 3, 4])))
    twins(draw)
    kinds, chances = zip(*SCENES, strict=True)
    for _ in range(4 * nodes):
        kinds[int(rng.choice(len(kinds), p=np.array(chances)))](draw)
    shared(draw, slicing)
    state = KubeState(
        replicas=int(rng.choice([1, 2])), labels=bool(rng.random() < 0.4), exported=bool(rng.random() < 0.4),
        nobody=str(rng.choice(["", "<none>"])),
    )  # fmt: skip
    return Fleet(f"cluster-{seed}", (*made, slicing), _in_order(draw.works), days, interval_s, kube=state)


def only_series(fleet: Fleet, works: Sequence[str]) -> Fleet:
    """The same nodes with some of the work alone."""
    return replace(fleet, workloads=tuple(one for one in fleet.workloads if one.called in works))


def _in_order(works: list[Workload]) -> tuple[Workload, ...]:
    return tuple(sorted(works, key=lambda one: one.begin_day))
