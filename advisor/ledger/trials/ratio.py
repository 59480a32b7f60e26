"""How long the same work takes on the target, over how long it takes on the source: a ratio with an interval.

Which measures tell it is decided by what both sides report, the surest first (docs/ledger.md, "Trials", has each
formula with its source). All figures are of one GPU: a ratio is of GPU-seconds for the same work, as predictions are.
How requests are split between the replicas is never assumed: balancers send them evenly, to whoever has the fewest in
flight, or a tenth to the new replica, and what a replica does at its load then tells of the balancer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...core.advice_types import Interval
from .sides import PairedHours

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Hours = npt.NDArray[np.intp]

# Engines that are busy for more of the time hide how much more they could do.
BUSY_MAX = 0.9
# A measure carries a trial where it was read in so many of its hours.
HOURS_MIN = 12
DRAWS, _MIDDLE_DRAWS = 400, 99
# Load and chance of one hour reach into the next: hours are drawn in runs of so many (circular block bootstrap,
# Politis and Romano 1992). A quarter of the day holds a morning's rise.
BLOCK_HOURS = 4
# By how much a basis errs beside chance, as the standard deviation of the logarithm of the ratio. All assumed: the
# trials of benchmarks/evaluation/trials.py hold them against simulated queues.
_ERRORS = {
    "tokens-at-equal-concurrency": 0.01, "tokens-per-busy-second": 0.03, "requests-at-equal-concurrency": 0.03,
    "requests-per-busy-second": 0.04, "energy-per-busy-second": 0.1,
}  # fmt: skip
# GPUs of one model differ from one another by so much (standard deviation of the logarithm; half of what is allowed
# for two replicas, outcome.TOLERANCE).
_REPLICA_ERROR = 0.025
# The share of a request's time that comes from the others beside it: 0 where memory bounds a step, 1 where arithmetic
# does. A fit leans on the prior as if it had been seen at loads so far apart, with so much of the weight of the hours.
_CROWD_PRIOR, _CROWD_PRIOR_SD = 0.35, 0.25
_PRIOR_APART, _PRIOR_WEIGHT = 0.15, 0.05
_FIT_ROUNDS = 8
# With more requests in a step both its time and its energy grow, from not at all to as much as the requests do. How
# much faster the energy grows (the slope of the logarithms) is drawn from here.
_ENERGY_GROWTH = (-0.5, 0.5)
# An engine between one by one (0) and all at once (1); a little beyond, so that an 80 % interval holds both.
_BATCHING = (-0.1, 1.1)
# How each basis reads in a sentence that begins with "measured by".
BASES: Mapping[str, str] = {
    "tokens-at-equal-concurrency": "tokens per second at the same number of requests in flight",
    "tokens-per-busy-second": "GPU-seconds of work per token",
    "requests-at-equal-concurrency": "requests per second at the same number of requests in flight",
    "requests-per-busy-second": "GPU-seconds of work per request",
    "energy-per-busy-second": "energy above idle per busy second and requests in flight (same GPU model)",
    "step-length": "step length",
}


@dataclass(frozen=True, slots=True)
class Compared:
    """A ratio of times and what it rests on: a key of `BASES`, over so many hours."""

    ratio: Interval
    basis: str
    hours: int


@dataclass(frozen=True, slots=True)
class NotCompared:
    """Why no ratio can be told: a code of `outcome.why_not`."""

    code: str


@dataclass(frozen=True, slots=True)
class Means:
    """What else is known of the sides. `shared`: other work held the same GPUs, so engines and power are not theirs.
    `rest_watts`: one GPU at rest, where both sides have whole GPUs of one model; None: they have not, or not known."""

    shared: bool = False
    rest_watts: float | None = None


def compare(hours: PairedHours, means: Means, rng: np.random.Generator) -> Compared | NotCompared:
    """The ratio by the surest basis that was read for long enough; `rng` draws its interval."""
    for basis, usable, draw in _bases(hours, means):
        kept = np.nonzero(usable)[0]
        if len(kept) < HOURS_MIN:
            continue
        interval = _interval(draw, kept, float(np.hypot(_ERRORS[basis], _REPLICA_ERROR)), rng)
        if interval is not None:
            return Compared(interval, basis, len(kept))
    return NotCompared(_why_none(hours, means))


def basis_so_far(hours: PairedHours, means: Means) -> str | None:
    """What a trial will rest on as far as its first hours tell."""
    counts = [(basis, int(usable.sum())) for basis, usable, _ in _bases(hours, means)]
    most = max((count for _, count in counts), default=0)
    return next((basis for basis, count in counts if count and count >= 0.5 * most), None)


# The logarithm of the ratio over each row of hours.
Draw = Callable[[Hours, np.random.Generator], Floats]


def _bases(h: PairedHours, means: Means) -> list[tuple[str, Mask, Draw]]:
    """Every basis in the order of trust, with the hours in which it can be used, and the logarithm of the ratio over
    some of them."""
    there, here = h.there, h.here
    own = np.full(len(h.ends), not means.shared)
    tokens, requests = _both(there.tokens, here.tokens), _both(there.requests, here.requests)
    running, busy = _both(there.running, here.running), _both(there.busy, here.busy) & own
    slack = busy & (np.fmax(there.busy, here.busy) <= BUSY_MAX)
    watts = _both(there.watts, here.watts) & busy & running
    rest = means.rest_watts
    return [
        ("tokens-at-equal-concurrency", tokens & running, _concurrency(h, there.tokens, here.tokens)),
        ("tokens-per-busy-second", tokens & slack, _busy(h, there.tokens, here.tokens)),
        ("requests-at-equal-concurrency", requests & running, _concurrency(h, there.requests, here.requests)),
        ("requests-per-busy-second", requests & slack, _busy(h, there.requests, here.requests)),
        ("energy-per-busy-second", watts & (rest is not None), _energy(h, rest or 0.0)),
    ]


def _both(one: Floats, other: Floats) -> Mask:
    with np.errstate(invalid="ignore"):
        return (one > 0) & (other > 0)


def _concurrency(h: PairedHours, there: Floats, here: Floats) -> Draw:
    """Little's law (1961): requests in flight over the rate is the time of each. That grows with concurrency, and a
    slower replica has more in flight, so both are compared at the same concurrency: time = a + b n on the source, and
    so many times that on the target. The line and the factor are fitted in turns, the line first by the source alone:
    beside a replica with few requests in flight, one that is faster would pass for a steeper line."""
    flight = h.there.running * h.there.gpus, h.here.running * h.here.gpus
    gpus = np.log(h.there.gpus / h.here.gpus)

    def draw(at: Hours, rng: np.random.Generator) -> Floats:
        n = flight[0][at], flight[1][at]
        times = h.there.running[at] / there[at], h.here.running[at] / here[at]
        w = here[at] / here[at].sum(axis=1, keepdims=True)
        prior = np.clip(rng.normal(_CROWD_PRIOR, _CROWD_PRIOR_SD, (len(at), 1)), 0.0, 0.95)
        factor = expected = np.ones((len(at), 1))
        for turn in range(_FIT_ROUNDS):
            both = np.hstack((w if turn else np.zeros_like(w), w))
            both = both / both.sum(axis=1, keepdims=True)
            x, y = np.hstack(n), np.hstack((times[0] / factor, times[1]))
            # Errors grow with the time itself: with what is expected, since weights by what was measured draw the line
            # to the hours that erred to below.
            weight = both / expected**2
            middle, level = ((both * one).sum(axis=1, keepdims=True) for one in (x, y))
            apart = middle * np.array([1 - _PRIOR_APART, 1 + _PRIOR_APART])
            x = np.hstack((x, apart))
            y = np.hstack((y, level * (1 - prior + prior * apart / middle)))
            weight = np.hstack((weight, np.broadcast_to(_PRIOR_WEIGHT / (level if turn else 1.0) ** 2, apart.shape)))
            total = weight.sum(axis=1, keepdims=True)
            mx, my = ((weight * one).sum(axis=1, keepdims=True) / total for one in (x, y))
            slope = (weight * (x - mx) * (y - my)).sum(axis=1, keepdims=True)
            slope = np.clip(slope / (weight * (x - mx) ** 2).sum(axis=1, keepdims=True), 0.0, 0.99 * my / mx)
            expected = my + slope * (np.hstack(n) - mx)
            line = expected[:, : at.shape[1]]
            factor = h.there.running[at].sum(axis=1, keepdims=True) / (there[at] * line).sum(axis=1, keepdims=True)
        return np.log(factor[:, 0]) + (w * gpus[at]).sum(axis=1)

    return draw


def _busy(h: PairedHours, there: Floats, here: Floats) -> Draw:
    """Time at work for each unit of work. An engine that takes requests one by one is busy for rate x time; one that
    takes all at once without slowing is busy whenever one is there, 1 - exp(-rate x time) (idle probability of M/G/1
    and M/G/infinity; Kleinrock 1975). A batching engine lies between the two, and so does what is drawn. The two differ
    least in quiet hours, so busy ones count no more than the median."""
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.log(there / here)
        one = np.log(h.there.busy / h.here.busy) - rate
        crowd = [-np.log1p(-np.minimum(side.busy, 0.999)) for side in (h.there, h.here)]
        many = np.log(crowd[0] / crowd[1]) - rate

    def draw(at: Hours, rng: np.random.Generator) -> Floats:
        w = np.minimum(h.here.busy[at], np.median(h.here.busy[at], axis=1, keepdims=True))
        w = w / w.sum(axis=1, keepdims=True)
        lines = [(w * each[at]).sum(axis=1) for each in (one, many)]
        return lines[0] + rng.uniform(*_BATCHING, len(at)) * (lines[1] - lines[0])

    return draw


def _energy(h: PairedHours, rest: float) -> Draw:
    """A step with as many requests takes the same energy above rest on the same chip at the same clocks, so the one
    that draws less while it is busy takes longer for it. With other numbers in flight, energy and time of a step differ
    anyway."""

    def draw(at: Hours, rng: np.random.Generator) -> Floats:
        there, here = h.there, h.here
        busy = [side.busy[at].sum(axis=1) for side in (there, here)]
        watts = [(side.watts[at] - rest).sum(axis=1) / own for side, own in zip((there, here), busy, strict=True)]
        flight = [side.running[at].sum(axis=1) / own for side, own in zip((there, here), busy, strict=True)]
        return np.log(watts[1] / watts[0]) + rng.uniform(*_ENERGY_GROWTH, len(at)) * np.log(flight[0] / flight[1])

    return draw


def _interval(draw: Draw, hours: Hours, error: float, rng: np.random.Generator) -> Interval | None:
    """Percentiles of the ratio over hours drawn in blocks; None: it cannot be formed."""
    count = len(hours)
    blocks = max(-(-count // BLOCK_HOURS), 2)
    starts = rng.integers(count, size=(DRAWS, blocks))
    at = ((starts[:, :, None] + np.arange(BLOCK_HOURS)) % count).reshape(DRAWS, -1)[:, :count]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = draw(hours[at], rng)
        middle = float(np.median(draw(np.tile(hours, (_MIDDLE_DRAWS, 1)), rng)))
    logs = logs[np.isfinite(logs)]
    if len(logs) < DRAWS / 2 or not np.isfinite(middle):
        return None
    # Few blocks spread too little, and their quantiles are those of Student's t (its 90th percentile over the normal's
    # is 1 + 0.66/f, Cornish and Fisher).
    free = blocks - 1
    logs = middle + (logs - np.median(logs)) * np.sqrt(blocks / free) * (1 + 0.66 / free)
    p10, p90 = np.percentile(logs + rng.normal(0.0, error, len(logs)), (10, 90))
    return Interval(*(float(np.exp(one)) for one in (min(p10, middle), middle, max(p90, middle))))


def _why_none(h: PairedHours, means: Means) -> str:
    if means.shared:
        return "trial-gpus-shared"
    there, here = h.there, h.here
    busy = _both(there.busy, here.busy)
    level = busy.any() or _both(there.running, here.running).any()
    rate = _both(there.tokens, here.tokens).any() or _both(there.requests, here.requests).any()
    if not rate:
        return "trial-split-unknown" if level else "trial-nothing-told"
    if not level:
        return "trial-load-unknown"
    with np.errstate(invalid="ignore"):
        full = np.fmax(there.busy, here.busy)[busy] > BUSY_MAX
    return "trial-saturated" if busy.any() and full.mean() >= 0.5 else "trial-too-few-hours"
