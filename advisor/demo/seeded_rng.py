"""Randomness of a seed, a name and the time alone, so that any second can be made alone; ranges to draw from."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]

# What the demo is made of. The file says how ranges are written.
TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("fleets.toml").read_text(encoding="utf-8"))

_MASK = (1 << 64) - 1


def stream(seed: int, *names: str) -> np.random.Generator:
    """The generator that belongs to `names` (a node, a workload): others may come and go without moving it."""
    return np.random.default_rng([seed, *(crc32(name.encode()) for name in names)])


def salt(rng: np.random.Generator) -> int:
    """A seed for `uniform_at` and `smooth`, drawn once for a workload."""
    return int(rng.integers(0, 2**62))


def uniform_at(seed: int, index: npt.NDArray[np.integer]) -> Floats:
    """A uniform number in [0, 1) for every integer of `index`: the same integer gives the same number (splitmix64)."""
    x = index.astype(np.uint64) + np.uint64((seed * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & _MASK)
    x *= np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53


def smooth(seed: int, t: Floats, timescale_seconds: float) -> Floats:
    """Noise about 0 with a spread of about 0.8 that wanders on `timescale_seconds`: drawn at knots, linear between."""
    position = t / timescale_seconds
    knot = np.floor(position).astype(np.int64)
    share = position - knot
    return _bell(seed, knot) * (1 - share) + _bell(seed, knot + 1) * share


def _bell(seed: int, index: npt.NDArray[np.integer]) -> Floats:
    # Three uniforms summed: bell-shaped, variance 1, and bounded by 3, so that no signal runs away.
    return 2 * (uniform_at(seed, index) + uniform_at(seed + 1, index) + uniform_at(seed + 2, index) - 1.5)


def day_level(t: Floats, night_share: float, weekend_share: float, peak_hour_utc: float) -> Floats:
    """Demand at `t` as a share of a weekday's peak: a wave of 24 h down to `night_share`, less at weekends."""
    hour = (t / 3600) % 24
    day = 0.5 + 0.5 * np.cos(2 * np.pi * (hour - peak_hour_utc) / 24)
    weekday = (np.floor(t / 86400).astype(np.int64) + 3) % 7  # 1 January 1970 was a Thursday
    return (night_share + (1 - night_share) * day) * np.where(weekday >= 5, weekend_share, 1.0)


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """Drawn so that every octave between `low` and `high` is equally likely: for times and sizes."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def drawn(rng: np.random.Generator, ranges: Mapping[str, object], *chosen: str) -> dict[str, Any]:
    """Parameters of a workload from their ranges, in their order. `chosen`: which of a parameter's cases."""
    return {name: _value(rng, what, chosen) for name, what in ranges.items()}


def _value(rng: np.random.Generator, what: object, chosen: tuple[str, ...]) -> Any:  # noqa: ANN401 - as in the file
    match what:
        case [low, high]:
            return rng.uniform(low, high)
        case {"log": [low, high]}:
            return log_uniform(rng, low, high)
        case {"chance": share, "then": then, "else": other}:
            return _value(rng, then if rng.random() < share else other, chosen)
        case {"chance": share}:
            return bool(rng.random() < share)
        case {**cases} if cases:
            return _value(rng, next(case for name, case in cases.items() if name in chosen), chosen)
    return what
