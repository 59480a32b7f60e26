"""The fitted models: of kinds (``kind_model.yaml``), moves (``move_profiles.yaml``, ``move_model.yaml``) and power
(``power_model.yaml``). Made by ``make model``, ``make move-model`` and ``make power-model``, and reviewed as text.
Published figures: power of idle GPUs (``resting_power.yaml``), and size and precision of language models
(``served_models.yaml``). A site cannot replace any of them."""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Literal

from msgspec import Meta

from .base.typed import Amount, AsOf, Count, Positive, Share, Sourced, Strict, Text, convert, wrong
from .base.yaml_loader import packaged_rules, read, read_table

KIND_FILE = "kind_model.yaml"
MOVE_FILE = "move_model.yaml"
POWER_FILE = "power_model.yaml"
TRAINING, EXPERTS = "training", "serving of experts"  # classes of work that telemetry shows, too
Z90 = 1.2815515655446004  # standard normal quantile of 0.9: half an 80 % interval in standard deviations
LogOdds = Annotated[float, Meta(ge=-20, le=20)]  # penalized fits are far below
Part = Annotated[float, Meta(gt=0, le=1)]
Sigma = Annotated[float, Meta(gt=0, le=2)]
ClassName = Literal["without effect", "light", "heavy", "deep"]


class Calibration(Strict, frozen=True):
    """From log-odds as computed to log-odds of being right."""

    slope: Annotated[float, Meta(ge=0.2, le=5)]
    offset: Annotated[float, Meta(ge=-5, le=5)]


class KindModel(Strict, frozen=True):
    """Log-odds of kinds: `intercepts`, and for each shape its `weights` at level 1. `calibration`: measured on owners
    left out. `fingerprint`: of its shapes, `inputs`: of its examples; `trained`: notes of the fit."""

    intercepts: Mapping[str, LogOdds]
    weights: Mapping[str, Mapping[str, LogOdds]]
    calibration: Calibration
    fingerprint: str
    inputs: str
    trained: Mapping[str, Text]
    schema: Literal["skuwise.kind-model/2"] = "skuwise.kind-model/2"

    def calibrated(self, likelihood: float) -> float:
        """The frequency of being right of a verdict with this likelihood (0..1)."""
        bounded = min(max(likelihood, 1e-6), 1 - 1e-6)
        log_odds = self.calibration.slope * math.log(bounded / (1 - bounded)) + self.calibration.offset
        return 1 / (1 + math.exp(-log_odds))


class Profile(Strict, frozen=True):
    """Shares of the time of one kind of work, which sum to 1, and the reason."""

    shares: Mapping[Literal["matrix", "memory", "vector", "latency"], Share]
    reason: Text


class Profiles(Strict, frozen=True):
    """Stated constants with their reasons. `profiles`: by name, shares of time on `reference`; `prefill_latency`: up to
    so many tokens in flight, the share of the time to read them that no faster GPU shortens; rising."""

    schema: Literal["skuwise.move-profiles/1"]
    reference: Text
    profiles: Mapping[str, Profile]
    prefill_latency: Annotated[tuple[tuple[int, Share], ...], Meta(min_length=1)]
    prefill_latency_reason: Text
    sequences_max: Count
    sequences_max_reason: Text
    as_of: AsOf

    @property
    def shares(self) -> Mapping[str, Mapping[str, float]]:
        """Profile -> part -> share of time on `reference`."""
        return {name: {**profile.shares} for name, profile in self.profiles.items()}

    def prompt_latency_share(self, tokens: float) -> float:
        """Share of the time to read prompts that a faster GPU does not shorten, with so many tokens in flight."""
        return next((share for most, share in self.prefill_latency if tokens <= most), self.prefill_latency[-1][1])


class Span(Strict, frozen=True):
    """The least and the most measured value."""

    least: Positive
    most: Positive


class WorkClass(Strict, frozen=True):
    """A class of work, as measured. `width`: half of the 80 % interval of the log of the time ratio, for a source and a
    model family without measurements; `lines`, `sources`, `families`: the number of measurements; `params`, `batch`:
    their range, None: unknown."""

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


class MoveModel(Strict, frozen=True):
    """`classes`: class of work -> error of its predictions. `unseen`: factor on the interval where an architecture was
    not measured with such work, or its sustained rate was never published. `made`: notes of the fit."""

    profiles: Profiles
    classes: Mapping[str, WorkClass]
    unseen: Annotated[float, Meta(ge=1, le=3)]
    made: Mapping[str, Text] = {}
    schema: Literal["skuwise.move-model/2"] = "skuwise.move-model/2"


