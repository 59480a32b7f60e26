"""GPUs held by work that does not use them: a process left behind, or one that never began.

Light use and holding differ by the longest rest and by what follows it, not by a mean: whoever is asked now and then is
asked again, and a night or a nightly run comes round. What rests longer than it ever rested before, for a whole day of
hours in which somebody could have come, is held. A job that has worked need not wait for anybody: its rest is one as
soon as it is longer than any pause that it worked on after.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ....rules.policy.labels import JOB_KINDS
from ....rules.policy.thresholds import WasteRule
from ...classify.kinds.kinds import NOT_CONFIRMED
from ...classify.types import Verdicts
from ...core.advice_types import Evidence
from ...core.coded_text import CodedText, coded
from ...core.timestamps import minute, rfc3339, span
from ..finding_context import FindingContext, listed, node_words, severity_for_share, when_possible
from ..groups import Group
from ..rule_context import (
    MIN_SHARE,
    OF_WHOLE_GPUS,
    RuleContext,
    RuleDescription,
    RuleResult,
    as_percent,
    finding_of,
    power_words,
    watts,
)

# Share of the time since it last worked that must have been observed (as IDLE_OF_UNHELD).
OBSERVED_MIN = 0.95
# A row that shows so many times what rows at rest show is no noise of theirs.
_TIMES_THE_FLOOR = 3.0
# How sure a rest is the end of work: of a job, of what people or requests may come back to, of what has no name.
_SURE_OF_JOB, _SURE_OF_OTHERS = 0.9, 0.8


def held_idle(scope: RuleContext, rule: WasteRule) -> RuleResult:
    """Groups that held GPUs without use for a tenth of their time or more."""
    found: list[FindingContext] = []
    notes: list[CodedText] = []
    verdicts = scope.verdicts
    rows = verdicts.occupancy[verdicts.occupancy["class"] == "allocated_idle"]
    idle = {str(w): float(hours) for w, hours in rows.groupby("workload_id")["gpu_hours"].sum().items()}
    for group in scope.groups:
        if scope.faulty(group) or (group.shared and not group.sliced):
            continue
        held, left = _held_hours(verdicts, rule, idle, group)
        notes += [
            coded(
                "held-idle-not-judged", "No verdict on the GPUs that {workload} holds on {nodes}: {because}",
                workload=w.name, nodes=listed(w.nodes), because=NOT_CONFIRMED,
            )
            for w in group.now if w.features.get("engine_active") == 0 and w.id not in idle
        ]  # fmt: skip
        if held * 60 < rule.value("minutes") * (group.gpu_equivalents or 1):
            continue
        share = held / group.gpu_hours if group.gpu_hours else 0.0
        least = min(group.nodes, key=lambda n: n.evidence_hours, default=None)
        # In a long window a rest of days may be a small share of what was held.
        long = held >= rule.value("rest_hours") * (group.gpu_equivalents or 1)
        if (share < MIN_SHARE and not long) or least is None:
            continue
        if least.evidence_hours < rule.value("coverage_hours"):
            seen, floor = span(least.hours_observed * 3600), rule.value("coverage_hours")
            then = when_possible(least.hours_observed, floor, verdicts.window, scope.at, least)
            notes.append(
                CodedText(
                    "held-idle-seen-too-short",
                    f"{group.lead.name} appears to hold GPUs without using them ({seen} of data). {then}",
                    {"workload": group.lead.name, "hours": least.hours_observed, "needed_hours": floor},
                )
            )
            continue
        found.append(_finding(scope, rule, group, left, held, share))
    return found, notes


def _held_hours(
    verdicts: Verdicts, rule: WasteRule, idle: Mapping[str, float], group: Group
) -> tuple[float, frozenset[str]]:
    """GPU-hours held without use: all idle ones of what never worked, those at the end of work that is over; and the
    workloads whose rest is no pause: beside an idle replica others may serve.

    `idle`: GPU-hours that were allocated and idle, by workload.
    """
    held = {w.id: idle[w.id] for w in group.workloads if w.id in idle}
    usage = {
        key: verdicts.usage_of((key,), "bottleneck", "g", "m", "g_max", "ts", "seconds", "gpu_uuid") for key in held
    }
    left = frozenset(w.id for w in group.workloads if w.id in held and _left(usage[w.id], group.kind, rule))
    if not left:
        return 0.0, left
    if group.kind == "idle":
        counted = (w.id for w in group.workloads if w.id in left or (w.id in held and w.kind.label == "idle"))
        return sum(held[key] for key in counted), left
    parts = {w.id: w.gpu_part for w in group.workloads}
    return sum(min(_trailing_idle_hours(usage[key]) * parts[key], own) for key, own in held.items()), left


def _left(usage: pd.DataFrame, kind: str, rule: WasteRule) -> bool:
    """Whether its rest at the end is no pause. Pauses inside a job belong to it, and a service that waits for requests
    does its work by waiting."""
    if usage.empty:
        return kind == "idle"
    rests = _rests(usage, rule)
    if rests.before is None:  # never at work: all of it is one rest, for an unknown reason
        return kind == "idle" or rests.last_hours >= rule.value("rest_hours")
    if rests.last_hours < rule.value("rest_times") * rests.before:
        return False
    least = rule.value("minutes") / 60 if kind in JOB_KINDS else rule.value("rest_hours")
    return rests.last_hours >= (min(least, 0.5 * rests.hours) if kind == "idle" else least)


@dataclass(frozen=True, slots=True)
class _Rests:
    """`last_hours`: from the last sign of work to the end; `before`: the longest rest that work followed, in hours
    (None: there was no sign of work at all). `hours`: from its first row to its last."""

    last_hours: float
    before: float | None
    hours: float


def _rests(usage: pd.DataFrame, rule: WasteRule) -> _Rests:
    """Rests of a workload by the signs of work of any of its GPUs.

    What one request leaves in the mean of an hour is far below the level of an idle GPU, so each row is held against
    what the others at rest show (a heartbeat, the noise of a counter), and against its own highest sample.
    """
    resting = usage["bottleneck"].to_numpy() == "idle"
    signs = ~resting
    for name, least in (("g", rule.value("trace_engine_max")), ("m", rule.value("trace_dram_max"))):
        values = usage[name].to_numpy(float)
        known = values[resting & np.isfinite(values)]
        level = _TIMES_THE_FLOOR * float(np.median(known)) if len(known) else 0.0
        signs |= values > max(least, level)
    if "g_max" in usage:
        signs |= usage["g_max"].to_numpy(float) >= rule.value("kernel_max")
    ends = usage["ts"].to_numpy(float)
    last, at = float(ends.max()), np.unique(ends[signs])
    row = float(np.median(usage["seconds"].to_numpy(float)))
    hours = (last - float(ends.min()) + row) / 3600
    if not len(at):
        return _Rests(hours, None, hours)
    before = float(np.diff(at).max() - row) if len(at) > 1 else 0.0
    return _Rests((last - float(at[-1])) / 3600, max(before, 0.0) / 3600, hours)


def _trailing_idle_hours(usage: pd.DataFrame) -> float:
    """GPU-hours after the last interval in which any GPU of the workload worked.

    None of them where a part of the time since then was not observed: it may have worked in that.
    """
    if usage.empty:
        return 0.0
    last = _last_worked(usage)
    if last is None:
        return float(usage["seconds"].sum()) / 3600
    after = usage[usage["ts"] > last]
    seconds = float(after["seconds"].sum())
    elapsed = (float(usage["ts"].max()) - last) * usage["gpu_uuid"].nunique()
    return seconds / 3600 if seconds >= OBSERVED_MIN * elapsed else 0.0


def _last_worked(usage: pd.DataFrame) -> float | None:
    """End of the last interval in which any GPU of it worked, Unix seconds; None: in no interval of the window."""
    busy = usage.loc[usage["bottleneck"] != "idle", "ts"]
    return None if busy.empty else float(busy.max())


def _instance_words(verdicts: Verdicts, group: Group) -> dict[str, str]:
    """What a text calls its GPUs where they are MIG instances; empty where they are not."""
    if not group.sliced:
        return {}
    held = set(group.gpus)
    profiles = sorted({one.profile for one in verdicts.instances if one.gpu_uuid in held})
    number = "instance" if group.gpu_count == 1 else "instances"
    return {
        "power_words": OF_WHOLE_GPUS,
        "gpu_sku": f"MIG {number} ({', '.join(profiles)}) of {group.lead.gpu_sku or 'a GPU'}",
    }


def _idle_since(verdicts: Verdicts, group: Group) -> float | None:
    """Since when what it holds now has stood idle; None: it never worked in the window, or it holds nothing now."""
    last = _last_worked(verdicts.usage_of({w.id for w in group.now}, "bottleneck", "ts"))
    return last if group.current and last is not None and last < verdicts.window.end else None


def _finding(  # noqa: PLR0917
    scope: RuleContext, rule: WasteRule, group: Group, left: frozenset[str], held: float, share: float
) -> FindingContext:
    verdicts = scope.verdicts
    resting = [w for w in group.now if w.id in left] or group.now
    gpus = tuple(sorted({gpu for w in resting for gpu in w.gpus}))
    nodes = tuple(n for n in group.nodes if any(n.node in w.nodes for w in resting))
    usage = verdicts.usage_of({w.id for w in group.workloads}, "bottleneck", "g", "m", "power_watts", "mem_used_ratio")
    rows = usage[usage["bottleneck"] == "idle"]

    def mean(name: str) -> float | None:
        value = rows[name].mean() if len(rows) and name in rows else math.nan
        return float(value) if pd.notna(value) else None

    engine, dram, power, memory = mean("g"), mean("m"), mean("power_watts"), mean("mem_used_ratio")
    floors = [b.idle_power_watts for b in verdicts.bare if b.gpu_sku == group.lead.gpu_sku and b.idle_power_watts]
    floor = float(np.median(floors)) if floors else None
    over = group.feature("power_over_idle") or (power / floor if power is not None and floor else None)
    floor = power / over if floor is None and power and over else floor
    cost = scope.cost(held, group.nodes)
    since = _idle_since(verdicts, group)
    last = () if since is None else (Evidence("last_worked", rfc3339(since), None, "time (UTC)"),)
    told = "" if since is None else f"Last activity: {minute(since)}. "
    finding = finding_of(
        scope, rule, group,
        evidence=(
            Evidence("engine_active", engine, rule.value("sm_max"), "ratio"),
            Evidence("dram_active", dram, rule.value("dram_max"), "ratio"),
            Evidence("power_over_idle", over, rule.value("power_over_idle_min"), "ratio"),
            Evidence("mem_used", memory, None, "ratio"),
            Evidence("held_idle", held, rule.value("minutes") / 60 * group.gpu_equivalents, "GPU-hours"),
            *last,
        ),
        gpu_hours=held,
        cost=cost,
        values={
            "gpu_count": len(gpus), "nodes": node_words(nodes),
            "sm": as_percent(engine), "engine": as_percent(engine), "dram": as_percent(dram), "power": watts(power),
            "idle_power": watts(floor), "power_words": power_words(power, floor), "mem_used": as_percent(memory),
            **_instance_words(verdicts, group),
        },
        sure=group.lead.kind.confidence if group.kind == "idle"
        else _SURE_OF_JOB if group.kind in JOB_KINDS else _SURE_OF_OTHERS,
        severity=severity_for_share(share, rule),
        after=told + scope.cost_words(cost, group.nodes),
    )  # fmt: skip
    named = replace(
        finding, gpus=gpus, node=nodes[0].node if len(nodes) == 1 else None, nodes=tuple(n.node for n in nodes)
    )
    return FindingContext(named, group, nodes)


RULE = RuleDescription(
    id="held-idle", rank=3, fact="holds idle GPUs", judge=held_idle, answered_by={"release": 1}, waste="unused"
)
