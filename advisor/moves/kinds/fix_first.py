"""The way out that comes before any move: mend what holds the work back, or what reports on it."""

from __future__ import annotations

from dataclasses import replace

from ...core.advice_types import Configuration, Recommendation, Risk
from ...core.coded_text import coded
from ...core.ids import stable_id
from ..base.workload_groups import HOURS_PER_MONTH, Group
from ..context.finding_context import Found, called
from ..context.move_context import Option, Scene
from ..waste.fix_first import REMEDIES

_TELEMETRY = "restart its profiling counters (after an XID, DCGM and its exporter) and look again"


def mend(scene: Scene, found: Found) -> Option:
    """What to do about a fault (a finding of fix-first or telemetry-fault). What it frees is an upper bound."""
    group, fault = found.group, found.fault
    freed = 0.0
    if group is not None and fault is not None and found.finding.cost_usd is not None and scene.window_hours > 0:
        freed = found.finding.gpu_hours / scene.window_hours * HOURS_PER_MONTH
    what = REMEDIES[fault] if fault is not None else _TELEMETRY
    who = called(group) if group is not None else f"The free GPUs of {found.nodes[0].node}"
    text = f"{who}: {what}, before it is moved or resized. "
    if fault is None:
        text += "Until then no figure of it can be relied on."
    elif freed > 0:
        text += f"That gives back up to {freed:,.0f} GPU-hours a month; how much of it, only the mended job shows."
    else:
        text += "How much that gives back is not known."
    return Option(
        Recommendation(
            id=stable_id("r", _key(found), "fix-first", fault or "telemetry"),
            findings=(found.finding.id,),
            workload=group.lead.id if group else None,
            action="fix-first",
            source=_configuration(found),
            target=_configuration(found),
            time_ratio=None,
            saving_usd_per_month=None,
            freed_gpu_hours_per_month=freed,
            realisation="capacity-freed",
            risk=_risk(fault),
            blocked_by=(),
            rejected=(),
            would_change_if=found.finding.would_change_if,
            prices=(),
            text=text.strip(),
        ),
        None,
        exclusive=f"mend:{_key(found)}",
    )


def mend_first(option: Option, found: Found) -> Option:
    """A move of work that has to be mended first: shown, and blocked until then."""
    r = option.recommendation
    why = coded(
        "mend-first",
        "what holds it back comes first ({fault}): its use of the GPUs will be another once that is mended",
        fault=found.fault,
    )
    return replace(option, recommendation=replace(r, blocked_by=(*r.blocked_by, why)))


def _key(found: Found) -> str:
    node = found.nodes[0]
    return found.group.series_id if found.group is not None else f"{node.cluster}/{node.node}"


def _configuration(found: Found) -> Configuration:
    group: Group | None = found.group
    if group is not None:
        return Configuration(group.lead.gpu_sku, group.lead.node_sku, group.gpu_count)
    node = found.nodes[0]
    return Configuration(node.gpu_sku or node.gpu_name, node.node_sku, len(found.finding.gpus))


def _risk(fault: str | None) -> Risk:
    # Mending slows nothing down; new kernels or larger batches change how the work runs.
    return "low" if fault == "latency" else "very-low"
