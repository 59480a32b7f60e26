"""Published figures: draw at rest of GPUs, and size and precision of language models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ..base.sanitize import quoted
from ..base.typed import Day, Text, place, wrong
from ..base.yaml_loader import packaged_rules, read


@dataclass(frozen=True, slots=True)
class Watts:
    """From the least to the most."""

    low: Annotated[float, Meta(ge=0, le=2000)]
    high: Annotated[float, Meta(ge=0, le=2000)]

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("'low' is above 'high'", "Swap them.")


@dataclass(frozen=True, slots=True)
class Shares(Watts):
    """The same as shares of the power limit, and who says so."""

    source: Text
    as_of: Day

    def __post_init__(self) -> None:
        Watts.__post_init__(self)
        if self.high > 1:
            raise ValueError("a share is at most 1", "Correct it.")


@dataclass(frozen=True, slots=True)
class RestingPower:
    """Lowest and highest draw of one GPU at rest with a context held, in watts.

    `basis`: published (somebody measured it) or assumed (taken from comparable parts).
    """

    watts: Watts
    basis: Literal["published", "assumed"]
    source: Text
    as_of: Day


@dataclass(frozen=True, slots=True)
class RestingPowers:
    """`gpus`: by SKU. `shares`: of the power limit, for a GPU that has no entry."""

    gpus: Mapping[str, RestingPower]
    shares: Shares


def load_resting_power(file: Traversable | Path | None = None) -> RestingPowers:
    """The table that ships, or that of a file. Raises RulesError, with file and key, for what is not strictly that."""
    return read(file or packaged_rules().joinpath("resting_power.yaml"), RestingPowers)


Precision = Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4", "int4"]
Billions = Annotated[float, Meta(gt=0, le=10_000)]


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A family of models. `params`, `active_params`: parameters; None: its names say them, or it is dense."""

    precision: Precision
    params: float | None = None
    active_params: float | None = None


@dataclass(frozen=True, slots=True)
class ServedModels:
    """`by_name`: beginning of a model's name -> what it is."""

    by_name: Mapping[str, PublishedModel] = field(default_factory=dict)

    def of(self, name: str) -> PublishedModel | None:
        """The family of a name in lower case, words parted by one dash: that of the longest beginning that fits."""
        fits = [begin for begin in self.by_name if name == begin or name.startswith(f"{begin}-")]
        return self.by_name[max(fits, key=len)] if fits else None


@dataclass(frozen=True, slots=True)
class _Family:
    precision: Precision
    names: tuple[Text, ...]
    billions: Billions | None = None
    active_billions: Billions | None = None

    def __post_init__(self) -> None:
        if self.active_billions is not None and (self.billions is None or self.active_billions > self.billions):
            raise ValueError("'active_billions' is no part of 'billions'", "Give the whole as well.")


@dataclass(frozen=True, slots=True)
class _File:
    models: Mapping[str, _Family]


def load_served_models(file: Traversable | Path | None = None) -> ServedModels:
    """The table that ships, or that of a file. Raises RulesError, with file and key, for what is not strictly that."""
    file = file or packaged_rules().joinpath("served_models.yaml")
    found: dict[str, PublishedModel] = {}
    for name, one in read(file, _File).models.items():
        params, active = (None if size is None else size * 1e9 for size in (one.billions, one.active_billions))
        model = PublishedModel(one.precision, params, active)
        for begin in one.names:
            if found.setdefault(begin, model) is not model:
                raise wrong(file, place("models", name, "names"), f"{quoted(begin)} exists already", "Keep one.")
    return ServedModels(found)
