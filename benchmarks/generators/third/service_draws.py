"""How serving, batch inference, notebooks and held GPUs are drawn."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from . import quiet
from .archetype import Course, Place
from .hardware import GB
from .serving import Batch, Demand, Engine, offline, requests, serve, worker_at_queue
from .training import Style, concatenated, train
from .work import Load, at_rest

R = np.random.Generator


def _demand(rng: R, p: Place, peak: float, depth: tuple[float, float] = (0.3, 0.85)) -> Demand:
    return Demand(
        peak,
        rng.uniform(*depth),
        p.zone,
        rng.uniform(11, 19),
        rng.uniform(0.5, 1.0),
        rng.uniform(0.2, 0.6),
        rng.uniform(0.7, 1.6),
    )


def _llm(rng: R, p: Place, seconds: float, **other: Any) -> Engine:
    parallel = p.gpus > 1
    drawn = Engine(
        seconds,
        rng.uniform(24, 200),
        (rng.uniform(0.35, 0.55), rng.uniform(0.62, 0.78)),
        (0.01, rng.uniform(0.06, 0.2)),
        rng.uniform(0.02, 0.15),
        rng.uniform(0.45, 0.7),
        rng.uniform(0.85, 0.95),
        nvlink=p.part.nvlink * rng.uniform(0.04, 0.14) if parallel else 0.0,
        pcie=p.part.pcie * rng.uniform(0.1, 0.25) if parallel and not p.part.nvlink else 0.1 * GB,
        weights_share=rng.uniform(0.15, 0.6),
    )
    return dataclasses.replace(drawn, **other)


def light(rng: R, p: Place) -> Course:
    """5 to 30 % of the time something is in work, day and night."""
    each, busy = rng.uniform(2, 15), rng.uniform(0.08, 0.4)
    engine = _llm(rng, p, each)
    demand = _demand(rng, p, -np.log(1 - busy) / each)
    return lambda draws, seconds, t0: serve(draws, t0, seconds, demand, engine)


def no_nights(rng: R, p: Place) -> Course:
    each, busy = rng.uniform(2, 12), rng.uniform(0.3, 0.7)
    engine = _llm(rng, p, each)
    demand = dataclasses.replace(
        _demand(rng, p, -np.log(1 - busy) / each),
        depth=rng.uniform(0.93, 0.985),
        sharpness=rng.uniform(1.3, 2.5),
        quiet_weekend=rng.uniform(0.3, 0.8),
    )
    return lambda draws, seconds, t0: serve(draws, t0, seconds, demand, engine)


def images(rng: R, p: Place) -> Course:
    """Production image generation: a few percent to a quarter of the time, and more at a request."""
    each, busy = rng.uniform(4, 40), rng.uniform(0.12, 0.5)
    demand = _demand(rng, p, busy / each, (0.6, 0.97))
    tensor, dram = rng.uniform(0.35, 0.6), rng.uniform(0.2, 0.4)
    memory, noise = rng.uniform(0.3, 0.75), rng.uniform(0.1, 0.22)
    return lambda draws, seconds, t0: requests(
        draws, t0, seconds, demand, each=each, tensor=tensor, dram=dram, memory=memory, sm=0.85, memory_noise=noise
    )


def small_model(rng: R, p: Place) -> Course:
    """Classifiers, embeddings of a query, speech: milliseconds a request, all day."""
    each, busy = rng.uniform(0.02, 0.6), rng.uniform(0.08, 0.5)
    demand = _demand(rng, p, busy / each)
    tensor, dram, memory = rng.uniform(0.08, 0.35), rng.uniform(0.1, 0.35), rng.uniform(0.1, 0.6)
    # Some thousands a second are counted by the second, not one by one.
    many = max(each, 0.25)
    demand = dataclasses.replace(demand, peak=busy / many)
    sm = tensor + 0.25
    return lambda draws, seconds, t0: requests(
        draws, t0, seconds, demand, each=many, tensor=tensor, dram=dram, memory=memory, sm=sm, spread=0.3
    )


def decode(rng: R, p: Place) -> Course:
    """More requests than the batch holds, most of the day: HBM is the limit."""
    each = rng.uniform(8, 30)
    dram = rng.uniform(0.7, 0.8)
    engine = _llm(
        rng, p, each, dram=(0.5, dram), tensor=(0.02, rng.uniform(0.08, 0.2)), prefill=rng.uniform(0.002, 0.006)
    )
    demand = _demand(rng, p, engine.batch / each * rng.uniform(1.0, 1.5), (0.1, 0.45))
    return lambda draws, seconds, t0: serve(draws, t0, seconds, demand, engine)


def prompts(rng: R, p: Place) -> Course:
    """Long prompts and short answers."""
    each = rng.uniform(2, 5)
    prefill = rng.uniform(0.1, 0.5)
    engine = _llm(rng, p, each, prefill=prefill, prefill_tensor=rng.uniform(0.68, 0.82), dram=(0.15, 0.35))
    demand = _demand(rng, p, rng.uniform(0.95, 1.3) / prefill, (0.1, 0.35))
    return lambda draws, seconds, t0: serve(draws, t0, seconds, demand, engine)


def experts(rng: R, p: Place) -> Course:
    """All-to-all in every layer, beside the tensor cores."""
    each = rng.uniform(8, 25)
    engine = _llm(
        rng,
        p,
        each,
        nvlink=p.part.nvlink * rng.uniform(0.7, 0.95),
        tensor=(0.05, rng.uniform(0.25, 0.4)),
        dram=(0.25, rng.uniform(0.35, 0.5)),
        prefill=0.01,
    )
    demand = _demand(rng, p, engine.batch / each * rng.uniform(0.7, 1.1), (0.1, 0.5))
    return lambda draws, seconds, t0: serve(draws, t0, seconds, demand, engine)


def disaggregated(prompts: bool) -> Callable[[R, Place], Course]:
    """One side reads prompts, the other writes answers; the KV cache goes from one to the other over the fabric."""

    def draw(rng: R, p: Place) -> Course:
        fabric = p.port_share * rng.uniform(0.06, 0.2)
        nvlink = p.part.nvlink * 0.06
        each = 2.0 if prompts else rng.uniform(10, 25)
        if prompts:
            engine = _llm(
                rng, p, each, prefill=0.3, prefill_tensor=0.78, dram=(0.12, 0.3), fabric=fabric, nvlink=nvlink
            )
            peak = rng.uniform(1.0, 1.3) / 0.3
        else:
            engine = _llm(rng, p, each, prefill=0.0, dram=(0.5, 0.76), fabric=fabric, nvlink=nvlink)
            peak = engine.batch / each * rng.uniform(1.0, 1.3)
        demand = _demand(rng, p, peak, (0.1, 0.4))
        return lambda draws, seconds, t0: serve(draws, t0, seconds, demand, engine)

    return draw


def over_pcie(rng: R, p: Place) -> Course:
    each = rng.uniform(8, 20)
    engine = _llm(
        rng,
        p,
        each,
        pcie=p.part.pcie * rng.uniform(0.75, 0.88) / 0.62,
        dram=(0.15, 0.3),
        tensor=(0.02, 0.15),
        prefill=0.003,
    )
    demand = _demand(rng, p, engine.batch / each * rng.uniform(1.1, 1.5), (0.05, 0.3))

    def course(draws: R, seconds: int, t0: float) -> Load:
        load = serve(draws, t0, seconds, demand, engine)
        for name in ("pcie_tx", "pcie_rx"):
            setattr(load, name, np.minimum(getattr(load, name), p.part.pcie * 0.9).astype(np.float32))
        load.sm = np.minimum(load.sm, 0.45)
        return load

    return course


def oversized(rng: R, p: Place) -> Course:
    """Several GPUs for what one of them could do: no engine that takes the memory, little of everything."""
    each, busy = rng.uniform(0.3, 4), rng.uniform(0.1, 0.5)
    demand = _demand(rng, p, busy / each)
    tensor, dram, memory = rng.uniform(0.06, 0.2), rng.uniform(0.08, 0.22), rng.uniform(0.06, 0.3)
    return lambda draws, seconds, t0: requests(
        draws, t0, seconds, demand, each=each, tensor=tensor, dram=dram, memory=memory, sm=tensor + 0.15
    )


def batch(kind: str) -> Callable[[R, Place], Course]:
    def draw(rng: R, p: Place) -> Course:
        b = _list(rng, p, kind)
        return lambda draws, seconds, _: offline(draws, seconds, b)

    return draw


def _list(rng: R, p: Place, kind: str) -> Batch:
    links: dict[str, Any] = {"nvlink": p.part.nvlink * 0.05} if p.part.nvlink and p.gpus > 1 else {}
    items = rng.uniform(20, 300)
    if kind == "decode":
        return Batch(
            rng.uniform(0.06, 0.2), rng.uniform(0.68, 0.8), 0.75, rng.uniform(0.87, 0.95), items, 0.03, 0.06, **links
        )
    if kind == "embed":
        tensor = rng.uniform(0.5, 0.72)
        return Batch(
            tensor,
            tensor * rng.uniform(0.3, 0.5),
            0.9,
            rng.uniform(0.2, 0.8),
            items,
            0.05,
            rng.uniform(0.12, 0.3),
            flat=False,
            **links,
        )
    if kind == "decode-video":  # the host makes the frames
        cores = p.shape.cores / p.shape.gpus
        return Batch(
            rng.uniform(0.08, 0.2),
            rng.uniform(0.08, 0.2),
            0.3,
            rng.uniform(0.15, 0.5),
            items,
            0.1,
            0.2,
            pcie=3 * GB,
            cpu=cores * rng.uniform(0.85, 0.97),
            read=0.3 * GB,
            engine=rng.uniform(0.3, 0.55),
            flat=False,
        )
    return Batch(  # weights that stream in from the host
        rng.uniform(0.1, 0.25),
        rng.uniform(0.15, 0.3),
        rng.uniform(0.3, 0.45),
        0.9,
        items,
        0.02,
        0.05,
        pcie=p.part.pcie * rng.uniform(0.72, 0.88),
    )


def worker(rng: R, p: Place) -> Course:
    b, duty, run = (
        _list(rng, p, str(rng.choice(["decode", "embed"]))),
        rng.uniform(0.45, 0.8),
        rng.uniform(0.5, 4) * 3600,
    )
    return lambda draws, seconds, _: worker_at_queue(draws, seconds, b, duty, run)


def notebook(rng: R, p: Place) -> Course:
    chance, big = rng.uniform(0.7, 0.98), rng.uniform(0.2, 0.8)
    return lambda draws, seconds, t0: quiet.notebook(draws, t0, seconds, p.zone, chance=chance, big=big)


def held(rng: R, _place: Place) -> Course:
    memory = rng.uniform(0.15, 0.95)
    return lambda draws, seconds, _: quiet.held(draws, seconds, memory)


def nothing(_rng: R, _place: Place) -> Course:
    return lambda _own, seconds, _: at_rest(seconds)


def ended(rng: R, _place: Place) -> Course:
    """A training that ended, whose processes stay for days."""
    style = Style(rng.uniform(0.5, 4), rng.uniform(0.55, 0.75), 0.3, memory=rng.uniform(0.4, 0.9))

    def course(draws: R, seconds: int, _: float) -> Load:
        worked = int(seconds * draws.uniform(0.1, 0.3))
        first = train(draws, worked, style)
        return concatenated([first, quiet.held(draws, seconds - worked, style.memory)])

    return course


def hung(rng: R, _place: Place) -> Course:
    memory = rng.uniform(0.5, 0.9)
    return lambda draws, seconds, _: quiet.hung(draws, seconds, memory)
