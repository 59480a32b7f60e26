"""A fleet: workloads in a window, the nodes they stand on, and what is true of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from .archetype import Archetype, Course, Place
from .hardware import LAYOUTS, PARTS, SHAPES, Machine, Slot
from .naming import Name, name_of
from .queues import Queue, draw
from .rhythm import DAY, HOUR
from .services import SERVICES
from .trainings import TRAININGS

R = np.random.Generator
ARCHETYPES = (*TRAININGS, *SERVICES)
SLURM_ROLES = ("train", "tune", "batch", "any", "dev")
BARE_ROLES = (*SLURM_ROLES, "llm", "triton", "image", "worker")


@dataclass(slots=True)
class Run:
    """One pod (or job) on its GPUs: seconds since the window's begin; it may have begun before. `members`: by node."""

    name: Name
    start: int
    end: int
    members: list[tuple[Machine, list[Slot]]]
    since: int = 0


@dataclass(slots=True)
class Workload:
    """`runs`: all of its pods or jobs; `course`: what is done in one of them."""

    number: int
    archetype: Archetype
    place: Place
    course: Course
    runs: list[Run] = field(default_factory=list)
    kind: str | None = None
    bottleneck: str | None = None
    findings: Mapping[str, bool | None] = field(default_factory=dict)
    is_scraped: bool = False


@dataclass(slots=True)
class Fleet:
    """`start`: Unix seconds; `zone`: hours of the people from UTC; `queue`: what waits at the end."""

    seed: int
    start: float
    seconds: int
    zone: float
    machines: list[Machine] = field(default_factory=list)
    workloads: list[Workload] = field(default_factory=list)
    queue: Queue = field(default_factory=Queue)

    def rng(self, *what: int) -> R:
        """Random numbers of one thing, whatever else is drawn."""
        return np.random.default_rng((self.seed, 0x3E3, *what))


def plan(seed: int, end: float) -> Fleet:
    """Workloads and nodes of a fleet whose data end at most a week before `end` (Unix seconds)."""
    rng = np.random.default_rng((seed, 0x3E3))
    days = int(rng.choice([3, 4, 4, 5, 7], p=[0.2, 0.25, 0.25, 0.2, 0.1]))
    stop = end - float(rng.integers(0, 7)) * DAY - float(rng.integers(0, 24)) * HOUR
    fleet = Fleet(seed, stop - days * DAY, days * DAY, float(rng.integers(-8, 9)))
    order = [archetype for archetype in ARCHETYPES for _ in range(archetype.count)]
    # The largest are placed first: what is left of a node is taken by the small.
    order.sort(key=lambda archetype: -max(archetype.gpus) * archetype.pods)
    for number, archetype in enumerate(order):
        draws = fleet.rng(1, number)
        _place(draws, fleet, number, archetype)
    fleet.queue = draw(fleet.rng(8), stop, [machine.scheduler for machine in fleet.machines])
    return fleet


def _place(rng: R, fleet: Fleet, number: int, archetype: Archetype) -> None:
    shape = _shape(rng, fleet, archetype)
    fitting = [g for g in archetype.gpus if g <= SHAPES[shape].gpus * archetype.nodes]
    gpus = int(rng.choice(fitting or [SHAPES[shape].gpus * archetype.nodes]))
    place = Place(SHAPES[shape], PARTS[SHAPES[shape].part], gpus, archetype.nodes, fleet.zone)
    workload = Workload(number, archetype, place, archetype.draw(rng, place), kind=archetype.kind)
    workload.bottleneck, workload.is_scraped = archetype.bottleneck, bool(rng.random() < 0.5)
    spans = _spans(rng, fleet, archetype)
    replicas = 1 if shape == "shared" else archetype.pods
    held = [_slots(rng, fleet, shape, gpus, archetype) for _ in range(replicas)]
    if archetype.bottleneck == "nvlink":  # who has such work looks at its links, mostly
        for machine, _ in held[0]:
            machine.has_nvlink = machine.has_nvlink or bool(rng.random() < 0.8)
    series = name_of(rng, archetype, number)
    for replica, members in enumerate(held):
        for start, end in spans:
            lives = [(start, end)]
            if archetype.life == "replicas" and replica:
                lives = _by_day(rng, fleet, start, end)
            for a, b in lives:
                pods = archetype.pods if shape == "shared" else 1
                for _ in range(pods):
                    name = series.of_run(rng, members[0][0].scheduler, len(workload.runs))
                    before = int(rng.exponential(20 * DAY)) if archetype.life == "whole" and a == 0 else 0
                    workload.runs.append(Run(name, a, b, members, before))
    if archetype.name == "never-used" and held[0][0][0].scheduler == "none":
        workload.kind = workload.bottleneck = None  # no holder in any data
    fleet.workloads.append(workload)


def _shape(rng: R, fleet: Fleet, archetype: Archetype) -> str:
    """One of its types of node, mostly one that is there already and has room."""
    shapes, least = list(archetype.shapes), min(archetype.gpus) // archetype.nodes * archetype.pods
    there = [
        name for name in shapes
        if any(
            m.shape is SHAPES[name] and archetype.role in _roles(m) and sum(not s.busy for s in m.slots) >= least
            for m in fleet.machines
        )
    ]  # fmt: skip
    return str(rng.choice(there if there and rng.random() < 0.85 else shapes))


