"""Signals that contradict one another: a fault of the telemetry, never waste."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...classify.doubts import Doubt
from ...classify.features.soundness import CONTRADICTIONS
from ...classify.types import BareGpu, NodeFacts
from ...core.coded_text import coded
from ...core.timestamps import rfc3339
from ..finding import Clean, Found, Outcome, Unjudged, as_percent, watts
from ..fleet import FAULT_RULE, NODES_UNKNOWN, Fleet
from ..groups import Group
from ..rule import Rule, seen_too_short


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
                yield Clean(group)
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
                yield self._of_node(fleet, node, faults) if faults else Clean(node)

    def _of_groups(self, fleet: Fleet, groups: Sequence[Group], doubts: Mapping[str, Sequence[Doubt]]) -> Found:
        """`groups`: on the same nodes, the largest first. `doubts`: the contradictions of every GPU."""
        group, share = groups[0], max(g.fault_share for g in groups)
        # Of their GPUs while they held them; the longest first.
        faulty = [
            d
            for w in (w for group in groups for w in group.workloads)
            for uuid in w.gpus
            for d in doubts.get(uuid, ())
            if d.node in w.nodes and w.start < d.end and d.start < w.end
        ]
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
            evidence += [
                ("contradiction_hours", first.hours, None, "hours"),
                ("contradiction_since", rfc3339(first.start), None, "time (UTC)"),
            ]
            texts.append(f"{first.gpu_uuid} on {first.node}: {first.text}")
            if others:
                texts.append(f"{others} more {'GPU shows' if others == 1 else 'GPUs show'} the same.")
        if len(groups) > 1:
            texts.append(f"{len(groups)} workloads there show this.")
        said = "No waste verdict for {workload}: its metrics contradict each other in {share:.0%} of the time "
        said += "(telemetry fault)."
        notes = (coded("signals-contradict", said, workload=g.lead.name, share=g.fault_share) for g in groups)
        return self.found(
            fleet, group, evidence=evidence, gpu_hours=sum(g.fault_share * g.gpu_hours for g in groups),
            values={"share": as_percent(share)}, after=" ".join(texts),
            faulty=frozenset(g.series_id for g in groups), notes=tuple(notes),
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
