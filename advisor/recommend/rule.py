"""What a waste rule is, and the making of a finding from what it saw."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ...rules.policy.labels import JOB_KINDS, ON_DEMAND_KINDS
from ...rules.policy.thresholds import WasteRule, fill, gaps
from ..classify.types import BareGpu, NodeFacts
from ..core.advice_types import Action, Evidence, Finding, Severity
from ..core.coded_text import CodedText, Scalar, coded
from ..core.formatting import dated, usd
from ..core.ids import stable_id
from .fleet import Fleet, Found, Outcome, Unjudged, Waste, node_words, series_label
from .groups import Group

# Time wasted below this share of what was held is the gap between two pieces of work, not something to act on.
MIN_SHARE = 0.1
# What a text says of the power of MIG instances.
OF_WHOLE_GPUS = "power is measured only for the whole GPU"
# A limit that rules this much of the busy time is no stray row of it.
LIMIT_SHARE = 0.1
# Evidence that an engine was asked for all that it can hold.
AT_CAPACITY = frozenset({"kv-cache-full", "kv-cache-preempted"})


class Rule(ABC):
    """One kind of waste. Its thresholds and texts are in ``rules/waste/<id>.yaml``. `fact`: what it finds, in a title
    ("gpu-009: idle GPUs"). `answered_by`: the recommendations that answer it, each with its rank among their reasons.
    `waste`: what it is of the money. `judges_nodes`: with all who work there. `contradicted_by`: codes of evidence
    beside which a finding cannot stand; `contradicting_limit`: a bottleneck of that kind, from `LIMIT_SHARE` of the
    busy time on; `asks_neighbours`: of the work on its nodes. `line`: of a workload's history, the threshold it is
    compared with and the words around it."""

    id: ClassVar[str]
    fact: ClassVar[str]
    answered_by: ClassVar[Mapping[Action, int]]
    waste: ClassVar[Waste] = "none"
    judges_nodes: ClassVar[bool] = False
    contradicted_by: ClassVar[frozenset[str]] = frozenset()
    contradicting_limit: ClassVar[str | None] = None
    asks_neighbours: ClassVar[bool] = False
    line: ClassVar[tuple[str, str, str] | None] = None

    @abstractmethod
    def find(self, fleet: Fleet) -> Iterator[Outcome]:
        """What it says of every node or workload in its scope: found, clean, or not judged with the reason."""

    def refuted(self, fleet: Fleet, group: Group, finding: Finding) -> str | None:  # noqa: ARG002
        """The code of what a group's data themselves say against a finding; None: nothing."""
        return None

    def limits(self, fleet: Fleet, group: Group | None = None) -> WasteRule:
        """Its thresholds, as the group's team has them."""
        rule = fleet.rules[self.id]
        return rule.of(group.lead.owner) if group is not None else rule

    def found(
        self,
        fleet: Fleet,
        about: Group | NodeFacts,
        *,
        evidence: Iterable[tuple[str, float | str | None, float | str | None, str]],
        gpu_hours: float,
        cost: float | None = None,
        values: Mapping[str, object] | None = None,
        sure: float = 1.0,
        severity: Severity | None = None,
        before: str = "",
        after: str | None = None,
        nodes: Sequence[NodeFacts] = (),
        gpus: Sequence[str] = (),
        bare: Sequence[BareGpu] = (),
        **more: Any,  # noqa: ANN401
    ) -> Found:
        """A finding about a group, or about free GPUs of a node (`bare`), with what answers it. `evidence`: metric,
        value, threshold (a number, or the name of one of the rule's) and unit. `cost`: US dollars (None: unknown).
        `values` fill the rule's texts; `before`, `after`: sentences that follow (None: what it costs). `sure`: how far
        the rule's own reasons are trusted (0..1). `nodes`, `gpus`: where not all of the group's. `more`: of `Found`."""
        group, whole = (about, about.nodes) if isinstance(about, Group) else (None, (about,))
        limits, nodes = self.limits(fleet, group), nodes or whole
        gpus = tuple(gpus) or (group.gpus if group is not None else tuple(bare_gpu.gpu_uuid for bare_gpu in bare))
        price = fleet.book.of(whole[0])
        filled = {
            "nodes": node_words(nodes), "node": nodes[0].node, "node_count": len(nodes), "gpu_count": len(gpus),
            "node_sku": whole[0].node_sku, "gpu_sku": whole[0].gpu_sku or whole[0].gpu_name,
            "gpu_hours": f"{gpu_hours:,.0f}",
        }  # fmt: skip
        key, parts = (whole[0].cluster, whole[0].node), (sure,)
        if group is not None:
            coverage, key = group.lead.coverage, (group.series_id,)
            # Coarse sampling is trusted less: 1 Hz wholly, half a minute at nine tenths.
            seconds = coverage.resolution_seconds
            parts = (coverage.fraction / 0.9, 1.0 if seconds <= 10 else 0.9 if seconds <= 60 else 0.8, sure)
            filled |= {
                "workload": series_label(group), "kind": group.kind, "node_sku": group.lead.node_sku,
                "gpu_sku": group.lead.gpu_sku or nodes[0].gpu_name, "hours": f"{group.observed_hours:.0f}",
            }  # fmt: skip
        filled |= {name: threshold.value for name, threshold in limits.thresholds.items()} | dict(values or {})
        if after is None:
            after = "Cost unknown: no price for the node."
            if cost is not None and price is not None:
                after = f"Cost: {usd(cost)} in the window, {dated((price,))}."
        finding = Finding(
            id=stable_id("f", limits.id, *key),
            rule=limits.id,
            severity=severity or limits.severity,  # type: ignore[arg-type]
            workload=group.lead.id if group is not None else None,
            node=nodes[0].node if len(nodes) == 1 else None,
            gpus=gpus,
            evidence=tuple(
                Evidence(metric, value, limits.value(least) if isinstance(least, str) else least, unit)
                for metric, value, least, unit in evidence
            ),
            gpu_hours=gpu_hours,
            cost_usd=cost,
            price=price.id if price and (group is not None or cost is not None) else None,
            # The product of what it rests on; nothing is certain.
            confidence=round(min(max(math.prod(min(max(part, 0.0), 1.0) for part in parts), 0.05), 0.99), 3),
            # What would make it wrong, in the rule's order, by which the codes are numbered.
            would_change_if=tuple(
                CodedText(
                    f"{limits.id.replace('/', '-')}-wrong-if-{n}",
                    fill(text, filled),
                    {gap: v if isinstance(v := filled.get(gap), Scalar) else str(v) for gap in gaps(text)},
                )
                for n, text in enumerate(limits.would_change_if, 1)
            ),
            text=" ".join(filter(None, (fill(limits.text, filled), before, after))),
            nodes=tuple(n.node for n in nodes),
            parts={bare_gpu.gpu_uuid: bare_gpu.part for bare_gpu in bare if bare_gpu.part < 1},
        )
        return Found(finding, group, tuple(nodes), tuple(bare), answered_by=self.answered_by, waste=self.waste, **more)


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
    """A rule by group. `judges_slices`: MIG instances, too. `needs_coverage`: from its coverage floor on."""

    judges_slices: ClassVar[bool] = False
    needs_coverage: ClassVar[bool] = False

    @abstractmethod
    def judge(self, fleet: Fleet, group: Group, limits: WasteRule) -> Verdict:
        """What it says of a group of its scope. `limits`: its thresholds, as the group's team has them."""

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        """The groups that it judges: those at work."""
        return (group for group in fleet.groups if group.kind != "idle")

    def find(self, fleet: Fleet) -> Iterator[Outcome]:
        for group in self.scope(fleet):
            limits, verdict = self.limits(fleet, group), fleet.unfit(group, slices=self.judges_slices)
            if verdict is None and self.needs_coverage:
                floor = limits.value("coverage_hours")
                enough = fleet.waste_ready(group) and group.observed_hours >= floor
                verdict = None if enough else seen_too_short(floor)
            verdict = verdict or self.judge(fleet, group, limits)
            yield Unjudged(verdict, group.nodes, group) if isinstance(verdict, CodedText) else verdict or group


