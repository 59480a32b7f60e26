"""What every waste rule looks at, and what the rules about workloads share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...rules.base.templates import fill, gaps
from ...rules.catalog.fabric_premium import NVLINK_PRIORS
from ...rules.policy.labels import JOB_KINDS, ON_DEMAND_KINDS
from ...rules.policy.thresholds import WasteRule
from ..classify.types import NodeFacts, Verdicts
from ..core.advice_types import Action, Evidence, Finding, Severity
from ..core.coded_text import CodedText, Scalar
from ..core.formatting import dated, usd
from ..core.ids import stable_id
from .finding_context import FindingContext, Waste, clamped_confidence, node_words, sampling_confidence, series_label
from .groups import Group
from .pricing import PriceBook

# Time wasted below this share of what was held is the gap between two pieces of work, not something to act on.
MIN_SHARE = 0.1
# What a text says of the power of MIG instances.
OF_WHOLE_GPUS = "power is measured only for the whole GPU"
# A series that stood idle for this share of its time was not seen at work (as the judge of bottlenecks has it).
IDLE_SHARE = 0.95
# In the names of GPUs that are modules of a board with NVLink, not cards.
_ON_A_BOARD = "SXM"
# The rule whose findings silence every other: where signals contradict one another nothing rests on them.
FAULT_RULE = "telemetry-fault"
# A reason so weak that what it asks for is named among the reasons and not told for it alone.
WEAK = 9


@dataclass(frozen=True)
class RuleContext:
    """The verdicts of a window, its recurring work, and prices. `rules`: all of them, by id.

    `at`: the moment of the advice, Unix seconds.
    """

    verdicts: Verdicts
    groups: Sequence[Group]
    rules: Mapping[str, WasteRule]
    book: PriceBook
    at: float

    def faulty(self, group: Group) -> bool:
        """Whether its signals contradict one another so often that nothing can be concluded from them."""
        return group.fault_share >= self.rules[FAULT_RULE].value("share_min")

    @cached_property
    def at_work(self) -> tuple[Group, ...]:
        """The groups that hold whole GPUs of their own, with sound signals, and were seen to do something, however few
        their hours."""
        return tuple(g for g in self.groups if g.nodes and g.kind != "idle" and not g.shared and not self.faulty(g))

    @cached_property
    def seen(self) -> tuple[Group, ...]:
        """As `judged`, with those whose kind nobody could tell: what a rule needs of it, it asks (`kind_chance`)."""
        ready = self.verdicts.waste_ready
        return tuple(g for g in self.at_work if any(ready.get(w.id, False) for w in g.workloads))

    @cached_property
    def judged(self) -> tuple[Group, ...]:
        """The groups of which rules may speak that ask how work uses whole GPUs: kinds that were told, enough hours,
        sound signals, GPUs of their own."""
        return tuple(g for g in self.seen if g.kind != "unknown")

    def cost(self, gpu_hours: float, nodes: Sequence[NodeFacts]) -> float | None:
        """GPU-hours at the mean price of these nodes; None where one of them has no price."""
        rates = [self.book.per_gpu_hour(n) for n in nodes]
        known = [r for r in rates if r is not None]
        return gpu_hours * sum(known) / len(known) if known and len(known) == len(rates) else None

    def without_rdma(self, node: NodeFacts) -> bool:
        """Whether a node is known to have no RDMA fabric: by the catalog, else by its ports."""
        sku = self.book.catalog.node(node.node_sku) if node.node_sku else None
        if sku is not None and sku.fabric.rdma is not None:
            return not sku.fabric.rdma
        return node.fabric is not None and node.fabric.link_layer == "Ethernet"

    def without_nvlink(self, node: NodeFacts) -> bool:
        """Whether the catalog says that a node joins its GPUs by PCIe only, or that its GPUs have no other link."""
        sku = self.book.catalog.node(node.node_sku) if node.node_sku else None
        if sku is not None:
            return sku.intra_node_link == "pcie"
        # Where nobody told which node it is, a GPU that is made without NVLink has none in any.
        gpu = self.book.catalog.gpu(node.gpu_sku) if node.gpu_sku else None
        return gpu is not None and gpu.link_bytes_per_second is None

    def has_nvlink(self, node: NodeFacts) -> bool:
        """Whether the catalog says that a node joins several GPUs by NVLink, or that its GPUs come on such boards
        alone."""
        sku = self.book.catalog.node(node.node_sku) if node.node_sku else None
        if sku is not None:
            return sku.gpu_count > 1 and sku.intra_node_link in NVLINK_PRIORS
        # Cards may have a bridge or none; modules of several on a board are always joined.
        gpu = self.book.catalog.gpu(node.gpu_sku) if node.gpu_sku else None
        joined = gpu is not None and gpu.nvlink_bytes_per_second is not None and _ON_A_BOARD in gpu.name
        return joined and node.gpu_count > 1

    def cost_words(self, cost: float | None, nodes: Sequence[NodeFacts]) -> str:
        price = self.book.of(nodes[0]) if nodes else None
        if cost is None or price is None:
            return "Cost unknown: no price for the node."
        return f"Cost: {usd(cost)} in the window, {dated((price,))}."


def seen_at_work(group: Group, rule: WasteRule) -> bool:
    """Whether it did more than answer probes: of a replica on standby nobody knows what its work would need."""
    engine = group.feature("engine_active")
    probed_only = engine is not None and engine < rule.value("engine_mean_min")
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


# A rule's findings, and the notes that say where no verdict was possible.
RuleResult = tuple[list[FindingContext], list[CodedText]]
Judge = Callable[[RuleContext, WasteRule], RuleResult]


@dataclass(frozen=True, slots=True)
class ReferenceLine:
    """A threshold that a history is drawn with: `of` names the line that it is held against, as a share of what the GPU
    or the node has of it; `words` stand before the share."""

    of: str
    threshold: str
    words: str


@dataclass(frozen=True, slots=True)
class RuleDescription:
    """All that the program knows of a waste rule beside its thresholds and texts (``rules/waste/<id>.yaml``): the
    module of each rule in ``recommend/rules`` has one, named RULE.

    `rank`: the place of its findings among those of the others. `fact`: what it finds, in a title after what it is
    about ("gpu-009: idle GPUs"). `answered_by`: the recommendations that answer it, each with
    the place of this reason among others for the same (1 is the first); how telemetry shows such an answer done, undone
    or without effect is theirs to tell. `waste`: what it is of the money, and so what an exception from it keeps.
    `judges_nodes`: it judges a node with all who work there in sight, so the judge itself asks each team's thresholds,
    and whoever works there may be the one who is excepted. `line`: of a workload's history.
    """

    id: str
    rank: int
    fact: str
    judge: Judge
    answered_by: Mapping[Action, int]
    waste: Waste
    judges_nodes: bool = False
    line: ReferenceLine | None = None

    def __post_init__(self) -> None:
        if not self.answered_by:
            raise ValueError(f"The rule {self.id} names no recommendation that answers it.")


def finding_of(
    scope: RuleContext,
    rule: WasteRule,
    group: Group,
    *,
    evidence: Sequence[Evidence],
    gpu_hours: float,
    cost: float | None,
    values: Mapping[str, object] | None = None,
    sure: float = 1.0,
    severity: Severity | None = None,
    after: str | None = None,
) -> Finding:
    """A finding about a group. `sure`: how far the rule's own reasons are trusted (0..1), beside kind and coverage.

    `values`: fill the rule's texts, beside what is known of every group; `after`: sentences that follow the text (None:
    what it costs).
    """
    price, coverage, nodes = scope.book.of(group.nodes[0]), group.lead.coverage, group.nodes
    filled = {
        "workload": series_label(group),
        "kind": group.kind,
        "gpu_count": group.gpu_count,
        "gpu_sku": group.lead.gpu_sku or nodes[0].gpu_name,
        "node_sku": group.lead.node_sku,
        "nodes": node_words(nodes),
        "node": nodes[0].node,
        "node_count": len(nodes),
        "hours": f"{group.gpu_hours / max(group.gpu_count, 1):.0f}",
        "gpu_hours": f"{gpu_hours:,.0f}",
        **{name: threshold.value for name, threshold in rule.thresholds.items()},
        **(values or {}),
    }
    told = scope.cost_words(cost, nodes) if after is None else after
    return Finding(
        id=stable_id("f", rule.id, group.series_id),
        rule=rule.id,
        severity=severity or rule.severity,  # type: ignore[arg-type]
        workload=group.lead.id,
        node=nodes[0].node if len(nodes) == 1 else None,
        gpus=group.gpus,
        evidence=tuple(evidence),
        gpu_hours=gpu_hours,
        cost_usd=cost,
        price=price.id if price else None,
        confidence=clamped_confidence(coverage.fraction / 0.9, sampling_confidence(coverage.resolution_seconds), sure),
        would_change_if=would_change_if(rule, filled),
        text=f"{fill(rule.text, filled)} {told}".strip(),
        nodes=tuple(n.node for n in nodes),
    )


def would_change_if(rule: WasteRule, values: Mapping[str, object]) -> tuple[CodedText, ...]:
    """What would make a finding of the rule wrong, in the rule's order, by which the codes are numbered."""
    rule_code = rule.id.replace("/", "-")
    return tuple(
        CodedText(
            f"{rule_code}-wrong-if-{n}", fill(text, values), {gap: _scalar(values.get(gap)) for gap in gaps(text)}
        )
        for n, text in enumerate(rule.would_change_if, 1)
    )


def _scalar(value: object) -> Scalar:
    return value if isinstance(value, Scalar) else str(value)


def measured_percentile(values: np.ndarray, q: float) -> float | None:
    """A percentile of what was measured; None where nothing was."""
    finite = values[np.isfinite(values)]
    return float(np.percentile(finite, q)) if finite.size else None


def as_percent(value: float | None) -> str | None:
    return None if value is None else "below 0.1 %" if 0 < value < 0.001 else f"{value * 100:.3g} %"


def power_words(power: float | None, idle: float | None) -> str:
    """Power drawn beside that at rest, both in watts."""
    return f"power {watts(power) or 'unknown'}, idle level {watts(idle) or 'unknown'}"


def watts(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f} W"
