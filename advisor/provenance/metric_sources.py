"""Which source each metric of a finding has: its rule says so, or a rule of one's own is made of features."""

from __future__ import annotations

from ..core.advice_types import Evidence, Finding
from ..core.number_sources import NumberSource
from ..moves.waste_rules import RULES
from .features import FEATURES


def source_of(finding: Finding, metric: str) -> NumberSource | None:
    """Where a metric of a finding comes from; None: nobody said so, which a test keeps from happening.

    A rule of one's own is made of features.
    """
    described = RULES.get(finding.rule)
    return FEATURES.get(metric) if described is None else described.metrics.get(metric)


def numbers_of(finding: Finding) -> tuple[Evidence, ...]:
    """Every number that a finding rests on: its evidence, then GPU-hours and cost where a query gives them."""
    told = {e.metric for e in finding.evidence}
    sums = (
        Evidence("gpu_hours", finding.gpu_hours, None, "GPU-hours"),
        Evidence("cost_usd", finding.cost_usd, None, "USD"),
    )
    extra = (s for s in sums if s.metric not in told and s.value is not None)
    return (*finding.evidence, *(s for s in extra if source_of(finding, s.metric) is not None))
