"""Work of every sort, each with its model: services, queues, training and fine-tuning, people, held memory."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from skuwise.advisor.demo import serving, training
from skuwise.advisor.demo.hardware import Model, SimGpu
from skuwise.advisor.demo.seeded_rng import drawn, log_uniform, salt
from skuwise.advisor.demo.serving import Holding
from skuwise.rules.policy.labels import BottleneckLabel

from ..loads import jobs as variants
from ..loads import offline, online
from ..ranges import RANGES
from .work import (
    AtDesk,
    Batched,
    Course,
    Flat,
    Grown,
    Profile,
    Remembering,
    Requests,
    Restless,
    Sawtooth,
    Steady,
    Stepped,
    Turns,
    Worked,
    context_power,
    demand,
    linked,
    work,
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One piece of work for a number of GPUs. `sort`: what sort of its kind, in a word or two."""

    model: Model
    sort: str
    bottleneck: BottleneckLabel


def taken_once(rng: np.random.Generator) -> Flat:
    """An engine's pool, or any level that does not move."""
    pool = rng.random() < 0.55
    return Flat(
        level=rng.uniform(0.85, 0.97) if pool else rng.uniform(0.03, 0.85), load_seconds=log_uniform(rng, 20, 600)
    )


def of_an_engine(rng: np.random.Generator, course: Course, piece_seconds: float, *, restless: float) -> Course:
    """Memory of what serves or works off a queue: mostly taken once, else moving with the work or in rare steps."""
    draw = rng.random()
    if draw < restless:
        return Restless(
            work=course,
            seed=salt(rng),
            base=rng.uniform(0.08, 0.85),
            spread=log_uniform(rng, 0.02, 0.6),
            piece_seconds=max(piece_seconds, log_uniform(rng, 20, 1800)),  # of minutes: parts stay for the next request
            stays_chance=rng.uniform(0.0, 0.9),
        )
    if draw < restless + 0.12:
        low = rng.uniform(0.03, 0.7)
        high = min(low + rng.uniform(0.02, 0.4), 0.96)
        return Stepped(
            seed=salt(rng),
            low=low,
            high=high,
            step_seconds=log_uniform(rng, 1800, 86400),
            kept_chance=rng.uniform(0.2, 0.9),  # that a step keeps the level of the one before
        )
    if draw < restless + 0.2:
        level = rng.uniform(0.05, 0.7)
        return Grown(
            level=level,
            growth=rng.uniform(0.01, min(0.5, 0.95 - level)),
            growth_seconds=log_uniform(rng, 600, 2e5),
            warmup_seconds=60.0,
        )
    return taken_once(rng)


def of_an_allocator(rng: np.random.Generator, period_seconds: float) -> Course:
    """Memory of a training: up for minutes and then still, or still from the start, or moving with its epochs."""
    draw = rng.random()
    level = rng.uniform(0.08, 0.95)
    if draw < 0.4:
        return Grown(
            level=level * 0.9,
            growth=0.1 * level,
            growth_seconds=log_uniform(rng, 60, 7200),
            warmup_seconds=log_uniform(rng, 20, 900),
        )
    if draw < 0.7:
        return Flat(level=level, load_seconds=log_uniform(rng, 20, 900))
    if draw < 0.85:
        return Sawtooth(seed=salt(rng), level=0.8 * level, height=0.2 * level, every_seconds=period_seconds)
    return Stepped(
        seed=salt(rng),
        low=0.6 * level,
        high=level,
        step_seconds=log_uniform(rng, 600, 20000),
        kept_chance=rng.uniform(0.3, 0.9),
    )


def trained(rng: np.random.Generator, start: float, gpus: int, gpu: SimGpu, *, nodes: int) -> Drawn:
    """Training of days on `gpus` of each of `nodes`."""
    made = (
        _training_by_steps(rng, start, gpus, gpu, nodes) if rng.random() < 0.55 else _by_levels(rng, gpus, gpu, nodes)
    )
    return _with_turns(rng, made, gpu, gpus)


def tuned(rng: np.random.Generator, start: float, gpus: int, gpu: SimGpu) -> Drawn:
    """Fine-tuning of minutes to hours on one node: the same work, with less of all around it."""
    if rng.random() < 0.5:
        model = training.input_bound(rng, start) if rng.random() < 0.25 else training.of_kind(rng, start, "tuning")
        made = Drawn(_widened(rng, model, gpus, gpu), "by steps", "mixed")
    else:
        made = _by_levels(rng, gpus, gpu, 1)
    return _with_turns(rng, made, gpu, gpus) if rng.random() < 0.7 else made


