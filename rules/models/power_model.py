"""Reads ``power_model.yaml``: power, time and energy of one GPU under a power cap or at a lower SM clock.

Made by ``make power-model`` from measured runs under caps; a text to be reviewed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ..base.typed import Day, Text
from ..base.yaml_loader import packaged_rules, read

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
