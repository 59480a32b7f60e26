"""Fitted weights and intervals: of kinds, of moves, of power. Made by `make`, reviewed as text."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ..base.sanitize import quoted
from ..base.typed import Count, Day, Positive, Share, Text, place, wrong
from ..base.yaml_loader import packaged_rules, read

KIND_FILE = "kind_model.yaml"
LogOdds = Annotated[float, Meta(ge=-20, le=20)]  # nothing that was fitted with a penalty comes near


@dataclass(frozen=True, slots=True)
class Calibration:
    """How log-odds as computed become log-odds of being right."""

    slope: Annotated[float, Meta(ge=0.2, le=5)]
    offset: Annotated[float, Meta(ge=-5, le=5)]


@dataclass(frozen=True, slots=True)
class KindModel:
    """Log-odds of kinds: `intercepts`, and for each shape its `weights` at level 1.

    `calibration`: turns the log-odds of a verdict into those of its being right, as found on owners left out.
    `fingerprint`: of the shapes it was made for, `inputs`: of what it was made from. `trained`: what was noted then.
    """

    intercepts: Mapping[str, LogOdds]
    weights: Mapping[str, Mapping[str, LogOdds]]
    calibration: Calibration
    fingerprint: str
    inputs: str
    trained: Mapping[str, Text]
    schema: Literal["skuwise.kind-model/2"] = "skuwise.kind-model/2"

    @property
    def labels(self) -> tuple[str, ...]:
        """The kinds that it tells apart."""
        return tuple(self.intercepts)

    def calibrated(self, likelihood: float) -> float:
        """How often what is said with this likelihood (0..1) is right."""
        told, held = self.calibration, min(max(likelihood, 1e-6), 1 - 1e-6)
        return 1 / (1 + math.exp(-(told.slope * math.log(held / (1 - held)) + told.offset)))


def load_kind_model(
    labels: Sequence[str], shapes: Collection[str], fingerprint: str, file: Traversable | Path | None = None
) -> KindModel:
    """The model that ships (or `file`), for code that knows these labels and shapes.

    Raises RulesError where it is not for exactly them: another fingerprint, a shape or a label too many or too few.
    """
    file = file or packaged_rules().joinpath(KIND_FILE)
    model = read(file, KindModel)
    wanted = {place("weights"): (model.weights, shapes), place("intercepts"): (model.intercepts, labels)}
    wanted |= {place("weights", name): (weights, labels) for name, weights in model.weights.items()}
    remedy = "Make it again with `make model`."
    for at, (found, known) in wanted.items():
        if other := sorted({*found} ^ {*known}):
            raise wrong(file, at, f"it has too much or lacks {', '.join(map(quoted, other))}", remedy)
    if model.fingerprint != fingerprint:
        raise wrong(file, "fingerprint", "it was made for other shapes than this version knows", remedy)
    return model


PROFILES_FILE = "move_profiles.yaml"
MOVE_FILE = "move_model.yaml"
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
    measured = read(packaged_rules().joinpath(MOVE_FILE), _Measured)
    return MoveModel(load_profiles(), measured.classes, measured.unseen)


POWER_FILE = "power_model.yaml"
Sigma = Annotated[float, Meta(gt=0, le=2)]
ClassName = Literal["without effect", "light", "heavy", "deep"]
Part = Annotated[float, Meta(gt=0, le=1)]


@dataclass(frozen=True, slots=True)
class PowerCurve:
    """Six figures, fitted on measured runs (what each means physically: docs/method.md).

    `follows`: share of the power above rest that follows the SM clock; above 1 where some of the rest does as well.
    `clock_exponent`: by which power of the clock. `clocked`: share of the kernels' work (in cubes of time) that follows
    the clock; the rest waits for memory. `bursts`: the exponent by which the mean draw tells the share of time in which
    kernels run. `overlap`: how sharply the longer of host and kernels rules. `drawn_of_cap`: what a GPU that is held by
    its cap draws of it on average.
    """

    follows: Annotated[float, Meta(gt=0, le=2)]
    clock_exponent: Annotated[float, Meta(gt=0, le=6)]
    clocked: Part
    bursts: Annotated[float, Meta(ge=0, le=1)]
    overlap: Annotated[float, Meta(ge=1, le=50)]
    drawn_of_cap: Annotated[float, Meta(gt=0, le=1.2)]


@dataclass(frozen=True, slots=True)
class Spread:
    """How far predictions of one class were off. `time`, `energy`: standard deviations of the logs of observed over
    predicted; `time_elsewhere`, `energy_elsewhere`: the same for an architecture of which no run was measured (the
    worst of the GPUs that were left out one by one). `lines`: how many measured lines it rests on. `up_to`: the
    slowdown that is predicted, at most; the mildest class first.
    """

    name: ClassName
    time: Sigma
    energy: Sigma
    time_elsewhere: Sigma
    energy_elsewhere: Sigma
    lines: int
    up_to: Annotated[float, Meta(ge=1)] = math.inf


@dataclass(frozen=True, slots=True)
class TypicalShare:
    """Share of the room between rest and rated power, and why it is this."""

    share: Part
    reason: Text


@dataclass(frozen=True, slots=True)
class Made:
    """Of what the model was made, and when."""

    date: Day
    lines: int
    runs: int
    source: Text


@dataclass(frozen=True, slots=True)
class PowerModel:
    """`classes`: by the predicted slowdown, rising; infinity last. `architectures`: those with measured runs.

    `lowest_cap_share`: the lowest cap that any run was measured under, as a share of the highest limit. `typical`:
    class of work -> share of the room between rest and rated power that it draws where nobody measured it;
    `typical_sigma`: of the log of that share.
    """

    schema: Literal["skuwise.power-model/1"]
    curve: PowerCurve
    classes: tuple[Spread, ...]
    architectures: frozenset[str]
    lowest_cap_share: Part
    typical: Mapping[str, TypicalShare]
    typical_sigma: Sigma
    typical_sigma_reason: Text
    made: Made

    def __post_init__(self) -> None:
        bounds = [class_.up_to for class_ in self.classes]
        if bounds != sorted(set(bounds)) or not bounds or bounds[-1] != math.inf:
            raise ValueError("'classes' must rise, the last without 'up_to'", "Make it again with `make power-model`.")

    def spread(self, slowdown: float, architecture: str) -> tuple[float, float]:
        """Sigmas of the log of time and of energy where `slowdown` (a time ratio) is predicted."""
        class_ = next(one for one in self.classes if slowdown <= one.up_to)
        if self.measured(architecture):
            return class_.time, class_.energy
        return class_.time_elsewhere, class_.energy_elsewhere

    def measured(self, architecture: str) -> bool:
        """Whether any run under a cap was measured on a GPU of this architecture."""
        return architecture.casefold() in self.architectures


@cache
def load_power_model() -> PowerModel:
    """The model that ships, read once: files of the package do not change under a running program."""
    return read_power_model()


def read_power_model(file: Traversable | Path | None = None) -> PowerModel:
    """As `load_power_model`, from another file. Raises RulesError, with file and key, where it is not such a file."""
    return read(file or packaged_rules().joinpath(POWER_FILE), PowerModel)
