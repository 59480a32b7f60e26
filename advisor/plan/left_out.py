"""Recommendations that are no part of a plan, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.coded_text import coded
from ..core.formatting import counted
from ..pipeline import Reasoned
from .build import Drafted
from .choices import LeftOut
from .problem import Goal, Layout
from .result import NotInPlan

_NOTHING: Mapping[Goal, str] = {
    "cash": "within the plan it frees no whole node that is worth more than it costs",
    "nodes": "within the plan it frees no whole node",
    "capacity": "within the plan it frees no GPU",
    "energy": "within the plan it saves no energy that was measured",
}


def not_in_plan(found: Reasoned, drafted: Drafted, layout: Layout, touched: int) -> tuple[NotInPlan, ...]:
    """`touched`: workloads that the plan changes or moves."""
    most = drafted.problem.max_moves
    by_id = {o.recommendation.id: o.recommendation for o in found.options}
    chosen = {o.id for o in layout.chosen.values()}
    left = [one for one in drafted.left_out if one.why.code not in ("plan-in-place", "plan-by-layout")]
    for o in drafted.problem.options:
        if o.id in chosen or o.id not in by_id:
            continue
        taken = layout.chosen.get(o.series)
        rival = taken if taken is not None else next((c for c in layout.chosen.values() if c.id in o.excludes), None)
        if rival is not None:
            why = coded("plan-other-chosen", "{other} of the same work is in the plan instead", other=rival.id)
        elif most == 0:
            why = coded("plan-nothing-touched", "no workload may be touched")
        elif most is not None and touched >= most:
            why = coded(
                "plan-not-worth-a-move", "at most {most} may be touched, and other changes gain more",
                most=counted(most, "workload"),
            )  # fmt: skip
        else:
            why = coded("plan-brings-nothing", _NOTHING[drafted.problem.goal])
        left.append(LeftOut(by_id[o.id], why))
    out = [
        NotInPlan(
            one.recommendation.id, one.recommendation.action, one.recommendation.workload, one.why,
            one.recommendation.risk,
            one.recommendation.saving_usd_per_month.p50 if one.recommendation.saving_usd_per_month else None, one.risk,
        )
        for one in left
    ]  # fmt: skip
    return tuple(sorted(out, key=lambda n: (not n.risk_alone, -(n.would_bring_usd_per_month or 0.0), n.recommendation)))
