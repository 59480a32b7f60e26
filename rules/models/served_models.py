"""Reads ``served_models.yaml``: what the names of language models tell of their size and published precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ..base.sanitize import quoted
from ..base.typed import Text, place, wrong
from ..base.yaml_loader import packaged_rules, read

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
