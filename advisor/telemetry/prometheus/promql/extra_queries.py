"""What is asked of dcgm-exporter beside the measures of all GPUs: of GPUs that lack some, and of those without any."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..client.range_planner import Ask
from .labels import DCGM_LABELS, WORKLOAD_LABELS
from .promql import DCGM_GAUGES, gauge_asks, of_gpus, selector

_NAMING_LABELS = tuple(name for name in DCGM_LABELS if name not in WORKLOAD_LABELS)


def engine_asks(
    present: Collection[str], matches: Sequence[str], step: float, ruled: Collection[str], uuids: Sequence[str] = ()
) -> list[Ask]:
    """The engine's activity, which says of some GPUs (none: of all) what utilization says of others. Nothing where it
    is asked of all already."""
    if DCGM_GAUGES[0].names[0] not in present:
        return []
    gauges = [gauge for gauge in DCGM_GAUGES if gauge.measure == "engine"]
    return gauge_asks(gauges, present, selector(matches, *of_gpus(uuids)), step, ruled, short=True)


def named_ask(names: Sequence[str], matches: Sequence[str]) -> Ask:
    """Which GPUs some series of dcgm-exporter name at a moment."""
    own = selector(matches, f'__name__=~"{"|".join(names)}"', 'UUID!=""')
    return Ask("GPUs named", f"count by ({', '.join(_NAMING_LABELS)}) ({own})", _NAMING_LABELS)
