"""How training and fine-tuning are drawn."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .archetype import Course, Place
from .hardware import GB
from .training import Style, pipeline, slow_rank, throttle, train

R = np.random.Generator
Draw = Callable[[R, Place], Course]


def runs_of(style: Callable[[R, Place], Style]) -> Draw:
    """One style for all runs of a workload; a run differs a little from the other."""

    def draw(rng: R, place: Place) -> Course:
        drawn = style(rng, place)
        return lambda draws, seconds, _: train(draws, seconds, drawn)

    return draw


def _links(rng: R, p: Place, share: float) -> dict[str, Any]:
    """Bytes of a gang's exchange: over NVLink in the node, over the network between nodes."""
    out: dict[str, Any] = {}
    if p.part.nvlink and p.gpus > 1:
        out["nvlink"] = share * p.part.nvlink * rng.uniform(0.7, 1.2)
    elif p.gpus > 1:
        out["pcie"] = min(share, 0.35) * p.part.pcie * rng.uniform(0.7, 1.1)
    if p.nodes > 1:
        out["fabric"] = p.port_share * rng.uniform(0.3, 0.6)
    return out


def _nvlink_of(p: Place) -> float:
    """Of a gang; 0 where there is none."""
    return p.part.nvlink if p.gpus > 1 else 0.0


def _linked(pcie: float, links: dict[str, Any]) -> dict[str, Any]:
    return {"pcie": pcie, **links}


def dense(rng: R, p: Place) -> Style:
    """15 to 30 % of a step are communication where several nodes or GPUs train, and tensor cores are the limit."""
    exchange = rng.uniform(0.1, 0.24) if p.gpus > 4 else rng.uniform(0.02, 0.1) if p.gpus > 1 else 0.0
    tensor = rng.uniform(0.62, 0.8)
    return Style(
        rng.uniform(0.4, 12),
        tensor,
        tensor * rng.uniform(0.3, 0.55),
        rng.uniform(0.82, 0.95),
        rng.uniform(0.2, 0.45),
        exchange,
        rng.uniform(0.01, 0.04),
        **_linked(0.5 * GB, _links(rng, p, rng.uniform(0.25, 0.4))),
        overlap=rng.uniform(0.2, 0.5),
        memory=rng.uniform(0.6, 0.93),
        memory_noise=rng.uniform(0.02, 0.1),
        checkpoint_hours=rng.uniform(1, 2),
        checkpoint_gb=rng.uniform(10, 60) * p.gpus / p.nodes,
        eval_hours=float(rng.choice([0, 2, 5])),
        stalls_a_day=rng.uniform(0, 0.8) if p.gpus > 4 else rng.uniform(0, 0.2),
        cpu=rng.uniform(0.8, 3),
        read=rng.uniform(0.003, 0.1) * GB,
        from_storage=bool(rng.random() < 0.5),
    )


def network(rng: R, p: Place) -> Style:
    exchange = rng.uniform(0.45, 0.68)
    return Style(
        rng.uniform(1.5, 14),
        rng.uniform(0.5, 0.75),
        rng.uniform(0.2, 0.35),
        0.85,
        0.3,
        exchange,
        0.02,
        fabric=p.port_share * rng.uniform(0.82, 0.94),
        overlap=rng.uniform(0.3, 0.6),
        nvlink=0.03 * _nvlink_of(p),
        pcie=min(p.port_share, 6 * GB),
        memory=rng.uniform(0.55, 0.9),
        spin_sm=rng.uniform(0.08, 0.3),
        checkpoint_gb=30,
        stalls_a_day=0.3,
        read=0.01 * GB,
    )


def nvlink(rng: R, p: Place) -> Style:
    """Tensor parallelism limited by its all-reduces: 0.66 to 0.8 of the link is what is sustained."""
    return Style(
        rng.uniform(0.3, 3),
        rng.uniform(0.45, 0.6),
        rng.uniform(0.2, 0.3),
        0.85,
        0.3,
        rng.uniform(0.45, 0.6),
        0.02,
        nvlink=p.part.nvlink * rng.uniform(0.6, 0.75),
        overlap=rng.uniform(0.6, 0.85),
        memory=rng.uniform(0.7, 0.92),
        spin_sm=rng.uniform(0.15, 0.3),
        eval_hours=float(rng.choice([0, 4])),
        read=0.01 * GB,
    )


def pcie(rng: R, p: Place) -> Style:
    return Style(
        rng.uniform(0.8, 8),
        rng.uniform(0.4, 0.65),
        rng.uniform(0.2, 0.35),
        rng.uniform(0.7, 0.85),
        0.3,
        rng.uniform(0.52, 0.68),
        0.02,
        pcie=p.part.pcie * rng.uniform(0.74, 0.9),
        overlap=rng.uniform(0.6, 0.85),
        memory=rng.uniform(0.6, 0.93),
        spin_sm=rng.uniform(0.08, 0.25),
        read=0.01 * GB,
    )


