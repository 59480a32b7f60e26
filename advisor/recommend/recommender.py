"""Every recommendation of a fleet, the gate of evidence before its claims, and what can be had together.

What a claim rests on (`Recommendation.needs`) and was not observed blocks it, each reason by name, and then it claims
no cash and no capacity. Of options that exclude one another, those count that bring most together, so that an option
that is lost never raises the sum of what is left.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from ..classify.bottlenecks.links import PART
from ..classify.workloads.inventory import GpuCoverage
from ..core.advice_types import EvidenceClaim, Interval, Recommendation, SavingsBaseline
from ..core.coded_text import CodedText, all_of, coded
from ..core.formatting import counted, listed
from ..core.timestamps import minute
from ..core.verdict_types import INFERRED
from ..core.worth import excluded_by_decisions
from .constraints import GAP_MAX
from .fleet import Fleet
from .groups import Group
from .move import held_to_class, raised_risk
from .moves import BY_ACTION, MOVES
from .moves.fix_first import block_until_fixed
from .prediction import Array, percentiles

# Work that spans nodes sends something now and then: counters that do not move at all for longer may stand still.
STILL_MAX = 0.05
# What the words for a measure are, and how each is exported.
NAMES: Mapping[str, str] = {
    "activity": "engine or SM activity",
    "engine_active": "engine activity",
    "sm_active": "SM activity",
    "tensor_active": "tensor activity",
    "dram_active": "memory bandwidth (DRAM activity)",
    "mem_used": "memory in use",
    "power": "power",
    "nvlink": "NVLink traffic",
    "pcie": "PCIe traffic",
}
# Options that hang together, compared in all combinations; beyond it the largest come first.
MOST_COMPARED = 24
_NAMED = 3


def all_recommendations(fleet: Fleet) -> tuple[Recommendation, ...]:
    """All recommendations with their draws: a fix comes before any move of the same work, unnamed owners are asked
    first, what was not observed is not claimed, and no latency class breaks unseen."""
    options = block_until_fixed([r for move in MOVES for r in move.build(fleet)], fleet.series)
    gate = EvidenceGate(fleet)
    bases = {s.group.lead.id: s.base for s in fleet.series}
    held = []
    for asked in _ask_owners(options, fleet.groups):
        subject, base = BY_ACTION[asked.action].subject, bases.get(asked.workload or "")
        missing = gate.missing(asked.needs) if asked.needs is not None else ()
        # The unobserved part of the window, a tenth of a percent or more, is said of what stands.
        gap = math.ceil(gate.gap(asked.needs) * 1000 - 1e-9) / 10
        r = asked if gap < 0.1 else replace(asked, text=f"{asked.text} {gap:g} % of the window has no data.")
        r = without_claim(asked, subject, missing) if missing else r
        held.append(r if base is None else held_to_class(r, base))
    holders: dict[str, list[str]] = {}
    for r in held:
        for key in r.claims:
            holders.setdefault(key, []).append(r.id)
    rivals = [dict.fromkeys(rival for key in sorted(r.claims) for rival in holders[key]) for r in held]
    return tuple(replace(r, excludes=tuple(i for i in of if i != r.id)) for r, of in zip(held, rivals, strict=True))


def work_that_is_over(fleet: Fleet) -> tuple[CodedText, ...]:
    """Notes on what was found of work that ended and did not recur: it saves nothing next month."""
    series_ids = {waste.group.series_id for waste in fleet.waste if waste.group is not None}
    faulty = frozenset[str]().union(*(waste.faulty for waste in fleet.waste))
    text = "{workload} {ended}; its past waste there is not recoverable."
    ended = {True: "moved to other nodes", False: "ended and did not recur"}
    over = (g for g in fleet.groups if not g.recurs and g.series_id in series_ids - faulty)
    return tuple(coded("work-is-over", text, workload=g.lead.name, ended=ended[g.moved]) for g in over)


def _ask_owners(options: Iterable[Recommendation], groups: Sequence[Group]) -> Iterator[Recommendation]:
    tells = "The GPUs of this work belong to several people or jobs. The grouping is inferred from their activity; pod "
    tells += "labels or the Slurm prolog make it certain."
    unowned = {group.series_id: group for group in groups if group.lead.basis == INFERRED}
    series_of = {w.id: group.series_id for group in unowned.values() for w in group.workloads}
    for r in options:
        touched = {*(key.partition(":")[2] for key in r.claims), series_of.get(r.workload or "")} & unowned.keys()
        if not touched:
            yield r
            continue
        nodes = sorted({node for key in touched for w in unowned[key].now for node in w.nodes})
        more = len(nodes) - _NAMED
        who = ", ".join(nodes[:_NAMED]) + (f" and {counted(more, 'more node')}" if more > 0 else "")
        note = f"the owner of this work is unknown; ask who uses {who} before you act"
        why = CodedText("owner-unknown", note, {"nodes": ", ".join(nodes)})
        # What is not advised anyway asks nothing of anybody.
        ask = "" if r.blocked_by else f" First ask who uses {who}: no label or process names an owner."
        tells_too = (*r.would_change_if, coded("work-inferred", tells))
        blocked, text = (*r.blocked_by, why), f"{r.text.rstrip()}{ask}"
        yield replace(r, risk=raised_risk(r.risk), blocked_by=blocked, would_change_if=tells_too, text=text)


def recoverable_cash(options: Iterable[Recommendation]) -> tuple[float, Interval | None]:
    """Cash a month that can be had: of options that exclude one another those that bring most together, summed draw by
    draw, not by percentiles; without those that a decision excludes. None for the interval: nothing is recoverable."""
    options = list(options)
    out = excluded_by_decisions(options)
    best = best_together([r for r in options if r.counts and r.draws is not None and r.id not in out])
    if not (draws := without_losers([r.draws for r in best])):
        return 0.0, None
    total = percentiles(sum(draws[1:], start=draws[0]))
    return total.p50, total


def best_together(options: Iterable[Recommendation]) -> list[Recommendation]:
    """The options, no two of which claim the same, whose medians have the largest sum. Ties go to the smaller ids."""
    ranked = sorted(options, key=lambda r: (-_sum([r]), r.id))
    holders: dict[str, list[int]] = {}
    for n, r in enumerate(ranked):
        for key in r.claims:
            holders.setdefault(key, []).append(n)
    chosen: list[Recommendation] = []
    left = dict.fromkeys(range(len(ranked)))
    while left:
        # All that hang together by their claims.
        todo, tangle = [next(iter(left))], set[int]()
        while todo:
            n = todo.pop()
            if n in left:
                del left[n]
                tangle.add(n)
                todo += [o for key in ranked[n].claims for o in holders[key]]
        rivals = [ranked[n] for n in sorted(tangle)]
        while len(rivals) > MOST_COMPARED:
            chosen.append(rivals[0])
            rivals = _beside_first(rivals)
        chosen += _best(rivals)
    return chosen


def _beside_first(options: Sequence[Recommendation]) -> list[Recommendation]:
    claimed = set(options[0].claims)
    return [r for r in options[1:] if claimed.isdisjoint(r.claims)]


def _best(options: Sequence[Recommendation]) -> list[Recommendation]:
    """The best set of all: the first is in it, without what it excludes, or out of it where that could bring more."""
    if not options:
        return []
    beside = _beside_first(options)
    best, others = [options[0], *_best(beside)], options[1:]
    if len(beside) == len(others) or _sum(others) <= _sum(best) + 1e-9:
        return best
    without = _best(others)
    return without if _sum(without) > _sum(best) + 1e-9 else best


def without_losers(draws: Sequence[Array]) -> list[Array]:
    """Joint draws without those whose removal raises the median of the sum, the worst first."""
    left = list(draws)
    while len(left) > 1:
        total = np.sum(left, axis=0)
        medians = [float(np.median(total - saving)) for saving in left]
        if max(medians) <= float(np.median(total)) + 1e-9:
            break
        del left[int(np.argmax(medians))]
    return left


def _sum(options: Iterable[Recommendation]) -> float:
    return sum(r.saving_usd_per_month.p50 for r in options if r.saving_usd_per_month is not None)


class EvidenceGate:
    """The evidence of a window, for claims."""

    def __init__(self, fleet: Fleet) -> None:
        self.verdicts, self.free, self.floor_hours = fleet.verdicts, fleet.free, fleet.floor_hours

    def missing(self, claim: EvidenceClaim) -> tuple[CodedText, ...]:
        """Every reason why the claim does not stand, as clauses; empty: everything it needs was observed."""
        return tuple(dict.fromkeys(reason for name in claim.nodes for reason in self._of(name, claim)))

    def gap(self, claim: EvidenceClaim | None) -> float:
        """Share of the window in which the claim's least observed GPU has no data; 0 of what claims nothing."""
        names = claim.nodes if claim is not None else ()
        hours = {name: self._hours(name) for name in names}
        seen = [gpu.hours / hours[name] for name in names for gpu in self._gpus(name, claim) if hours[name] > 0]
        return max(1.0 - min(seen), 0.0) if seen else 0.0

    def _hours(self, node: str) -> float:
        """Hours in which the node can have been observed: those of the window, for one that was first observed late may
        have been there before; its own where the nodes of its pool are replaced."""
        facts, hours = self.verdicts.node(node), self.verdicts.inventory.hours
        return hours if facts is None or not facts.pool_hours else min(hours, facts.span_hours)

    def _gpus(self, name: str, claim: EvidenceClaim | None) -> Sequence[GpuCoverage]:
        node, parents = self.verdicts.inventory.nodes.get(name), self.verdicts.inventory.parents
        if node is None or claim is None:
            return ()
        asked = {parents.get((name, uuid), (name, uuid))[1] for uuid in claim.gpus}
        return [gpu for gpu in node.gpus if gpu.hours > 0 and (claim.whole or not asked or gpu.gpu_uuid in asked)]

    def _of(self, name: str, claim: EvidenceClaim) -> Iterator[CodedText]:
        if (node := self.verdicts.inventory.nodes.get(name)) is None:
            yield coded("node-unknown", "no data for {node}", node=name)
            return
        for unobserved in node.unobserved[:1] if claim.whole else ():
            why = f"{unobserved.reason[:1].lower()}{unobserved.reason[1:].rstrip('.')}"
            text = f"no data for {node.unobserved_count} of {node.gpu_count} GPUs of {name}: {why}"
            fields = {"node": name, "gpus": node.unobserved_count, "of": node.gpu_count, "because": unobserved.code}
            yield CodedText("gpus-not-observed", text, fields)
        if claim.whole and node.surplus:
            text = "{node} reports {surplus} more GPUs than its SKU has, so its SKU is doubtful"
            yield coded("sku-in-doubt", text, node=name, surplus=node.surplus)
        yield from self._observed(name, claim)
        pods = node.unaccounted_pods
        if pods and (claim.whole or claim.unheld):
            them = "it" if len(pods) == 1 else "them"
            text = f"{listed(list(pods))} requested GPUs of {name}, but no metric names {them}"
            yield CodedText("pods-not-named", text, {"node": name, "pods": ", ".join(pods)})
        # Every GPU of a whole node is part of the claim, or none is.
        bare, most = self.free.get(name, ()) if claim.whole else (), GAP_MAX * self.verdicts.inventory.hours
        if any(bare_gpu.busy_hours > most for bare_gpu in bare):
            yield coded("worked-for-nobody", "GPUs of {node} worked without a workload label", node=name)
        if held := sum(bare_gpu.held_hours > most for bare_gpu in bare):
            text = "memory of {gpus} GPUs of {node} is in use without a workload label"
            yield coded("memory-held-by-nobody", text, gpus=held, node=name)
        if claim.host and node.host_hours < self._enough(name):
            yield coded("cores-not-measured", "CPU use of {node} was not measured for the whole window", node=name)
        if name in claim.fabric and (why := self._fabric(name)) is not None:
            yield why

    def _enough(self, node: str) -> float:
        """Hours that must have been observed; the sum of many is not exact to the last digit."""
        return (1.0 - GAP_MAX) * self._hours(node) - 1e-6

    def _observed(self, name: str, claim: EvidenceClaim) -> Iterator[CodedText]:
        if not (gpu_coverages := self._gpus(name, claim)):
            yield coded("no-gpu-observed", "no data for any GPU of {node}", node=name)
            return
        least, last = min(gpu.hours for gpu in gpu_coverages), min(gpu.last_ts for gpu in gpu_coverages)
        if least < self.floor_hours:
            text = "only {hours:.1f} h of data for {node}, {needed_hours:g} h needed"
            yield coded("observed-too-short", text, node=name, hours=least, needed_hours=self.floor_hours)
        # Rows are up to an hour long, and nodes write them at moments of their own.
        elif last < self.verdicts.inventory.end - 7200.0:
            text = f"no data for {name} after {minute(last)}"
            yield CodedText("not-observed-since", text, {"node": name, "ts": last})
        elif least < self._enough(name):
            text = "{node} has data for {hours:.0f} of {window_hours:.0f} h"
            yield coded("observed-in-part", text, node=name, hours=least, window_hours=self._hours(name))
        else:
            for measure in sorted(claim.measures):
                if lacking := sum(
                    gpu.measured.get(measure, 0.0) < (1.0 - GAP_MAX) * gpu.hours for gpu in gpu_coverages
                ):
                    which = "" if lacking == len(gpu_coverages) else f"{lacking} of {len(gpu_coverages)} GPUs of "
                    fields = {"measure": measure, "node": name, "gpus": lacking, "of": len(gpu_coverages)}
                    yield CodedText("measure-missing", f"no {NAMES[measure]} data for {which}{name}", fields)

    def _fabric(self, name: str) -> CodedText | None:
        facts = self.verdicts.node(name)
        fabric = facts.fabric if facts is not None else None
        if fabric is None:
            return coded("fabric-not-observed", "no fabric data for {node}", node=name)
        if not fabric.readable:
            why = (fabric.reason or "not readable").rstrip(".")
            return coded("fabric-unreadable", "fabric data of {node} not usable: {because}", node=name, because=why)
        if fabric.still_share > STILL_MAX and name in self._spanned:
            text = "fabric counters of {node} did not change in {share:.0%} of the time although work there spans nodes"
            return coded("fabric-counters-still", f"{text}; they may be stuck", node=name, share=fabric.still_share)
        if fabric.hours < self._enough(name):
            text, hours = "fabric data of {node} cover {hours:.0f} of {window_hours:.0f} h", self._hours(name)
            return coded("fabric-observed-in-part", text, node=name, hours=fabric.hours, window_hours=hours)
        return None

    @cached_property
    def _spanned(self) -> frozenset[str]:
        spanning = (w for w in self.verdicts.workloads if len(w.nodes) > 1 or PART.search(w.name) is not None)
        return frozenset(node for w in spanning for node in w.nodes)


def without_claim(r: Recommendation, subject: str, reasons: Iterable[CodedText]) -> Recommendation:
    """The recommendation without what it claims; the risk is high. `subject`: what it is called in a sentence."""
    why = tuple(reasons)
    unclaimed = "draws time_ratio saving_usd_per_month energy_saving_kwh_per_month break_even available_from"
    return replace(
        r,
        **dict.fromkeys(unclaimed.split()),
        freed_gpu_hours_per_month=0.0,
        realisation="capacity-freed",
        risk="high",
        blocked_by=(*r.blocked_by, *why),
        prices=(),
        yardstick=SavingsBaseline(nodes=r.yardstick.nodes, site_factor=r.yardstick.site_factor),
        text=f"{subject} is not recommended: {all_of(why).text}.",
    )
