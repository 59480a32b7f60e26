"""What comes before any move: fix the bottleneck of the work, or the telemetry that reports on it."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...core.advice_types import Configuration, Recommendation
from ...core.coded_text import coded
from ..fleet import Fleet, Found, Series, series_label
from ..move import Fields, Move, recommend
from ..progress import MoveState, Observation, PredictionSnapshot, hours
from ..rules.faults import REMEDIES

_COUNTERS = "telemetry"
_TITLES = {
    "host-input": "Speed up the input of {}",
    "latency": "Use larger kernels or CUDA graphs in {}",
    "straggler": "Fix or replace the slow GPU of {}",
    "throttled": "Fix the throttled GPUs of {}",
    _COUNTERS: "Restart the profiling counters of {}",
}
_TELEMETRY = "restart DCGM and its exporter (needed after an XID error), then check the counters again"


class FixFirst(Move):
    actions = ("fix-first",)
    subject = "The fix"
    done_hours = 0.0
    unasked_hours = None  # a fault that disappears by itself is not a move
    by_absence = True

    def build(self, fleet: Fleet) -> Iterator[Recommendation]:
        counters = (f for f in fleet.waste if "fix-first" in f.answered_by and f.fault is None)
        for counter in (*counters, *(f for series in fleet.series for f in _faults(series))):
            yield _recommendation(fleet, counter)

    def title(self, r: Recommendation, of: str, at: str, fields: Fields) -> str:
        return _TITLES.get(fields.get("fault", ""), "Fix {} first").format(of)

    def progress(self, snapshot: PredictionSnapshot, seen: Observation, proposed: bool) -> MoveState | None:
        if not (now := seen.now(snapshot.series_id)):
            return None
        place, since, still = ("source", seen.start, "still") if proposed else ("target", seen.end, "no longer")
        return MoveState(place, since, hours(now), f"The fault is {still} present.")


def block_until_fixed(options: Iterable[Recommendation], movable: Iterable[Series]) -> list[Recommendation]:
    faults = {series.group.series_id: waste.fault for series in movable for waste in _faults(series)}
    text, kept = "fix its bottleneck first ({fault}): its GPU use changes with the fix", list[Recommendation]()
    for r in options:
        fault = None if r.action in FixFirst.actions else faults.get(r.claims[0].partition(":")[2])
        why = () if fault is None else (coded("mend-first", text, fault=fault),)
        kept.append(replace(r, blocked_by=(*r.blocked_by, *why)))
    return kept


def _faults(series: Series) -> list[Found]:
    return [waste for waste in series.asking("fix-first") if waste.fault is not None]


def _recommendation(fleet: Fleet, waste: Found) -> Recommendation:
    group, fault, node = waste.group, waste.fault, waste.nodes[0]
    freed, then = 0.0, "The gain is unknown." if fault is not None else "Its metrics are not reliable until then."
    if group is not None and fault is not None and waste.finding.cost_usd is not None:
        freed = fleet.monthly(group, waste.finding.gpu_hours)
    if freed > 0:
        then = f"Recovers up to {freed:,.0f} GPU-hours/month; the actual gain is known once the fix is in place."
    who, key = f"Free GPUs of {node.node}", f"{node.cluster}/{node.node}"
    held = Configuration(node.gpu_sku or node.gpu_name, node.node_sku, len(waste.finding.gpus))
    if group is not None:
        who, key = series_label(group), group.series_id
        held = Configuration(group.lead.gpu_sku, group.lead.node_sku, group.gpu_count)
    return recommend(
        "fix-first", key, fault or _COUNTERS,
        findings=(waste.finding.id,), workload=group.lead.id if group else None, source=held, target=held,
        text=f"{who}: {_TELEMETRY if fault is None else REMEDIES[fault]}. Do this before you move or resize it. {then}",
        freed_gpu_hours_per_month=freed,
        observed_hours=fleet.hours_of(group) if group is not None and freed > 0 else None,
        changes=(coded("fault", "first fix: {fault}", fault=fault or _COUNTERS),),
        # A fix slows nothing down; new kernels or larger batches change how the work runs.
        risk="low" if fault == "latency" else "very-low",
        would_change_if=waste.finding.would_change_if, claims=(f"mend:{key}",),
    )  # fmt: skip
