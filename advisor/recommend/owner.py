"""Work that nobody is named for: what is recommended of it waits until its owner was asked.

Its GPUs, kind and bottleneck were inferred from what the GPUs do. So its options are blocked, its risk is a step higher
than that of the same work with a name, and no cash is counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from ..core.advice_types import Risk
from ..core.coded_text import CodedText, coded
from ..core.verdict_types import INFERRED
from .groups import Group
from .move_context import DrawnRecommendation

_STEPS: tuple[Risk, ...] = ("very-low", "low", "medium", "high")
_TELLS = coded(
    "work-inferred",
    "The GPUs of this work belong to several people or jobs. The grouping is inferred from their activity; pod labels "
    "or the Slurm prolog make it certain.",
)
_NAMED = 3


def ask_owners(options: Iterable[DrawnRecommendation], groups: Sequence[Group]) -> list[DrawnRecommendation]:
    """The options, with those that touch work without an owner blocked until somebody was asked."""
    unowned = [group for group in groups if group.lead.basis == INFERRED]
    by_key = {group.series_id: group for group in unowned}
    by_workload = {w.id: group for group in unowned for w in group.workloads}
    return [_asked(option, _touched(option, by_key, by_workload)) for option in options]


def _touched(option: DrawnRecommendation, by_key: dict[str, Group], by_workload: dict[str, Group]) -> list[Group]:
    """The groups that an option is about or moves besides."""
    keys = (key.partition(":")[2] for key in sorted(option.keys))
    found = [by_key[key] for key in keys if key in by_key]
    workload = option.recommendation.workload
    if workload in by_workload:
        found.insert(0, by_workload[workload])
    return list({group.series_id: group for group in found}.values())


def _asked(option: DrawnRecommendation, groups: Sequence[Group]) -> DrawnRecommendation:
    if not groups:
        return option
    r = option.recommendation
    nodes = sorted({node for group in groups for w in group.now for node in w.nodes})
    why = CodedText(
        "owner-unknown",
        f"the owner of this work is unknown; ask who uses {_listed(nodes)} before you act",
        {"nodes": ", ".join(nodes)},
    )
    # What is not advised anyway asks nothing of anybody.
    ask = "" if r.blocked_by else f" First ask who uses {_listed(nodes)}: no label or process names an owner."
    return replace(option, recommendation=replace(
        r, risk=raised_risk(r.risk), blocked_by=(*r.blocked_by, why), would_change_if=(*r.would_change_if, _TELLS),
        text=f"{r.text.rstrip()}{ask}",
    ))  # fmt: skip


def _listed(nodes: Collection[str]) -> str:
    names = list(nodes)[:_NAMED]
    more = len(nodes) - len(names)
    return ", ".join(names) + (f" and {more} more node{'s' if more > 1 else ''}" if more else "")


def raised_risk(risk: Risk) -> Risk:
    """The risk one step higher; the highest stays."""
    return _STEPS[min(_STEPS.index(risk) + 1, len(_STEPS) - 1)]