class PowerCurve(Strict, frozen=True):
    """Six figures, fitted on measured runs (docs/method.md has their physics).

    `follows`: share of the power above idle that follows the SM clock; above 1 where some of the idle power does, too.
    `clock_exponent`: power of the clock. `clocked`: share of the kernels' work (in cubes of time) that follows the
    clock; the rest waits for memory. `bursts`: exponent from the mean power to the share of time in which kernels run.
    `overlap`: how sharply the longer of host and kernels dominates. `drawn_of_cap`: mean power of a GPU at its cap, as
    a share of the cap.
    """

    follows: Annotated[float, Meta(gt=0, le=2)]
    clock_exponent: Annotated[float, Meta(gt=0, le=6)]
    clocked: Part
    bursts: Share
    overlap: Annotated[float, Meta(ge=1, le=50)]
    drawn_of_cap: Annotated[float, Meta(gt=0, le=1.2)]


class Spread(Strict, frozen=True):
    """Errors of predictions of one class. `time`, `energy`: standard deviations of the logs of observed over predicted;
    `time_elsewhere`, `energy_elsewhere`: for an architecture without measured runs (the worst GPU left out). `lines`:
    measured lines. `up_to`: the largest predicted slowdown; classes rise."""

    name: ClassName
    time: Sigma
    energy: Sigma
    time_elsewhere: Sigma
    energy_elsewhere: Sigma
    lines: int
    up_to: float = math.inf


class TypicalShare(Strict, frozen=True):
    """Share of the range between idle and rated power, and the reason."""

    share: Part
    reason: Text


class PowerModel(Strict, frozen=True):
    """`classes`: by the predicted slowdown, rising; infinity last. `architectures`: those with measured runs.

    `lowest_cap_share`: the lowest measured cap, as a share of the highest limit. `typical`: class of work -> share of
    the range between idle and rated power without a measurement; `typical_sigma`: of the log of that share. `made`:
    date and data of the fit; its ``lines`` are measured runs.
    """

    schema: Literal["skuwise.power-model/1"]
    curve: PowerCurve
    classes: Annotated[tuple[Spread, ...], Meta(min_length=1)]
    architectures: frozenset[str]
    lowest_cap_share: Part
    typical: Mapping[str, TypicalShare]
    typical_sigma: Sigma
    typical_sigma_reason: Text
    made: Mapping[str, str | int]

    def spread(self, slowdown: float, architecture: str) -> tuple[float, float]:
        """Sigmas of the log of time and of energy where `slowdown` (a time ratio) is predicted."""
        spread = next(spread for spread in self.classes if slowdown <= spread.up_to)
        if self.measured(architecture):
            return spread.time, spread.energy
        return spread.time_elsewhere, spread.energy_elsewhere

    def measured(self, architecture: str) -> bool:
        """Whether any run under a cap was measured on a GPU of this architecture."""
        return architecture.casefold() in self.architectures


class RestingPower(Sourced, frozen=True):
    """Least and most power of one idle GPU with a CUDA context, watts; or as shares of the power limit. `basis`:
    published (measured) or assumed (from like parts)."""

    low: Amount
    high: Amount
    basis: Literal["published", "assumed"]


class RestingPowers(Strict, frozen=True):
    """`gpus`: by SKU. `shares`: of the power limit, for a GPU that has no entry."""

    gpus: Mapping[str, RestingPower]
    shares: RestingPower


class PublishedModel(Strict, frozen=True):
    """A family of models. `params`, `active_params`: parameters; None: its names have them, or it is dense."""

    precision: Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4", "int4"]
    params: Positive | None = None
    active_params: Positive | None = None


class ServedModels(Strict, frozen=True):
    """`models`: beginning of a model's name -> its family."""

    models: Mapping[str, PublishedModel] = {}

    def of(self, name: str) -> PublishedModel | None:
        """The family of a name in lower case, words separated by one dash: that of the longest matching beginning."""
        matching = [begin for begin in self.models if name == begin or name.startswith(f"{begin}-")]
        return self.models[max(matching, key=len)] if matching else None


def load_kind_model(labels: Sequence[str], shapes: Collection[str], fingerprint: str) -> KindModel:
    """The model of kinds, for code with these labels and shapes. Raises RulesError where it was made for others."""
    file = packaged_rules() / KIND_FILE
    model = read(file, KindModel)
    tables = (model.intercepts, *model.weights.values())
    if (model.fingerprint, {*model.weights}) != (fingerprint, {*shapes}) or any({*t} != {*labels} for t in tables):
        sentence = "it was made for other shapes or kinds than those of this version"
        raise wrong(file, "fingerprint", sentence, "Make it again with `make model`.")
    return model


# The other files that ship: none changes while a program runs.
load_profiles = partial(read, packaged_rules() / "move_profiles.yaml", Profiles)
load_resting_power = partial(read, packaged_rules() / "resting_power.yaml", RestingPowers)
load_served_models = partial(read, packaged_rules() / "served_models.yaml", ServedModels)
load_power_model = cache(partial(read, packaged_rules() / POWER_FILE, PowerModel))


@cache
def load_move_model() -> MoveModel:
    file = packaged_rules() / MOVE_FILE
    return convert(file, read_table(file), MoveModel, profiles=load_profiles())
