"""What a choice somebody made does to the latency class of a service."""

from __future__ import annotations

from dataclasses import replace

from ..core.coded_text import coded
from .latency_class import broken_limits, kept_words, not_measured
from .latency_gate import slowdown_of, unpredicted_words
from .move_context import Baseline
from .whatif_result import WhatIfResult


def with_latency(result: WhatIfResult, base: Baseline) -> WhatIfResult:
    """The answer with what breaks the class of its service against it, or a note that it is kept or not predicted."""
    latency, then, time = base.group.lead.latency, result.then, result.time_ratio
    if latency is None or not latency.limits or then is None or time is None:
        return result
    slowdown = slowdown_of(time, base, then.gpus if result.choice.profile is None else None)
    if slowdown is None:
        return result
    broken = broken_limits(latency, slowdown)
    if broken:
        return replace(result, blocked_by=(*result.blocked_by, *broken))
    if not slowdown.slower:
        return result
    lacking = bool(not_measured(latency))
    said = unpredicted_words(latency) if lacking else kept_words(latency, slowdown)
    note = coded("latency-in-question", "{said}", said=said) if lacking else coded("latency-kept", "{said}", said=said)
    return replace(result, notes=(*result.notes, note))
