"""Fits what a step of generation takes beyond sustained rates: `DecodeFactors`, on measured times per output token.

Least squares on logs, softly (soft L1 beyond 10 %), every model family with one voice. What counts is how the time
changes from one GPU to the other; the level in seconds enters with LEVEL of that weight, so that factors stay what
their names say. Each log is drawn toward a stated start by PRIOR.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from skuwise.advisor.recommend.predict.typical_work import Question, StepTerms, step_parts, step_terms
from skuwise.advisor.recommend.sustained_rates import clock_ratio, rates_of
from skuwise.rules.catalog.types import GpuSku
from skuwise.rules.models.move_model import DecodeFactors, Profiles

from .decode_pairs import DecodeRun

# Where the fit begins: some launches of 6 us a layer, an exchange of 15 us, 10 us of the engine's own for a sequence,
# what GPUs sustain; more launches in a layer of experts (routing, permutation, two grouped products).
START = DecodeFactors(
    layer_seconds=6e-6,
    expert_layer_seconds=6e-5,
    exchange_seconds=1.5e-5,
    sequence_seconds=1e-5,
    weights=1.0,
    cache=1.5,
    products=1.1,
)
NAMES = tuple(DecodeFactors.__dataclass_fields__)
LEVEL = 0.1
PRIOR = 0.05
SOFT = 0.1  # of the log: beyond it an error counts by its amount and no longer by its square

Array = NDArray[np.float64]


def fit_decode(runs: Sequence[DecodeRun], reference: GpuSku, profiles: Profiles) -> DecodeFactors:
    """The factors that fit these runs; the start where there are none."""
    if not runs:
        return START
    sides = [_side([r.decode.question for r in runs], skus, reference, profiles) for skus in _skus(runs)]
    seconds = [np.log(np.array([r.token_seconds[n] for r in runs])) for n in (0, 1)]
    count = Counter(r.family for r in runs)
    voice = np.sqrt(np.array([len(runs) / (len(count) * count[r.family]) for r in runs]))
    start = np.log(np.array([getattr(START, name) for name in NAMES]))

    def errors(x: Array) -> Array:
        factors = _factors(x)
        here, there = (np.log(_seconds(side, factors)) - told for side, told in zip(sides, seconds, strict=True))
        change, level = there - here, (there + here) / 2
        prior = PRIOR * np.sqrt(len(runs)) * (x - start)
        return np.concatenate([voice * change, LEVEL * voice * level, prior])

    found = least_squares(errors, start, loss="soft_l1", f_scale=SOFT).x
    # Three digits are more than the data tell, and can be read in a review.
    return DecodeFactors(*(float(f"{value:.3g}") for value in np.exp(found)))


def _skus(runs: Sequence[DecodeRun]) -> tuple[list[GpuSku], list[GpuSku]]:
    return [r.decode.a for r in runs], [r.decode.b for r in runs]


def _side(questions: Sequence[Question], skus: Sequence[GpuSku], reference: GpuSku, profiles: Profiles) -> StepTerms:
    """The terms of all runs on one of their GPUs, as arrays."""
    found = []
    for question, sku in zip(questions, skus, strict=True):
        rates, standard = rates_of(sku, question.precision), rates_of(reference, question.precision)
        assert rates is not None
        assert standard is not None
        clock = clock_ratio(standard.clock_hertz, rates.clock_hertz)
        found.append(step_terms(question, sku.mem_bytes, rates, profiles, clock)[0])
    names = StepTerms.__dataclass_fields__
    return StepTerms(**{name: np.array([getattr(one, name) for one in found], dtype=float) for name in names})


def _seconds(terms: StepTerms, factors: DecodeFactors) -> Array:
    return np.sum(np.stack([np.asarray(part, dtype=float) for part in step_parts(terms, factors).values()]), axis=0)


def _factors(x: Array) -> DecodeFactors:
    return DecodeFactors(*(float(value) for value in np.exp(x)))
