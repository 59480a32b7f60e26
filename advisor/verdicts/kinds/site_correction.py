"""What a verdict says of a site's own correction: that it was applied, or why it was not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ....rules.models.kind_correction import KindCorrection
from ...core.coded_text import CodedText, coded
from ...core.verdict_types import WorkloadVerdict
from .kind_signals import levels


def with_correction_told(
    workloads: Iterable[WorkloadVerdict], correction: KindCorrection | None
) -> list[WorkloadVerdict]:
    """The verdicts, with one reason more where shapes spoke by a corrected model. What is idle was counted."""
    if correction is None:
        return list(workloads)
    said = coded(
        "kind-correction-applied",
        "The site's kind correction is applied, fitted on {labels} workloads labeled at this site.",
        labels=correction.count,
    )
    return [_told(one, said) for one in workloads]


def _told(one: WorkloadVerdict, said: CodedText) -> WorkloadVerdict:
    if one.kind.label == "idle" or not any(level > 0 for level in levels(one.features).values()):
        return one
    return replace(one, kind=replace(one.kind, evidence=(*one.kind.evidence, said)))


def correction_left_aside(correction: KindCorrection | None) -> Iterator[CodedText]:
    """That a correction which a site has is not used. `correction`: one that does not fit the model; None: none."""
    if correction is not None:
        yield coded(
            "kind-correction-outdated",
            "The site's kind correction ({labels} labeled workloads) is not applied: it belongs to "
            "another model version. Run 'skuwise kinds fit' to fit it again.",
            labels=correction.count,
        )
