"""Reads ``served_models.yaml``: what the names of language models tell of their size and published precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType

from ..base.sanitize import quoted
from ..base.typed_fields import packaged_fields

PRECISIONS = ("fp32", "bf16", "fp16", "fp8", "int8", "fp4", "int4")


@dataclass(frozen=True, slots=True)
class PublishedModel:
    """A family of models. `params`, `active_params`: parameters; None: its names say them, or it is dense."""

    precision: str
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


def load_served_models(file: Traversable | Path | None = None) -> ServedModels:
    """The table that ships, or that of a file. Raises RulesError, with file and line, for what is not strictly that."""
    top = packaged_fields(file, "served_models.yaml")
    found: dict[str, PublishedModel] = {}
    for name, entry in top.subtable("models").entries(lambda name: f"model {quoted(name)}"):
        billions = entry.number_or_none("billions", above=0, maximum=10_000)
        active = entry.number_or_none("active_billions", above=0, maximum=10_000)
        if active is not None and (billions is None or active > billions):
            raise entry.fault(
                "active_billions", "'active_billions' is no part of 'billions'", "Give the whole as well."
            )
        model = PublishedModel(
            entry.text("precision", PRECISIONS),
            None if billions is None else billions * 1e9,
            None if active is None else active * 1e9,
        )
        for begin in entry.texts("names"):
            if found.setdefault(begin, model) is not model:
                raise entry.fault("names", f"{quoted(begin)} of {quoted(name)} exists already", "Keep one.")
    top.done()
    return ServedModels(MappingProxyType(found))
