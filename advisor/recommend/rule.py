"""What a waste rule is, and the making of a finding from what it saw."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...rules.base.templates import fill, gaps
from ...rules.policy.labels import JOB_KINDS, ON_DEMAND_KINDS
from ...rules.policy.thresholds import WasteRule
from ..classify.types import BareGpu, NodeFacts
from ..core.advice_types import Action, Evidence, Finding, Severity
from ..core.coded_text import CodedText, Scalar, coded
from ..core.ids import stable_id
from ..core.verdict_types import WorkloadVerdict
from .finding import (
    Clean,
    Found,
    Outcome,
    Unjudged,
    Waste,
    clamped_confidence,
    node_words,
    sampling_confidence,
    series_label,
)
from .fleet import Fleet
from .groups import Group

# Time wasted below this share of what was held is the gap between two pieces of work, not something to act on.
MIN_SHARE = 0.1
# What a text says of the power of MIG instances.
OF_WHOLE_GPUS = "power is measured only for the whole GPU"
# A series that stood idle for this share of its time was not seen at work (as the judge of bottlenecks has it).
IDLE_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class ReferenceLine:
    """A threshold that a history is drawn with: `of` names the line that it is held against, as a share of what the GPU
    or the node has of it; `words` stand before the share."""

    of: str
    threshold: str
    words: str


class Rule(ABC):
    """One kind of waste. Its thresholds and texts are in ``rules/waste/<id>.yaml``.

    `fact`: what it finds, in a title after what it is about ("gpu-009: idle GPUs"). `answered_by`: the recommendations
    that answer it, each with the place of this reason among others for the same (1 is the first). `waste`: what it is
    of the money, and so what an exception from it keeps. `judges_nodes`: it judges a node with all who work there in
    sight, so whoever works there may be the one who is excepted. `line`: of a workload's history.
    """

    id: ClassVar[str]
    fact: ClassVar[str]
    answered_by: ClassVar[Mapping[Action, int]]
    waste: ClassVar[Waste] = "none"
    judges_nodes: ClassVar[bool] = False
    line: ClassVar[ReferenceLine | None] = None

    @abstractmethod
    def find(self, fleet: Fleet) -> Iterator[Outcome]:
        """What it says of every node or workload in its scope: found, clean, or not judged with the reason."""

    def limits(self, fleet: Fleet, group: Group | None = None) -> WasteRule:
        """Its thresholds, as the group's team has them."""
        rule = fleet.rules[self.id]
        return rule.of(group.lead.owner) if group is not None else rule

    def found(self, finding: Finding, group: Group | None, nodes: Sequence[NodeFacts], **more: Any) -> Found:  # noqa: ANN401
        """A finding with what answers it."""
        return Found(finding, group, tuple(nodes), answered_by=self.answered_by, waste=self.waste, **more)


class Why:
    """Reasons for giving no verdict that several rules have."""

    KIND_UNKNOWN = coded("kind-unknown", "its kind is unknown")
    BOTTLENECK_UNKNOWN = coded("bottleneck-unknown", "its bottleneck is unknown in too much of its time")
    ACTIVITY_NOT_MEASURED = coded("activity-not-measured", "the activity of its GPUs was not measured")
    COMPUTE_NOT_MEASURED = coded("compute-not-measured", "its use of compute was not measured")
    MEMORY_NOT_MEASURED = coded("memory-not-measured", "its memory in use was not measured")
    NVLINK_NOT_MEASURED = coded("nvlink-not-measured", "the NVLink traffic of its GPUs was not measured")
    GPU_UNKNOWN = coded("gpu-unknown", "its GPU is not in the catalog")
    ON_STANDBY = coded("on-standby", "it was seen on standby only, never at work")


# What a rule says of a group: what it found, or why there is no verdict; None: it is clean.
Verdict = Found | Unjudged | CodedText | None


class WorkloadRule(Rule):
    """A rule that judges recurring work, one group at a time. `judges_slices`: MIG instances, too."""

    judges_slices: ClassVar[bool] = False

    @abstractmethod
    def judge(self, fleet: Fleet, group: Group) -> Verdict:
        """What it says of a group of its scope."""

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        """The groups that it speaks of: those that are at work."""
        return (group for group in fleet.groups if group.kind != "idle")

    def find(self, fleet: Fleet) -> Iterator[Outcome]:
        for group in self.scope(fleet):
            verdict = fleet.unfit(group, slices=self.judges_slices) or self.judge(fleet, group)
            yield unjudged(group, verdict) if isinstance(verdict, CodedText) else verdict or Clean(group)


def unjudged(group: Group, reason: CodedText, **more: Any) -> Unjudged:  # noqa: ANN401
    return Unjudged(reason, group.nodes, group, **more)


def seen_too_short(floor: float) -> CodedText:
    return coded("seen-too-short", "less than {needed_hours:g} h of data", needed_hours=floor)


def too_short(fleet: Fleet, limits: WasteRule, group: Group) -> CodedText | None:
    """That its hours, or those of its series, do not reach the rule's coverage floor; None: they do."""
    floor = limits.value("coverage_hours")
    enough = fleet.waste_ready(group) and group.observed_hours >= floor
    return None if enough else seen_too_short(floor)


def seen_at_work(group: Group, limits: WasteRule) -> bool:
    """Whether it did more than answer probes: of a replica on standby nobody knows what its work would need."""
    engine = group.feature("engine_active")
    probed_only = engine is not None and engine < limits.value("engine_mean_min")
    return group.kind != "idle" and not probed_only and group.bottleneck_shares.get("idle", 0.0) < IDLE_SHARE


