"""Courses over time at one value a second: steps, days, queues, spans."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

F = npt.NDArray[np.floating]  # 32 bits wherever there are many
Spans = Sequence[tuple[float, float]]
DAY = 86400
HOUR = 3600


def wander(rng: np.random.Generator, seconds: int, sigma: float, minutes: float = 10.0) -> F:
    """A slow course around 0 with the standard deviation `sigma`, its knots so far apart."""
    step = max(2, int(minutes * 60))
    knots = rng.normal(0, sigma, seconds // step + 3).astype(np.float32)
    knots = np.convolve(knots, (0.6, 0.8), mode="same").astype(np.float32)
    return np.interp(np.arange(seconds) / step, np.arange(len(knots)), knots).astype(np.float32)


def jitter(rng: np.random.Generator, seconds: int, sigma: float) -> F:
    """Noise of every second, around 1, never below 0."""
    return np.maximum(1 + sigma * rng.standard_normal(seconds, dtype=np.float32), 0)


def during(seconds: int, spans: Spans, start: float = 0.0) -> F:
    """The share of each second that lies in spans (of seconds since the same zero as `start`)."""
    out = np.zeros(seconds + 1, np.float64)
    for begin, end in spans:
        a, b = max(begin - start, 0.0), min(end - start, float(seconds))
        if b <= a:
            continue
        # The integral rises by 1 a second within the span: differences of a ramp, put in at both ends.
        for at, sign in ((a, 1.0), (b, -1.0)):
            whole = int(at)
            if whole < seconds:
                out[whole] += sign * (1 - (at - whole))
                out[whole + 1] += sign * (at - whole)
    return np.clip(np.cumsum(out)[:seconds], 0, 1).astype(np.float32)


def step_count(rng: np.random.Generator, seconds: int, period: float, unevenness: float) -> npt.NDArray[np.float64]:
    """How many steps are done at the begin of each second, and at the end of the last; the pace wanders."""
    pace = np.clip(1 + wander(rng, seconds, unevenness, 5) + wander(rng, seconds, unevenness, 0.2), 0.3, 3) / period
    return np.concatenate(([0.0], np.cumsum(pace, dtype=np.float64)))


def phase_share(steps: npt.NDArray[np.float64], low: float, high: float) -> F:
    """The share of each second in which the step's phase (0..1) lies between."""
    whole = np.floor(steps)
    done = whole * (high - low) + np.clip(steps - whole - low, 0, high - low)
    return (np.diff(done) / np.maximum(np.diff(steps), 1e-9)).astype(np.float32)


def day_course(t: npt.NDArray[np.float64], zone: float, depth: float, peak_hour: float, sharpness: float = 1.0) -> F:
    """Demand over the day, 1 at its peak and 1 - depth at its lowest. `t`: Unix seconds; `zone`: hours."""
    hour = (t / HOUR + zone) % 24
    wave = 0.5 * (1 + np.cos((hour - peak_hour) / 24 * 2 * np.pi))
    return (1 - depth + depth * wave**sharpness).astype(np.float32)


def is_weekend(t: npt.NDArray[np.float64], zone: float) -> npt.NDArray[np.bool_]:
    """Day 0 of Unix time was a Thursday."""
    return ((np.floor((t / HOUR + zone) / 24) + 3) % 7) >= 5


def in_system(rng: np.random.Generator, per_second: F, mean_seconds: float, spread: float = 1.0) -> F:
    """Requests in work at each second: Poisson arrivals, each served for a random time; parts of seconds count."""
    seconds = len(per_second)
    count = rng.poisson(np.maximum(per_second, 0))
    at = np.repeat(np.arange(seconds), count) + rng.random(int(count.sum()))
    long = mean_seconds * rng.lognormal(-0.5 * spread**2, spread, len(at))
    return _overlaps(at, np.minimum(at + long, seconds - 1e-3), seconds)


def _overlaps(begin: npt.NDArray[np.float64], end: npt.NDArray[np.float64], seconds: int) -> F:
    out = np.zeros(seconds + 2, np.float64)
    for at, sign in ((begin, 1.0), (end, -1.0)):
        whole = at.astype(np.int64)
        part = at - whole
        out += np.bincount(whole, sign * (1 - part), len(out))
        out += np.bincount(whole + 1, sign * part, len(out))
    return np.maximum(np.cumsum(out)[:seconds], 0).astype(np.float32)


def queued(rng: np.random.Generator, per_second: F, mean_seconds: float, spread: float = 0.5) -> F:
    """The share of each second in which one server, first come first served, works."""
    seconds = len(per_second)
    count = rng.poisson(np.maximum(per_second, 0))
    at = np.sort(np.repeat(np.arange(seconds), count) + rng.random(int(count.sum())))
    long = mean_seconds * rng.lognormal(-0.5 * spread**2, spread, len(at))
    done = np.cumsum(long)
    # Lindley: a request ends when all the work since the last rest is done.
    end = done + np.maximum.accumulate(at - (done - long)) if len(at) else done
    begin = end - long
    kept = begin < seconds - 1
    return np.minimum(_overlaps(begin[kept], np.minimum(end[kept], seconds - 1e-3), seconds), 1)


def sessions(
    rng: np.random.Generator, t0: float, seconds: int, zone: float, chance: float
) -> list[tuple[float, float]]:
    """Working sessions (seconds since `t0`): on working days, in working hours, a break for lunch."""
    out: list[tuple[float, float]] = []
    first = int(np.floor((t0 / HOUR + zone) / 24))
    for day in range(first, first + seconds // DAY + 2):
        weekend = ((day + 3) % 7) >= 5
        if rng.random() > (0.04 if weekend else chance):
            continue
        begin = (day * 24 - zone + rng.uniform(8, 11)) * HOUR - t0
        lunch = begin + rng.uniform(2.5, 4) * HOUR
        end = begin + rng.uniform(6, 10) * HOUR
        out += [(begin, lunch), (lunch + rng.uniform(0.5, 1.2) * HOUR, end)]
    return [(max(a, 0.0), min(b, float(seconds))) for a, b in out if b > 0 and a < seconds]
