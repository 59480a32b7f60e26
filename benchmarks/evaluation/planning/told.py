"""The figures of plans that were carried out, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from skuwise.advisor.core.formatting import counted
from skuwise.advisor.plan.result import Move
from skuwise.rules.base.text_table import columns

from .measure import ServiceOutcome
from .outcome import Outcome

HEADER = (
    "fleet", "goal", "nodes", "GPUs", "steps", "promised", "p10-p90", "measured", "USD/month promised", "measured",
    "services changed", "above promise", "job hours waited without", "with", "GPUs short", "faults",
)  # fmt: skip


def table(found: Sequence[Outcome]) -> str:
    rows = [
        (
            str(o.seed), o.goal, str(o.nodes_today), str(o.gpus_today), str(o.steps), str(o.promised),
            f"{o.interval[0]:g}-{o.interval[1]:g}", str(o.measured), _usd(o.usd_promised), _usd(o.usd_measured),
            str(len(_touched(o))), str(sum(s.beyond for s in _touched(o))), str(o.waited_without), str(o.waited_with),
            str(o.short_gpus), str(len(o.faults)),
        )
        for o in found
    ]  # fmt: skip
    return columns(HEADER, rows, right=(2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15))


def totals(found: Sequence[Outcome]) -> Iterator[str]:
    """By goal and in all: nodes and dollars given back of those promised, services, jobs."""
    for goal in (*dict.fromkeys(o.goal for o in found), "all"):
        own = [o for o in found if goal in (o.goal, "all")]
        promised, measured = sum(o.promised for o in own), sum(o.measured for o in own)
        yield f"\n== {goal}: {counted(len({o.seed for o in own}), 'fleet')}, {counted(len(own), 'plan')}"
        yield f"nodes returned: {measured} of {promised} promised{_share(measured, promised)}"
        inside = sum(o.interval[0] <= o.measured <= o.interval[1] for o in own)
        yield (
            f"within p10-p90: {inside} of {len(own)} plans; below p10: {sum(o.measured < o.interval[0] for o in own)}; "
            f"taken back for jobs: {sum(o.taken_back for o in own)}, for services: {sum(o.needed_again for o in own)}"
        )
        usd = [o for o in own if o.usd_promised is not None and o.usd_measured is not None]
        was, is_now = sum(o.usd_promised or 0.0 for o in usd), sum(o.usd_measured or 0.0 for o in usd)
        yield f"USD a month: {is_now:,.0f} of {was:,.0f} promised{_share(is_now, was)}"
        gpus, freed = sum(o.gpus_promised for o in own), sum(o.gpus_measured for o in own)
        yield f"GPUs freed by services: {freed:g} of {gpus:g} promised{_share(freed, gpus)}"
        yield from _services(own)
        yield (
            f"hours that jobs waited: {sum(o.waited_without for o in own)} without the plans, "
            f"{sum(o.waited_with for o in own)} with them, of {counted(sum(o.jobs for o in own), 'job')}; "
            f"jobs that waited: {sum(o.waiting_jobs_without for o in own)} without, "
            f"{sum(o.waiting_jobs_with for o in own)} with"
        )
        yield f"GPUs short by the plans: {sum(o.short_gpus for o in own)}; faults: {sum(len(o.faults) for o in own)}"


def _services(own: Sequence[Outcome]) -> Iterator[str]:
    touched = [s for o in own for s in _touched(o)]
    others = [s for o in own for s in o.services if not s.touched and s.measured is not None]
    for name, group in (
        ("fewer GPUs or others", _resized(touched)),
        ("moved only", _relocated(touched)),
        ("untouched", others),
    ):
        if group:
            above = [s.measured or 0.0 for s in group]
            yield (
                f"services, {name}: {len(group)}; above headroom in {np.mean(above):.1%} of hours (before: "
                f"{np.mean([s.before for s in group]):.1%}); more often than promised: {sum(s.beyond for s in group)}; "
                f"beyond its p90, too: {sum(s.beyond_interval for s in group)}"
            )
    gone = [s for o in own for s in o.services if s.measured is None]
    if gone:
        yield f"services not found afterwards: {len(gone)} ({', '.join(sorted({s.name for s in gone})[:5])})"


def shown(o: Outcome) -> Iterator[str]:
    """One plan step by step, promised against measured."""
    p = o.plan
    yield f"Fleet {o.seed}, goal {o.goal}: {o.nodes_today} nodes, {o.gpus_today} GPUs, {o.days} days before and after"
    yield ""
    rows = []
    by_name: dict[str, ServiceOutcome] = {s.name: s for s in o.services if s.touched}
    for step in p.steps:
        s = by_name.get(step.name)
        moves = _moves(step.moves)
        rows.append(
            (
                str(step.number), f"{step.action or step.kind} {step.name}".strip(), moves,
                f"{s.gpus_before} to {s.gpus_after}" if s is not None else "-",
                f"{s.promised:.1%}" if s is not None else "-",
                f"{s.measured:.1%}" if s is not None and s.measured is not None else "-",
            )
        )  # fmt: skip
    yield columns(
        ("step", "what", "moves", "GPUs", "hours above headroom: promised", "measured"), rows, right=(0, 4, 5)
    )
    yield ""
    nodes = [
        (r.node, r.node_sku or "-", r.realisation, r.available_from or "now", _usd(r.usd_per_month),
         "yes" if r.node in o.empty_then else "no")
        for r in p.returned
    ]  # fmt: skip
    yield columns(("node", "type", "realisation", "from", "USD/month", "empty for two weeks"), nodes, right=(4,))
    yield ""
    yield from _summary(o)


def _moves(moves: Sequence[Move]) -> str:
    told = Counter(
        f"{m.start} to {m.end}"
        if m.start and m.end
        else f"stop on {m.start}"
        if m.start
        else f"start on {_type(m.end)}"
        for m in moves
    )
    return ", ".join(f"{count}x {what}" if count > 1 else what for what, count in told.items())


def _type(node: str | None) -> str:
    """A node of the fleet; of those to rent what they are."""
    return (node or "").rpartition(" ")[0] if (node or "").startswith("new ") else node or ""


def _summary(o: Outcome) -> Iterator[str]:
    rows = [
        ("nodes returned", f"{o.promised} ({o.interval[0]:g}-{o.interval[1]:g})", str(o.measured)),
        ("USD a month", _usd(o.usd_promised), _usd(o.usd_measured)),
        ("GPUs freed by services", f"{o.gpus_promised:g}", f"{o.gpus_measured:g}"),
        ("services above their promise", "0", str(sum(s.beyond for s in _touched(o)))),
        ("hours that jobs waited", f"{o.waited_without} (without the plan)", str(o.waited_with)),
    ]
    yield columns(("", "promised", "measured"), rows, right=(1, 2))
    for fault in o.faults:
        yield f"fault: {fault}"


def _touched(o: Outcome) -> list[ServiceOutcome]:
    return [s for s in o.services if s.touched]


def _resized(found: Sequence[ServiceOutcome]) -> list[ServiceOutcome]:
    return [s for s in found if s.touched != "relocate" and s.measured is not None]


def _relocated(found: Sequence[ServiceOutcome]) -> list[ServiceOutcome]:
    return [s for s in found if s.touched == "relocate" and s.measured is not None]


def _usd(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _share(part: float, whole: float) -> str:
    return f" ({part / whole:.1%})" if whole else ""
