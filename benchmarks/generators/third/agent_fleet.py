"""Single workloads, each on its own node or two, for 12 to 28 hours."""

import dataclasses

import numpy as np

from .archetype import Archetype, Place
from .fleet import ARCHETYPES, SLURM_ROLES, Fleet, Run, Workload, new_uuid
from .hardware import PARTS, SHAPES, Machine, Slot
from .naming import name_of
from .rhythm import DAY, HOUR

DIVIDED = ("mig", "shared")
# As many as there are in a fleet, or as many as are named here: some eighty in all.
COUNTS = {
    **dict.fromkeys(
        (
            "pretrain-gang",
            "tune-slice",
            "scaled",
            "shared-services",
            "prefill-side",
            "decode-side",
            "held-node",
            "hung",
            "ended",
        ),
        0,
    ),
    **dict.fromkeys(("pretrain-pipeline", "oversized-cards", "decode-priced", "train-mixed"), 1),
    **dict.fromkeys(
        (
            "tune-node",
            "tune-offload",
            "train-straggler",
            "oversized",
            "embedding",
            "offline-decode",
            "tensor-parallel",
            "nightly",
            "never-used",
        ),
        2,
    ),
    "dev-pair": 3,
    "held": 4,
    "lora": 6,
    "notebook": 8,
}


def plan_series(seed: int, end: float) -> list[Fleet]:
    """One small fleet for each workload; all end at the same moment, at most a week before `end` (Unix seconds)."""
    rng = np.random.default_rng((seed, 0x3E4))
    stop = end - float(rng.integers(0, 7)) * DAY - float(rng.integers(0, 24)) * HOUR
    while ((int(stop // DAY) + 3) % 7) in (5, 6, 0):  # a working day lies behind
        stop -= DAY
    placed = []
    for archetype in ARCHETYPES:
        shapes = tuple(name for name in archetype.shapes if name not in DIVIDED)
        for _ in range(COUNTS.get(archetype.name, archetype.count) if shapes else 0):
            placed.append(_one(seed, len(placed), dataclasses.replace(archetype, shapes=shapes), stop))
    return placed


def _one(seed: int, number: int, archetype: Archetype, stop: float) -> Fleet:
    rng = np.random.default_rng((seed, 0x3E4, number))
    hours = int(rng.integers(24 if archetype.life == "nightly" or archetype.kind == "interactive" else 12, 29))
    # People have worked when the data end: it is evening there.
    zone = float((rng.integers(18, 24) - stop / HOUR) % 24)
    fleet = Fleet(seed * 1000 + number, stop - hours * HOUR, hours * HOUR, zone if zone <= 12 else zone - 24)
    shape_name = str(rng.choice(archetype.shapes))
    fitting = [g for g in archetype.gpus if g <= SHAPES[shape_name].gpus * archetype.nodes]
    gpus = int(rng.choice(fitting or [SHAPES[shape_name].gpus * archetype.nodes]))
    each = gpus // archetype.nodes
    whole = SHAPES[shape_name]
    # A node of the GPUs in use: its network and its cores are that part of a whole one's.
    part = each / whole.gpus
    shape = dataclasses.replace(
        whole,
        gpus=each,
        cores=max(int(whole.cores * part), 4),
        ports=max(int(whole.ports * part), 1),
        host_gib=max(int(whole.host_gib * part), 16),
        instance_type=whole.instance_type if each == whole.gpus else None,
    )
    place = Place(shape, PARTS[shape.part], gpus, archetype.nodes, fleet.zone)
    scheduler = "slurm" if archetype.role in SLURM_ROLES and rng.random() < 0.35 else "kubernetes"
    for index in range(archetype.nodes):
        slots = [Slot(i, new_uuid(rng)) for i in range(each)]
        machine = Machine(f"n{number:03d}-{index}", shape, slots, scheduler, "", has_sm=True, has_nvlink=True)
        machine.context_share = float(rng.random())
        fleet.machines.append(machine)
    workload = Workload(number, archetype, place, archetype.draw(rng, place))
    workload.kind, workload.bottleneck = archetype.kind, archetype.bottleneck
    series = name_of(rng, archetype, number)
    for count, (start, stop_at) in enumerate(_spans(rng, fleet, archetype)):
        before = int(rng.exponential(8 * DAY)) if start == 0 and archetype.life in ("whole", "long", "replicas") else 0
        members = [(machine, machine.slots) for machine in fleet.machines]
        workload.runs.append(Run(series.of_run(rng, scheduler, count), start, stop_at, members, before))
    fleet.workloads.append(workload)
    return fleet


def _spans(rng: np.random.Generator, fleet: Fleet, archetype: Archetype) -> list[tuple[int, int]]:
    last, life = fleet.seconds, archetype.life
    if life == "finite":
        long = int(min(rng.uniform(*archetype.run_hours) * HOUR, rng.uniform(0.5, 0.9) * last))
        start = int(rng.uniform(0, last - long))
        return [(start, start + long)]
    if life == "nightly":
        hour = (rng.uniform(21, 28) - fleet.zone) * HOUR - fleet.start % DAY
        long = rng.uniform(*archetype.run_hours) * HOUR
        begin = int(hour % DAY)
        return [(begin, int(min(begin + long, last)))] if begin < last - HOUR else [(0, int(long))]
    if life == "runs":
        starts, at = [], rng.uniform(0, 2) * HOUR
        typical = min(rng.uniform(*archetype.run_hours) * HOUR, 0.7 * last)
        while at < last - 0.6 * HOUR:
            long = typical * rng.lognormal(0, 0.25)
            starts.append((int(at), int(min(at + long, last))))
            at += long + rng.uniform(0.5, 0.5 * archetype.gap_hours[1]) * HOUR
        return starts
    return [(0, last)]
