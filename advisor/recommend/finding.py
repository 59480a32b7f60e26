"""What a waste rule says of a node or a workload: found, clean, or not judged; and the words that rules share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...rules.catalog.loader import Premium
from ...rules.policy.thresholds import WasteRule
from ..classify.types import BareGpu, NodeFacts
from ..core.advice_types import Action, Finding, Severity
from ..core.coded_text import CodedText
from ..core.formatting import listed
from ..core.frame import Window
from ..core.timestamps import rfc3339
from .groups import Group
from .predict.clock_model import ClockMove

HOUR_SECONDS = 3600.0
# What findings are of the money; work that waits ("slowed") is no waste.
Waste = Literal["unused", "surplus", "fabric", "nvlink", "tier", "slowed", "none"]


@dataclass(frozen=True)
class Found:
    """A finding and what recommendations need: its group (None: bare GPUs), nodes, bare GPUs, and a link's premium.
    `fault`: the bottleneck to fix first; `clock`: how else to run the GPU; `faulty`: series whose telemetry is wrong.
    `answered_by`, `waste`: as its rule has them. `notes`: what should be read beside it."""

    finding: Finding
    group: Group | None
    nodes: tuple[NodeFacts, ...]
    bare: tuple[BareGpu, ...] = ()
    premium: Premium | None = None
    fault: str | None = None
    clock: ClockMove | None = None
    faulty: frozenset[str] = frozenset()
    answered_by: Mapping[Action, int] = field(default_factory=dict)
    waste: Waste = "none"
    notes: tuple[CodedText, ...] = ()

    @property
    def label(self) -> str:
        """What it is about, as a person would name it."""
        return series_label(self.group) if self.group is not None else node_words(self.nodes)


@dataclass(frozen=True)
class Unjudged:
    """No verdict of a rule on a node or a workload. `reason`: a clause, the same for all whom it concerns.
    `usd_per_month`: what is at stake, where a price is known. `note`: what a person should read of it, if anything."""

    reason: CodedText
    nodes: tuple[NodeFacts, ...]
    group: Group | None = None
    usd_per_month: float | None = None
    note: CodedText | None = None


@dataclass(frozen=True)
class Clean:
    """A node or a workload that a rule judged without a finding."""

    about: Group | NodeFacts


Outcome = Found | Unjudged | Clean


def node_words(nodes: Sequence[NodeFacts]) -> str:
    return f"node {nodes[0].node}" if len(nodes) == 1 else f"{len(nodes)} nodes ({listed([n.node for n in nodes])})"


def series_label(group: Group) -> str:
    """A series in words: its kind, name and owner."""
    lead = group.lead
    kind = group.kind.replace("-inference", " inference")
    if group.kind == "online-inference":
        kind += " service"
    elif not lead.name.startswith("job "):  # a job that has a number alone
        kind += " job"
    others = len({w.name for w in group.now} - {lead.name})
    owner = lead.owner.team or lead.owner.namespace or lead.owner.account or lead.owner.user
    about = ", ".join(filter(None, (owner, f"{others} similar" if others else None)))
    return f"The {kind} {lead.name}" + (f" ({about})" if about else "")


def when_possible(hours: float, floor: float, window: Window, at: float, node: NodeFacts) -> str:
    """A sentence: what it takes to reach a coverage floor (hours) of which `hours` were observed on a node: another
    window, or the hours that are missing, counted from `at` (Unix seconds), the moment of the advice."""
    if (ready := ready_at(hours, floor, window, at, node)) is not None:
        return f"A verdict is possible from {rfc3339(ready)} if telemetry continues."
    if window.hours < floor and window.end - node.first_seen >= floor * HOUR_SECONDS:
        return f"For a verdict, use a longer window: --since {floor:g}h or more."
    return "For a verdict, use a later window (--until); newer data are available."


def ready_at(hours: float, floor: float, window: Window, at: float, node: NodeFacts) -> float | None:
    """When a coverage floor is reached at the earliest, Unix seconds; None: another window has more data now."""
    longer = window.hours < floor and window.end - node.first_seen >= floor * HOUR_SECONDS
    if longer or node.last_seen > window.end + HOUR_SECONDS:
        return None
    return max(at, window.end) + max(floor - hours, 0.0) * HOUR_SECONDS


def severity_for_share(share: float, rule: WasteRule) -> Severity:
    """The rule's severity where at least half of the time is wasted, one step less from a tenth, else low."""
    order: tuple[Severity, ...] = ("low", "medium", "high")
    top = order.index(rule.severity) if rule.severity in order else 1  # type: ignore[arg-type]
    return order[top if share >= 0.5 else max(top - 1, 0) if share >= 0.1 else 0]


def as_percent(value: float | None) -> str | None:
    return None if value is None else "below 0.1 %" if 0 < value < 0.001 else f"{value * 100:.3g} %"


def watts(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f} W"


def power_words(power: float | None, idle: float | None) -> str:
    """Power drawn beside that at rest, both in watts."""
    return f"power {watts(power) or 'unknown'}, idle level {watts(idle) or 'unknown'}"
