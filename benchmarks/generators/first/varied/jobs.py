"""Training and fine-tuning of every sort: on one GPU or on nodes, full or starved, even or in fits and starts."""

from __future__ import annotations

import dataclasses

import numpy as np
from skuwise.advisor.demo import training
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.load import Model
from skuwise.advisor.demo.seeded_rng import log_uniform, salt

from ..loads import training_variants as variants
from .courses import Requests, Steady, demand
from .drawn import Drawn, of_an_allocator
from .work import Profile, Remembering, Turns, context_power, linked, work


def trained(rng: np.random.Generator, start: float, gpus: int, gpu: SimGpu, *, nodes: int) -> Drawn:
    """Training of days on `gpus` of each of `nodes`."""
    made = _by_steps(rng, start, gpus, gpu, nodes) if rng.random() < 0.55 else _by_levels(rng, gpus, gpu, nodes)
    return _with_turns(rng, made, gpu, gpus)


def tuned(rng: np.random.Generator, start: float, gpus: int, gpu: SimGpu) -> Drawn:
    """Fine-tuning of minutes to hours on one node: the same work, with less of all around it."""
    if rng.random() < 0.5:
        model = training.input_bound(rng, start) if rng.random() < 0.25 else training.fine_tuning(rng, start)
        made = Drawn(_widened(rng, model, gpus, gpu), "by steps", "mixed")
    else:
        made = _by_levels(rng, gpus, gpu, 1)
    return _with_turns(rng, made, gpu, gpus) if rng.random() < 0.7 else made


