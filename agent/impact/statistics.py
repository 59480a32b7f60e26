"""From times of runs to a slowdown with its interval. Pure; randomness is injected."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEVEL = 0.95
_DRAWS = 4000
# The widest interval that n rounds allow for a median, from the least to the greatest of them, holds it with
# probability 1 - 2^(1-n): 0.969 for six, 0.938 for five. Below six, no 95 % interval can be given.
MIN_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class Slowdown:
    """How much longer the work took than without an agent: 0.01 is one percent; below 0 it was faster.

    `low` and `high` bound the median over rounds at the level of 95 %; None: too few rounds for that.
    """

    median: float
    low: float | None
    high: float | None
    rounds: int

    @property
    def is_distinguishable(self) -> bool | None:
        """Whether the interval leaves out 0; None: there is none."""
        if self.low is None or self.high is None:
            return None
        return self.low > 0 or self.high < 0


def orders(modes: Sequence[str], rounds: int, rng: random.Random) -> list[tuple[str, ...]]:
    """Every mode once a round, each round in an order of its own, so that a drift meets all alike."""
    return [tuple(rng.sample(modes, len(modes))) for _ in range(rounds)]


def slowdowns(
    seconds: Mapping[str, Sequence[float]], baseline: str, rng: random.Random, draws: int = _DRAWS
) -> dict[str, Slowdown]:
    """For each mode but `baseline`: its time over that of the same round, less 1.

    The interval is a percentile bootstrap over rounds (Efron and Tibshirani, 1993): rounds are drawn, not runs, so that
    what a round's runs share does not count as noise. Raises ValueError for a time that is not above 0, and for modes
    of different lengths.
    """
    found: dict[str, Slowdown] = {}
    for mode, times in seconds.items():
        if mode != baseline:
            pairs = zip(times, seconds[baseline], strict=True)
            found[mode] = _of_logs([math.log(watched) - math.log(alone) for watched, alone in pairs], rng, draws)
    return found


def _of_logs(logs: Sequence[float], rng: random.Random, draws: int) -> Slowdown:
    median = math.expm1(statistics.median(logs))
    if len(logs) < MIN_ROUNDS:
        return Slowdown(median, None, None, len(logs))
    medians = sorted(statistics.median(rng.choices(logs, k=len(logs))) for _ in range(draws))
    tail = int(draws * (1 - LEVEL) / 2)
    return Slowdown(median, math.expm1(medians[tail]), math.expm1(medians[draws - 1 - tail]), len(logs))
