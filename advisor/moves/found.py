"""What the waste rules share: a finding with what it stands on, names in sentences, and when a verdict is possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...rules.thresholds import WasteRule
from ..model import Finding, Severity
from ..moments import rfc3339
from ..verdicts.facts import BareGpu, NodeFacts
from .groups import Group
from .money import Premium

LISTED = 4  # names in one sentence; the rest is counted


@dataclass(frozen=True)
class Found:
    """A finding and what the ways out need: its group (None: bare GPUs), nodes, bare GPUs, and the fabric's premium."""

    finding: Finding
    group: Group | None
    nodes: tuple[NodeFacts, ...]
    bare: tuple[BareGpu, ...] = ()
    premium: Premium | None = None


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b, c and 5 more``."""
    if len(names) > LISTED:
        return f"{', '.join(names[: LISTED - 1])} and {len(names) - LISTED + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def node_words(nodes: Sequence[NodeFacts]) -> str:
    names = [n.node for n in nodes]
    return f"node {names[0]}" if len(names) == 1 else f"{len(names)} nodes ({listed(names)})"


def called(group: Group) -> str:
    """A series as a person would name it: its kind, its name, and whose it is."""
    lead = group.lead
    kind = {"online-inference": "online inference service", "batch-inference": "batch inference job"}.get(
        group.kind, f"{group.kind} job"
    )
    owner = lead.owner.team or lead.owner.namespace or lead.owner.account or lead.owner.user
    return f"The {kind} {lead.name}" + (f" ({owner})" if owner else "")


def possible_from(first_seen: float, rule: WasteRule) -> str:
    """From when a verdict under this rule's coverage floor can be given."""
    return rfc3339(first_seen + rule.value("coverage_hours") * 3600)


def graded(share: float, rule: WasteRule) -> Severity:
    """The rule's severity where at least half of the time is wasted, one step less from a tenth, else low."""
    order: tuple[Severity, ...] = ("low", "medium", "high")
    top = order.index(rule.severity) if rule.severity in order else 1  # type: ignore[arg-type]
    return order[top if share >= 0.5 else max(top - 1, 0) if share >= 0.1 else 0]


def certainty(*parts: float) -> float:
    """The product of what a verdict rests on, within 0.05 and 0.99: nothing is certain."""
    product = 1.0
    for part in parts:
        product *= min(max(part, 0.0), 1.0)
    return round(min(max(product, 0.05), 0.99), 3)


def sampling(resolution_seconds: float) -> float:
    """How far coarse sampling is trusted: 1 Hz wholly, half a minute at nine tenths, beyond it less."""
    return 1.0 if resolution_seconds <= 10 else 0.9 if resolution_seconds <= 60 else 0.8
