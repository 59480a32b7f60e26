"""A site's own correction of the kinds' model (``kind_correction.yaml`` in its rules folder), as a frozen value.

```yaml
schema: skuwise.kind-correction/1
model: "0f3c2a9d51e7b648"
labels: {training: 14, online-inference: 22}
temperature: 1.2
intercepts: {online-inference: 0.41, interactive: -0.62}
shapes:
  steady: {batch-inference: -0.2, online-inference: 0.25}
cross_validated: {right_before: 0.61, right_after: 0.83, loss_before: 1.21, loss_after: 0.52}
```

`skuwise kinds fit` makes it from labelled work. It is data: shifts of log-odds against the model that ships. One that
was fitted against the model of another version does not fit this one's: it is left aside, and that is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

from ..base.sanitize import quoted
from ..base.suggestions import suggest
from ..base.typed_fields import Fields
from ..base.yaml_loader import read_table, rules_root
from .kind_model import KindModel

SCHEMA = "skuwise.kind-correction/1"
CORRECTION_FILE = "kind_correction.yaml"
SHIFT_MAX = 5.0  # log-odds: what is fitted with its penalty stays far below
_REMEDY = "Make it anew with `skuwise kinds fit`."
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_LABELS_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """Scores of labelled work by models that had not seen it: shares right (0..1) and mean surprises (nats), with the
    model that ships and with a correction fitted on the rest."""

    right_before: float
    right_after: float
    loss_before: float
    loss_after: float


@dataclass(frozen=True, slots=True)
class KindCorrection:
    """Shifts of log-odds, at the temperature of the model that ships: of kinds, and of shapes at level 1 by kind.

    What is not named is not shifted. `temperature` divides all log-odds after that. `model`: the digest of the model
    it was fitted against. `labels`: how many labelled workloads of each kind it was fitted on.
    """

    model: str
    labels: Mapping[str, int]
    temperature: float
    intercepts: Mapping[str, float]
    shapes: Mapping[str, Mapping[str, float]]
    cross_validated: CrossValidation

    @property
    def count(self) -> int:
        """Labelled workloads that it was fitted on."""
        return sum(self.labels.values())

    def fits(self, model: KindModel) -> bool:
        """Whether it was fitted against this model."""
        return self.model == digest(model) and set(self.shapes) <= set(model.weights)


def digest(model: KindModel) -> str:
    """What a correction is fitted against: every log-odds of the model."""
    said = [
        *(f"{label} {model.intercept(label):.6f}" for label in model.labels),
        *(f"{s} {label} {model.weight(s, label):.6f}" for s in sorted(model.weights) for label in model.labels),
    ]
    return sha256("\n".join(said).encode()).hexdigest()[:16]


def corrected(model: KindModel, correction: KindCorrection) -> KindModel:
    """The model with a correction's shifts in it; its own fingerprint and inputs stay."""
    # Shifts are of log-odds as they count, the model's numbers are before its temperature.
    scale = model.temperature
    intercepts = {
        label: value + scale * correction.intercepts.get(label, 0.0) for label, value in model.intercepts.items()
    }
    weights = {
        shape: {
            label: value + scale * correction.shapes.get(shape, {}).get(label, 0.0) for label, value in by_label.items()
        }
        for shape, by_label in model.weights.items()
    }
    return replace(
        model,
        intercepts=MappingProxyType(intercepts),
        weights=MappingProxyType(weights),
        temperature=scale * correction.temperature,
    )


def load_kind_correction(rules_dir: Path | None, labels: Sequence[str]) -> KindCorrection | None:
    """The correction in a site's rules folder; None where it has none. `labels`: the kinds that a model tells apart.

    Raises RulesError with file and line.
    """
    root = rules_root(rules_dir)
    path = root / CORRECTION_FILE if root is not None else None
    return read_kind_correction(path, labels) if path is not None and path.is_file() else None


def read_kind_correction(path: Path, labels: Sequence[str]) -> KindCorrection:
    """A correction by its file. Raises RulesError with file and line."""
    fields = Fields(str(path), read_table(path), "this correction")
    if fields.text("schema") != SCHEMA:
        raise fields.fault("schema", f"the schema is not {SCHEMA}", _REMEDY)
    counted = fields.subtable("labels")
    shapes = {}
    for name, entry in fields.subtable("shapes").entries(lambda name: f"shape {quoted(name)}"):
        if not _NAME.fullmatch(name):
            raise entry.fault(None, "a shape's name must be small letters, digits and dashes", _REMEDY)
        shapes[name] = _shifts(entry, labels)
    scores = fields.subtable("cross_validated")
    found = KindCorrection(
        model=fields.text("model"),
        labels=MappingProxyType({
            label: count for label in _known(counted, labels) if (count := counted.whole(label, maximum=_LABELS_MAX))
        }),
        temperature=fields.number("temperature", minimum=0.2, maximum=10.0),
        intercepts=_shifts(fields.subtable("intercepts"), labels),
        shapes=MappingProxyType(shapes),
        cross_validated=CrossValidation(
            scores.number("right_before", minimum=0.0, maximum=1.0),
            scores.number("right_after", minimum=0.0, maximum=1.0),
            scores.number("loss_before", minimum=0.0),
            scores.number("loss_after", minimum=0.0),
        ),
    )  # fmt: skip
    fields.done()
    return found


def _shifts(fields: Fields, labels: Sequence[str]) -> Mapping[str, float]:
    return MappingProxyType({
        label: fields.number(label, minimum=-SHIFT_MAX, maximum=SHIFT_MAX) for label in _known(fields, labels)
    })  # fmt: skip


def _known(fields: Fields, labels: Sequence[str]) -> list[str]:
    """The kinds that a table names. Raises RulesError for one that no model tells apart."""
    for name in fields.table:
        if name not in labels:
            remedy = suggest(name, labels) or f"Known are {', '.join(labels)}."
            raise fields.fault(name, f"unknown kind {quoted(name)}", remedy)
    return list(fields.table)


def correction_document(correction: KindCorrection) -> str:
    """The file of a correction, for people to read in a review."""
    scores = correction.cross_validated
    lines = [
        "# This site's own correction of how shapes speak for kinds: shifts of log-odds against the model that ships.",
        "# Made by `skuwise kinds fit` from labelled work; do not edit: add labels and make it anew.",
        f"schema: {SCHEMA}",
        f'model: "{correction.model}"',
        f"labels: {{{', '.join(f'{label}: {count}' for label, count in correction.labels.items())}}}",
        f"temperature: {correction.temperature:.3f}",
        f"intercepts: {_flow(correction.intercepts)}",
    ]
    lines.append("shapes:" if correction.shapes else "shapes: {}")
    lines += [f"  {shape}: {_flow(shifts)}" for shape, shifts in correction.shapes.items()]
    lines += [
        "cross_validated:",
        f"  right_before: {scores.right_before:.3f}",
        f"  right_after: {scores.right_after:.3f}",
        f"  loss_before: {scores.loss_before:.3f}",
        f"  loss_after: {scores.loss_after:.3f}",
    ]
    return "\n".join(lines) + "\n"


def _flow(shifts: Mapping[str, float]) -> str:
    return f"{{{', '.join(f'{label}: {value:.3f}' for label, value in shifts.items())}}}"
