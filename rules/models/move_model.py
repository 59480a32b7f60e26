"""The move model's figures: what typical work is made of, and how far predictions were off where they could be checked.

``move_profiles.yaml`` is stated by hand, ``move_model.yaml`` made by ``make move-model``; both are text to be reviewed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ..base.quantities import Share
from ..base.typed import Count, Day, Positive, Text
from ..base.yaml_loader import packaged_rules, read

PROFILES_FILE = "move_profiles.yaml"
MODEL_FILE = "move_model.yaml"
PARTS = ("matrix", "memory", "vector", "latency")
TRAINING, EXPERTS = "training", "serving of experts"  # classes of work by which telemetry is told too
Z90 = 1.2815515655446004  # standard normal quantile of 0.9: half an 80 % interval in standard deviations


@dataclass(frozen=True, slots=True)
class Profile:
    """Shares of the time that one kind of work takes, and why they are these."""

    matrix: Share
    memory: Share
    vector: Share
    latency: Share
    reason: Text

    def __post_init__(self) -> None:
        if abs(self.matrix + self.memory + self.vector + self.latency - 1) > 1e-6:
            raise ValueError("the shares do not sum to 1", "Correct them.")


@dataclass(frozen=True, slots=True)
class PrefillLatency:
    """Up to so many tokens in flight, the share of the time to read them that no faster GPU shortens."""

    tokens_up_to: int
    share: Annotated[float, Meta(ge=0, le=0.9)]


@dataclass(frozen=True, slots=True)
class Profiles:
    """The constants stated by hand, with their reasons. `profiles`: by name, shares of time on `reference`;
    `prefill_latency`: rising."""

    schema: Literal["skuwise.move-profiles/1"]
    reference: Text
    profiles: Mapping[str, Profile]
    prefill_latency: tuple[PrefillLatency, ...]
    prefill_latency_reason: Text
    sequences_max: Count
    sequences_max_reason: Text
    as_of: Day

    def __post_init__(self) -> None:
        steps = [(one.tokens_up_to, one.share) for one in self.prefill_latency]
        if not steps or steps != sorted(steps):
            raise ValueError("'prefill_latency' must rise", "Order the entries.")

    @property
    def shares(self) -> Mapping[str, Mapping[str, float]]:
        """Profile -> part -> share of time on `reference`."""
        return {name: {part: getattr(one, part) for part in PARTS} for name, one in self.profiles.items()}

    def prompt_latency_share(self, tokens: float) -> float:
        """Share of the time to read prompts that a faster GPU does not shorten, with so many tokens in flight."""
        steps = self.prefill_latency
        return next((step.share for step in steps if tokens <= step.tokens_up_to), steps[-1].share)


@dataclass(frozen=True, slots=True)
class Span:
    """From the least to the most of what was measured."""

    least: Positive
    most: Positive


@dataclass(frozen=True, slots=True)
class WorkClass:
    """One class of work, as measured. `width`: half of the 80 % interval of the log of the time ratio, for a source and
    a model family that nobody measured; `lines`, `sources`, `families`: what it rests on.

    `params`, `batch`: least and most of these lines; None: no line tells it.
    """

    width: Annotated[float, Meta(gt=0, le=3)]
    lines: Count
    sources: Count
    families: Count
    precisions: frozenset[str]
    architectures: frozenset[str]
    params: Span | None = None
    batch: Span | None = None

    @property
    def sigma(self) -> float:
        """Standard deviation of the log of the time ratio."""
        return self.width / Z90


@dataclass(frozen=True, slots=True)
class MoveModel:
    """`classes`: class of work -> how far predictions of it are off. `unseen`: by how much wider the interval is where
    an architecture was not measured with such work, or a sustained rate was never published."""

    profiles: Profiles
    classes: Mapping[str, WorkClass]
    unseen: float


@dataclass(frozen=True, slots=True)
class _Measured:
    schema: Literal["skuwise.move-model/2"]
    unseen: Annotated[float, Meta(ge=1, le=3)]
    classes: Mapping[str, WorkClass]
    made: Mapping[str, Text]


def load_profiles(file: Traversable | Path | None = None) -> Profiles:
    """The constants stated by hand. Raises RulesError, with file and key, for anything that is not strictly that."""
    return read(file or packaged_rules().joinpath(PROFILES_FILE), Profiles)


@cache
def load_move_model() -> MoveModel:
    """Profiles and calibration that ship, read once: files of the package do not change under a running program."""
    measured = read(packaged_rules().joinpath(MODEL_FILE), _Measured)
    return MoveModel(load_profiles(), measured.classes, measured.unseen)
