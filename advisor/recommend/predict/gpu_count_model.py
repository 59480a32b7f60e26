"""The same work on another number of the same GPUs: per-GPU compute and memory by N/N', ring traffic by 2(N'-1)/N'."""

from __future__ import annotations

from ...core.coded_text import coded
from ..prediction import (
    SIGMA_CHANGED_PARALLELISM,
    SIGMA_SAME_GPU,
    Factors,
    Phase,
    Prediction,
    Refusal,
    Use,
    not_measured,
    time_ratio,
)


def ring_share(gpus: int) -> float:
    """Bytes each GPU sends in a ring all-reduce, over the size of what is reduced: 2 (N-1) / N."""
    return 2.0 * (gpus - 1) / gpus


def count_factors(here: int, there: int) -> Factors:
    """How much longer each resource takes per GPU with `there` GPUs instead of `here` for the same work."""
    if min(here, there) < 1:
        raise ValueError("GPU count must be at least 1")
    each = here / there
    ring = ring_share(there) / ring_share(here) if here > 1 else None
    return Factors(c=each, m=each, p=each, n=ring, i=ring)


def predict_count(use: Use, phase: Phase, here: int, there: int) -> Prediction | Refusal:
    """Time with `there` GPUs over time with `here`, for work that is one unit on all of them (a job, a replica).

    Replicas of a service that serve side by side are no such unit: fewer of them carry more, at the same speed.
    """
    if here == there:
        return Prediction(1.0, SIGMA_SAME_GPU, "same count")
    refused = not_measured(use, "u_c", "u_m", "u_n", "u_i", "u_p")
    if refused is not None:
        return refused
    if here == 1:
        return Refusal(coded("exchange-not-seen", "one GPU does not show the traffic between several"))
    ratio = time_ratio(use, phase, count_factors(here, there))
    return Prediction(ratio, SIGMA_CHANGED_PARALLELISM, "parallelism changes; benchmark first")
