"""Verdicts on work whose GPUs and times were inferred: less sure than on work that a scheduler or a process names."""

from __future__ import annotations

from dataclasses import replace

from ...core.advice_types import Alternative, BottleneckVerdict, KindVerdict
from ...core.coded_text import coded

# Of the gangs found on simulated fleets some nine in ten are a job with exactly its GPUs.
INFERRED_SHARE = 0.9
_SAID = coded(
    "inferred-from-activity",
    "Inferred from activity: what its GPUs hold and do tells when it ran and which GPUs are its own. No scheduler, "
    "label or process names the work.",
)


def inferred(
    kind: KindVerdict, bottleneck: BottleneckVerdict, abstain_below: float
) -> tuple[KindVerdict, BottleneckVerdict]:
    """Both with the confidence that is left, and with what they rest on. A kind that becomes too unsure is unknown."""
    confidence = round(kind.confidence * INFERRED_SHARE, 3)
    told = replace(kind, confidence=confidence, evidence=(*kind.evidence, _SAID))
    if kind.label != "unknown" and confidence < abstain_below:
        others = (Alternative(kind.label, confidence), *kind.alternatives)
        told = replace(told, label="unknown", alternatives=others)
    return told, replace(bottleneck, confidence=round(bottleneck.confidence * INFERRED_SHARE, 3))
