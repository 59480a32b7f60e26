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
from types import MappingProxyType

from ..base.sanitize import quoted
from ..base.suggestions import suggest
from ..base.typed_fields import Fields, packaged_fields

SCHEMA = "skuwise.kind-model/2"
FILE = "kind_model.yaml"
WEIGHT_MAX = 20.0  # log-odds; nothing that was fitted with a penalty comes near


@dataclass(frozen=True, slots=True)
class KindModel:
    """Log-odds of kinds: `intercepts`, and for each shape its `weights` at level 1.

    `slope`, `offset`: turn the log-odds of a verdict into those of its being right, as found on owners left out.
    `fingerprint`: of the shapes it was made for, `inputs`: of what it was made from. `trained`: what was noted then.
    """

    labels: tuple[str, ...]
    intercepts: Mapping[str, float]
    weights: Mapping[str, Mapping[str, float]]
    slope: float
    offset: float
    fingerprint: str
    inputs: str
    trained: Mapping[str, str]

    def calibrated(self, likelihood: float) -> float:
        """How often what is said with this likelihood (0..1) is right."""
        held = min(max(likelihood, 1e-6), 1 - 1e-6)
        return 1 / (1 + math.exp(-(self.slope * math.log(held / (1 - held)) + self.offset)))


def load_kind_model(
    labels: Sequence[str], shapes: Collection[str], fingerprint: str, file: Traversable | Path | None = None
) -> KindModel:
    """The model that ships (or `file`), for code that knows these labels and shapes.

    Raises RulesError, with file and line, where it is not for exactly them: another fingerprint, a shape or a label
    too many or too few, a weight that is no finite number of plausible size.
    """
    remedy = "Make it again with `make model`."
    fields = packaged_fields(file, FILE, SCHEMA, remedy)
    own = fields.text("fingerprint")
    intercepts = _by_label(fields.subtable("intercepts"), labels)
    table = fields.subtable("weights")
    weights: dict[str, Mapping[str, float]] = {}
    for name, entry in table.entries(lambda name: f"shape {quoted(name)}"):
        if name not in shapes:
            raise table.fault(name, f"unknown shape {quoted(name)}", suggest(name, shapes) or remedy)
        weights[name] = _by_label(entry, labels)
    missing = [name for name in shapes if name not in weights]
    if missing:
        raise table.fault(None, f"no weights for {', '.join(missing)}", remedy)
    if own != fingerprint:
        raise fields.fault("fingerprint", "it was made for other shapes than this version knows", remedy)
    noted = fields.subtable("trained")
    trained = {name: noted.text(name) for name in noted.table}
    told = fields.subtable("calibration")
    slope, offset = told.number("slope", minimum=0.2, maximum=5.0), told.number("offset", minimum=-5.0, maximum=5.0)
    model = KindModel(
        tuple(labels), intercepts, MappingProxyType(weights), slope, offset, own, fields.text("inputs"),
        MappingProxyType(trained),
    )  # fmt: skip
    fields.done()
    return model


def _by_label(fields: Fields, labels: Sequence[str]) -> Mapping[str, float]:
    return MappingProxyType({label: fields.number(label, minimum=-WEIGHT_MAX, maximum=WEIGHT_MAX) for label in labels})
