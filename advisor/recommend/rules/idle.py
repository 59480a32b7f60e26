"""GPUs that nothing uses: free on a node, or held by work that does not use them."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ....rules.policy.labels import JOB_KINDS
from ....rules.policy.thresholds import WasteRule
from ...classify.types import BareGpu, NodeFacts
from ...core.advice_types import Finding, Severity
from ...core.coded_text import coded
from ...core.column_rows import ColumnRows
from ...core.timestamps import minute, rfc3339
from ..constraints import GAP_MAX
from ..fleet import Fleet, Found, Outcome, Unjudged, as_percent, watts
from ..groups import Group
from ..rule import MIN_SHARE, OF_WHOLE_GPUS, Rule, Verdict, Why, WorkloadRule, seen_too_short

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
        long = [b for b in free if not b.telemetry_fault and b.idle_hours * 60 >= limits.value("minutes") * b.part]

        def rests(b: BareGpu, other_hours: float) -> bool:
            return b.idle_hours >= IDLE_OF_UNHELD * (b.idle_hours + b.part * other_hours)

        seen_idle = [b for b in long if rests(b, b.busy_hours)]
        still = [b for b in seen_idle if rests(b, b.busy_hours + dark[b])]
        why = None  # of some of them there is no verdict
        if any(b.telemetry_fault for b in free):
            why = coded("signals-contradict", "its metrics contradict each other")
        hours = sum(b.idle_hours for b in seen_idle if b not in still)
        if hours > MIN_SHARE * node.gpu_count * node.span_hours and node.evidence_hours >= floor:
            why = coded("partly-observed", "GPUs were idle whenever they were observed, which was not all of the time")
        hours = sum(b.idle_hours for b in still)
        share = hours / (node.gpu_count * node.span_hours) if node.gpu_count and node.span_hours else 0.0
        # A part of a GPU is little of a node, and all of it may be idle all along.
        # A MIG instance unused in half of its node's hours is not between two pieces of work.
        cut = any(b.part < 1 and b.idle_hours >= 0.5 * b.part * node.span_hours for b in still)
        idle = bool(still) and (share >= MIN_SHARE or cut)
        if idle and node.evidence_hours >= floor:
            return self._found(fleet, node, still, hours, share)
        if why is not None and not idle:
            return Unjudged(why, (node,))
        if node.evidence_hours < floor:
            return Unjudged(seen_too_short(floor), (node,))
        unseen = any(b.engine_mean is None and b.dram_mean is None and not b.idle_hours for b in free)
        return Unjudged(Why.ACTIVITY_NOT_MEASURED, (node,)) if unseen else node

    def _found(self, fleet: Fleet, node: NodeFacts, idle: Sequence[BareGpu], hours: float, share: float) -> Found:
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
            bare=tuple(idle),
        )  # fmt: skip


# How sure a rest is the end of work: of a job, of what people or requests may come back to, of what has no name.
_SURE_OF_JOB, _SURE_OF_OTHERS = 0.9, 0.8


class HeldIdle(WorkloadRule):
    """Work that held GPUs, or MIG instances, without use for a tenth of its time or more."""

    id = "held-idle"
    fact = "holds idle GPUs"
    answered_by = {"release": 1}
    waste = "unused"
    judges_slices = True

    def scope(self, fleet: Fleet) -> Iterable[Group]:
        return fleet.groups

    def refuted(self, fleet: Fleet, group: Group, finding: Finding) -> str | None:
        """More GPU-hours held without use than rested at all, whatever is said of its kind."""
        usage = [(w.gpu_part, fleet.verdicts.used((w.id,))) for w in group.workloads]
        rested = sum(part * float(rows.floats("seconds")[rows["bottleneck"] == "idle"].sum()) for part, rows in usage)
        seen = any(len(rows) for _, rows in usage)
        # GPU-hours of work that a finding of rest may hold: rows begin and end beside it.
        return "worked-meanwhile" if seen and finding.gpu_hours > 1.05 * rested / 3600 + 0.1 else None

    def judge(self, fleet: Fleet, group: Group, limits: WasteRule) -> Verdict:
        gpus = group.gpu_equivalents or 1
        held, left = _held(fleet, limits, group)
        share = held / group.gpu_hours if group.gpu_hours else 0.0
        # In a long window a rest of days may be a small share of what was held.
        long = held >= limits.value("rest_hours") * gpus
        rests = held * 60 >= limits.value("minutes") * gpus and (share >= MIN_SHARE or long)
        least, floor = min(group.nodes, key=lambda n: n.evidence_hours), limits.value("coverage_hours")
        if rests and least.evidence_hours >= floor:
            return self._found(fleet, limits, group, left, held, share)
        unsure = any(w.features.get("engine_active") == 0 and w.id not in fleet.idle_hours for w in group.now)
        if unsure and not rests:
            return coded("zero-not-confirmed", "its activity is 0, but its power does not show that it rests")
        if least.evidence_hours < floor:
            return seen_too_short(floor)
        return None if np.isfinite(group.use.g).any() else Why.ACTIVITY_NOT_MEASURED

    def _found(  # noqa: PLR0917
        self, fleet: Fleet, limits: WasteRule, group: Group, left: frozenset[str], held: float, share: float
    ) -> Found:
        verdicts = fleet.verdicts
        rows = verdicts.used(w.id for w in group.workloads)
        rows = rows.where(rows["bottleneck"] == "idle")
        engine, dram, power, memory = (
            None if name not in rows or math.isnan(value := rows.mean(name)) else value
            for name in ("g", "m", "power_watts", "mem_used_ratio")
        )
        floors = [b.idle_power_watts for b in verdicts.bare if b.gpu_sku == group.lead.gpu_sku and b.idle_power_watts]
        floor = float(np.median(floors)) if floors else None
        over = group.feature("power_over_idle") or (power / floor if power is not None and floor else None)
        floor = power / over if floor is None and power and over else floor
        evidence = [
            ("engine_active", engine, "sm_max", "ratio"),
            ("dram_active", dram, "dram_max", "ratio"),
            ("power_over_idle", over, "power_over_idle_min", "ratio"),
            ("mem_used", memory, None, "ratio"),
            ("held_idle", held, limits.value("minutes") / 60 * group.gpu_equivalents, "GPU-hours"),
        ]
        text, last = "", _last_worked(verdicts.used(w.id for w in group.now))
        if group.current and last is not None and last < verdicts.window.end:
            evidence.append(("last_worked", rfc3339(last), None, "time (UTC)"))
            text = f"Last activity: {minute(last)}."
        values: dict[str, object] = {
            "sm": as_percent(engine), "engine": as_percent(engine), "dram": as_percent(dram), "power": watts(power),
            "idle_power": watts(floor), "power_words": power_words(power, floor), "mem_used": as_percent(memory),
        }  # fmt: skip
        if group.sliced:
            of_it = set(group.gpus)
            profiles = sorted({instance.profile for instance in verdicts.instances if instance.gpu_uuid in of_it})
            what = f"MIG {'instance' if group.gpu_count == 1 else 'instances'} ({', '.join(profiles)})"
            values |= {"power_words": OF_WHOLE_GPUS, "gpu_sku": f"{what} of {group.lead.gpu_sku or 'a GPU'}"}
        sure = _SURE_OF_JOB if group.kind in JOB_KINDS else _SURE_OF_OTHERS
        resting = [w for w in group.now if w.id in left] or group.now
        return self.found(
            fleet, group, evidence=evidence, gpu_hours=held, cost=fleet.cost(held, group.nodes), before=text,
            values=values,
            sure=group.lead.kind.confidence if group.kind == "idle" else sure,
            severity=severity_for_share(share, limits),
            gpus=sorted({gpu for w in resting for gpu in w.gpus}),
            nodes=[n for n in group.nodes if any(n.node in w.nodes for w in resting)],
        )  # fmt: skip


def _held(fleet: Fleet, limits: WasteRule, group: Group) -> tuple[float, frozenset[str]]:
    """GPU-hours held without use: all idle ones of what never worked, those at the end of work that is over; and the
    workloads whose rest is no pause: beside an idle replica others may serve."""
    held = [(w, fleet.idle_hours[w.id]) for w in group.workloads if w.id in fleet.idle_hours]
    usage = {w.id: fleet.verdicts.used((w.id,)) for w, _ in held}
    if not (left := frozenset(key for key, rows in usage.items() if _left(rows, group.kind, limits))):
        return 0.0, left
    if group.kind == "idle":
        return sum(hours for w, hours in held if w.id in left or w.kind.label == "idle"), left

    def trailing_idle_hours(rows: ColumnRows) -> float:
        """GPU-hours after the last interval in which any of its GPUs worked; 0 where time since was not observed."""
        last, ts = _last_worked(rows), rows.floats("ts")
        if last is None:
            return float(rows.floats("seconds").sum()) / 3600
        seconds = float(rows.floats("seconds")[ts > last].sum())
        elapsed = (float(ts.max()) - last) * len(set(rows["gpu_uuid"]))
        return seconds / 3600 if seconds >= IDLE_OF_UNHELD * elapsed else 0.0

    return sum(min(trailing_idle_hours(usage[w.id]) * w.gpu_part, hours) for w, hours in held), left


def _left(rows: ColumnRows, kind: str, limits: WasteRule) -> bool:
    """Whether the rest of a workload at its end is no pause. It works where any GPU shows a sign of it: one request
    leaves little in an hour's mean, so each row is compared with the others at rest."""
    if not len(rows):
        return kind == "idle"
    resting = rows["bottleneck"] == "idle"
    signs = ~resting
    for name, least in (("g", limits.value("trace_engine_max")), ("m", limits.value("trace_dram_max"))):
        values = rows.floats(name)
        value = values[resting & np.isfinite(values)]
        # A row so many times above the rows at rest is not noise.
        level = 3.0 * float(np.median(value)) if len(value) else 0.0
        signs |= values > max(least, level)
    if "g_max" in rows:
        signs |= rows.floats("g_max") >= limits.value("kernel_max")
    ends, row = rows.floats("ts"), float(np.median(rows.floats("seconds")))
    last, hours = float(ends.max()), (float(ends.max() - ends.min()) + row) / 3600
    at = np.unique(ends[signs])
    if not len(at):  # never at work: all of it is one rest, for an unknown reason
        return kind == "idle" or hours >= limits.value("rest_hours")
    longest_before = max(float(np.diff(at).max() - row) if len(at) > 1 else 0.0, 0.0) / 3600
    rested = (last - float(at[-1])) / 3600
    if rested < limits.value("rest_times") * longest_before:
        return False
    least = limits.value("minutes") / 60 if kind in JOB_KINDS else limits.value("rest_hours")
    return rested >= (min(least, 0.5 * hours) if kind == "idle" else least)


def _last_worked(rows: ColumnRows) -> float | None:
    """End of the last interval in which any GPU of it worked, Unix seconds; None: in no interval of the window."""
    busy = rows.floats("ts")[rows["bottleneck"] != "idle"]
    return float(busy.max()) if len(busy) else None


def severity_for_share(share: float, rule: WasteRule) -> Severity:
    """The rule's severity where at least half of the time is wasted, one step less from a tenth, else low."""
    order: tuple[Severity, ...] = ("low", "medium", "high")
    top = order.index(rule.severity) if rule.severity in order else 1  # type: ignore[arg-type]
    return order[top if share >= 0.5 else max(top - 1, 0) if share >= 0.1 else 0]


def power_words(power: float | None, idle: float | None) -> str:
    """Power drawn beside that at rest, both in watts."""
    return f"power {watts(power) or 'unknown'}, idle level {watts(idle) or 'unknown'}"
