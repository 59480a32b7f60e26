"""What comes before any move: a bottleneck that no other GPU removes, and telemetry that contradicts itself."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ....rules.policy.labels import JOB_KINDS
from ....rules.policy.thresholds import WasteRule
from ...classify.features.soundness import CONTRADICTIONS
from ...classify.types import BareGpu, Doubt, NodeFacts
from ...core.formatting import dated, usd
from ...core.timestamps import rfc3339
from ..fleet import FAULT_RULE, NODES_UNKNOWN, Fleet, Found, Outcome, Unjudged, as_percent, watts
from ..groups import Group
from ..rule import Rule, Verdict, Why, WorkloadRule, is_job, seen_too_short

# Of each: its cause; the column of `Verdicts.usage` with what it loses (`lost` itself, of the others the rest).
_CAUSES = {
    "host-input": ("waits for its input", "g"),
    "latency": ("waits for launches", "sm"),
    "straggler": ("waits for one slow rank", "lost"),
    "throttled": ("runs at a throttled clock", "clock_ratio"),
}
# The fix of each, as an imperative clause.
REMEDIES = {
    "host-input": "speed up its input: more loader processes, data on local disks, decoding on the GPU",
    "latency": "use larger kernels: CUDA graphs, compilation, larger batches, fused operators",
    "straggler": "repair or replace the slow GPU or its host",
    "throttled": "fix the cause of throttling: cooling, power limit or power supply",
}


class FixFirst(WorkloadRule):
    """Jobs with such a bottleneck in a good part of their busy time. A service whose engine rests lacks requests, and
    what people try out is small by nature: both are out of its scope."""

    id = "fix-first"
    waste = "slowed"
    fact = "slowed by a fault"
    answered_by = {"fix-first": 1}

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        return (group for group in super().scope(fleet) if group.kind in (*JOB_KINDS, "unknown"))

    def judge(self, fleet: Fleet, group: Group, limits: WasteRule) -> Verdict:
        # Its own floor is hours: what recurs in runs of a night each is a fault in each of them.
        if group.observed_hours < limits.value("hours_min"):
            return seen_too_short(limits.value("hours_min"))
        label = max(REMEDIES, key=group.busy_share)
        share, least = group.busy_share(label), limits.value("share_min")
        by_network = group.busy_share("network") > limits.value("network_share_max")
        # Work that waits for its network looks like these: where the network is a bottleneck too, there is no finding.
        if share + group.busy_share("unknown") < least or (label in ("latency", "straggler") and by_network):
            return None
        if not is_job(group):
            return Why.KIND_UNKNOWN
        if share < least:
            return Why.BOTTLENECK_UNKNOWN
        lost = _lost_share(fleet, group, label)
        hours = group.gpu_hours * (share if lost is None else lost)
        cost = None if lost is None else fleet.cost(hours, group.nodes)
        text = "unknown" if lost is None else f"up to {hours:,.0f} GPU-hours"
        if cost is not None and (price := fleet.book.of(group.nodes[0])) is not None:
            text += f", {usd(cost)} in the window, {dated((price,))}"
        return self.found(
            fleet, group,
            evidence=(
                ("held_back", share, "share_min", "ratio of busy time"),
                ("lost_at_most", lost, None, "ratio of GPU-hours"),
                ("bottleneck", label, None, "label"),
            ),
            gpu_hours=hours, cost=cost,
            values={"share": as_percent(share), "bottleneck": label, "cause": _CAUSES[label][0]},
            sure=group.lead.bottleneck.confidence,
            after=f"Loss: {text}. Fix: {REMEDIES[label]}.",
            fault=label,
        )  # fmt: skip


def _lost_share(fleet: Fleet, group: Group, label: str) -> float | None:
    rows = fleet.verdicts.used(w.id for w in group.workloads)
    held, (_, column) = rows.floats("seconds"), _CAUSES[label]
    values = rows.floats(column) if column in rows else np.full(len(rows), math.nan)
    # Of a late rank, where no share was measured, the whole row was spent in a collective.
    lost = np.where(np.isfinite(values), values, 1.0) if label == "straggler" else 1 - values
    limited = rows["bottleneck"] != "idle" if label == "host-input" else rows["bottleneck"] == label
    limited &= np.isfinite(lost)
    return float((np.clip(lost, 0.0, 1.0) * held)[limited].sum() / held.sum()) if held[limited].sum() > 0 else None


class TelemetryFault(Rule):
    """Counters that do not change while their GPUs draw power, or the reverse: one finding for each set of nodes,
    whatever ran there, and one for a node's free GPUs. Its scope: all work, and GPUs that were free for hours."""

    id = FAULT_RULE
    fact = "contradictory telemetry"
    answered_by = {"fix-first": 1}

    def find(self, fleet: Fleet) -> Iterator[Outcome]:
        limits = self.limits(fleet)
        least = limits.value("hours_min")
        faulty: dict[tuple[str, ...], list[Group]] = {}
        for group in fleet.groups:
            if not group.nodes:
                yield Unjudged(NODES_UNKNOWN, group.nodes, group)
            elif group.observed_hours < least:
                yield Unjudged(seen_too_short(least), group.nodes, group)
            elif fleet.faulty(group):
                faulty.setdefault(tuple(n.node for n in group.nodes), []).append(group)
            else:
                yield group
        doubts: dict[str, list[Doubt]] = {}
        for doubt in fleet.verdicts.doubts:
            if doubt.code in CONTRADICTIONS:
                doubts.setdefault(doubt.gpu_uuid, []).append(doubt)
        for groups in faulty.values():
            yield self._of_groups(fleet, groups, doubts)
        for node in fleet.verdicts.nodes:
            bare_gpus = fleet.free.get(node.node, [])
            faults = [gpu for gpu in bare_gpus if gpu.telemetry_fault]
            if max((gpu.hours for gpu in faults or bare_gpus), default=0.0) >= least:
                yield self._of_node(fleet, node, faults) if faults else node

    def _of_groups(self, fleet: Fleet, groups: Sequence[Group], doubts: Mapping[str, Sequence[Doubt]]) -> Found:
        """`groups`: on the same nodes, the largest first. `doubts`: the contradictions of every GPU."""
        group, share = groups[0], max(g.fault_share for g in groups)
        # Of their GPUs while they held them; the longest first.
        runs = [w for group in groups for w in group.workloads]
        every = ((w, d) for w in runs for uuid in w.gpus for d in doubts.get(uuid, ()))
        faulty = [d for w, d in every if d.node in w.nodes and w.start < d.end and d.start < w.end]
        evidence = [
            ("contradiction", share, "share_min", "ratio of observed time"),
            ("engine_active", group.feature("engine_active"), None, "ratio"),
            ("tensor_active", group.feature("tensor_utilization"), None, "ratio"),
            ("power_over_idle", group.feature("power_over_idle"), None, "ratio"),
        ]
        texts: list[str] = []
        if faulty:
            first = min(faulty, key=lambda d: (-d.hours, d.node, d.gpu_uuid))
            others = len({(d.node, d.gpu_uuid) for d in faulty}) - 1
            evidence.append(("contradiction_hours", first.hours, None, "hours"))
            evidence.append(("contradiction_since", rfc3339(first.start), None, "time (UTC)"))
            texts.append(f"{first.gpu_uuid} on {first.node}: {first.text}")
            if others:
                texts.append(f"{others} more {'GPU shows' if others == 1 else 'GPUs show'} the same.")
        if len(groups) > 1:
            texts.append(f"{len(groups)} workloads there show this.")
        return self.found(
            fleet, group, evidence=evidence, gpu_hours=sum(g.fault_share * g.gpu_hours for g in groups),
            values={"share": as_percent(share)}, after=" ".join(texts),
            faulty=frozenset(g.series_id for g in groups),
        )  # fmt: skip

    def _of_node(self, fleet: Fleet, node: NodeFacts, faults: Sequence[BareGpu]) -> Found:
        hours = sum(b.hours for b in faults)
        power = [b.power_mean_watts for b in faults if b.power_mean_watts is not None]
        floor = [b.idle_power_watts for b in faults if b.idle_power_watts is not None]
        over = sum(power) / sum(floor) if power and len(power) == len(floor) and sum(floor) else None
        drawn = watts(sum(power) / len(power)) if power else None
        return self.found(
            fleet, node, gpu_hours=hours, sure=0.9, bare=tuple(faults),
            evidence=(("power_over_idle", over, None, "ratio"), ("hours_without_workload", hours, None, "GPU-hours")),
            values={"workload": f"{len(faults)} free GPUs", "power": drawn}, after=faults[0].telemetry_fault or "",
        )  # fmt: skip
