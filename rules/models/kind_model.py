"""The weights by which shapes speak for kinds (``kind_model.yaml``), as frozen values.

The file is text, made by ``make model`` and meant to be read in a review: no code is loaded with it. A site cannot
replace it; its own thresholds and priors are where a site has its say.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ..base.sanitize import quoted
from ..base.typed import Text, place, wrong
from ..base.yaml_loader import packaged_rules, read

FILE = "kind_model.yaml"
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
    file = file or packaged_rules().joinpath(FILE)
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
