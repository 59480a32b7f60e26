"""What a shape is: a number from 0 (not so) to 1 (clearly so), a sentence, and the kinds that it can speak for.

A shape may only ever raise the kinds it speaks for and lower those it speaks against; how much is fitted. So evidence
is monotone whatever examples a model was made from: more of a shape never argues the other way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cache
from string import Formatter

from ....rules.policy.labels import KindLabel
from ...core.coded_text import CodedText, coded
from ..features.features import Features

# Runs and duty counted over samples farther apart than this are of something else.
FINE_SECONDS = 5.0
T, F, O, B, I = KINDS = "training", "fine-tuning", "online-inference", "batch-inference", "interactive"  # noqa: E741


@dataclass(frozen=True, slots=True)
class KindSignal:
    """`measure`: 0..1 from the features; `sentence`: a template over the features and what `derived` adds to them.

    `speaks_for`, `speaks_against`: the kinds that it may raise and lower; of all others it says nothing.
    """

    name: str
    measure: Callable[[Features], float]
    sentence: str
    speaks_for: tuple[KindLabel, ...]
    speaks_against: tuple[KindLabel, ...]

    def level(self, features: Features) -> float:
        """How clearly it is so, 0..1. What cannot be said in words, because a number of it is missing, is 0."""
        level = self.measure(features)
        if level <= 0:
            return 0.0
        return level if features.keys() >= _named(self.sentence) or self._numbers(features) is not None else 0.0

    def told(self, features: Features) -> CodedText:
        """The statement (its code is ``shape-`` and the name), for features that give a level above 0."""
        return coded(f"shape-{self.name}", self.sentence, **(self._numbers(features) or {}))

    def _numbers(self, features: Features) -> dict[str, float] | None:
        """What the sentence names, or None where some of it is missing."""
        names = _named(self.sentence)
        known = features if features.keys() >= names else {**features, **derived(features)}
        return {name: known[name] for name in names} if known.keys() >= names else None

    def bounds(self, kind: str, most: float) -> tuple[float, float]:
        """The least and the most log-odds that it may add to a kind at level 1."""
        return (0.0 if kind not in self.speaks_against else -most, 0.0 if kind not in self.speaks_for else most)


def derived(features: Features) -> Mapping[str, float]:
    """Numbers that sentences name beside the features, those that can be told."""
    out: dict[str, float] = {}
    ratio = octaves(features)
    if ratio is not None:
        out["memory_times"], out["compute_times"] = 2**ratio, 2**-ratio
    for name, value in (("density", density(features)), ("busy", busy_share(features))):
        if value is not None:
            out[name] = value
    if "idle_run_hours" in features:
        out["pause_minutes"] = 60 * features["idle_run_hours"]
    out["days"] = features.get("chain_hours", 0.0) / 24
    return out


@cache
def _named(sentence: str) -> AbstractSet[str]:
    """What a sentence names, in its order."""
    return dict.fromkeys(name for _, name, _, _ in Formatter().parse(sentence) if name).keys()


def ramp(value: float | None, low: float, high: float) -> float:
    """0 up to `low`, 1 from `high` on, straight between; 0 where the value is missing. Falls where high < low."""
    if value is None or math.isnan(value):
        return 0.0
    return min(1.0, max(0.0, (value - low) / (high - low)))


def is_fine(features: Features) -> bool:
    """Whether its samples are near enough to one another to show seconds."""
    return features.get("resolution_seconds", 1.0) <= FINE_SECONDS


def busy_share(features: Features) -> float | None:
    """Share of the time at work: of the seconds where they are known, else the engine's mean."""
    engine = features.get("engine_active", features.get("sm_active"))
    return features.get("duty", engine) if is_fine(features) else engine


def octaves(features: Features) -> float | None:
    """Memory bandwidth over compute, each as a share of what the GPU sustains (else of its peak), in powers of two."""
    busy = max(
        features.get("hbm_of_sustained_busy_p95", features.get("hbm_utilization", 0.0)),
        features.get("tensor_of_sustained_busy_p95", features.get("tensor_utilization", 0.0)),
    )
    ratio = features.get("memory_over_compute")
    if ratio is None and "hbm_per_engine" in features and "tensor_per_engine" in features:
        ratio = features["hbm_per_engine"] / max(features["tensor_per_engine"], 0.01)
    return None if ratio is None or busy < 0.05 else math.log2(max(ratio, 1e-3))


def density(features: Features) -> float | None:
    """The more of compute and memory bandwidth, relative to the peak, that a second of busy engine holds."""
    if "hbm_per_engine" not in features or "tensor_per_engine" not in features:
        return None
    return max(features["hbm_per_engine"], features["tensor_per_engine"])