def seen_too_short(floor: float) -> CodedText:
    return coded("seen-too-short", "less than {needed_hours:g} h of data", needed_hours=floor)


def seen_at_work(group: Group, limits: WasteRule) -> bool:
    """Whether it did more than answer probes: what the work of a standby replica would need is unknown."""
    engine = group.feature("engine_active")
    probed_only = engine is not None and engine < limits.value("engine_mean_min")
    # Idle for so much of its time it was not seen at work, as the judge of bottlenecks has it.
    return group.kind != "idle" and not probed_only and group.bottleneck_shares.get("idle", 0.0) < 0.95


def kind_chance(group: Group, *kinds: str) -> float:
    """How likely its work is one of these kinds, 0..1: by its verdict, or what an abstention names beside it."""
    verdict = group.lead.kind
    named = [verdict] if verdict.label != "unknown" else []
    chances = {kind.label: kind.confidence for kind in (*verdict.alternatives, *named)}
    return min(sum(chances.get(kind, 0.0) for kind in kinds), 1.0)


def is_job(group: Group) -> bool:
    """Whether its work ends by itself, or is likelier to than to serve requests, where its kind is open."""
    likelier = kind_chance(group, *JOB_KINDS) > kind_chance(group, *ON_DEMAND_KINDS)
    return group.kind in JOB_KINDS or (group.kind == "unknown" and likelier)
