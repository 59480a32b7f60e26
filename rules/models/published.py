"""Published figures: power of idle GPUs (``resting_power.yaml``), and size and precision of language models
(``served_models.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta

from ..base.typed import Day, Share, Strict, Text
from ..base.yaml_loader import packaged_rules, read

Precision = Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4", "int4"]
Watts = Annotated[float, Meta(ge=0, le=2000)]
Parameters = Annotated[float, Meta(gt=0, le=1e13)]


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


class PublishedModel(Strict, frozen=True):
    """A family of models. `params`, `active_params`: parameters; None: its names have them, or it is dense."""

    precision: Precision
    params: Parameters | None = None
    active_params: Parameters | None = None


class ServedModels(Strict, frozen=True):
    """`models`: beginning of a model's name -> its family."""

    models: Mapping[str, PublishedModel] = {}

    def of(self, name: str) -> PublishedModel | None:
        """The family of a name in lower case, words separated by one dash: that of the longest matching beginning."""
        matching = [begin for begin in self.models if name == begin or name.startswith(f"{begin}-")]
        return self.models[max(matching, key=len)] if matching else None


def load_resting_power() -> RestingPowers:
    """The power of idle GPUs that ships."""
    return read(packaged_rules().joinpath("resting_power.yaml"), RestingPowers)


def load_served_models() -> ServedModels:
    """The families of language models that ship."""
    return read(packaged_rules().joinpath("served_models.yaml"), ServedModels)
