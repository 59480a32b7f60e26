"""Published figures: power of idle GPUs (``resting_power.yaml``), and size and precision of language models
(``served_models.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

from ..base.sanitize import quoted
from ..base.typed import Day, Share, Strict, Text, place, wrong
from ..base.yaml_loader import packaged_rules, read

Precision = Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4", "int4"]
Watts = Annotated[float, Meta(ge=0, le=2000)]
Billions = Annotated[float, Meta(gt=0, le=10_000)]


class WattsSpan(Strict, frozen=True):
    """The least and the most."""

    low: Watts
    high: Watts


class ShareSpan(Strict, frozen=True):
    """The least and the most share of the power limit, and its source."""

    low: Share
    high: Share
    source: Text
    as_of: Day


class RestingPower(Strict, frozen=True):
    """Lowest and highest power of one idle GPU with a CUDA context, in watts.

    `basis`: published (a measurement) or assumed (from comparable parts).
    """

    watts: WattsSpan
    basis: Literal["published", "assumed"]
    source: Text
    as_of: Day


class RestingPowers(Strict, frozen=True):
    """`gpus`: by SKU. `shares`: of the power limit, for a GPU that has no entry."""

    gpus: Mapping[str, RestingPower]
    shares: ShareSpan


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A family of models. `params`, `active_params`: parameters; None: its names have them, or it is dense."""

    precision: Precision
    params: float | None = None
    active_params: float | None = None


@dataclass(frozen=True, slots=True)
class ServedModels:
    """`by_name`: beginning of a model's name -> its family."""

    by_name: Mapping[str, PublishedModel] = field(default_factory=dict)

    def of(self, name: str) -> PublishedModel | None:
        """The family of a name in lower case, words separated by one dash: that of the longest matching beginning."""
        matching = [begin for begin in self.by_name if name == begin or name.startswith(f"{begin}-")]
        return self.by_name[max(matching, key=len)] if matching else None


class _Family(Strict, frozen=True):
    precision: Precision
    names: tuple[Text, ...]
    billions: Billions | None = None
    active_billions: Billions | None = None


class _Models(Strict, frozen=True):
    models: Mapping[str, _Family]


def load_resting_power() -> RestingPowers:
    """The power of idle GPUs that ships."""
    return read(packaged_rules().joinpath("resting_power.yaml"), RestingPowers)


def load_served_models() -> ServedModels:
    """The families of language models that ship. Raises RulesError for a name of two families."""
    file = packaged_rules().joinpath("served_models.yaml")
    by_name: dict[str, PublishedModel] = {}
    for id_, family in read(file, _Models).models.items():
        params, active = (size and size * 1e9 for size in (family.billions, family.active_billions))
        model = PublishedModel(family.precision, params, active)
        for begin in family.names:
            if by_name.setdefault(begin, model) is not model:
                raise wrong(file, place("models", id_, "names"), f"{quoted(begin)} exists already", "Keep one.")
    return ServedModels(by_name)