def host(rng: R, p: Place) -> Style:
    """The loaders do not keep up: cores at their limit, or the disk."""
    from_disk = rng.random() < 0.4
    cores = p.shape.cores / p.shape.gpus
    return Style(
        rng.uniform(0.3, 6),
        rng.uniform(0.3, 0.6),
        rng.uniform(0.2, 0.5),
        0.75,
        0.35,
        0.02 if p.gpus > 1 else 0.0,
        rng.uniform(0.45, 0.72),
        nvlink=0.1 * _nvlink_of(p),
        cpu=cores * (rng.uniform(0.15, 0.3) if from_disk else rng.uniform(0.82, 0.97)),
        gap_cpu=0.2,
        iowait=rng.uniform(0.25, 0.5) * p.gpus / p.shape.gpus if from_disk else 0.01,
        read=rng.uniform(0.15, 0.7) * GB,
        from_storage=not from_disk,
        memory=rng.uniform(0.2, 0.85),
        memory_noise=0.05,
        pcie=rng.uniform(0.5, 2) * GB,
        unevenness=0.1,
    )


def launch(rng: R, p: Place) -> Style:
    """Small kernels, one after the other: the engine always has one, few SMs have work."""
    return Style(
        rng.uniform(0.02, 0.4),
        rng.uniform(0.02, 0.14),
        rng.uniform(0.04, 0.2),
        rng.uniform(0.15, 0.4),
        rng.uniform(0.05, 0.18),
        0.03 if p.gpus > 1 else 0.0,
        0.03,
        engine=rng.uniform(0.72, 0.97),
        nvlink=0.003 * _nvlink_of(p),
        cpu=rng.uniform(1.0, 1.3),
        memory=rng.uniform(0.08, 0.5),
        pcie=rng.uniform(0.02, 0.3) * GB,
        read=1e6,
        checkpoint_gb=0.5,
    )


def memory_bound(rng: R, p: Place) -> Style:
    return Style(
        rng.uniform(0.1, 3),
        rng.uniform(0.08, 0.25),
        rng.uniform(0.68, 0.85),
        rng.uniform(0.6, 0.85),
        0.4,
        0.04 if p.gpus > 1 else 0.0,
        0.03,
        **_linked(0.5 * GB, _links(rng, p, 0.1)),
        memory=rng.uniform(0.6, 0.93),
        read=0.05 * GB,
    )


def mixed(rng: R, p: Place) -> Style:
    level = rng.uniform(0.58, 0.7)
    eta = p.part.eta_hbm / p.part.eta_compute
    return Style(
        rng.uniform(0.3, 5),
        level,
        level * eta * rng.uniform(0.95, 1.05),
        0.88,
        0.4,
        0.05 if p.gpus > 1 else 0.0,
        0.02,
        **_linked(0.5 * GB, _links(rng, p, 0.2)),
        memory=rng.uniform(0.6, 0.93),
        read=0.03 * GB,
    )


def lora(rng: R, p: Place) -> Style:
    tensor = rng.uniform(0.55, 0.78)
    return Style(
        rng.uniform(0.3, 5),
        tensor,
        tensor * rng.uniform(0.3, 0.6),
        rng.uniform(0.75, 0.95),
        0.3,
        rng.uniform(0.02, 0.12) if p.gpus > 1 else 0.0,
        rng.uniform(0.01, 0.08),
        **_linked(0.4 * GB, _links(rng, p, rng.uniform(0.1, 0.3))),
        memory=rng.uniform(0.5, 0.95),
        memory_noise=0.15,
        checkpoint_hours=rng.uniform(0.3, 1.5),
        checkpoint_gb=rng.uniform(0.2, 3),
        eval_hours=float(rng.choice([0, 0.7])),
        unevenness=rng.uniform(0.04, 0.2),
        read=5e6,
    )


def offload(rng: R, p: Place) -> Style:
    """States in the host's memory: the link to it is the limit."""
    return Style(
        rng.uniform(3, 20),
        rng.uniform(0.4, 0.6),
        0.3,
        0.7,
        0.3,
        rng.uniform(0.55, 0.65),
        0.03,
        pcie=p.part.pcie * rng.uniform(0.72, 0.88),
        overlap=rng.uniform(0.6, 0.9),
        spin_sm=0.05,
        cpu=4.0,
        memory=0.85,
    )


def warm(style: Callable[[R, Place], Style]) -> Draw:
    def draw(rng: R, place: Place) -> Course:
        drawn, clock = style(rng, place), rng.uniform(0.5, 0.72)
        return lambda draws, seconds, _: throttle(draws, train(draws, seconds, drawn), clock)

    return draw


def straggler(rng: R, place: Place) -> Course:
    drawn = dense(rng, place)
    return lambda draws, seconds, _: slow_rank(draws, seconds, drawn, place.gpus)


def stages(rng: R, place: Place) -> Course:
    drawn = dense(rng, place)
    return lambda draws, seconds, _: pipeline(draws, seconds, drawn, place.gpus)