def debugged(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Profile:
    """What somebody's try at a training does to a GPU while it runs."""
    return _levels(rng, gpus, gpu, 1)


def _training_by_steps(rng: np.random.Generator, start: float, gpus: int, gpu: SimGpu, nodes: int) -> Drawn:
    if nodes > 1:
        network = rng.random() < 0.35
        model = training.network_bound(rng, start) if network else training.compute_bound(rng, start)
        sort = "network-bound" if network else "over nodes"
        widened = _widened(rng, model, gpus, gpu)
        return Drawn(widened, sort, "network" if network else "compute")
    draws = [(variants.on_one_gpu, "full", "compute"), (variants.starved, "starved", "host-input"),
             (variants.small_kernels, "small kernels", "latency"), (training.draw, "full", "compute"),
             (partial(training.of_kind, kind="pcie"), "offloaded", "pcie")]  # fmt: skip
    if gpus > 1 and gpu.nvlink:
        draws.append((variants.between_gpus, "between GPUs", "nvlink"))
    draw, sort, bottleneck = draws[int(rng.integers(0, len(draws)))]
    return Drawn(_widened(rng, draw(rng, start), gpus, gpu), sort, bottleneck)  # type: ignore[operator, arg-type]


def _widened(rng: np.random.Generator, model: training.Training, gpus: int, gpu: SimGpu) -> Model:
    """Steps of any length, weaker and stronger kernels, checkpoints small and large, other memory."""
    interval = log_uniform(rng, 600, 28800)
    model = model.but(
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
        model = model.but(nvlink_exposed=0.0, nvlink_hidden=0.0)
    return Remembering(inner=model, held=of_an_allocator(rng, interval), context_power=context_power(rng, gpu))


def _by_levels(rng: np.random.Generator, gpus: int, gpu: SimGpu, nodes: int) -> Drawn:
    """Training with invisible steps: too short, too uneven, or seen once a minute."""
    profile = _levels(rng, gpus, gpu, nodes)
    every = log_uniform(rng, 300, 20000)
    course = Steady(
        seed=salt(rng),
        level=rng.uniform(0.75, 1.0),
        wander=log_uniform(rng, 0.005, 0.2),
        wander_seconds=log_uniform(rng, 600, 40000),
        dip_every_seconds=every if rng.random() < 0.85 else 0.0,
        dip_seconds=min(log_uniform(rng, 5, 900), 0.3 * every),
        **drawn(rng, RANGES["jobs"]["by-levels"]),
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
        **drawn(rng, RANGES["jobs"]["levels"], "nodes-1" if nodes > 1 else "other"),
    )
    return linked(rng, profile, gpus, 0.01, 0.6)


def _with_turns(rng: np.random.Generator, made: Drawn, gpu: SimGpu, gpus: int) -> Drawn:
    """Half of all jobs evaluate, or generate between steps; the other half does nothing else."""
    if rng.random() < 0.5:
        return made
    every = log_uniform(rng, 900, 40000)
    share = log_uniform(rng, 0.01, 0.4)
    profile = Profile(**drawn(rng, RANGES["jobs"]["with-turns"]))
    profile = linked(rng, profile, gpus, 0.003, 0.1)
    course = Requests(
        demand=demand(rng, rng.uniform(0.6, 1.0), wavy=False),
        seed=salt(rng),
        slot_seconds=rng.uniform(2, 30),
        floor=0.5,
    )
    # What the evaluation holds is what the training took: an allocator gives nothing back.
    held = made.model.held if hasattr(made.model, "held") else of_an_allocator(rng, every)  # type: ignore[attr-defined]
    other = work(rng, gpu, profile, course, held)
    turns = Turns(
        usual=made.model,
        other=other,
        seed=salt(rng),
        every_seconds=every,
        other_seconds=every * share,
        irregular=rng.uniform(0, 0.3),
    )
    return Drawn(turns, f"{made.sort}, evaluating", made.bottleneck)


def session(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Drawn:
    """Somebody's kernel, shell or development pod: cells, tries, short trainings, and pauses to think."""
    debugging = rng.random() < 0.35
    desk = AtDesk(seed=salt(rng), **drawn(rng, RANGES["people"]["session"], "debugging" if debugging else "other"))
    profile = debugged(rng, gpus, gpu) if debugging else _cells(rng)
    low = log_uniform(rng, 0.01, 0.5)
    steps = Stepped(
        seed=salt(rng),
        low=low,
        high=min(low + rng.uniform(0.02, 0.6), 0.96),
        step_seconds=log_uniform(rng, 120, 7200),
        kept_chance=rng.uniform(0.1, 0.9),
    )
    held: Course = Worked(
        desk=desk, steps=steps, seed=salt(rng), freed_chance=0.0 if rng.random() < 0.5 else rng.uniform(0.1, 0.9)
    )
    if rng.random() < 0.15:
        held = Flat(level=rng.uniform(0.05, 0.95), load_seconds=60.0)
    sort = "debugging" if debugging else "cells"
    return Drawn(work(rng, gpu, profile, desk, held), sort, profile.bottleneck)


def leftover(rng: np.random.Generator, gpu: SimGpu) -> Drawn:
    """Memory and a context without use: clocks stay at their highest."""
    model = Holding(
        seed=salt(rng),
        mem_share=log_uniform(rng, 0.01, 0.95),
        context_power=context_power(rng, gpu),
        blip_chance=0.0 if rng.random() < 0.5 else rng.uniform(0.0, 0.3),
    )
    return Drawn(model, "held", "idle")


def _cells(rng: np.random.Generator) -> Profile:
    return Profile(**drawn(rng, RANGES["people"]["cells"]))


_QUEUES = ("generating", "encoding", "transcribing", "media", "small")


def queue(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Drawn:
    """One job that works off what is there, on GPUs of a node or on an instance."""
    if rng.random() < 0.3:
        return _queue_by_steps(rng, gpus, gpu)
    sort = _QUEUES[int(rng.choice(len(_QUEUES), p=[0.34, 0.24, 0.16, 0.14, 0.12]))]
    profile = _queue_profile(rng, sort, gpus)
    course, file_seconds = _worked_off(rng, sort)
    held: Course = of_an_engine(rng, course, file_seconds, restless=0.12)
    if rng.random() < 0.15:
        level = rng.uniform(0.05, 0.7)
        held = Sawtooth(seed=salt(rng), level=level, height=rng.uniform(0.02, 0.95 - level), every_seconds=file_seconds)
    writes = log_uniform(rng, 1e6, 6e8) if rng.random() < 0.4 else 0.0
    return Drawn(work(rng, gpu, profile, course, held, dips_write=writes), sort, profile.bottleneck)


def _queue_by_steps(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Drawn:
    made: Sequence[tuple[str, BottleneckLabel, Callable[[], Model]]] = (
        ("generating", "hbm-bandwidth", lambda: offline.generating(rng, gpus, gpu)),
        ("encoding", "compute", lambda: online.encoding(rng)),
        ("media", "host-input", lambda: offline.decoding_media(rng).but(duty=rng.uniform(0.1, 0.95))),
        ("offloaded", "pcie", lambda: offline.offloaded(rng)),
    )
    name, bottleneck, draw = made[int(rng.integers(0, 4))]
    inner = draw()
    model = offline.sharded(rng, inner) if rng.random() < 0.4 else inner
    held = Flat(level=rng.uniform(0.04, 0.97), load_seconds=log_uniform(rng, 20, 600))
    return Drawn(Remembering(inner=model, held=held, context_power=context_power(rng, gpu)), name, bottleneck)


def _worked_off(rng: np.random.Generator, sort: str) -> tuple[Steady, float]:
    """The history of a queue, and the seconds of one file of it: reading, working, writing."""
    file_seconds = log_uniform(rng, 30, 7200)
    pause = min(log_uniform(rng, 2, 600), 0.5 * file_seconds)
    steady = rng.random() < 0.45
    return Steady(
        seed=salt(rng),
        **drawn(rng, RANGES["queues"]["worked-off"], "sort-in-media-small" if sort in ("media", "small") else "other"),
        dip_every_seconds=0.0 if steady else file_seconds,
        dip_seconds=pause,
    ), file_seconds


def _queue_profile(rng: np.random.Generator, sort: str, gpus: int) -> Profile:
    compute, memory = {
        "generating": (rng.uniform(0.05, 0.6), rng.uniform(0.4, 0.98)),
        "encoding": (rng.uniform(0.3, 0.95), rng.uniform(0.1, 0.5)),
        "transcribing": (rng.uniform(0.05, 0.5), rng.uniform(0.1, 0.7)),
        "media": (rng.uniform(0.05, 0.7), rng.uniform(0.05, 0.5)),
        "small": (log_uniform(rng, 0.01, 0.3), log_uniform(rng, 0.02, 0.4)),
    }[sort]
    host = sort == "media"
    profile = Profile(
        compute=compute,
        memory=memory,
        **drawn(
            rng,
            RANGES["queues"]["profile"],
            "sort-small" if sort == "small" else "other",
            "sort-in-media-small-transcribing" if sort in ("media", "small", "transcribing") else "other",
            "host" if host else "other",
        ),
        pcie=log_uniform(rng, 1e-3, 0.3 if host else 0.05),
        disk_read=log_uniform(rng, 1e5, 1e9),
        disk_write=log_uniform(rng, 1e5, 1e8),
    )
    return linked(rng, profile, gpus, 0.003, 0.2) if sort == "generating" else profile


def service(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Drawn:
    """One online service, on any number of GPUs of a node or on an instance."""
    sort = _SORTS[int(rng.choice(len(_SORTS), p=_SHARES))]
    if sort == "engine":
        return _engine(rng, gpus, gpu)
    profile = _service(rng, sort, gpus)
    course, piece = _asked(rng, batched=sort in ("decode", "prefill", "embedding") and rng.random() < 0.6)
    held = of_an_engine(rng, course, piece, restless=0.8 if sort == "image" else 0.22)
    return Drawn(work(rng, gpu, profile, course, held), sort, profile.bottleneck)


def across(rng: np.random.Generator, gpu: SimGpu, *, sort: str) -> Drawn:
    """A service over several nodes: experts that exchange tokens, or one half of a disaggregated pair."""
    half = _service(rng, "prefill" if sort == "prefill-half" else "decode", 8)
    profile = dataclasses.replace(half, **drawn(rng, RANGES["services"]["experts" if sort == "experts" else "half"]))
    course, piece = _asked(rng, batched=True)
    held = of_an_engine(rng, course, piece, restless=0.05)
    return Drawn(work(rng, gpu, profile, course, held), sort, profile.bottleneck)


def _engine(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Drawn:
    """An engine by its step model: what decode or prefill costs on this SKU."""
    sort = int(rng.integers(0, 3))
    if sort == 0 and serving.MODELS[0][0] * 2 <= 0.7 * gpus * gpu.sku.mem_bytes:
        inner = serving.decode(rng, gpus, gpu).but(**drawn(rng, RANGES["services"]["engine-decode"]))
        bottleneck = "hbm-bandwidth" if inner.peak_in_flight > 4 else "latency"
    elif sort == 1:
        inner = online.prefill_heavy(rng, gpus, gpu).but(**drawn(rng, RANGES["services"]["engine-prefill"]))
        bottleneck = "compute"
    else:
        inner = serving.over_provisioned(rng, gpu).but(**drawn(rng, RANGES["services"]["engine-small"]))
        bottleneck = "latency"
    course, piece = _asked(rng, batched=False)
    held = of_an_engine(rng, course, piece, restless=0.05)
    return Drawn(Remembering(inner=inner, held=held, context_power=context_power(rng, gpu)), "engine", bottleneck)


def _asked(rng: np.random.Generator, *, batched: bool) -> tuple[Course, float]:
    """How a service is asked, and the seconds of a piece of its work."""
    draw = rng.random()  # many are hardly asked at all, a good part are used well, and some are never free
    mean = log_uniform(rng, 0.01, 0.35) if draw < 0.5 else rng.uniform(0.2, 1.2) if draw < 0.75 else rng.uniform(1.2, 6)
    if batched:
        return Batched(
            demand=demand(rng, mean), seed=salt(rng), most=rng.uniform(0.6, 0.995), waver=rng.uniform(0.02, 0.5)
        ), 60.0
    piece = log_uniform(rng, 1.5, 60)
    asked = demand(rng, mean)
    # The least that a piece asks is `floor`, as a share of the most.
    return Requests(demand=asked, seed=salt(rng), slot_seconds=piece, floor=rng.uniform(0.05, 0.8)), piece


def _decode(rng: np.random.Generator, gpus: int) -> Profile:
    memory = rng.uniform(0.2, 0.98)
    profile = Profile(
        compute=min(memory * log_uniform(rng, 0.04, 0.7), 0.9),
        memory=memory,
        **drawn(rng, RANGES["services"]["decode"]),
    )
    return linked(rng, profile, gpus, 0.005, 0.2)


def _service(rng: np.random.Generator, sort: str, gpus: int) -> Profile:
    if sort == "decode":
        return _decode(rng, gpus)
    profile = Profile(**drawn(rng, RANGES["services"][sort]))
    return linked(rng, profile, gpus, 0.02, 0.45) if sort == "prefill" else profile


_SORTS = ("decode", "prefill", "image", "embedding", "classic", "engine")
_SHARES = (0.26, 0.12, 0.2, 0.1, 0.14, 0.18)