def kind_chance(group: Group, *kinds: str) -> float:
    """How likely its work is one of these kinds, 0..1: its verdict's confidence, or what an abstention names beside
    it."""
    verdict = group.lead.kind
    told = {one.label: one.confidence for one in verdict.alternatives}
    if verdict.label != "unknown":
        told[verdict.label] = verdict.confidence
    return min(sum(told.get(kind, 0.0) for kind in kinds), 1.0)


def is_job(group: Group) -> bool:
    """Whether its work ends by itself, or is likelier to than to be there for whoever asks, where its kind is open."""
    return group.kind in JOB_KINDS or (
        group.kind == "unknown" and kind_chance(group, *JOB_KINDS) > kind_chance(group, *ON_DEMAND_KINDS)
    )


def busy_share(group: Group, label: str) -> float:
    """Share of its busy time in which `label` held it back."""
    shares = group.bottleneck_shares
    busy = 1.0 - shares.get("idle", 0.0)
    return shares.get(label, 0.0) / busy if busy > 0 else 0.0


def finding_of(
    fleet: Fleet,
    limits: WasteRule,
    group: Group,
    *,
    evidence: Sequence[Evidence],
    gpu_hours: float,
    cost: float | None,
    values: Mapping[str, object] | None = None,
    sure: float = 1.0,
    severity: Severity | None = None,
    after: str | None = None,
    of: Sequence[WorkloadVerdict] = (),
) -> Finding:
    """A finding about a group, or `of` some of its runs. `sure`: how far the rule's own reasons are trusted (0..1),
    beside kind and coverage.

    `values`: fill the rule's texts, beside what is known of every group; `after`: sentences that follow the text (None:
    what it costs).
    """
    price, coverage, gpus, nodes = fleet.book.of(group.nodes[0]), group.lead.coverage, group.gpus, group.nodes
    if of:
        gpus = tuple(sorted({gpu for w in of for gpu in w.gpus}))
        nodes = tuple(n for n in nodes if any(n.node in w.nodes for w in of)) or nodes
    filled = {
        "workload": series_label(group),
        "kind": group.kind,
        "gpu_count": len(gpus),
        "gpu_sku": group.lead.gpu_sku or nodes[0].gpu_name,
        "node_sku": group.lead.node_sku,
        "nodes": node_words(nodes),
        "node": nodes[0].node,
        "node_count": len(nodes),
        "hours": f"{group.gpu_hours / max(group.gpu_count, 1):.0f}",
        "gpu_hours": f"{gpu_hours:,.0f}",
        **{name: threshold.value for name, threshold in limits.thresholds.items()},
        **(values or {}),
    }
    told = fleet.cost_words(cost, group.nodes) if after is None else after
    return Finding(
        id=stable_id("f", limits.id, group.series_id),
        rule=limits.id,
        severity=severity or limits.severity,  # type: ignore[arg-type]
        workload=group.lead.id,
        node=nodes[0].node if len(nodes) == 1 else None,
        gpus=gpus,
        evidence=tuple(evidence),
        gpu_hours=gpu_hours,
        cost_usd=cost,
        price=price.id if price else None,
        confidence=clamped_confidence(coverage.fraction / 0.9, sampling_confidence(coverage.resolution_seconds), sure),
        would_change_if=would_change_if(limits, filled),
        text=f"{fill(limits.text, filled)} {told}".strip(),
        nodes=tuple(n.node for n in nodes),
    )


def finding_of_node(
    fleet: Fleet,
    limits: WasteRule,
    node: NodeFacts,
    gpus: Sequence[BareGpu],
    *,
    evidence: Sequence[Evidence],
    gpu_hours: float,
    cost: float | None,
    sure: Sequence[float],
    values: Mapping[str, object],
    after: str,
    severity: Severity | None = None,
) -> Finding:
    """A finding about free GPUs of a node, or MIG instances of them (as `finding_of`). `sure`: what it rests on."""
    filled = {**values, **{name: threshold.value for name, threshold in limits.thresholds.items()}}
    price = fleet.book.of(node) if cost is not None else None
    return Finding(
        id=stable_id("f", limits.id, node.cluster, node.node),
        rule=limits.id,
        severity=severity or limits.severity,  # type: ignore[arg-type]
        workload=None,
        node=node.node,
        gpus=tuple(one.gpu_uuid for one in gpus),
        evidence=tuple(evidence),
        gpu_hours=gpu_hours,
        cost_usd=cost,
        price=price.id if price else None,
        confidence=clamped_confidence(*sure),
        would_change_if=would_change_if(limits, filled),
        text=f"{fill(limits.text, filled)} {after}",
        nodes=(node.node,),
        parts={one.gpu_uuid: one.part for one in gpus if one.part < 1},
    )


def would_change_if(limits: WasteRule, values: Mapping[str, object]) -> tuple[CodedText, ...]:
    """What would make a finding of the rule wrong, in the rule's order, by which the codes are numbered."""

    def scalar(value: object) -> Scalar:
        return value if isinstance(value, Scalar) else str(value)

    return tuple(
        CodedText(
            f"{limits.id.replace('/', '-')}-wrong-if-{n}",
            fill(text, values),
            {gap: scalar(values.get(gap)) for gap in gaps(text)},
        )
        for n, text in enumerate(limits.would_change_if, 1)
    )


def measured_percentile(values: np.ndarray, q: float) -> float | None:
    """A percentile of what was measured; None where nothing was."""
    finite = values[np.isfinite(values)]
    return float(np.percentile(finite, q)) if finite.size else None
