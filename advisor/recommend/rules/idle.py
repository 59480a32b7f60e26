"""Free GPUs that stood idle for a tenth of their node's hours or more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ...classify.types import BareGpu, NodeFacts
from ...core.coded_text import CodedText, coded
from ...core.timestamps import span
from ..evidence import GAP_MAX
from ..finding import Clean, Found, Outcome, Unjudged, as_percent, power_words, severity_for_share, watts, when_possible
from ..fleet import Fleet
from ..rule import MIN_SHARE, OF_WHOLE_GPUS, Rule, Why, seen_too_short

# Of the time without a holder: the share by which work is called idle (rules/kinds.yaml).
IDLE_OF_UNHELD = 0.95


class Idle(Rule):
    """Nodes whose free GPUs stood idle. Its scope: nodes with free GPUs, and those of which nothing was observed."""

    id = "idle"
    fact = "idle GPUs"
    answered_by = {"release": 1, "consolidate": 1}
    waste = "unused"

    def find(self, fleet: Fleet) -> Iterator[Outcome]:
        for node in fleet.verdicts.nodes:
            if node.node in fleet.free:
                yield self._judge(fleet, node, fleet.free[node.node])
            elif node.gpu_count and node.hours_observed <= 0:
                yield Unjudged(coded("not-observed", "nothing was observed of it"), (node,))

    def _judge(self, fleet: Fleet, node: NodeFacts, free: Sequence[BareGpu]) -> Outcome:
        limits, floor = self.limits(fleet), self.limits(fleet).value("coverage_hours")
        # Hours of a GPU, or of the one that an instance is a part of, that were not observed may have held work.
        counted = fleet.verdicts.inventory.nodes.get(node.node)
        seen = {gpu.gpu_uuid: gpu.hours for gpu in counted.gpus} if counted is not None else {}
        dark = {b: max(node.span_hours - seen.get(b.parent_uuid or b.gpu_uuid, 0.0), 0.0) for b in free}
        seen_idle = [
            b
            for b in free
            if not b.telemetry_fault
            and b.idle_hours * 60 >= limits.value("minutes") * b.part
            and b.idle_hours >= IDLE_OF_UNHELD * (b.idle_hours + b.part * b.busy_hours)
        ]
        still = [
            b for b in seen_idle if b.idle_hours >= IDLE_OF_UNHELD * (b.idle_hours + b.part * (b.busy_hours + dark[b]))
        ]
        notes: list[tuple[CodedText, CodedText]] = []  # why there is no verdict on some of them, and what to read of it
        if faults := sorted({b.telemetry_fault for b in free if b.telemetry_fault}):
            text = "No verdict on idle GPUs of {node}: {fault}."
            notes.append((
                coded("signals-contradict", "its metrics contradict each other"),
                coded("idle-not-judged", text, node=node.node, fault=" ".join(faults)),
            ))  # fmt: skip
        partly = [b for b in seen_idle if b not in still]
        hours = sum(b.idle_hours for b in partly)
        if hours > MIN_SHARE * node.gpu_count * node.span_hours and node.evidence_hours >= floor:
            text = (
                "No verdict on {gpus} GPUs of {node}: idle in all hours observed, but {unobserved_hours:.0f} h of the "
            )
            fields = {"gpus": len(partly), "node": node.node, "unobserved_hours": max(dark[b] for b in partly)}
            notes.append((
                coded("partly-observed", "GPUs were idle whenever they were observed, which was not all of the time"),
                coded("idle-partly-observed", f"{text}window were not.", **fields),
            ))  # fmt: skip
        hours = sum(b.idle_hours for b in still)
        share = hours / (node.gpu_count * node.span_hours) if node.gpu_count and node.span_hours else 0.0
        # A part of a GPU is little of a node, and all of it may be idle all along.
        # A MIG instance unused in half of its node's hours is not between two pieces of work.
        cut = any(b.part < 1 and b.idle_hours >= 0.5 * b.part * node.span_hours for b in still)
        idle = bool(still) and (share >= MIN_SHARE or cut)
        if idle and node.evidence_hours >= floor:
            return self._found(fleet, node, still, hours, share, tuple(note for _, note in notes))
        if idle:
            then = when_possible(node.hours_observed, floor, fleet.verdicts.window, fleet.at, node)
            text = f"{node.node} appears idle, but has only {span(node.hours_observed * 3600)} of data. {then}"
            fields = {"node": node.node, "hours": node.hours_observed, "needed_hours": floor}
            note = CodedText("idle-seen-too-short", text, fields)
            return Unjudged(seen_too_short(floor), (node,), note=note)
        if notes:
            return Unjudged(notes[-1][0], (node,), note=notes[-1][1])
        if node.evidence_hours < floor:
            return Unjudged(seen_too_short(floor), (node,))
        unseen = any(b.engine_mean is None and b.dram_mean is None and not b.idle_hours for b in free)
        return Unjudged(Why.ACTIVITY_NOT_MEASURED, (node,)) if unseen else Clean(node)

    def _found(  # noqa: PLR0917
        self, fleet: Fleet, node: NodeFacts, idle: Sequence[BareGpu], hours: float, share: float,
        notes: tuple[CodedText, ...],
    ) -> Found:  # fmt: skip
        engine, dram, power, floor = (
            sum(values) / len(values) if (values := [v for b in idle if (v := getattr(b, name)) is not None]) else None
            for name in ("engine_mean", "dram_mean", "power_mean_watts", "idle_power_watts")
        )
        # How a text counts and calls what stood idle: whole GPUs, MIG instances, or both.
        sku, whole = node.gpu_sku or node.gpu_name, sum(b.part >= 1 for b in idle)
        if profiles := sorted(Counter(b.profile or "unknown profile" for b in idle if b.part < 1).items()):
            cut, listed = len(idle) - whole, ", ".join(f"{number} x {profile}" for profile, number in profiles)
            said = f"MIG {'instance' if cut == 1 else 'instances'} ({listed}) of {sku or 'its GPUs'}"
            sku = f"{sku or 'GPUs'} and {cut} {said}" if whole else said
        held = sum(b.held_hours > GAP_MAX * b.hours for b in idle)
        measured = sum(v is not None for v in (engine, dram, power)) / 3
        observed = min(node.hours_observed / node.span_hours, 1.0) if node.span_hours else 0.0
        limits = self.limits(fleet)
        return self.found(
            fleet, node,
            evidence=(
                ("engine_active", engine, "engine_max", "ratio"),
                ("dram_active", dram, "dram_max", "ratio"),
                ("power_over_idle", power / floor if power and floor else None, "power_over_idle_max", "ratio"),
                ("idle_hours", hours, limits.value("minutes") / 60, "GPU-hours"),
                ("hours_observed", node.hours_observed, "coverage_hours", "hours"),
            ),
            gpu_hours=hours, cost=fleet.cost(hours, [node]), severity=severity_for_share(share, limits),
            sure=0.95 * (0.6 + 0.4 * measured) * observed,
            values={
                "nodes": node.node, "gpu_count": whole or len(idle), "gpu_sku": sku,
                "hours": f"{sum(b.idle_hours / b.part for b in idle) / len(idle):.0f}",
                "engine": as_percent(engine), "dram": as_percent(dram),
                "power": watts(power), "idle_power": watts(floor),
                "power_words": power_words(power, floor) if whole else OF_WHOLE_GPUS,
                "held_by": f"No label names a workload on them; memory in use on {held} of them." if held
                else "No workload holds them.",
            },
            bare=tuple(idle), notes=notes,
        )  # fmt: skip