def _spans(rng: R, fleet: Fleet, archetype: Archetype) -> list[tuple[int, int]]:
    """When its pods are there, seconds of the window."""
    last, life = fleet.seconds, archetype.life
    if life == "long":
        longest = last - 40 * HOUR
        start = int(rng.uniform(0, longest * 0.8)) if rng.random() < 0.4 else 0
        end = int(rng.uniform(start + 40 * HOUR, last)) if rng.random() < 0.3 else last
        return [(start, end)]
    if life == "finite":
        long = int(rng.uniform(*archetype.run_hours) * HOUR)
        start = int(rng.uniform(0, last - long - HOUR))
        return [(start, start + long)]
    if life == "nightly":
        hour = rng.uniform(21, 28)
        typical = rng.uniform(*archetype.run_hours) * HOUR
        first = (hour - fleet.zone) * HOUR - fleet.start % DAY
        begins = np.arange(first - 2 * DAY, last, DAY)
        spans = [(int(b), int(b + typical * rng.uniform(0.75, 1.25))) for b in begins]
        return [(max(a, 0), b) for a, b in spans if a >= 0 and b < last]
    if life == "runs":
        spans, at = [], rng.uniform(0, 12) * HOUR
        typical = rng.uniform(*archetype.run_hours) * HOUR
        while at < last - 0.6 * HOUR:
            long = typical * rng.lognormal(0, 0.35)
            spans.append((int(at), int(min(at + long, last))))
            at += long + rng.uniform(*archetype.gap_hours) * HOUR
        return spans
    return [(0, last)]


def _by_day(rng: R, fleet: Fleet, start: int, end: int) -> list[tuple[int, int]]:
    """A replica that is there in the busy hours alone."""
    out, day = [], -1
    first = (8 - fleet.zone) * HOUR - fleet.start % DAY - DAY
    while (at := first + (day := day + 1) * DAY) < end:
        a, b = int(at + rng.uniform(0, 2) * HOUR), int(at + rng.uniform(9, 13) * HOUR)
        if max(a, start) + HOUR < min(b, end):
            out.append((max(a, start), min(b, end)))
    return out


def _slots(rng: R, fleet: Fleet, shape: str, gpus: int, archetype: Archetype) -> list[tuple[Machine, list[Slot]]]:
    """GPUs for all of the window, on as many nodes as it takes; nodes are built where none has room."""
    each = gpus // archetype.nodes
    placements: list[tuple[Machine, list[Slot]]] = []
    for machine in fleet.machines:
        fits = machine.shape is SHAPES[shape] and archetype.role in _roles(machine)
        # Not all is taken by one: a node of eight has room for others, but not always.
        if not fits or (placements and machine.scheduler != placements[0][0].scheduler):
            continue
        free = [slot for slot in machine.slots if not slot.busy]
        if machine.is_mig and free:
            free = [free[int(rng.integers(len(free)))]]
        if len(free) >= each:
            placements.append((machine, free[:each]))
        if len(placements) == archetype.nodes:
            break
    while len(placements) < archetype.nodes:
        scheduler = placements[0][0].scheduler if placements else _scheduler(rng, shape, archetype)
        machine = _machine(rng, fleet, shape, scheduler)
        placements.append((machine, machine.slots[:each]))
    for _, slots in placements:
        for slot in slots:
            slot.busy.append((0, fleet.seconds))
    return placements


def _roles(machine: Machine) -> Sequence[str]:
    if machine.scheduler == "slurm":
        return SLURM_ROLES
    return BARE_ROLES if machine.scheduler == "none" else (*BARE_ROLES, "notebook")


def _scheduler(rng: R, shape: str, archetype: Archetype) -> str:
    if shape in ("mig", "shared"):
        return "kubernetes"
    drawn = str(rng.choice(["kubernetes", "slurm", "none"], p=[0.68, 0.18, 0.14]))
    if (drawn == "slurm" and archetype.role not in SLURM_ROLES) or (
        drawn == "none" and archetype.role not in BARE_ROLES
    ):
        return "kubernetes"
    return drawn


def new_uuid(rng: R) -> str:
    text = rng.bytes(16).hex()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _machine(rng: R, fleet: Fleet, shape: str, scheduler: str) -> Machine:
    number, kind = len(fleet.machines), SHAPES[shape]
    slots: list[Slot] = []
    for index in range(kind.gpus):
        uuid = new_uuid(rng)
        if shape == "mig":
            layout = LAYOUTS[int(rng.integers(len(LAYOUTS)))]
            slots += [Slot(index, uuid, 1 + i, profile) for i, profile in enumerate(layout)]
        else:
            slots.append(Slot(index, uuid))
    machine = Machine(
        f"gpu-{number:03d}", kind, slots, scheduler, f"10.3.{number // 250}.{number % 250 + 1}", shape == "mig",
        has_sm=bool(rng.random() < 0.45), has_nvlink=bool(rng.random() < 0.75), context_share=float(rng.uniform(0, 1)),
    )  # fmt: skip
    fleet.machines.append(machine)
    return machine
