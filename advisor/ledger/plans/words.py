"""A plan that is followed in sentences, and as plain values for JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ....rules.base.sanitize import clean
from ...core import formatting as words
from ...core.timestamps import day, minute, rfc3339
from .records import KeptPlan, PlanEvent
from .standing import NodeStanding, PlanStanding, StepStanding

_DAY = 86400.0


def heading(standing: PlanStanding) -> str:
    """``Plan of 2026-11-25: 3 of 7 steps done, 2 of 4 nodes returned, $1,000 of $4,000/month realized``."""
    return f"Plan of {day(standing.plan.kept_at)}: {progress(standing)}"


def progress(standing: PlanStanding) -> str:
    s = standing
    told = []
    if s.steps:
        told.append(f"{s.count('done')} of {words.counted(len(s.steps), 'step')} done")
    for state in ("regressed", "obsolete"):
        if s.count(state):
            told.append(f"{s.count(state)} {state}")
    if s.returning:
        replaced = f", {s.replaced} replaced" if s.replaced else ""
        told.append(f"{s.returned} of {words.counted(len(s.returning), 'node')} returned{replaced}")
    if s.planned_usd_per_month is not None:
        realised = words.usd(s.realised_usd_per_month)
        told.append(f"{realised} of {words.usd(s.planned_usd_per_month)}/month realized")
    return ", ".join(told) or "nothing planned"


def idle_words(n: NodeStanding) -> str:
    """``empty since 2026-11-20, still costs $1,000/month``."""
    since = f" since {day(n.since)}" if n.since is not None else ""
    if n.state == "silent":
        return f"no data{since}, counts as returned after 3 days without data"
    paid = n.paid_usd_per_month
    return f"empty{since}" + (f", still costs {words.usd(paid)}/month" if paid is not None else "")


def kept_words(plan: KeptPlan, now: float) -> str:
    """Who kept it and when, and whether it is still followed."""
    ended = next((e for e in reversed(plan.events) if e.act in ("superseded", "dropped")), None)
    future = ", in the future by this machine's clock" if plan.kept_at > now + _DAY else ""
    told = f"kept by {plan.by} on {minute(plan.kept_at)}{future}"
    if plan.state == "followed" or ended is None:
        return told
    why = f": {ended.why}" if ended.why else ""
    return f"{told}; {ended.act} by {ended.by} on {minute(ended.at)}{why}"


def event_words(plan: KeptPlan, event: PlanEvent) -> str:
    """``step 2 is done by skuwise on 2026-11-02 10:00 UTC``."""
    what = f"step {event.step}" if event.step is not None else f"plan {plan.id}"
    act = "open again" if event.act == "open" else event.act
    return f"{what} {act} by {event.by} on {minute(event.at)}" + (f": {event.why}" if event.why else "")


def step_why(s: StepStanding) -> str:
    """What a step waits for, or why it is where it is."""
    several = "s" if len(s.waits_for) > 1 else ""
    waits = f"after step{several} {words.listed([str(n) for n in s.waits_for])}" if s.waits_for else ""
    return "; ".join(filter(None, (waits, s.why or "")))


def step_mention(standing: PlanStanding, recommendation: str) -> str | None:
    """The plan's step that a recommendation is, for who looks at that one; None: it is none of its steps."""
    for s in standing.steps:
        if s.step.recommendation == recommendation:
            why = step_why(s)
            return (
                f"step {s.step.number} of {len(standing.steps)} of the plan of {day(standing.plan.kept_at)} "
                f"({standing.plan.id}): {s.state}{f', {why}' if why else ''}"
            )
    return None


def plan_dict(standing: PlanStanding, fleet: str | None) -> dict[str, object]:
    """A plan as the values of JSON: times in RFC 3339, UTC; what is not known is null."""
    plan = standing.plan
    return {
        "id": plan.id, "name": plan.name, "fleet": fleet, "state": plan.state, "goal": plan.goal, "by": plan.by,
        "kept_at": rfc3339(plan.kept_at), "generated_at": rfc3339(plan.generated_at),
        "planned_until": rfc3339(plan.seen_until), "changed_until": rfc3339(standing.seen_until),
        "nodes_today": plan.nodes_today, "summary": heading(standing),
        "steps_done": standing.count("done"), "nodes_returned": standing.returned,
        "planned_usd_per_month": _rounded(standing.planned_usd_per_month),
        "realised_usd_per_month": _rounded(standing.realised_usd_per_month),
        "steps": [_step_dict(s) for s in standing.steps],
        "nodes": [_node_dict(n) for n in standing.nodes],
        "cash": [
            {
                "date": c.date, "nodes_planned": c.nodes_planned, "nodes_returned": c.nodes_returned,
                "planned_usd_per_month": _rounded(c.planned_usd_per_month),
                "realised_usd_per_month": _rounded(c.realised_usd_per_month),
                "predicted": dataclasses.asdict(c.predicted) if c.predicted is not None else None,
            }
            for c in standing.cash
        ],
        "history": [
            {
                "act": e.act, "at": rfc3339(e.at), "by": e.by, "why": e.why, "step": e.step, "node": e.node,
                "since": _moment(e.since), "telemetry_until": _moment(e.seen_until),
            }
            for e in plan.events
        ],
    }  # fmt: skip


def _step_dict(s: StepStanding) -> dict[str, object]:
    k = s.step
    return {
        "number": k.number, "kind": k.kind, "action": k.action, "recommendation": k.recommendation, "series": k.series,
        "name": k.name, "team": k.team, "what": k.what, "risk": k.risk, "after": list(k.parts.after),
        "frees": list(k.parts.frees), "state": s.state, "since": _moment(s.since), "why": s.why,
        "waits_for": list(s.waits_for), "planned_usd_per_month": _rounded(s.planned_usd_per_month),
        "realised_usd_per_month": _rounded(s.realised_usd_per_month),
    }  # fmt: skip


def _node_dict(n: NodeStanding) -> dict[str, object]:
    k = n.node
    return {
        "node": k.node, "role": k.role, "pool": k.pool, "node_sku": k.node_sku, "gpus": k.gpus,
        "usd_per_month": _rounded(k.usd_per_month), "realisation": k.realisation, "available_from": k.available_from,
        "step": k.step, "state": n.state, "since": _moment(n.since), "why": n.why,
        "paid_usd_per_month": _rounded(n.paid_usd_per_month),
    }  # fmt: skip


def _moment(at: float | None) -> str | None:
    return rfc3339(at) if at is not None else None


def _rounded(value: float | None) -> float | None:
    return round(value, 2) if value is not None else None


def history_line(plan: KeptPlan, now: float) -> str:
    """A plan that is followed no longer, in a line."""
    counts = f"{words.counted(len(plan.steps), 'step')}, {words.counted(len(plan.to('return')), 'node')} to return"
    return clean(f"{plan.id}  {day(plan.kept_at)}  {plan.state}  {counts}; {kept_words(plan, now)}")


def first_words(events: Sequence[PlanEvent]) -> list[str]:
    """What is worth saying of new events, in a line each; nodes are counted."""
    said = []
    for e in events:
        if e.step is not None:
            state, why = "open again" if e.act == "open" else e.act, f": {clean(e.why)}" if e.why else ""
            said.append(f"step {e.step} of the plan is {state}{why}")
    for act in ("returned", "replaced", "empty", "rented"):
        count = sum(e.node is not None and e.act == act for e in events)
        if count:
            said.append(f"{words.counted(count, 'node')} of the plan {'is' if count == 1 else 'are'} {act}")
    return said
