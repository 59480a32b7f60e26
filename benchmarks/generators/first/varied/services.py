"""Online serving of every sort, from a probe a minute to an engine that is never free."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from skuwise.advisor.demo import serving
from skuwise.advisor.demo.hardware import SimGpu
from skuwise.advisor.demo.seeded_rng import log_uniform, salt

from ..loads import prefill
from .courses import Batched, Course, Requests, demand
from .drawn import Drawn, of_an_engine
from .work import Profile, Remembering, context_power, linked, work

_Sort = Callable[[np.random.Generator, int, SimGpu], Profile]


def service(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Drawn:
    """One online service, on any number of GPUs of a node or on an instance."""
    names = [*_SORTS, "engine"]
    sort = names[int(rng.choice(len(names), p=_SHARES))]
    if sort == "engine":
        return _engine(rng, gpus, gpu)
    profile = _SORTS[sort](rng, gpus, gpu)
    course, piece = _asked(rng, batched=sort in ("decode", "prefill", "embedding") and rng.random() < 0.6)
    held = of_an_engine(rng, course, piece, restless=0.8 if sort == "image" else 0.22)
    return Drawn(work(rng, gpu, profile, course, held), sort, profile.bottleneck)


def across(rng: np.random.Generator, gpu: SimGpu, *, sort: str) -> Drawn:
    """A service over several nodes: experts that exchange tokens, or one half of a disaggregated pair."""
    if sort == "experts":
        profile = dataclasses.replace(
            _decode(rng, 8, gpu), nvlink=rng.uniform(0.03, 0.5), fabric=log_uniform(rng, 0.01, 0.4)
        )
    else:
        half = _prefill if sort == "prefill-half" else _decode
        profile = dataclasses.replace(
            half(rng, 8, gpu), fabric=log_uniform(rng, 0.005, 0.25), asymmetry=rng.uniform(0.7, 0.99)
        )
    course, piece = _asked(rng, batched=True)
    held = of_an_engine(rng, course, piece, restless=0.05)
    return Drawn(work(rng, gpu, profile, course, held), sort, profile.bottleneck)


def _engine(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Drawn:
    """An engine by its step model: what decode or prefill costs on this SKU."""
    sort = int(rng.integers(0, 3))
    if sort == 0 and serving.MODELS[0][0] * 2 <= 0.7 * gpus * gpu.sku.mem_bytes:
        made = serving.decode(rng, gpus, gpu)
        asked = log_uniform(rng, 0.3, 120)
        inner = dataclasses.replace(
            made, peak_in_flight=asked, night_share=rng.uniform(0.02, 1.0), weekend_share=rng.uniform(0.2, 1.1),
            peak_hour_utc=rng.uniform(0, 24), burstiness=log_uniform(rng, 0.05, 1.5),
        )  # fmt: skip
        bottleneck = "hbm-bandwidth" if asked > 4 else "latency"
    elif sort == 1:
        inner = dataclasses.replace(
            prefill.prefill_heavy(rng, gpus, gpu), peak_load=log_uniform(rng, 0.02, 0.95),
            night_share=rng.uniform(0.02, 1.0), peak_hour_utc=rng.uniform(0, 24),
        )  # fmt: skip
        bottleneck = "compute"
    else:
        inner = dataclasses.replace(
            serving.over_provisioned(rng, nvlink=bool(gpu.nvlink)), peak_in_flight=log_uniform(rng, 0.2, 12),
            night_share=rng.uniform(0.02, 1.0), peak_hour_utc=rng.uniform(0, 24),
        )  # fmt: skip
        bottleneck = "latency"
    course, piece = _asked(rng, batched=False)
    held = of_an_engine(rng, course, piece, restless=0.05)
    return Drawn(Remembering(inner, held, context_power(rng, gpu)), "engine", bottleneck)


def _asked(rng: np.random.Generator, *, batched: bool) -> tuple[Course, float]:
    """How a service is asked, and the seconds of a piece of its work."""
    draw = rng.random()  # many are hardly asked at all, a good part are used well, and some are never free
    mean = log_uniform(rng, 0.01, 0.35) if draw < 0.5 else rng.uniform(0.2, 1.2) if draw < 0.75 else rng.uniform(1.2, 6)
    if batched:
        return Batched(demand(rng, mean), salt(rng), rng.uniform(0.6, 0.995), rng.uniform(0.02, 0.5)), 60.0
    piece = log_uniform(rng, 1.5, 60)
    return Requests(demand(rng, mean), salt(rng), piece, rng.uniform(0.05, 0.8)), piece


def _decode(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Profile:  # noqa: ARG001
    memory = rng.uniform(0.2, 0.98)
    profile = Profile(
        compute=min(memory * log_uniform(rng, 0.04, 0.7), 0.9),
        memory=memory,
        sm=rng.uniform(0.35, 0.97),
        occupancy=rng.uniform(0.08, 0.35),
        engine=rng.uniform(0.75, 1.0),
        cpu=rng.uniform(0.01, 0.3),
        pcie=log_uniform(rng, 1e-4, 0.03),
    )
    return linked(rng, profile, gpus, 0.005, 0.2)


def _prefill(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Profile:  # noqa: ARG001
    profile = Profile(
        compute=rng.uniform(0.35, 0.95),
        memory=rng.uniform(0.15, 0.55),
        sm=rng.uniform(0.6, 0.97),
        occupancy=rng.uniform(0.1, 0.4),
        engine=rng.uniform(0.8, 1.0),
        cpu=rng.uniform(0.01, 0.3),
        pcie=log_uniform(rng, 1e-4, 0.05),
    )
    return linked(rng, profile, gpus, 0.02, 0.45)


def _image(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Profile:  # noqa: ARG001
    """Images or video from a diffusion model, whose parts are brought in and put out for each request."""
    return Profile(
        compute=rng.uniform(0.25, 0.9),
        memory=rng.uniform(0.15, 0.65),
        sm=rng.uniform(0.5, 0.97),
        occupancy=rng.uniform(0.1, 0.4),
        engine=rng.uniform(0.6, 1.0),
        cpu=rng.uniform(0.02, 0.3),
        pcie=log_uniform(rng, 1e-3, 0.3),
        disk_read=log_uniform(rng, 1e5, 1e9),
    )


def _embedding(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Profile:  # noqa: ARG001
    return Profile(
        compute=rng.uniform(0.1, 0.85),
        memory=rng.uniform(0.1, 0.6),
        sm=rng.uniform(0.25, 0.95),
        occupancy=rng.uniform(0.08, 0.45),
        engine=rng.uniform(0.4, 1.0),
        cpu=rng.uniform(0.02, 0.7),
        pcie=log_uniform(rng, 1e-3, 0.1),
    )


def _classic(rng: np.random.Generator, gpus: int, gpu: SimGpu) -> Profile:  # noqa: ARG001
    """Small models: recommendation, vision, speech, where launches rule."""
    return Profile(
        compute=log_uniform(rng, 0.01, 0.35),
        memory=log_uniform(rng, 0.02, 0.45),
        sm=rng.uniform(0.05, 0.6),
        occupancy=rng.uniform(0.03, 0.3),
        engine=rng.uniform(0.2, 0.95),
        vector=rng.uniform(0.0, 0.3),
        cpu=rng.uniform(0.05, 0.8),
        pcie=log_uniform(rng, 1e-3, 0.1),
    )


_SORTS: dict[str, _Sort] = {
    "decode": _decode, "prefill": _prefill, "image": _image, "embedding": _embedding, "classic": _classic,
}  # fmt: skip
_SHARES: Sequence[float] = (0.26, 0.12, 0.2, 0.1, 0.14, 0.18)