def debugged(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Profile:
    """What somebody's try at a training does to a GPU while it runs."""
    return _levels(rng, gpus, gpu, 1)


def _by_steps(rng: np.random.Generator, start: float, gpus: int, gpu: SimGpu, nodes: int) -> Drawn:
    if nodes > 1:
        network = rng.random() < 0.35
        model = training.network_bound(rng, start) if network else training.compute_bound(rng, start)
        sort = "network-bound" if network else "over nodes"
        widened = _widened(rng, model, gpus, gpu)
        return Drawn(widened, sort, "network" if network else "compute")
    draws = [(variants.on_one_gpu, "full", "compute"), (variants.starved, "starved", "host-input"),
             (variants.small_kernels, "small kernels", "latency"), (training.draw, "full", "compute"),
             (training.pcie_bound, "offloaded", "pcie")]  # fmt: skip
    if gpus > 1 and gpu.nvlink:
        draws.append((variants.between_gpus, "between GPUs", "nvlink"))
    draw, sort, bottleneck = draws[int(rng.integers(0, len(draws)))]
    return Drawn(_widened(rng, draw(rng, start), gpus, gpu), sort, bottleneck)  # type: ignore[operator, arg-type]


def _widened(rng: np.random.Generator, model: training.Training, gpus: int, gpu: SimGpu) -> Model:
    """Steps of any length, weaker and stronger kernels, checkpoints small and large, other memory."""
    interval = log_uniform(rng, 600, 28800)
    model = dataclasses.replace(
        model,
        step_seconds=model.step_seconds * log_uniform(rng, 0.05, 2.0),
        compute_level=min(model.compute_level * rng.uniform(0.25, 1.05), 0.95),
        memory_level=min(model.memory_level * rng.uniform(0.5, 2.2), 0.95),
        sm_level=rng.uniform(0.35, 0.95) if model.sm_level > 0.5 else model.sm_level,
        engine_level=rng.uniform(0.85, 1.0) if model.engine_level == 1.0 else model.engine_level,
        checkpoint_interval_seconds=interval,
        checkpoint_bytes=log_uniform(rng, 1e8, 5e11),
        checkpoint_seconds=min(log_uniform(rng, 2, 300), interval / 4),
        checkpoint_over_network=False,
        stall_chance=rng.uniform(0, 0.2) if rng.random() < 0.4 else model.stall_chance,
        cpu=min(model.cpu * log_uniform(rng, 0.4, 2.0), 0.97),
    )
    if gpus == 1:
        model = dataclasses.replace(model, nvlink_exposed=0.0, nvlink_hidden=0.0)
    return Remembering(model, of_an_allocator(rng, interval), context_power(rng, gpu))


def _by_levels(rng: np.random.Generator, gpus: int, gpu: SimGpu, nodes: int) -> Drawn:
    """Training whose steps nobody sees: too short, too uneven, or seen once a minute."""
    profile = _levels(rng, gpus, gpu, nodes)
    every = log_uniform(rng, 300, 20000)
    course = Steady(
        seed=salt(rng),
        level=rng.uniform(0.75, 1.0),
        wander=log_uniform(rng, 0.005, 0.2),
        wander_seconds=log_uniform(rng, 600, 40000),
        dip_every_seconds=every if rng.random() < 0.85 else 0.0,
        dip_seconds=min(log_uniform(rng, 5, 900), 0.3 * every),
        dip_level=rng.uniform(0.0, 0.5),
        irregular=rng.uniform(0, 0.6),
        stop_chance=rng.uniform(0, 0.15) if rng.random() < 0.35 else 0.0,
        stop_seconds=log_uniform(rng, 60, 5400),
        warmup_seconds=log_uniform(rng, 30, 1200),
    )
    held = of_an_allocator(rng, every)
    writes = log_uniform(rng, 1e7, 2e9) if rng.random() < 0.6 else 0.0
    spin = rng.uniform(0.05, 0.5) if gpus * nodes > 1 and rng.random() < 0.6 else 0.0
    model = work(rng, gpu, profile, course, held, dips_write=writes, spin_sm=spin)
    return Drawn(model, "by levels", profile.bottleneck)


def _levels(rng: np.random.Generator, gpus: int, gpu: SimGpu, nodes: int) -> Profile:  # noqa: ARG001
    compute = rng.uniform(0.05, 0.9)
    profile = Profile(
        compute=compute,
        memory=float(np.clip(compute * log_uniform(rng, 0.2, 2.5), 0.03, 0.95)),
        sm=rng.uniform(max(0.2, compute), 0.97),
        occupancy=rng.uniform(0.08, 0.5),
        engine=rng.uniform(0.6, 1.0),
        vector=rng.uniform(0.02, 0.25),
        cpu=rng.uniform(0.05, 0.95),
        io_wait=log_uniform(rng, 0.001, 0.2),
        pcie=log_uniform(rng, 1e-3, 0.15),
        disk_read=log_uniform(rng, 1e6, 1e9),
        fabric=log_uniform(rng, 0.01, 0.7) if nodes > 1 else 0.0,
    )
    return linked(rng, profile, gpus, 0.01, 0.6)


def _with_turns(rng: np.random.Generator, made: Drawn, gpu: SimGpu, gpus: int) -> Drawn:
    """Half of all jobs evaluate, or generate between steps; the other half does nothing else."""
    if rng.random() < 0.5:
        return made
    every = log_uniform(rng, 900, 40000)
    share = log_uniform(rng, 0.01, 0.4)
    profile = Profile(
        compute=rng.uniform(0.05, 0.7),
        memory=rng.uniform(0.1, 0.9),
        sm=rng.uniform(0.2, 0.95),
        occupancy=rng.uniform(0.05, 0.4),
        engine=rng.uniform(0.3, 1.0),
        cpu=rng.uniform(0.05, 0.6),
    )
    profile = linked(rng, profile, gpus, 0.003, 0.1)
    course = Requests(demand(rng, rng.uniform(0.6, 1.0), wavy=False), salt(rng), rng.uniform(2, 30), 0.5)
    # What the evaluation holds is what the training took: an allocator gives nothing back.
    held = made.model.held if hasattr(made.model, "held") else of_an_allocator(rng, every)  # type: ignore[attr-defined]
    other = work(rng, gpu, profile, course, held)
    turns = Turns(made.model, other, salt(rng), every, every * share, rng.uniform(0, 0.3))
    return Drawn(turns, f"{made.sort}, evaluating", made.bottleneck)
